//! Records of `__consumer_offsets`, in the versions that Kafka's tools and older brokers read:
//! OffsetCommitKey and OffsetCommitValue, GroupMetadataKey and GroupMetadataValue. Records of the
//! consumer protocol are in [`consumer`], those of streams groups in [`streams`].

mod consumer;
mod partitions;
mod streams;

use bytes::Bytes;
use curtail_wire::{DecodeError, Encoding, Reader, Uuid, Writer};

use super::runtime::StateRecord;

pub(crate) use consumer::{Part, consumer_record, decode_change};
pub(crate) use streams::{StreamsPart, decode_streams_change, streams_record};

/// OffsetCommitKey; version 0 has the same fields.
const OFFSET_KEY: i16 = 1;
/// GroupMetadataKey.
const GROUP_KEY: i16 = 2;
/// OffsetCommitValue with the leader epoch (KIP-320) and, as a tagged field, the topic id (KIP-848).
const OFFSET_VALUE: i16 = 4;
/// Tag of the topic id.
const TOPIC_ID: u32 = 0;
/// GroupMetadataValue with static members (KIP-345).
const GROUP_VALUE: i16 = 3;

/// A decoded key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Offset {
        group: String,
        topic: String,
        partition: i32,
    },
    Group(String),
    /// A part of a group of the consumer protocol.
    Consumer(String, Part),
    /// A part of a streams group.
    Streams(String, StreamsPart),
}

/// A committed offset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OffsetValue {
    pub(crate) offset: i64,
    /// -1 if the consumer did not send it.
    pub(crate) leader_epoch: i32,
    pub(crate) metadata: String,
    /// Commit time in ms since the Unix epoch.
    pub(crate) commit_timestamp: i64,
    /// The topic's id in the commit; zero if it named the topic.
    pub(crate) topic_id: Uuid,
}

/// A stored group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupValue {
    pub(crate) protocol_type: String,
    pub(crate) generation: i32,
    pub(crate) protocol: Option<String>,
    pub(crate) leader: Option<String>,
    /// When the group entered its state, in ms since the Unix epoch; -1 if unknown.
    pub(crate) state_timestamp: i64,
    pub(crate) members: Vec<MemberValue>,
}

/// A member of a [`GroupValue`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemberValue {
    pub(crate) id: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) rebalance_timeout_ms: i32,
    pub(crate) session_timeout_ms: i32,
    pub(crate) subscription: Bytes,
    pub(crate) assignment: Bytes,
}

fn encoded(version: i16, fields: impl FnOnce(&mut Writer)) -> Bytes {
    let mut w = Writer::with_capacity(64);
    w.set_encoding(Encoding::Classic);
    w.i16(version);
    fields(&mut w);
    w.into_bytes()
}

/// Encodes a value of version 0 with tagged fields.
fn flexible(fields: impl FnOnce(&mut Writer)) -> Bytes {
    encoded(0, |w| {
        w.set_encoding(Encoding::Flexible);
        fields(w);
    })
}

fn group_key(group: &str) -> Bytes {
    encoded(GROUP_KEY, |w| w.string(group))
}

fn offset_key(group: &str, topic: &str, partition: i32) -> Bytes {
    encoded(OFFSET_KEY, |w| {
        w.string(group);
        w.string(topic);
        w.i32(partition);
    })
}

/// Returns a record that stores a group.
pub(crate) fn group_record(group: &str, value: &GroupValue) -> StateRecord {
    let value = encoded(GROUP_VALUE, |w| {
        w.string(&value.protocol_type);
        w.i32(value.generation);
        w.nullable_string(value.protocol.as_deref());
        w.nullable_string(value.leader.as_deref());
        w.i64(value.state_timestamp);
        w.array(value.members.len());
        for member in &value.members {
            w.string(&member.id);
            w.nullable_string(member.instance_id.as_deref());
            w.string(&member.client_id);
            w.string(&member.client_host);
            w.i32(member.rebalance_timeout_ms);
            w.i32(member.session_timeout_ms);
            w.bytes(&member.subscription);
            w.bytes(&member.assignment);
        }
    });
    StateRecord { key: group_key(group), value: Some(value) }
}

/// Returns a record that deletes a group.
pub(crate) fn group_tombstone(group: &str) -> StateRecord {
    StateRecord { key: group_key(group), value: None }
}

