//! The four codecs of Kafka record batches, with the levels of KIP-390.
//!
//! Compression appends to the caller's buffer. Decompression is bounded by a [`DecompressLimit`] and grows its output
//! as bytes arrive, so that a length claimed by a peer never determines the memory alone.

#[cfg(any(feature = "gzip", feature = "lz4", feature = "zstd"))]
mod bounded;
#[cfg(feature = "gzip")]
mod gzip;
#[cfg(feature = "lz4")]
mod lz4;
#[cfg(feature = "snappy")]
mod snappy;
#[cfg(test)]
mod tests;
#[cfg(feature = "zstd")]
mod zstd;

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A compression codec; the number is the one in the attributes of a record batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Codec {
    /// Records are stored uncompressed.
    #[default]
    None = 0,
    /// RFC 1952.
    Gzip = 1,
    /// Snappy blocks in the framing of the Java library.
    Snappy = 2,
    /// The LZ4 frame format.
    Lz4 = 3,
    /// RFC 8878 (KIP-110).
    Zstd = 4,
}

impl Codec {
    /// Every codec, in the order of their ids.
    pub const ALL: [Codec; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The id in the lowest three bits of a batch's attributes.
    #[must_use]
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// The codec of an id, or `None` if the id is not assigned.
    #[must_use]
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.get(usize::from(id)).copied()
    }

    /// The name in `compression.type`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// Whether this build has the codec: those but `none` are cargo features.
    #[must_use]
    pub const fn is_built(self) -> bool {
        match self {
            Self::None => true,
            Self::Gzip => cfg!(feature = "gzip"),
            Self::Snappy => cfg!(feature = "snappy"),
            Self::Lz4 => cfg!(feature = "lz4"),
            Self::Zstd => cfg!(feature = "zstd"),
        }
    }

    /// The levels that `compression.<codec>.level` accepts, or `None` if the codec has no levels.
    ///
    /// Gzip also accepts -1, which means its default. The levels of lz4 are accepted because Kafka's configuration
    /// has them, but this encoder ignores them.
    #[must_use]
    pub const fn levels(self) -> Option<RangeInclusive<i32>> {
        match self {
            Self::None | Self::Snappy => None,
            Self::Gzip => Some(1..=9),
            Self::Lz4 => Some(1..=17),
            Self::Zstd => Some(-131_072..=22),
        }
    }

    /// The default level, or `None` if the codec has no levels.
    #[must_use]
    pub const fn default_level(self) -> Option<i32> {
        match self {
            Self::None | Self::Snappy => None,
            Self::Gzip => Some(-1),
            Self::Lz4 => Some(9),
            Self::Zstd => Some(3),
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is none of `none`, `gzip`, `snappy`, `lz4` and `zstd`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown compression codec {0:?}; known are none, gzip, snappy, lz4 and zstd")]
pub struct UnknownCodecName(pub String);

impl FromStr for Codec {
    type Err = UnknownCodecName;

    /// Reads a name of `compression.type`, in lower case as in Kafka.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|codec| codec.name() == name)
            .ok_or_else(|| UnknownCodecName(name.to_owned()))
    }
}

/// A codec and the level to compress with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compression {
    /// The codec.
    pub codec: Codec,
    /// The level, within [`Codec::levels`]; `None` is the codec's default.
    pub level: Option<i32>,
}

impl Compression {
    /// No compression.
    pub const NONE: Compression = Compression { codec: Codec::None, level: None };

    /// A codec with a level checked against [`Codec::levels`].
    ///
    /// # Errors
    /// [`CompressError::Level`] if the codec does not have that level.
    pub fn new(codec: Codec, level: Option<i32>) -> Result<Self, CompressError> {
        let compression = Self { codec, level };
        compression.checked_level()?;
        Ok(compression)
    }

    /// The level to pass to the codec; 0 for codecs without levels.
    fn checked_level(&self) -> Result<i32, CompressError> {
        let default = self.codec.default_level();
        let Some(level) = self.level else { return Ok(default.unwrap_or(0)) };
        let known = self.codec.levels().is_some_and(|levels| levels.contains(&level));
        if known || default == Some(level) {
            return Ok(level);
        }
        Err(CompressError::Level { codec: self.codec, level })
    }

