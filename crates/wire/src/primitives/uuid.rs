//! Identifiers of 128 bits.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A 128-bit identifier of a topic, a log directory or a cluster member.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

/// Kafka prints ids in the URL-safe base64 alphabet, without padding.
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const UUID_CHARS: usize = 22;

impl Uuid {
    /// All zero: "no id".
    pub const ZERO: Self = Self([0; 16]);

    /// Whether this is [`Uuid::ZERO`].
    #[must_use]
    pub const fn is_zero(&self) -> bool {
        u128::from_be_bytes(self.0) == 0
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = u128::from_be_bytes(self.0);
        let mut text = [0_u8; UUID_CHARS];
        for (i, c) in text.iter_mut().enumerate() {
            // 21 groups of six bits from the top, then the last two bits in the top of a group.
            let group = if i < 21 { bits >> (122 - 6 * i) } else { bits << 4 };
            *c = BASE64[(group & 0x3f) as usize];
        }
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Uuid({self})")
    }
}

/// Text that is not a [`Uuid`] as Kafka prints it: 22 characters of URL-safe base64.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("not a Kafka id: expected 22 characters of URL-safe base64")]
pub struct ParseUuidError;

impl FromStr for Uuid {
    type Err = ParseUuidError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.strip_suffix("==").unwrap_or(text).as_bytes();
        if text.len() != UUID_CHARS {
            return Err(ParseUuidError);
        }
        let mut bits = 0_u128;
        for (i, c) in text.iter().enumerate() {
            let group = BASE64.iter().position(|b| b == c).ok_or(ParseUuidError)? as u128;
            if i < 21 {
                bits = bits << 6 | group;
            } else if group & 0x0f == 0 {
                bits = bits << 2 | group >> 4;
            } else {
                return Err(ParseUuidError);
            }
        }
        Ok(Self(bits.to_be_bytes()))
    }
}
