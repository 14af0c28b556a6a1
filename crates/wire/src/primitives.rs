//! Primitive types of the protocol: [`Reader`] and [`Writer`] over bytes, and [`Uuid`].
//!
//! A message version is encoded either the classic way (16-bit string lengths, 32-bit array lengths) or the
//! flexible way of KIP-482 (varint lengths off by one, tagged fields). [`Encoding`] says which; reader and
//! writer carry it so that codecs name each field once.

use std::ops::RangeInclusive;

use thiserror::Error;

mod reader;
#[cfg(test)]
mod tests;
mod uuid;
mod writer;

pub use reader::Reader;
pub use uuid::{ParseUuidError, Uuid};
pub use writer::Writer;
pub(crate) use writer::{put_count, put_string};

/// Longest string Kafka accepts, in bytes, in either encoding.
pub const MAX_STRING: usize = i16::MAX as usize;

/// Most tagged fields one structure may carry. Kafka itself defines fewer than ten anywhere.
pub const MAX_TAGS: u32 = 1000;

/// Why a message could not be decoded. `what` names the field or structure.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end inside the field.
    #[error("{what}: the bytes end too early")]
    Truncated {
        /// Field or structure.
        what: &'static str,
    },
    /// A length or count is larger than what remains, or than a fixed limit.
    #[error("{what}: length {length} is more than the {limit} possible here")]
    LengthTooLarge {
        /// Field or structure.
        what: &'static str,
        /// The length found.
        length: u64,
        /// The largest length that was possible.
        limit: u64,
    },
    /// A length or count is negative where that has no meaning.
    #[error("{what}: negative length {length}")]
    NegativeLength {
        /// Field or structure.
        what: &'static str,
        /// The length found.
        length: i64,
    },
    /// A field that cannot be null is null.
    #[error("{what}: null where a value is required")]
    UnexpectedNull {
        /// Field or structure.
        what: &'static str,
    },
    /// A string is not UTF-8.
    #[error("{what}: not valid UTF-8")]
    InvalidUtf8 {
        /// Field or structure.
        what: &'static str,
    },
    /// A value has no meaning in its field.
    #[error("{what}: invalid value {value}")]
    InvalidValue {
        /// Field or structure.
        what: &'static str,
        /// The value found.
        value: i64,
    },
    /// A variable-length integer does not end within its type.
    #[error("{what}: variable-length integer too long")]
    VarintTooLong {
        /// Field or structure.
        what: &'static str,
    },
    /// A structure claims more than [`MAX_TAGS`] tagged fields.
    #[error("{what}: {count} tagged fields, more than {MAX_TAGS}")]
    TooManyTags {
        /// Structure.
        what: &'static str,
        /// Count found.
        count: u32,
    },
    /// Tags are not strictly increasing.
    #[error("{what}: tag {tag} repeated or out of order")]
    TagOrder {
        /// Structure.
        what: &'static str,
        /// The offending tag.
        tag: u32,
    },
    /// Bytes are left over after the structure.
    #[error("{what}: {count} bytes left over")]
    TrailingBytes {
        /// Structure.
        what: &'static str,
        /// Bytes left.
        count: usize,
    },
    /// The message has no codec for this version.
    #[error("{what}: version {version} is not supported")]
    UnsupportedVersion {
        /// Message.
        what: &'static str,
        /// Version asked for.
        version: i16,
    },
}

/// How lengths are written and whether structures end in tagged fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// Fixed-width lengths, no tagged fields.
    #[default]
    Classic,
    /// Varint lengths off by one, tagged fields (KIP-482).
    Flexible,
}

impl Encoding {
    /// Flexible when `version` is at least `first`.
    #[must_use]
    pub const fn flexible_from(first: i16, version: i16) -> Self {
        if version >= first { Self::Flexible } else { Self::Classic }
    }
}

/// Refuses a version outside `versions`.
pub(crate) fn check_version(
    what: &'static str,
    version: i16,
    versions: &RangeInclusive<i16>,
) -> Result<(), DecodeError> {
    if versions.contains(&version) {
        return Ok(());
    }
    Err(DecodeError::UnsupportedVersion { what, version })
}
