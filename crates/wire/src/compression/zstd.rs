//! Zstandard, RFC 8878.

use std::cell::RefCell;
use std::io;

use zstd::bulk::{Compressor, Decompressor};
use zstd::stream::read::Decoder;
use zstd::zstd_safe::get_frame_content_size;

use super::{Codec, DecompressError, DecompressLimit, bounded::read_bounded};

/// Windows up to this (8 MiB, the size RFC 8878 asks every decoder to support) are accepted even
/// under a smaller limit: a frame states the window of its level, not of its content.
const MIN_WINDOW_LOG: u32 = 23;
/// The largest window of level 22, and the largest that the reference decoder takes by default.
const MAX_WINDOW_LOG: u32 = 27;

thread_local! {
    /// A compressor and the level it is set to: making one costs more than a small batch.
    static COMPRESSOR: RefCell<Option<(i32, Compressor<'static>)>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

pub(super) fn compress(input: &[u8], level: i32, out: &mut Vec<u8>) -> io::Result<()> {
    COMPRESSOR.with_borrow_mut(|kept| {
        let mut compressor = match kept.take() {
            Some((kept_level, compressor)) if kept_level == level => compressor,
            _ => Compressor::new(level)?,
        };
        let start = out.len();
        out.resize(start + zstd::zstd_safe::compress_bound(input.len()), 0);
        let len = compressor.compress_to_buffer(input, &mut out[start..])?;
        out.truncate(start + len);
        *kept = Some((level, compressor));
        Ok(())
    })
}

pub(super) fn decompress(
    input: &[u8],
    limit: &DecompressLimit,
) -> Result<Vec<u8>, DecompressError> {
    if let Some(out) = decompress_known_size(input, limit) {
        return Ok(out);
    }
    let mut decoder = Decoder::with_buffer(input).map_err(invalid)?;
    decoder.window_log_max(window_log(limit)).map_err(invalid)?;
    read_bounded(Codec::Zstd, decoder, input.len(), limit)
}

/// Decompresses one frame that states its size, straight into a buffer of that size.
///
/// `None` stands for everything else (no size, several frames, invalid data), which the streaming
/// decoder then handles or explains. A stated size is only a claim, so it is trusted no further than
/// an ordinary ratio.
fn decompress_known_size(input: &[u8], limit: &DecompressLimit) -> Option<Vec<u8>> {
    let size = usize::try_from(get_frame_content_size(input).ok()??).ok()?;
    if size > limit.max_bytes || size > input.len().saturating_mul(64).max(1 << 16) {
        return None;
    }
    DECOMPRESSOR.with_borrow_mut(|kept| {
        let mut decompressor = match kept.take() {
            Some(decompressor) => decompressor,
            None => Decompressor::new().ok()?,
        };
        let mut out = Vec::with_capacity(size);
        let done = decompressor.decompress_to_buffer(input, &mut out);
        *kept = Some(decompressor);
        done.ok().map(|_| out)
    })
}

fn window_log(limit: &DecompressLimit) -> u32 {
    let log = usize::BITS - limit.max_bytes.saturating_sub(1).leading_zeros();
    log.clamp(MIN_WINDOW_LOG, MAX_WINDOW_LOG)
}

fn invalid(reason: impl std::fmt::Display) -> DecompressError {
    DecompressError::invalid(Codec::Zstd, reason)
}
