use std::time::{Duration, Instant};

use super::Pacer;

#[test]
fn records_are_due_at_their_own_time_without_drift() {
    let start = Instant::now();
    let pacer = Pacer::new(start, 3.0);
    assert_eq!(pacer.due(0), start);
    assert_eq!(pacer.due(3), start + Duration::from_secs(1));
    assert_eq!(pacer.due(3_000_000_000), start + Duration::from_secs(1_000_000_000));
}

#[test]
fn a_late_record_does_not_wait() {
    let Some(past) = Instant::now().checked_sub(Duration::from_secs(10)) else { return };
    let pacer = Pacer::new(past, 1.0);
    let (due, now) = pacer.wait(5);
    assert_eq!(due, past + Duration::from_secs(5));
    assert!(now >= due + Duration::from_secs(5));
}

#[test]
fn a_record_is_never_early() {
    let pacer = Pacer::new(Instant::now(), 1000.0);
    for index in 0..5 {
        let (due, now) = pacer.wait(index);
        assert!(now >= due);
    }
}
