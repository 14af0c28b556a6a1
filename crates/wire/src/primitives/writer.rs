//! Encoding of fields.

use bytes::{BufMut, Bytes};

use super::{Encoding, MAX_STRING, Uuid};

/// Appends an unsigned varint.
fn put_uvarint(buffer: &mut impl BufMut, mut value: u32) {
    while value >= 0x80 {
        buffer.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    buffer.put_u8(value as u8);
}

/// Appends the length of a byte section or array, `None` for null.
///
/// Lengths past `i32::MAX` cannot occur: frames are limited to far less.
pub(crate) fn put_count(buffer: &mut impl BufMut, encoding: Encoding, count: Option<usize>) {
    match (encoding, count) {
        (Encoding::Classic, None) => buffer.put_i32(-1),
        (Encoding::Classic, Some(count)) => buffer.put_i32(count as i32),
        (Encoding::Flexible, None) => buffer.put_u8(0),
        (Encoding::Flexible, Some(count)) => put_uvarint(buffer, count as u32 + 1),
    }
}

/// Appends a string or null. A string past [`MAX_STRING`] bytes is cut at a character, since the length could
/// not be written; names are validated far below that before they get here.
pub(crate) fn put_string(buffer: &mut impl BufMut, encoding: Encoding, value: Option<&str>) {
    let value = value.map(cut);
    match (encoding, value) {
        (Encoding::Classic, None) => buffer.put_i16(-1),
        (Encoding::Classic, Some(value)) => buffer.put_i16(value.len() as i16),
        (Encoding::Flexible, _) => put_count(buffer, encoding, value.map(str::len)),
    }
    buffer.put_slice(value.unwrap_or_default().as_bytes());
}

fn cut(value: &str) -> &str {
    if value.len() <= MAX_STRING {
        return value;
    }
    // A character has at most four bytes, so one of these ends is a boundary.
    (MAX_STRING - 3..=MAX_STRING).rev().find_map(|end| value.get(..end)).unwrap_or_default()
}

/// Writes fields one after the other.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    buffer: Vec<u8>,
    encoding: Encoding,
}

impl Writer {
    /// An empty writer with room for `capacity` bytes, in the classic encoding.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self::append_to(Vec::with_capacity(capacity))
    }

    /// Continues after the contents of `buffer`, in the classic encoding.
    #[must_use]
    pub fn append_to(buffer: Vec<u8>) -> Self {
        Self { buffer, encoding: Encoding::Classic }
    }

    /// Bytes written.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether no byte has been written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// The written bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.buffer
    }

    /// Returns the written bytes.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        self.buffer
    }

    /// Returns the written bytes without a copy.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.buffer.into()
    }

    /// The encoding fields are written in.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Sets the encoding of all fields written after this call.
    pub fn set_encoding(&mut self, encoding: Encoding) {
        self.encoding = encoding;
    }

    /// Overwrites the four bytes at `at`, which must have been written.
    pub fn patch_i32(&mut self, at: usize, value: i32) {
        self.buffer[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }

    /// Bytes without a length.
    pub fn raw(&mut self, value: &[u8]) {
        self.buffer.put_slice(value);
    }

    /// 8-bit integer.
    pub fn i8(&mut self, value: i8) {
        self.buffer.put_i8(value);
    }

    /// 16-bit integer.
    pub fn i16(&mut self, value: i16) {
        self.buffer.put_i16(value);
    }

    /// Unsigned 16-bit integer.
    pub fn u16(&mut self, value: u16) {
        self.buffer.put_u16(value);
    }

    /// 32-bit integer.
    pub fn i32(&mut self, value: i32) {
        self.buffer.put_i32(value);
    }

    /// Unsigned 32-bit integer.
    pub fn u32(&mut self, value: u32) {
        self.buffer.put_u32(value);
    }

    /// 64-bit integer.
    pub fn i64(&mut self, value: i64) {
        self.buffer.put_i64(value);
    }

    /// Boolean.
    pub fn bool(&mut self, value: bool) {
        self.buffer.put_u8(value.into());
    }

    /// Identifier of 16 bytes.
    pub fn uuid(&mut self, value: Uuid) {
        self.buffer.put_slice(&value.0);
    }

    /// Unsigned varint.
    pub fn uvarint(&mut self, value: u32) {
        put_uvarint(&mut self.buffer, value);
    }

    /// Zigzag varint.
    pub fn varint(&mut self, value: i32) {
        self.uvarint((value << 1 ^ value >> 31).cast_unsigned());
    }

    /// Zigzag varint of up to 64 bits.
    pub fn varlong(&mut self, value: i64) {
        let mut raw = (value << 1 ^ value >> 63).cast_unsigned();
        while raw >= 0x80 {
            self.buffer.put_u8((raw & 0x7f) as u8 | 0x80);
            raw >>= 7;
        }
        self.buffer.put_u8(raw as u8);
    }

    /// String; cut at a character when longer than [`MAX_STRING`].
    pub fn string(&mut self, value: &str) {
        self.nullable_string(Some(value));
    }

    /// String or null; cut at a character when longer than [`MAX_STRING`].
    pub fn nullable_string(&mut self, value: Option<&str>) {
        put_string(&mut self.buffer, self.encoding, value);
    }

    /// Byte section.
    pub fn bytes(&mut self, value: &[u8]) {
        self.nullable_bytes(Some(value));
    }

    /// Byte section or null.
    pub fn nullable_bytes(&mut self, value: Option<&[u8]>) {
        self.nullable_array(value.map(<[u8]>::len));
        self.raw(value.unwrap_or_default());
    }

    /// Length of an array, or of a byte section whose bytes follow.
    pub fn array(&mut self, count: usize) {
        self.nullable_array(Some(count));
    }

    /// Length of an array, `None` for null.
    pub fn nullable_array(&mut self, count: Option<usize>) {
        put_count(&mut self.buffer, self.encoding, count);
    }

    /// The end of a structure without tagged fields; nothing in the classic encoding.
    pub fn no_tags(&mut self) {
        if self.encoding == Encoding::Flexible {
            self.buffer.put_u8(0);
        }
    }

    /// The number of tagged fields that follow. Flexible encoding only.
    pub fn tag_count(&mut self, count: u32) {
        self.uvarint(count);
    }

    /// One tagged field, its value written by `value`. Tags must increase.
    pub fn tag(&mut self, tag: u32, value: impl FnOnce(&mut Self)) {
        self.uvarint(tag);
        let start = self.buffer.len();
        value(self);
        let size = self.buffer.len() - start;
        // The size goes before the value: written after it, then rotated into place. Tagged values are small.
        self.uvarint(size as u32);
        let width = self.buffer.len() - start - size;
        self.buffer[start..].rotate_right(width);
    }
}
