//! Variable-length integers of the Kafka protocol: seven bits per byte, least significant first.
//!
//! Records use the zigzag forms ([`read_i32`], [`read_i64`]); compact arrays and tagged fields use
//! the unsigned form ([`read_u32`]). A number may be padded with zero groups, as every other
//! implementation accepts that, but it may not take more bytes than its width needs at most, nor
//! carry bits beyond its width.

#[cfg(test)]
mod tests;

/// Largest encoding of a 32-bit number in bytes.
pub const MAX_LEN_32: usize = 5;
/// Largest encoding of a 64-bit number in bytes.
pub const MAX_LEN_64: usize = 10;

/// Why a variable-length integer could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VarintError {
    /// The bytes end inside the number.
    #[error("variable-length integer is cut off")]
    Truncated,
    /// The number takes more bytes, or has more bits, than its type allows.
    #[error("variable-length integer is longer than its type allows")]
    Overlong,
}

/// Maps a signed number to an unsigned one so that small magnitudes stay small.
#[inline]
#[must_use]
pub const fn zigzag_32(value: i32) -> u32 {
    ((value << 1) ^ (value >> 31)) as u32
}

/// Maps a signed number to an unsigned one so that small magnitudes stay small.
#[inline]
#[must_use]
pub const fn zigzag_64(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Reverses [`zigzag_32`].
#[inline]
#[must_use]
pub const fn unzigzag_32(value: u32) -> i32 {
    (value >> 1) as i32 ^ -((value & 1) as i32)
}

/// Reverses [`zigzag_64`].
#[inline]
#[must_use]
pub const fn unzigzag_64(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Bytes that an unsigned 32-bit number takes: 1 to 5.
#[inline]
#[must_use]
pub const fn len_u32(value: u32) -> usize {
    // ceil(bits / 7) for bits in 1..=32, without a division.
    ((38 - (value | 1).leading_zeros()) as usize * 147) >> 10
}

/// Bytes that an unsigned 64-bit number takes: 1 to 10.
#[inline]
#[must_use]
pub const fn len_u64(value: u64) -> usize {
    // ceil(bits / 7) for bits in 1..=64, without a division.
    ((70 - (value | 1).leading_zeros()) as usize * 147) >> 10
}

/// Bytes that a zigzag 32-bit number takes: 1 to 5.
#[inline]
#[must_use]
pub const fn len_i32(value: i32) -> usize {
    len_u32(zigzag_32(value))
}

/// Bytes that a zigzag 64-bit number takes: 1 to 10.
#[inline]
#[must_use]
pub const fn len_i64(value: i64) -> usize {
    len_u64(zigzag_64(value))
}

/// Writes an unsigned number at the start of `out` and returns the bytes written.
///
/// # Panics
/// If `out` is shorter than the number's encoding.
#[inline]
pub fn put_u32(out: &mut [u8], value: u32) -> usize {
    if value < 0x80 {
        out[0] = value as u8;
        return 1;
    }
    put_u64(out, u64::from(value))
}

/// Writes an unsigned number at the start of `out` and returns the bytes written.
///
/// # Panics
/// If `out` is shorter than the number's encoding.
#[inline]
pub fn put_u64(out: &mut [u8], mut value: u64) -> usize {
    let mut at = 0;
    while value >= 0x80 {
        out[at] = value as u8 | 0x80;
        value >>= 7;
        at += 1;
    }
    out[at] = value as u8;
    at + 1
}

/// Writes a zigzag number at the start of `out` and returns the bytes written.
///
/// # Panics
/// If `out` is shorter than the number's encoding.
#[inline]
pub fn put_i32(out: &mut [u8], value: i32) -> usize {
    put_u32(out, zigzag_32(value))
}

/// Writes a zigzag number at the start of `out` and returns the bytes written.
///
/// # Panics
/// If `out` is shorter than the number's encoding.
#[inline]
pub fn put_i64(out: &mut [u8], value: i64) -> usize {
    put_u64(out, zigzag_64(value))
}

/// Appends an unsigned number.
#[inline]
pub fn push_u32(out: &mut Vec<u8>, value: u32) {
    let mut bytes = [0; MAX_LEN_32];
    let len = put_u32(&mut bytes, value);
    out.extend_from_slice(&bytes[..len]);
}

/// Appends a zigzag number.
#[inline]
pub fn push_i32(out: &mut Vec<u8>, value: i32) {
    push_u32(out, zigzag_32(value));
}

/// Appends a zigzag number.
#[inline]
pub fn push_i64(out: &mut Vec<u8>, value: i64) {
    let mut bytes = [0; MAX_LEN_64];
    let len = put_i64(&mut bytes, value);
    out.extend_from_slice(&bytes[..len]);
}

/// Reads an unsigned number at `*at` and moves `*at` past it. On an error `*at` is unchanged.
///
/// # Errors
/// [`VarintError`] if the number is cut off or too long.
#[inline]
pub fn read_u32(bytes: &[u8], at: &mut usize) -> Result<u32, VarintError> {
    // One and two bytes are nearly all that records hold.
    match bytes.get(*at..) {
        Some(&[first, ..]) if first < 0x80 => {
            *at += 1;
            Ok(u32::from(first))
        }
        Some(&[first, second, ..]) if second < 0x80 => {
            *at += 2;
            Ok(u32::from(first & 0x7f) | u32::from(second) << 7)
        }
        Some(rest) => read_u32_long(rest, at),
        None => Err(VarintError::Truncated),
    }
}

#[cold]
fn read_u32_long(rest: &[u8], at: &mut usize) -> Result<u32, VarintError> {
    let mut value = 0u32;
    for (index, &byte) in rest.iter().take(MAX_LEN_32).enumerate() {
        // The fifth group has room for four bits only.
        if index == MAX_LEN_32 - 1 && byte > 0x0f {
            return Err(VarintError::Overlong);
        }
        value |= u32::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            *at += index + 1;
            return Ok(value);
        }
    }
    Err(VarintError::Truncated)
}

/// Reads an unsigned number at `*at` and moves `*at` past it. On an error `*at` is unchanged.
///
/// # Errors
/// [`VarintError`] if the number is cut off or too long.
#[inline]
pub fn read_u64(bytes: &[u8], at: &mut usize) -> Result<u64, VarintError> {
    // One and two bytes are nearly all that records hold.
    match bytes.get(*at..) {
        Some(&[first, ..]) if first < 0x80 => {
            *at += 1;
            Ok(u64::from(first))
        }
        Some(&[first, second, ..]) if second < 0x80 => {
            *at += 2;
            Ok(u64::from(first & 0x7f) | u64::from(second) << 7)
        }
        Some(rest) => read_u64_long(rest, at),
        None => Err(VarintError::Truncated),
    }
}

#[cold]
fn read_u64_long(rest: &[u8], at: &mut usize) -> Result<u64, VarintError> {
    let mut value = 0u64;
    for (index, &byte) in rest.iter().take(MAX_LEN_64).enumerate() {
        // The tenth group has room for one bit only.
        if index == MAX_LEN_64 - 1 && byte > 0x01 {
            return Err(VarintError::Overlong);
        }
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            *at += index + 1;
            return Ok(value);
        }
    }
    Err(VarintError::Truncated)
}

/// Reads a zigzag number at `*at` and moves `*at` past it. On an error `*at` is unchanged.
///
/// # Errors
/// [`VarintError`] if the number is cut off or too long.
#[inline]
pub fn read_i32(bytes: &[u8], at: &mut usize) -> Result<i32, VarintError> {
    read_u32(bytes, at).map(unzigzag_32)
}

/// Reads a zigzag number at `*at` and moves `*at` past it. On an error `*at` is unchanged.
///
/// # Errors
/// [`VarintError`] if the number is cut off or too long.
#[inline]
pub fn read_i64(bytes: &[u8], at: &mut usize) -> Result<i64, VarintError> {
    read_u64(bytes, at).map(unzigzag_64)
}
