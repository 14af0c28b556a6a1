//! Reads what a codec decompresses, within the limit.

use std::io::{self, Read};

use super::{Codec, DecompressError, DecompressLimit};

/// Smallest step by which [`read_bounded`] grows its buffer.
const GROWTH_STEP: usize = 16 * 1024;

/// Reads a decompressing `source` to its end.
///
/// The buffer starts at four times the input, the ratio of ordinary data, and doubles from there,
/// never beyond the limit and one byte (which tells "exactly full" from "too large").
pub(super) fn read_bounded(
    codec: Codec,
    mut source: impl Read,
    input_len: usize,
    limit: &DecompressLimit,
) -> Result<Vec<u8>, DecompressError> {
    let ceiling = limit.max_bytes.saturating_add(1);
    let mut out = Vec::new();
    let mut step = input_len.saturating_mul(4).max(GROWTH_STEP);
    loop {
        step = step.min(ceiling - out.len());
        out.reserve_exact(step);
        let got = read_up_to(&mut source, step, &mut out)
            .map_err(|error| DecompressError::invalid(codec, error))?;
        if out.len() > limit.max_bytes {
            return Err(DecompressError::TooLarge { limit: limit.max_bytes });
        }
        if got < step {
            return Ok(out);
        }
        step = out.len();
    }
}

fn read_up_to(source: &mut impl Read, count: usize, out: &mut Vec<u8>) -> io::Result<usize> {
    source.take(count as u64).read_to_end(out)
}
