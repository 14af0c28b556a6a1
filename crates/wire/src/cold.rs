//! Codecs of all messages except Produce, Fetch and Metadata, through the crate `kafka-protocol`.
//!
//! `kafka-protocol` allocates as many array elements as the length claims, before it has seen one. A length of 2³¹ in
//! a frame of ten bytes would abort the process. Decoding therefore goes through a guard, which inspects each integer
//! that may be such a length before the decoder does:
//!
//! - A varint in Kafka's messages is always a length, a count or a tag. One larger than the rest of the message is
//!   refused.
//! - A 32-bit integer may be a length or any other field. If a message has one larger than the rest of the message,
//!   it is first decoded with all of those replaced by `i32::MIN`. The decoder refuses these as lengths before it
//!   allocates; as other fields they are harmless. If that succeeds, none was a length, and the message is decoded
//!   unchanged.
//! - `kafka-protocol` keeps each unknown tagged field of a structure. A byte section whose size is the varint before
//!   it is such a field; strings and other sections have a varint that is larger by one. More than [`MAX_TAGS`] in a
//!   row are refused, and more than [`MAX_UNKNOWN`] in a message.
//!
//! Bytes after the message are ignored, as in all Java brokers and clients; librdkafka up to 2.12 sends some.
//!
//! Two limits bound the remaining cost. An array of n elements of in-memory size s may reserve n · s bytes before its
//! elements turn out to be missing; n is at most [`MAX_ELEMENTS`] and at most the number of remaining bytes. Messages
//! have at most [`MAX_MESSAGE`] bytes.

use std::ops::RangeInclusive;

use bytes::{Buf, Bytes, BytesMut, TryGetError};
pub use kafka_protocol::messages;
use kafka_protocol::protocol::buf::{ByteBuf, NotEnoughBytesError};
pub use kafka_protocol::protocol::{Decodable, Encodable, Message, Request, StrBytes};
use thiserror::Error;

use crate::api::ApiKey;
use crate::header::{self, RequestHeader};
use crate::primitives::MAX_TAGS;
use crate::{DecodeError, Writer};

pub mod newer;
#[cfg(test)]
mod tests;

/// Largest message decoded here, in bytes. Produce and Fetch, which may be larger, have separate codecs.
pub const MAX_MESSAGE: usize = 16 * 1024 * 1024;

/// Largest array, and largest byte section in flexible versions, accepted.
pub const MAX_ELEMENTS: usize = 1 << 20;

/// Most unknown tagged fields in all structures of a message.
pub const MAX_UNKNOWN: u32 = 1 << 16;

/// Lengths up to this are left to the decoder, which fails early enough if the elements are missing.
const HARMLESS: usize = 4096;

/// Why a message could not be encoded or decoded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ColdError {
    /// A header is malformed.
    #[error(transparent)]
    Header(#[from] DecodeError),
    /// The message is larger than [`MAX_MESSAGE`].
    #[error("message of {length} bytes is larger than the limit of {MAX_MESSAGE}")]
    TooLarge {
        /// Size of the message in bytes.
        length: usize,
    },
    /// The message has no codec in this version.
    #[error("version {version} of {message} is not supported")]
    UnsupportedVersion {
        /// Name of the message's type.
        message: &'static str,
        /// The requested version.
        version: i16,
    },
    /// The bytes are not the message.
    #[error("malformed {message}, version {version}: {reason}")]
    Decode {
        /// Name of the message's type.
        message: &'static str,
        /// Version it was decoded in.
        version: i16,
        /// Error of the decoder.
        reason: String,
    },
    /// The message cannot be written in this version, for example because it sets a field that the version lacks.
    #[error("cannot encode {message}, version {version}: {reason}")]
    Encode {
        /// Name of the message's type.
        message: &'static str,
        /// Version it was encoded in.
        version: i16,
        /// Error of the encoder.
        reason: String,
    },
}

/// Newest versions of APIs that `kafka-protocol` lacks. In these a request or a response either has a type in
/// [`newer`], or the layout of `kafka-protocol`'s newest version.
const NEWEST: &[(ApiKey, i16)] = &[
    // Permits one more special timestamp (KIP-1023).
    (ApiKey::LIST_OFFSETS, 11),
    (ApiKey::WRITE_TXN_MARKERS, 2),
    (ApiKey::DESCRIBE_LOG_DIRS, 5),
    (ApiKey::ADD_RAFT_VOTER, 1),
];