/// Returns a record that stores an offset.
pub(crate) fn offset_record(
    group: &str,
    topic: &str,
    partition: i32,
    value: &OffsetValue,
) -> StateRecord {
    let encoded = encoded(OFFSET_VALUE, |w| {
        w.set_encoding(Encoding::Flexible);
        w.i64(value.offset);
        w.i32(value.leader_epoch);
        w.string(&value.metadata);
        w.i64(value.commit_timestamp);
        if value.topic_id == Uuid::ZERO {
            w.no_tags();
        } else {
            w.tag_count(1);
            w.tag(TOPIC_ID, |w| w.uuid(value.topic_id));
        }
    });
    StateRecord { key: offset_key(group, topic, partition), value: Some(encoded) }
}

/// Returns a record that deletes an offset.
pub(crate) fn offset_tombstone(group: &str, topic: &str, partition: i32) -> StateRecord {
    StateRecord { key: offset_key(group, topic, partition), value: None }
}

/// Decodes a key; `None` for an unknown kind, such as those of share groups.
///
/// # Errors
/// The bytes are not a key.
pub(crate) fn decode_key(key: &[u8]) -> Result<Option<Key>, DecodeError> {
    let key = Bytes::copy_from_slice(key);
    let mut r = Reader::new(&key, Encoding::Classic);
    let kind = r.i16("key version")?;
    Ok(match kind {
        0 | OFFSET_KEY => Some(Key::Offset {
            group: r.string("group")?.to_owned(),
            topic: r.string("topic")?.to_owned(),
            partition: r.i32("partition")?,
        }),
        GROUP_KEY => Some(Key::Group(r.string("group")?.to_owned())),
        kind if streams::is_part(kind) => {
            let (group, part) = streams::decode_part(kind, &mut r)?;
            Some(Key::Streams(group, part))
        }
        kind => {
            consumer::decode_part(kind, &mut r)?.map(|(group, part)| Key::Consumer(group, part))
        }
    })
}

/// Decodes an offset's value; `None` for an unknown version.
///
/// # Errors
/// The bytes are not a value.
pub(crate) fn decode_offset(value: &[u8]) -> Result<Option<OffsetValue>, DecodeError> {
    let value = Bytes::copy_from_slice(value);
    let mut r = Reader::new(&value, Encoding::Classic);
    let version = r.i16("value version")?;
    if !(0..=OFFSET_VALUE).contains(&version) {
        return Ok(None);
    }
    r.set_encoding(Encoding::flexible_from(4, version));
    let mut value = OffsetValue {
        offset: r.i64("offset")?,
        leader_epoch: if version >= 3 { r.i32("leader epoch")? } else { -1 },
        metadata: r.string("metadata")?.to_owned(),
        commit_timestamp: r.i64("commit timestamp")?,
        topic_id: Uuid::ZERO,
    };
    r.tagged("offset value", |tag, r| {
        if tag == TOPIC_ID {
            value.topic_id = r.uuid("topic id")?;
        }
        Ok(())
    })?;
    Ok(Some(value))
}

/// Decodes a group's value; `None` for an unknown version.
///
/// # Errors
/// The bytes are not a value.
pub(crate) fn decode_group(value: &[u8]) -> Result<Option<GroupValue>, DecodeError> {
    let value = Bytes::copy_from_slice(value);
    let mut r = Reader::new(&value, Encoding::Classic);
    let version = r.i16("value version")?;
    if !(0..=GROUP_VALUE).contains(&version) {
        return Ok(None);
    }
    let text = |text: Option<&str>| text.map(str::to_owned);
    Ok(Some(GroupValue {
        protocol_type: r.string("protocol type")?.to_owned(),
        generation: r.i32("generation")?,
        protocol: text(r.nullable_string("protocol")?),
        leader: text(r.nullable_string("leader")?),
        state_timestamp: if version >= 2 { r.i64("state timestamp")? } else { -1 },
        members: r.array_of(18, "members", |r| decode_member(version, r))?,
    }))
}

fn decode_member(version: i16, r: &mut Reader<'_>) -> Result<MemberValue, DecodeError> {
    let id = r.string("member id")?.to_owned();
    let instance_id = if version >= 3 {
        r.nullable_string("group instance id")?.map(str::to_owned)
    } else {
        None
    };
    let client_id = r.string("client id")?.to_owned();
    let client_host = r.string("client host")?.to_owned();
    let first_timeout = r.i32("timeout")?;
    // Before version 1 one field held both timeouts.
    let session_timeout_ms = if version >= 1 { r.i32("session timeout")? } else { first_timeout };
    Ok(MemberValue {
        id,
        instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms: first_timeout,
        session_timeout_ms,
        subscription: r.bytes("subscription")?,
        assignment: r.bytes("assignment")?,
    })
}
