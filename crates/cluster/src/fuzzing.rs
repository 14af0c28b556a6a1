//! Parsers of stored bytes and of the proxy, for the fuzz targets. Not part of the interface.
//!
//! A record of an internal topic may come from another client: Apache Kafka's tools write them, and
//! a producer may write to an internal topic. Everything a parser reads must survive writing and
//! reading again.

use bytes::Bytes;
use curtail_wire::ApiKey;

use crate::coordinator::records::{
    Key, consumer_record, decode_change, decode_group, decode_key, decode_offset,
    decode_streams_change, group_record, offset_record, streams_record,
};

/// Reads a record of `__consumer_offsets`.
///
/// # Panics
/// If the record changes when it is written and read again.
pub fn offsets_record(key: &[u8], value: Option<&[u8]>) {
    let Ok(Some(key)) = decode_key(key) else { return };
    match (key, value) {
        (Key::Offset { group, topic, partition }, Some(value)) => {
            let Ok(Some(read)) = decode_offset(value) else { return };
            let record = offset_record(&group, &topic, partition, &read);
            assert_eq!(decode_key(&record.key), Ok(Some(Key::Offset { group, topic, partition })));
            let written = record.value.unwrap_or_default();
            assert_eq!(decode_offset(&written), Ok(Some(read)));
        }
        (Key::Group(group), Some(value)) => {
            let Ok(Some(read)) = decode_group(value) else { return };
            let record = group_record(&group, &read);
            assert_eq!(decode_key(&record.key), Ok(Some(Key::Group(group))));
            let written = record.value.unwrap_or_default();
            assert_eq!(decode_group(&written), Ok(Some(read)));
        }
        (Key::Consumer(group, part), value) => {
            let Ok(Some(change)) = decode_change(part.clone(), value) else { return };
            let record = consumer_record(&group, &change);
            let again = Key::Consumer(group, part.clone());
            assert_eq!(decode_key(&record.key), Ok(Some(again)));
            assert_eq!(decode_change(part, record.value.as_deref()), Ok(Some(change)));
        }
        (Key::Streams(group, part), value) => {
            let Ok(Some(change)) = decode_streams_change(part.clone(), value) else { return };
            let record = streams_record(&group, &change);
            let again = Key::Streams(group, part.clone());
            assert_eq!(decode_key(&record.key), Ok(Some(again)));
            assert_eq!(decode_streams_change(part, record.value.as_deref()), Ok(Some(change)));
        }
        (Key::Offset { .. } | Key::Group(_), None) => {}
    }
}

/// Reads a record of `__transaction_state`.
///
/// # Panics
/// If the record changes when it is written and read again.
pub fn transaction_record(key: &Bytes, value: &Bytes) {
    crate::transaction::check_record(key, value);
}

/// Lets a proxy read a response frame, replace its addresses and put them back.
///
/// # Panics
/// If an address is lost or changed.
pub fn proxied_response(api: ApiKey, version: i16, frame: &Bytes) {
    crate::proxy::check_response(api, version, frame);
}

/// Lets a proxy refuse all parts of a request frame, every second one, and none.
pub fn proxied_request(frame: &Bytes) {
    crate::proxy::check_request(frame);
}
