//! Messages whose newest version in Apache Kafka 4.3 `kafka-protocol` lacks, in all their versions, and the messages of
//! streams groups, which it lacks entirely.
//!
//! They implement the traits of `kafka-protocol`, so they are encoded, decoded and sent like its messages. Unknown
//! tagged fields are skipped. The layouts are those of Kafka's message definitions.

use kafka_protocol::protocol::buf::{ByteBuf, ByteBufMut};
use kafka_protocol::protocol::{
    Decodable, Encodable, HeaderVersion, Message, Request, VersionRange,
};

use super::messages;
use crate::api::ApiKey;
use crate::primitives::{DecodeError, Encoding, Reader, Writer};

mod log_dirs;
mod markers;
mod offsets;
pub mod streams;
#[cfg(test)]
mod tests;
mod voters;

pub use log_dirs::{
    DescribableLogDirTopic, DescribeLogDirsPartition, DescribeLogDirsRequest,
    DescribeLogDirsResponse, DescribeLogDirsResult, DescribeLogDirsTopic,
};
pub use markers::{WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest};
pub use offsets::{
    OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic, OffsetFetchGroup,
    OffsetFetchRequest, OffsetFetchTopic,
};
pub use voters::{AddRaftVoterRequest, VoterListener};

use streams::{
    StreamsGroupDescribeRequest, StreamsGroupDescribeResponse, StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
};

/// A message's fields on the wire. The version is one of the message's.
trait Fields: Sized {
    fn read(version: i16, r: &mut Reader<'_>) -> Result<Self, DecodeError>;
    fn write(&self, version: i16, w: &mut Writer);

    /// Whether the version can express the message.
    fn fits(&self, _version: i16) -> bool {
        true
    }
}

fn write_list<T: Fields>(version: i16, list: &[T], w: &mut Writer) {
    w.array(list.len());
    list.iter().for_each(|element| element.write(version, w));
}

fn write_nullable_list<T: Fields>(version: i16, list: Option<&[T]>, w: &mut Writer) {
    match list {
        Some(list) => write_list(version, list, w),
        None => w.nullable_array(None),
    }
}

/// The partitions of a topic, without more about them.
fn read_indexes(what: &'static str, r: &mut Reader<'_>) -> Result<Vec<i32>, DecodeError> {
    r.array_of(4, what, |r| r.i32(what))
}

fn write_indexes(indexes: &[i32], w: &mut Writer) {
    w.array(indexes.len());
    indexes.iter().for_each(|index| w.i32(*index));
}

fn decode<T: Fields, B: ByteBuf>(api: ApiKey, buf: &mut B, version: i16) -> anyhow::Result<T> {
    let body = buf.peek_bytes(0..buf.remaining());
    let mut r = Reader::new(&body, api.encoding(version));
    let message = T::read(version, &mut r)?;
    buf.advance(r.position());
    Ok(message)
}

fn encode<T: Fields>(api: ApiKey, message: &T, version: i16) -> anyhow::Result<Writer> {
    anyhow::ensure!(message.fits(version), "the version cannot express the message");
    let mut w = Writer::with_capacity(256);
    w.set_encoding(api.encoding(version));
    message.write(version, &mut w);
    Ok(w)
}

/// Implements the traits of `kafka-protocol` for a message with [`Fields`].
macro_rules! message {
    ($message:ident, $api:expr, $min:literal..=$max:literal, headers $classic:literal, $flexible:literal) => {
        impl Message for $message {
            const VERSIONS: VersionRange = VersionRange { min: $min, max: $max };
            const DEPRECATED_VERSIONS: Option<VersionRange> = None;
        }

        impl Decodable for $message {
            fn decode<B: ByteBuf>(buf: &mut B, version: i16) -> anyhow::Result<Self> {
                decode($api, buf, version)
            }
        }

        impl Encodable for $message {
            fn encode<B: ByteBufMut>(&self, buf: &mut B, version: i16) -> anyhow::Result<()> {
                buf.put_slice(encode($api, self, version)?.as_slice());
                Ok(())
            }

            fn compute_size(&self, version: i16) -> anyhow::Result<usize> {
                Ok(encode($api, self, version)?.len())
            }
        }

        impl HeaderVersion for $message {
            fn header_version(version: i16) -> i16 {
                match $api.encoding(version) {
                    Encoding::Classic => $classic,
                    Encoding::Flexible => $flexible,
                }
            }
        }
    };
    (request $message:ident, $api:expr, $min:literal..=$max:literal, $response:ty) => {
        message!($message, $api, $min..=$max, headers 1, 2);

        impl Request for $message {
            const KEY: i16 = $api.0;
            type Response = $response;
        }
    };
    (response $message:ident, $api:expr, $min:literal..=$max:literal) => {
        message!($message, $api, $min..=$max, headers 0, 1);
    };
}

message!(request OffsetCommitRequest, ApiKey::OFFSET_COMMIT, 2..=10, messages::OffsetCommitResponse);
message!(request OffsetFetchRequest, ApiKey::OFFSET_FETCH, 1..=10, messages::OffsetFetchResponse);
message!(request WriteTxnMarkersRequest, ApiKey::WRITE_TXN_MARKERS, 1..=2, messages::WriteTxnMarkersResponse);
message!(request AddRaftVoterRequest, ApiKey::ADD_RAFT_VOTER, 0..=1, messages::AddRaftVoterResponse);
message!(request DescribeLogDirsRequest, ApiKey::DESCRIBE_LOG_DIRS, 1..=5, DescribeLogDirsResponse);
message!(response DescribeLogDirsResponse, ApiKey::DESCRIBE_LOG_DIRS, 1..=5);
message!(request StreamsGroupHeartbeatRequest, ApiKey::STREAMS_GROUP_HEARTBEAT, 0..=0, StreamsGroupHeartbeatResponse);
message!(response StreamsGroupHeartbeatResponse, ApiKey::STREAMS_GROUP_HEARTBEAT, 0..=0);
message!(request StreamsGroupDescribeRequest, ApiKey::STREAMS_GROUP_DESCRIBE, 0..=0, StreamsGroupDescribeResponse);
message!(response StreamsGroupDescribeResponse, ApiKey::STREAMS_GROUP_DESCRIBE, 0..=0);
