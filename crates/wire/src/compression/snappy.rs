//! Snappy in the framing of the Java library: a header, then blocks of up to 32 KiB, each after its length. Some
//! clients send one bare snappy block instead, which is read too.

use std::io;

use snap::raw::{Decoder, Encoder, decompress_len, max_compress_len};

use super::{Codec, DecompressError, DecompressLimit};

const MAGIC: [u8; 8] = *b"\x82SNAPPY\0";
/// Magic, version 1, lowest compatible version 1; numbers big-endian.
const HEADER: [u8; 16] = *b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01";
const BLOCK: usize = 32 * 1024;
/// No element of the format yields more: 64 bytes from a copy of three bytes.
const MAX_RATIO: usize = 22;

pub(super) fn compress(input: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    let mut encoder = Encoder::new();
    out.extend_from_slice(&HEADER);
    for block in input.chunks(BLOCK) {
        let start = out.len();
        out.resize(start + 4 + max_compress_len(block.len()), 0);
        let len = encoder.compress(block, &mut out[start + 4..]).map_err(io::Error::other)?;
        out[start..start + 4].copy_from_slice(&(len as u32).to_be_bytes());
        out.truncate(start + 4 + len);
    }
    Ok(())
}

pub(super) fn decompress(
    input: &[u8],
    limit: &DecompressLimit,
) -> Result<Vec<u8>, DecompressError> {
    let mut out = Vec::new();
    if !input.starts_with(&MAGIC) {
        push_block(input, &mut out, limit)?;
        return Ok(out);
    }
    let mut rest = input.get(HEADER.len()..).ok_or_else(|| invalid("header is cut off"))?;
    while !rest.is_empty() {
        let (len, after) = rest.split_first_chunk().ok_or_else(|| invalid("length is cut off"))?;
        let len = u32::from_be_bytes(*len) as usize;
        let block = after.get(..len).ok_or_else(|| invalid("block is cut off"))?;
        push_block(block, &mut out, limit)?;
        rest = &after[len..];
    }
    Ok(out)
}

fn push_block(
    block: &[u8],
    out: &mut Vec<u8>,
    limit: &DecompressLimit,
) -> Result<(), DecompressError> {
    let len = decompress_len(block).map_err(invalid)?;
    if len > block.len().saturating_mul(MAX_RATIO) {
        return Err(invalid("block claims more than it can hold"));
    }
    let start = out.len();
    if len > limit.max_bytes.saturating_sub(start) {
        return Err(DecompressError::TooLarge { limit: limit.max_bytes });
    }
    // Doubling as a vector does, but not beyond the limit.
    let capacity = (start + len).max(start.saturating_mul(2)).min(limit.max_bytes);
    out.reserve_exact(capacity - start);
    out.resize(start + len, 0);
    let got = Decoder::new().decompress(block, &mut out[start..]).map_err(invalid)?;
    out.truncate(start + got);
    Ok(())
}

fn invalid(reason: impl std::fmt::Display) -> DecompressError {
    DecompressError::invalid(Codec::Snappy, reason)
}
