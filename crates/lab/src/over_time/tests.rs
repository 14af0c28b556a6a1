use super::*;

const MS: u64 = 1_000_000;

#[test]
fn a_slot_has_the_records_that_were_due_in_it() {
    let mut over_time = OverTime::default();
    for (due, latency) in [(0, 1), (24, 3), (25, 7), (5_000, 9)] {
        over_time.record(due * MS, latency * MS);
    }
    let report = over_time.summary().unwrap();
    let seen: Vec<_> = report.slots.iter().map(|s| (s.from_ms, s.records, s.max)).collect();
    assert_eq!(report.slot_ms, 25.0);
    assert_eq!(seen, [(0.0, 2, 3000.0), (25.0, 1, 7000.0), (5000.0, 1, 9000.0)]);
    assert_eq!(OverTime::default().summary(), None);
}

#[test]
fn a_long_run_has_wider_slots_and_nothing_is_lost() {
    let mut over_time = OverTime::default();
    for second in 0..3600 {
        over_time.record(second * 1000 * MS, second);
    }
    let slots: Vec<_> = over_time.iter().collect();
    assert!(slots.len() <= MOST && over_time.width() == FINEST * 512);
    assert_eq!(slots.iter().map(|(_, slot)| slot.count()).sum::<u64>(), 3600);
    over_time.record(u64::MAX, u64::MAX);
    assert_eq!(over_time.iter().count(), 2, "the hour, and the end of time");
}

#[test]
fn parts_of_other_widths_add_up() {
    let (mut short, mut long) = (OverTime::default(), OverTime::default());
    short.record(30 * MS, 5 * MS);
    long.record(0, 2 * MS);
    long.record(20_000 * MS, MS);
    let mut sum = short.clone();
    sum.add(&long);
    long.add(&short);
    assert_eq!(sum.summary(), long.summary());
    let first = sum.summary().unwrap().slots[0];
    assert_eq!((first.from_ms, first.records, first.max), (0.0, 2, 5000.0));
}