    /// Appends the compressed form of `input` to `out`.
    ///
    /// # Errors
    /// [`CompressError`] for a level out of range or an error of the codec. The contents of `out` beyond its previous
    /// length are then undefined.
    pub fn compress(&self, input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressError> {
        #[cfg_attr(not(any(feature = "gzip", feature = "zstd")), expect(unused_variables))]
        let level = self.checked_level()?;
        let done = match self.codec {
            Codec::None => {
                out.extend_from_slice(input);
                Ok(())
            }
            #[cfg(feature = "gzip")]
            Codec::Gzip => gzip::compress(input, level, out),
            #[cfg(feature = "snappy")]
            Codec::Snappy => snappy::compress(input, out),
            #[cfg(feature = "lz4")]
            Codec::Lz4 => lz4::compress(input, out),
            #[cfg(feature = "zstd")]
            Codec::Zstd => zstd::compress(input, level, out),
            #[cfg(not(all(
                feature = "gzip",
                feature = "lz4",
                feature = "snappy",
                feature = "zstd"
            )))]
            codec => return Err(CompressError::NotBuilt(codec)),
        };
        done.map_err(|error: std::io::Error| CompressError::Codec {
            codec: self.codec,
            reason: error.to_string(),
        })
    }
}

impl From<Codec> for Compression {
    /// The codec with its default level.
    fn from(codec: Codec) -> Self {
        Self { codec, level: None }
    }
}

/// Why records could not be compressed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompressError {
    /// The codec does not have this level.
    #[error("{codec} has no compression level {level}")]
    Level {
        /// The codec.
        codec: Codec,
        /// The requested level.
        level: i32,
    },
    /// The codec failed, in practice because memory ran out.
    #[error("{codec} compression failed: {reason}")]
    Codec {
        /// The codec.
        codec: Codec,
        /// Error of the codec's library.
        reason: String,
    },
    /// This build does not have the codec; see [`Codec::is_built`].
    #[error("{0} is not in this build; add the cargo feature '{0}'")]
    NotBuilt(Codec),
    /// A batch is longer than the format can express (2 GiB).
    #[error("a record batch of {bytes} bytes is longer than the format allows")]
    BatchTooLong {
        /// Its length in bytes.
        bytes: usize,
    },
}

/// Bound on the output of one decompression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecompressLimit {
    /// Largest output in bytes.
    pub max_bytes: usize,
}

impl Default for DecompressLimit {
    /// 128 MiB: above the 100 MiB that a frame may hold.
    fn default() -> Self {
        Self { max_bytes: 128 << 20 }
    }
}

/// Why bytes could not be decompressed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecompressError {
    /// The output would exceed the limit.
    #[error("decompressed data exceeds the limit of {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The input is not valid for the codec.
    #[error("invalid {codec} data: {reason}")]
    Invalid {
        /// The codec.
        codec: Codec,
        /// Error of the codec.
        reason: String,
    },
    /// This build does not have the codec; see [`Codec::is_built`].
    #[error("{0} is not in this build; add the cargo feature '{0}'")]
    NotBuilt(Codec),
}

#[cfg(any(feature = "gzip", feature = "lz4", feature = "snappy", feature = "zstd"))]
impl DecompressError {
    fn invalid(codec: Codec, reason: impl fmt::Display) -> Self {
        Self::Invalid { codec, reason: reason.to_string() }
    }
}

/// Decompresses `input` into a new buffer.
///
/// Besides the output it allocates at most a window: 8 MiB for zstd unless the limit is larger, 12 MiB for lz4. Both
/// become resident only as far as the data fills them.
///
/// # Errors
/// [`DecompressError`] for invalid input and for output beyond `limit`.
pub fn decompress(
    codec: Codec,
    input: &[u8],
    limit: &DecompressLimit,
) -> Result<Vec<u8>, DecompressError> {
    match codec {
        Codec::None if input.len() > limit.max_bytes => {
            Err(DecompressError::TooLarge { limit: limit.max_bytes })
        }
        Codec::None => Ok(input.to_vec()),
        #[cfg(feature = "gzip")]
        Codec::Gzip => gzip::decompress(input, limit),
        #[cfg(feature = "snappy")]
        Codec::Snappy => snappy::decompress(input, limit),
        #[cfg(feature = "lz4")]
        Codec::Lz4 => lz4::decompress(input, limit),
        #[cfg(feature = "zstd")]
        Codec::Zstd => zstd::decompress(input, limit),
        #[cfg(not(all(feature = "gzip", feature = "lz4", feature = "snappy", feature = "zstd")))]
        codec => Err(DecompressError::NotBuilt(codec)),
    }
}
