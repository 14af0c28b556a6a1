//! Values of the workload's records.

use curtail::{ConsumerRecord, Header, Record};

use crate::history::RecordId;

/// Header of a tombstone: what its value would be.
const VALUE: &str = "value";

/// The value of a record: its id, and filler that only this id has, so that a damaged value is noticed.
pub(crate) fn value(id: RecordId) -> Vec<u8> {
    let mut value = format!("{}/{} ", id.producer, id.number).into_bytes();
    let mut state = u64::from(id.producer) << 32 | u64::from(id.number);
    let len = (mix(&mut state) % 200) as usize;
    value.extend((0..len).map(|_| mix(&mut state) as u8));
    value
}

/// Headers for a tombstone that replaces a record with this value.
pub(crate) fn headers(value: &[u8]) -> [Header<'_>; 1] {
    [Header { key: VALUE, value: Some(value) }]
}

/// Returns the record with its value, or with the headers of a tombstone.
pub(crate) fn filled<'a>(
    record: Record<'a>,
    value: &'a [u8],
    headers: &'a [Header<'a>],
    is_tombstone: bool,
) -> Record<'a> {
    if is_tombstone { record.headers(headers) } else { record.value(value) }
}

/// Id of a record, by its value or, for a tombstone, its header.
pub(crate) fn id<'a>(
    value: Option<&'a [u8]>,
    mut headers: impl Iterator<Item = (&'a str, Option<&'a [u8]>)>,
) -> Option<RecordId> {
    let bytes = match value {
        Some(value) => value,
        None => headers.find(|(name, _)| *name == VALUE)?.1?,
    };
    id_of(bytes)
}

/// Id of a record that a consumer returned.
pub(crate) fn id_of_record(record: &ConsumerRecord) -> Option<RecordId> {
    id(record.value(), record.headers())
}

/// Id of the record with this value; `None` unless every byte is as [`value`] makes it.
fn id_of(bytes: &[u8]) -> Option<RecordId> {
    let head = bytes.split(|&b| b == b' ').next()?;
    let (producer, number) = std::str::from_utf8(head).ok()?.split_once('/')?;
    let id = RecordId { producer: producer.parse().ok()?, number: number.parse().ok()? };
    (value(id) == bytes).then_some(id)
}

/// One step of splitmix64.
fn mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_identifies_its_record_and_a_damaged_one_none() {
        for number in 0..50 {
            let id = RecordId { producer: 3, number };
            let mut bytes = value(id);
            assert_eq!(id_of(&bytes), Some(id));
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            assert_eq!(id_of(&bytes), None);
        }
        assert_eq!(id_of(b"hello"), None);
        assert_eq!(id_of(b""), None);
    }
}
