//! The LZ4 frame format as Kafka writes it: independent blocks of up to 64 KiB, no checksums of
//! blocks or content, no content size.

use std::cell::RefCell;
use std::io;

use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use lz4_flex::frame::FrameDecoder;

use super::{Codec, DecompressError, DecompressLimit, bounded::read_bounded};

/// Magic number, flags (version 1, independent blocks), block size class 4 (64 KiB), and the second
/// byte of the descriptor's xxHash32. With nothing variable in the descriptor it is a constant.
const FRAME_HEADER: [u8; 7] = [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82];
const BLOCK: usize = 64 * 1024;
/// Set in a block's length where the block is stored as it is.
const STORED: u32 = 1 << 31;

thread_local! {
    /// The match table; clearing it is cheaper than allocating one for each block.
    static TABLE: RefCell<CompressTable> = RefCell::new(CompressTable::large());
}

pub(super) fn compress(input: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    TABLE.with_borrow_mut(|table| {
        out.extend_from_slice(&FRAME_HEADER);
        for block in input.chunks(BLOCK) {
            push_block(block, out, table)?;
        }
        out.extend_from_slice(&0u32.to_le_bytes());
        Ok(())
    })
}

fn push_block(block: &[u8], out: &mut Vec<u8>, table: &mut CompressTable) -> io::Result<()> {
    let start = out.len();
    out.resize(start + 4 + get_maximum_output_size(block.len()), 0);
    let len =
        compress_into_with_table(block, &mut out[start + 4..], table).map_err(io::Error::other)?;
    if len < block.len() {
        out[start..start + 4].copy_from_slice(&(len as u32).to_le_bytes());
        out.truncate(start + 4 + len);
        return Ok(());
    }
    out.truncate(start);
    out.extend_from_slice(&(block.len() as u32 | STORED).to_le_bytes());
    out.extend_from_slice(block);
    Ok(())
}

/// Reads one frame, whatever its options.
pub(super) fn decompress(
    input: &[u8],
    limit: &DecompressLimit,
) -> Result<Vec<u8>, DecompressError> {
    read_bounded(Codec::Lz4, FrameDecoder::new(input), input.len(), limit)
}