/// APIs that `kafka-protocol` lacks, with their versions. Their messages are in [`newer`].
const OWN: &[(ApiKey, RangeInclusive<i16>)] =
    &[(ApiKey::STREAMS_GROUP_HEARTBEAT, 0..=0), (ApiKey::STREAMS_GROUP_DESCRIBE, 0..=0)];

fn newest(api: ApiKey) -> Option<i16> {
    NEWEST.iter().find(|(known, _)| *known == api).map(|(_, newest)| *newest)
}

/// The versions of an API that can be encoded and decoded here.
#[must_use]
pub fn versions(api: ApiKey) -> Option<RangeInclusive<i16>> {
    if let Some((_, own)) = OWN.iter().find(|(known, _)| *known == api) {
        return Some(own.clone());
    }
    let range = messages::ApiKey::try_from(api.0).ok()?.valid_versions();
    (!range.is_empty()).then(|| range.min..=newest(api).unwrap_or(range.max))
}

/// Returns the version of the message `T` with the layout of an API's version.
#[must_use]
pub fn layout<T: Message>(api: ApiKey, version: i16) -> i16 {
    match newest(api) {
        Some(newest) if version <= newest => version.min(T::VERSIONS.max),
        _ => version,
    }
}

/// Encodes a whole request frame, its length first. The request's type determines the API.
pub fn encode_request<R: Request>(
    version: i16,
    correlation_id: i32,
    client_id: Option<&str>,
    request: &R,
) -> Result<Vec<u8>, ColdError> {
    let mut w = frame_writer();
    RequestHeader { api: ApiKey(R::KEY), version, correlation_id, client_id }.encode(&mut w);
    finish_frame(w, layout::<R>(ApiKey(R::KEY), version), request)
}

/// Encodes a whole response frame, its length first.
pub fn encode_response<T: Encodable + Message>(
    api: ApiKey,
    version: i16,
    correlation_id: i32,
    response: &T,
) -> Result<Vec<u8>, ColdError> {
    let mut w = frame_writer();
    header::encode_response_header(api, version, correlation_id, &mut w);
    finish_frame(w, layout::<T>(api, version), response)
}

/// Decodes the body of a request, as returned by [`header::split_request`].
pub fn decode_request<T: Decodable + Message>(version: i16, body: Bytes) -> Result<T, ColdError> {
    decode(version, body)
}

/// Decodes the body of a response, as returned by [`header::response_body`].
pub fn decode_response<T: Decodable + Message>(version: i16, body: Bytes) -> Result<T, ColdError> {
    decode(version, body)
}

fn frame_writer() -> Writer {
    let mut w = Writer::with_capacity(256);
    w.i32(0);
    w
}

fn finish_frame<T: Encodable + Message>(
    w: Writer,
    version: i16,
    message: &T,
) -> Result<Vec<u8>, ColdError> {
    check_version::<T>(version)?;
    let mut frame = w.into_vec();
    message.encode(&mut frame, version).map_err(|error| ColdError::Encode {
        message: name::<T>(),
        version,
        reason: error.to_string(),
    })?;
    let length = frame.len() - 4;
    let prefix = i32::try_from(length).map_err(|_| ColdError::TooLarge { length })?;
    frame[..4].copy_from_slice(&prefix.to_be_bytes());
    Ok(frame)
}

/// Decodes a message without a header, such as one embedded in another message's byte section.
pub fn decode<T: Decodable + Message>(version: i16, body: Bytes) -> Result<T, ColdError> {
    check_version::<T>(version)?;
    let length = body.len();
    if length > MAX_MESSAGE {
        return Err(ColdError::TooLarge { length });
    }
    let malformed = |reason| ColdError::Decode { message: name::<T>(), version, reason };
    let mut guard = Guard::new(body.clone(), View::Masked);
    let mut decoded =
        T::decode(&mut guard, version).map_err(|error| malformed(error.to_string()))?;
    if guard.masked {
        guard = Guard::new(body, View::Plain);
        decoded = T::decode(&mut guard, version).map_err(|error| malformed(error.to_string()))?;
    }
    Ok(decoded)
}

