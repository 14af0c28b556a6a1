//! Writer of protobuf messages, for the formats of metrics: OpenTelemetry's and Prometheus'.
//!
//! The caller passes field numbers and picks the method of the field's type. Fields are written in the order of the calls.

#[cfg(test)]
mod tests;

use crate::varint;

/// A protobuf message under construction.
#[derive(Clone, Debug, Default)]
pub struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, value: u64) {
        let mut bytes = [0; varint::MAX_LEN_64];
        let len = varint::put_u64(&mut bytes, value);
        self.0.extend_from_slice(&bytes[..len]);
    }

    fn tag(&mut self, field: u32, wire_type: u32) {
        self.varint(u64::from(field << 3 | wire_type));
    }

    /// Writes a `uint32`, `uint64`, `bool` or enum.
    pub fn uint(&mut self, field: u32, value: u64) {
        self.tag(field, 0);
        self.varint(value);
    }

    /// Writes a `sint32` or `sint64`.
    pub fn sint(&mut self, field: u32, value: i64) {
        self.uint(field, varint::zigzag_64(value));
    }

    /// Writes a `fixed64`.
    pub fn fixed64(&mut self, field: u32, value: u64) {
        self.tag(field, 1);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// Writes a `double`.
    pub fn double(&mut self, field: u32, value: f64) {
        self.fixed64(field, value.to_bits());
    }

    /// Writes `bytes`, or a message from its bytes.
    pub fn bytes(&mut self, field: u32, value: &[u8]) {
        self.tag(field, 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    /// Writes a `string`.
    pub fn text(&mut self, field: u32, value: &str) {
        self.bytes(field, value.as_bytes());
    }

    /// Writes a message.
    pub fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    /// Writes a packed `repeated uint64`.
    pub fn uints(&mut self, field: u32, values: impl Iterator<Item = u64>) {
        self.message(field, |packed| values.for_each(|value| packed.varint(value)));
    }

    /// Writes a packed `repeated sint64`.
    pub fn sints(&mut self, field: u32, values: impl Iterator<Item = i64>) {
        self.uints(field, values.map(varint::zigzag_64));
    }

    /// Writes a message of a stream: its length and its fields, without a field number.
    pub fn delimited(&mut self, message: &Self) {
        self.varint(message.0.len() as u64);
        self.append(message);
    }

    /// Appends the fields of another message.
    pub fn append(&mut self, fields: &Self) {
        self.0.extend_from_slice(&fields.0);
    }

    /// Removes all bytes after `len`.
    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no field is written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the bytes.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}
