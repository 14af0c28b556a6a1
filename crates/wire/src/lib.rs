//! Bytes of the Kafka protocol: frames, headers, record batches, compression, and the codecs of the hot
//! messages (Produce, Fetch, Metadata). Everything else goes through the crate `kafka-protocol`, see [`cold`].
//!
//! Nothing here is asynchronous, reads a clock or knows the topology of a cluster. Every byte that is decoded
//! is untrusted: lengths are checked against what remains before anything is allocated.

pub mod api;
pub mod cold;
pub mod compression;
pub mod consumer_protocol;
pub mod error_code;
pub mod fetch;
pub mod frame;
pub mod header;
pub mod metadata;
pub mod otlp;
pub mod primitives;
pub mod produce;
pub mod protobuf;
pub mod records;
pub mod report;
pub mod security;
pub mod varint;

pub use api::{ApiKey, ApiVersions, UnsupportedVersion};
pub use error_code::ErrorCode;
pub use primitives::{DecodeError, Encoding, Reader, Uuid, Writer};
pub use report::Report;
pub use security::{Mechanism, SecurityProtocol};

#[cfg(test)]
mod test_support;
