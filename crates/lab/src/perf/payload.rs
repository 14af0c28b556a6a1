//! Values of records, generated before the measurement.

#[cfg(test)]
mod tests;

use std::{fs, path::PathBuf};

use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::{Error, Result};
use crate::letters::Letters;

/// Source of values, with the flags of Kafka's tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// `--record-size`: random upper-case letters.
    Random {
        /// Bytes of a value.
        size: usize,
    },
    /// `--payload-file`: pieces of a file between delimiters, in random order.
    File {
        /// The file.
        path: PathBuf,
        /// Separator of the pieces.
        delimiter: String,
    },
    /// `--payload-monotonic`: the record's number in decimal digits.
    Monotonic,
}

/// Generated values.
#[derive(Debug)]
pub(super) enum Values {
    Letters(Letters),
    Pieces { pieces: Vec<Vec<u8>>, order: SmallRng },
    Numbers { digits: Vec<u8> },
}

impl Values {
    pub(super) fn prepare(payload: &Payload) -> Result<Self> {
        match payload {
            Payload::Random { size } => Ok(Self::Letters(Letters::new(*size, 0))),
            Payload::Monotonic => Ok(Self::Numbers { digits: Vec::new() }),
            Payload::File { path, delimiter } => {
                let failed = |reason: String| {
                    Error::Options(format!("payload file {}: {reason}", path.display()))
                };
                let text = fs::read_to_string(path).map_err(|e| failed(e.to_string()))?;
                let pieces: Vec<_> = if delimiter.is_empty() {
                    vec![text.into_bytes()]
                } else {
                    text.split(delimiter.as_str()).map(|piece| piece.as_bytes().to_vec()).collect()
                };
                let pieces: Vec<_> = pieces.into_iter().filter(|p| !p.is_empty()).collect();
                if pieces.is_empty() {
                    return Err(failed("it holds no payload".into()));
                }
                Ok(Self::Pieces { pieces, order: SmallRng::seed_from_u64(0) })
            }
        }
    }

    /// The value of record `index`.
    pub(super) fn get(&mut self, index: u64) -> &[u8] {
        match self {
            Self::Letters(letters) => letters.get(index),
            Self::Pieces { pieces, order } => &pieces[order.random_range(0..pieces.len())],
            Self::Numbers { digits } => {
                use std::io::Write as _;
                digits.clear();
                // Writing to memory does not fail.
                let _ = write!(digits, "{index}");
                digits
            }
        }
    }
}
