use std::time::Instant;

use super::Pending;

#[test]
fn errors_are_counted_and_named() {
    let mut pending = Pending::new(4);
    for number in 0..4 {
        pending.sent(number, Some(vec![number as u8]), Instant::now());
    }
    let key = |number: u32| number.to_le_bytes();
    for number in 0..4_u32 {
        let value = [number as u8];
        pending.take(Some(&key(number)), Some(&value), Instant::now());
    }
    assert_eq!((pending.received, pending.wrong()), (4, None));

    let mut pending = Pending::new(4);
    for number in 0..4 {
        pending.sent(number, Some(vec![number as u8]), Instant::now());
    }
    pending.take(Some(&key(0)), Some(&[0]), Instant::now());
    pending.take(Some(&key(0)), Some(&[0]), Instant::now());
    pending.take(Some(&key(1)), Some(&[9]), Instant::now());
    pending.take(Some(&key(4)), Some(&[4]), Instant::now());
    pending.take(None, None, Instant::now());
    let wrong = pending.wrong().unwrap();
    let text = "records were read back with errors: 2 missing, 1 duplicated, 1 changed, 2 not of this run; the first missing: 2";
    assert_eq!(wrong, text);
    assert_eq!(pending.received, 2);
}
