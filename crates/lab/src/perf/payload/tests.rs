use std::io::Write as _;

use super::{Payload, Values};

#[test]
fn random_values_have_the_size_and_differ() {
    let mut values = Values::prepare(&Payload::Random { size: 100 }).unwrap();
    let first = values.get(0).to_vec();
    assert_eq!(first.len(), 100);
    assert!(first.iter().all(u8::is_ascii_uppercase));
    for index in 1..2000 {
        assert_ne!(values.get(index), first, "{index}");
    }
    assert_eq!(values.get(u64::MAX).len(), 100);
    assert!(Values::prepare(&Payload::Random { size: 0 }).unwrap().get(7).is_empty());
}

#[test]
fn monotonic_values_are_the_record_numbers_in_decimal() {
    let mut values = Values::prepare(&Payload::Monotonic).unwrap();
    assert_eq!(values.get(0), b"0");
    assert_eq!(values.get(1_234_567), b"1234567");
}

#[test]
fn files_are_cut_at_the_delimiter() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"one||two||||three").unwrap();
    let path = file.path().to_owned();
    let mut values =
        Values::prepare(&Payload::File { path: path.clone(), delimiter: "||".into() }).unwrap();
    let mut seen: Vec<_> = (0..200).map(|i| values.get(i).to_vec()).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, [b"one".to_vec(), b"three".to_vec(), b"two".to_vec()]);
    file.as_file().set_len(0).unwrap();
    let empty = Values::prepare(&Payload::File { path, delimiter: "\n".into() });
    assert!(empty.unwrap_err().to_string().contains("no payload"));
}