/// Encodes a message without header and length.
pub fn encode<T: Encodable + Message>(version: i16, message: &T) -> Result<Bytes, ColdError> {
    check_version::<T>(version)?;
    let mut body = BytesMut::new();
    message.encode(&mut body, version).map_err(|error| ColdError::Encode {
        message: name::<T>(),
        version,
        reason: error.to_string(),
    })?;
    Ok(body.freeze())
}

fn check_version<T: Message>(version: i16) -> Result<(), ColdError> {
    if (T::VERSIONS.min..=T::VERSIONS.max).contains(&version) {
        return Ok(());
    }
    Err(ColdError::UnsupportedVersion { message: name::<T>(), version })
}

fn name<T>() -> &'static str {
    let path = std::any::type_name::<T>();
    path.rsplit("::").next().unwrap_or(path)
}

/// How the decoder sees large 32-bit integers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum View {
    /// As `i32::MIN`.
    Masked,
    /// Unchanged, after the masked view has shown that none is a length.
    Plain,
}

/// Stands between the decoder and the message, see the head of this module.
struct Guard {
    rest: Bytes,
    view: View,
    masked: bool,
    /// The varint that the bytes read last make, and how many of them.
    varint: u64,
    varint_bytes: u32,
    /// Unknown tagged fields, in a row and in all.
    tags: u32,
    unknown: u32,
}

impl Guard {
    fn new(rest: Bytes, view: View) -> Self {
        Self { rest, view, masked: false, varint: 0, varint_bytes: 0, tags: 0, unknown: 0 }
    }

    /// Follows the varints, byte by byte.
    fn read_byte(&mut self, byte: u8) {
        if self.varint_bytes == 0 {
            self.varint = 0;
        }
        self.varint |= u64::from(byte & 0x7f) << (7 * self.varint_bytes);
        self.varint_bytes = if byte < 0x80 { 0 } else { (self.varint_bytes + 1) % 5 };
    }

    /// Forgets the varint: the bytes read last belong to another type.
    fn no_varint(&mut self) {
        (self.varint, self.varint_bytes) = (u64::MAX, 0);
    }

    /// Counts a byte section that is an unknown tagged field, and returns whether it is within the limits.
    fn may_hold(&mut self, size: usize) -> bool {
        if self.varint != size as u64 {
            self.tags = 0;
            return true;
        }
        self.tags += 1;
        self.unknown += 1;
        self.tags <= MAX_TAGS && self.unknown <= MAX_UNKNOWN
    }

    fn is_impossible(&self, length: u64) -> bool {
        length > HARMLESS.max(self.rest.len().min(MAX_ELEMENTS)) as u64
    }

    /// The varint at the front. Not every byte read is one. But unless the message is malformed, no other one-byte
    /// field forms such a large number with the bytes after it.
    fn front_varint(&self) -> u64 {
        let mut value = 0;
        for (i, byte) in self.rest.iter().take(5).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if *byte < 0x80 {
                break;
            }
        }
        value
    }
}

impl Buf for Guard {
    fn remaining(&self) -> usize {
        self.rest.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.rest
    }

    fn advance(&mut self, count: usize) {
        self.no_varint();
        self.rest.advance(count);
    }

    fn try_get_u8(&mut self) -> Result<u8, TryGetError> {
        let length = self.front_varint();
        if self.is_impossible(length) {
            return Err(TryGetError { requested: length as usize, available: self.rest.len() });
        }
        let byte = self.rest.try_get_u8()?;
        self.read_byte(byte);
        Ok(byte)
    }

    fn try_get_i32(&mut self) -> Result<i32, TryGetError> {
        self.no_varint();
        let value = self.rest.try_get_i32()?;
        let impossible = u64::try_from(value).is_ok_and(|length| self.is_impossible(length));
        if impossible && self.view == View::Masked {
            self.masked = true;
            return Ok(i32::MIN);
        }
        Ok(value)
    }
}

impl ByteBuf for Guard {
    fn peek_bytes(&mut self, range: std::ops::Range<usize>) -> Bytes {
        self.rest.slice(range)
    }

    fn get_bytes(&mut self, size: usize) -> Bytes {
        self.rest.split_to(size)
    }

    fn try_get_bytes(&mut self, size: usize) -> Result<Bytes, NotEnoughBytesError> {
        if self.rest.len() < size || !self.may_hold(size) {
            return Err(NotEnoughBytesError);
        }
        Ok(self.get_bytes(size))
    }
}
