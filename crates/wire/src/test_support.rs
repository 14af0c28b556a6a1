//! Helpers for the tests of the codecs.

use std::fmt::Debug;

use bytes::Bytes;
use kafka_protocol::messages::TopicName;
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use proptest::prelude::*;

use crate::{DecodeError, ErrorCode, Uuid, Writer};

pub(crate) fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-zA-Z0-9._-]{1,20}",
        1 => "\\PC{0,40}",
        // Past the one-byte varint.
        1 => "[a-z]{120,140}",
    ]
}

pub(crate) fn nullable_name() -> impl Strategy<Value = Option<String>> {
    prop::option::of(name())
}

pub(crate) fn uuid() -> impl Strategy<Value = Uuid> {
    any::<[u8; 16]>().prop_map(Uuid)
}

pub(crate) fn error_code() -> impl Strategy<Value = ErrorCode> {
    prop_oneof![-1_i16..140, any::<i16>()].prop_map(ErrorCode)
}

pub(crate) fn payload() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        3 => prop::collection::vec(any::<u8>(), 0..40),
        1 => prop::collection::vec(any::<u8>(), 100..300),
    ]
    .prop_map(Bytes::from)
}

pub(crate) fn some<T: Strategy>(element: T) -> impl Strategy<Value = Vec<T::Value>>
where
    T::Value: Debug,
{
    prop::collection::vec(element, 0..4)
}

pub(crate) fn written(encode: impl FnOnce(&mut Writer)) -> Bytes {
    let mut w = Writer::default();
    encode(&mut w);
    w.into_bytes()
}

pub(crate) fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

pub(crate) fn nullable_text(value: Option<&String>) -> Option<StrBytes> {
    value.map(|value| text(value))
}

pub(crate) fn topic_name(value: &str) -> TopicName {
    TopicName(text(value))
}

/// An id in the form the other implementation's type parses from.
pub(crate) fn hex(id: Uuid) -> String {
    id.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The other implementation writes the same bytes for the same message, and reads the message back from ours.
pub(crate) fn assert_same_as_other<T>(version: i16, ours: &Bytes, theirs: &T)
where
    T: Encodable + Decodable + PartialEq + Debug,
{
    let mut bytes = Vec::new();
    theirs.encode(&mut bytes, version).unwrap();
    assert_eq!(ours.as_ref(), bytes, "version {version}: {theirs:?}");
    let mut rest = ours.clone();
    assert_eq!(&T::decode(&mut rest, version).unwrap(), theirs, "version {version}");
    assert!(rest.is_empty(), "version {version}");
}

/// Every byte of the message counts, and none that follows it.
pub(crate) fn assert_truncated_fails_and_longer_decodes<T: Debug + PartialEq>(
    message: &Bytes,
    decode: impl Fn(&Bytes) -> Result<T, DecodeError>,
) {
    let whole = decode(message).unwrap();
    for end in 0..message.len() {
        let decoded = decode(&message.slice(..end));
        assert!(decoded.is_err(), "cut at {end} of {}: {decoded:?}", message.len());
    }
    let longer = Bytes::from([&message[..], &[1, 0, 0]].concat());
    assert_eq!(decode(&longer), Ok(whole));
}

/// Puts extreme lengths at every place of a message; no decoder may panic or allocate the claimed length.
pub(crate) fn survive_extreme_lengths(message: &Bytes, decode: impl Fn(&Bytes)) {
    const EXTREMES: [&[u8]; 8] = [
        &[0x7f, 0xff, 0xff, 0xff],
        &[0xff, 0xff, 0xff, 0xff],
        &[0x80, 0, 0, 0],
        &[0x00, 0xff, 0xff, 0xff],
        &[0xff, 0xff, 0xff, 0xff, 0x0f],
        &[0xff, 0xff, 0xff, 0xff, 0xff],
        &[0x7f, 0xff],
        &[0],
    ];
    for start in 0..message.len() {
        for extreme in EXTREMES {
            let mut damaged = message.to_vec();
            let end = damaged.len().min(start + extreme.len());
            damaged[start..end].copy_from_slice(&extreme[..end - start]);
            decode(&damaged.into());
        }
    }
}
