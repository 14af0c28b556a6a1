//! Gzip, RFC 1952.

use std::io::{self, Write};

use flate2::bufread::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::{Codec, DecompressError, DecompressLimit, bounded::read_bounded};

pub(super) fn compress(input: &[u8], level: i32, out: &mut Vec<u8>) -> io::Result<()> {
    let level = u32::try_from(level).map_or_else(|_| Default::default(), flate2::Compression::new);
    let mut encoder = GzEncoder::new(out, level);
    encoder.write_all(input)?;
    encoder.finish()?;
    Ok(())
}

/// Accepts several members in a row, as Java's reader does.
pub(super) fn decompress(
    input: &[u8],
    limit: &DecompressLimit,
) -> Result<Vec<u8>, DecompressError> {
    read_bounded(Codec::Gzip, MultiGzDecoder::new(input), input.len(), limit)
}
