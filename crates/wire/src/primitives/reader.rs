//! Decoding of fields.

use bytes::Bytes;

use super::{DecodeError, Encoding, MAX_STRING, MAX_TAGS, Uuid};

/// Most array elements to allocate for before the first one has been read.
const MAX_ELEMENTS_AHEAD: usize = 1024;

/// Reads fields one after the other; strings and byte sections are borrowed or sliced, never copied.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    source: &'a Bytes,
    position: usize,
    end: usize,
    encoding: Encoding,
}

impl<'a> Reader<'a> {
    /// Starts at the first byte of `source`.
    #[must_use]
    pub fn new(source: &'a Bytes, encoding: Encoding) -> Self {
        Self { source, position: 0, end: source.len(), encoding }
    }

    /// Bytes not read yet.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.end - self.position
    }

    /// Bytes read so far, counted from the start of the source.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }

    /// The encoding fields are read in.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Reads the following fields in another encoding.
    pub fn set_encoding(&mut self, encoding: Encoding) {
        self.encoding = encoding;
    }

    /// Everything not read yet, as a slice of the source.
    #[must_use]
    pub fn rest(&self) -> Bytes {
        self.source.slice(self.position..self.end)
    }

    /// Checks that nothing is left over.
    pub fn finish(&self, what: &'static str) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            count => Err(DecodeError::TrailingBytes { what, count }),
        }
    }

    /// The next `count` bytes, borrowed.
    pub fn take(&mut self, count: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        if count > self.remaining() {
            return Err(DecodeError::Truncated { what });
        }
        let start = self.position;
        self.position += count;
        Ok(&self.source[start..self.position])
    }

    fn fixed<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], DecodeError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N, what)?);
        Ok(bytes)
    }

    /// One byte.
    pub fn u8(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        Ok(self.fixed::<1>(what)?[0])
    }

    /// 8-bit integer.
    pub fn i8(&mut self, what: &'static str) -> Result<i8, DecodeError> {
        self.fixed(what).map(i8::from_be_bytes)
    }

    /// 16-bit integer.
    pub fn i16(&mut self, what: &'static str) -> Result<i16, DecodeError> {
        self.fixed(what).map(i16::from_be_bytes)
    }

    /// Unsigned 16-bit integer.
    pub fn u16(&mut self, what: &'static str) -> Result<u16, DecodeError> {
        self.fixed(what).map(u16::from_be_bytes)
    }

    /// 32-bit integer.
    pub fn i32(&mut self, what: &'static str) -> Result<i32, DecodeError> {
        self.fixed(what).map(i32::from_be_bytes)
    }

    /// Unsigned 32-bit integer.
    pub fn u32(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        self.fixed(what).map(u32::from_be_bytes)
    }

    /// 64-bit integer.
    pub fn i64(&mut self, what: &'static str) -> Result<i64, DecodeError> {
        self.fixed(what).map(i64::from_be_bytes)
    }

    /// Boolean; Kafka takes any byte but zero for true.
    pub fn bool(&mut self, what: &'static str) -> Result<bool, DecodeError> {
        Ok(self.u8(what)? != 0)
    }

    /// Identifier of 16 bytes.
    pub fn uuid(&mut self, what: &'static str) -> Result<Uuid, DecodeError> {
        self.fixed(what).map(Uuid)
    }

    /// Unsigned varint of at most 32 bits.
    pub fn uvarint(&mut self, what: &'static str) -> Result<u32, DecodeError> {
        let value = self.uvarlong_of(5, what)?;
        u32::try_from(value).map_err(|_| DecodeError::VarintTooLong { what })
    }

    /// Zigzag varint of at most 32 bits.
    pub fn varint(&mut self, what: &'static str) -> Result<i32, DecodeError> {
        let raw = self.uvarint(what)?;
        Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
    }

    /// Zigzag varint of at most 64 bits.
    pub fn varlong(&mut self, what: &'static str) -> Result<i64, DecodeError> {
        let raw = self.uvarlong_of(10, what)?;
        Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
    }

    fn uvarlong_of(&mut self, max_bytes: u32, what: &'static str) -> Result<u64, DecodeError> {
        let mut value = 0_u64;
        for i in 0..max_bytes {
            let byte = self.u8(what)?;
            let group = u64::from(byte & 0x7f);
            if i == 9 && group > 1 {
                break;
            }
            value |= group << (7 * i);
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError::VarintTooLong { what })
    }

    /// String that cannot be null.
    pub fn string(&mut self, what: &'static str) -> Result<&'a str, DecodeError> {
        self.nullable_string(what)?.ok_or(DecodeError::UnexpectedNull { what })
    }

    /// String or null.
    pub fn nullable_string(&mut self, what: &'static str) -> Result<Option<&'a str>, DecodeError> {
        let length = match self.encoding {
            Encoding::Classic => i64::from(self.i16(what)?),
            Encoding::Flexible => i64::from(self.uvarint(what)?) - 1,
        };
        let Some(length) = self.length(length, MAX_STRING, what)? else { return Ok(None) };
        let bytes = self.take(length, what)?;
        std::str::from_utf8(bytes).map(Some).map_err(|_| DecodeError::InvalidUtf8 { what })
    }

    /// Byte section that cannot be null.
    pub fn bytes(&mut self, what: &'static str) -> Result<Bytes, DecodeError> {
        self.nullable_bytes(what)?.ok_or(DecodeError::UnexpectedNull { what })
    }

    /// Byte section or null, as a slice of the source.
    pub fn nullable_bytes(&mut self, what: &'static str) -> Result<Option<Bytes>, DecodeError> {
        let length = self.count(what)?;
        let Some(length) = self.length(length, self.remaining(), what)? else { return Ok(None) };
        let start = self.position;
        self.position += length;
        Ok(Some(self.source.slice(start..self.position)))
    }

    /// Length of an array that cannot be null, checked against what remains when every element takes at
    /// least `min_element` bytes. Safe to allocate for.
    pub fn array(&mut self, min_element: usize, what: &'static str) -> Result<usize, DecodeError> {
        self.nullable_array(min_element, what)?.ok_or(DecodeError::UnexpectedNull { what })
    }

    /// Length of an array or `None` for null, checked like [`Reader::array`].
    pub fn nullable_array(
        &mut self,
        min_element: usize,
        what: &'static str,
    ) -> Result<Option<usize>, DecodeError> {
        let count = self.count(what)?;
        self.length(count, self.remaining() / min_element.max(1), what)
    }

    /// An array that cannot be null, its elements read by `element`.
    pub fn array_of<T>(
        &mut self,
        min_element: usize,
        what: &'static str,
        element: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let count = self.array(min_element, what)?;
        self.elements(count, element)
    }

    /// An array or null, its elements read by `element`.
    pub fn nullable_array_of<T>(
        &mut self,
        min_element: usize,
        what: &'static str,
        element: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Option<Vec<T>>, DecodeError> {
        let Some(count) = self.nullable_array(min_element, what)? else { return Ok(None) };
        self.elements(count, element).map(Some)
    }

    fn elements<T>(
        &mut self,
        count: usize,
        mut element: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        // The count is possible but not proven: beyond this size, memory grows with the elements.
        let mut elements = Vec::with_capacity(count.min(MAX_ELEMENTS_AHEAD));
        for _ in 0..count {
            elements.push(element(self)?);
        }
        Ok(elements)
    }

    /// Length of a byte section or array, -1 for null.
    fn count(&mut self, what: &'static str) -> Result<i64, DecodeError> {
        match self.encoding {
            Encoding::Classic => self.i32(what).map(i64::from),
            Encoding::Flexible => Ok(i64::from(self.uvarint(what)?) - 1),
        }
    }

    fn length(
        &self,
        length: i64,
        limit: usize,
        what: &'static str,
    ) -> Result<Option<usize>, DecodeError> {
        if length == -1 {
            return Ok(None);
        }
        let Ok(count) = usize::try_from(length) else {
            return Err(DecodeError::NegativeLength { what, length });
        };
        if count > limit {
            let (length, limit) = (count as u64, limit as u64);
            return Err(DecodeError::LengthTooLarge { what, length, limit });
        }
        Ok(Some(count))
    }

    /// Reads the tagged fields that end a structure; there are none in the classic encoding. `visit` receives each
    /// tag and a reader over just its value. It must read the whole value, or no byte of it if the tag is unknown.
    pub fn tagged(
        &mut self,
        what: &'static str,
        mut visit: impl FnMut(u32, &mut Reader<'a>) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        if self.encoding == Encoding::Classic {
            return Ok(());
        }
        let count = self.uvarint(what)?;
        if count > MAX_TAGS {
            return Err(DecodeError::TooManyTags { what, count });
        }
        let mut previous = None;
        for _ in 0..count {
            let tag = self.uvarint(what)?;
            if previous.is_some_and(|previous| tag <= previous) {
                return Err(DecodeError::TagOrder { what, tag });
            }
            previous = Some(tag);
            let size = self.uvarint(what)? as usize;
            if size > self.remaining() {
                return Err(DecodeError::Truncated { what });
            }
            let mut value = Reader { end: self.position + size, ..self.clone() };
            visit(tag, &mut value)?;
            if value.position != self.position {
                value.finish(what)?;
            }
            self.position += size;
        }
        Ok(())
    }

    /// Skips the tagged fields of a structure, all of which are unknown.
    pub fn skip_tagged(&mut self, what: &'static str) -> Result<(), DecodeError> {
        self.tagged(what, |_, _| Ok(()))
    }
}
