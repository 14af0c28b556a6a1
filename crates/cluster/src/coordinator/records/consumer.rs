//! Records of groups of the consumer protocol (KIP-848), as Kafka 4.3 writes them:
//! ConsumerGroupMetadata (3), ConsumerGroupMemberMetadata (5),
//! ConsumerGroupTargetAssignmentMetadata (6), ConsumerGroupTargetAssignmentMember (7),
//! ConsumerGroupCurrentMemberAssignment (8) and ConsumerGroupRegularExpression (16).
//!
//! Keys use the classic encoding, values of version 0 the flexible one.
//! ConsumerGroupPartitionMetadata (4) is not read: since Kafka 4.1 the hash of the metadata
//! replaces it (KIP-1101).

use bytes::Bytes;
use curtail_wire::{DecodeError, Encoding, Reader, Writer};

use super::{
    encoded, flexible,
    partitions::{read_epochs, read_partitions, write_epochs, write_partitions},
};
use crate::coordinator::{
    consumer::{Change, Current, MemberState, Profile, Resolved},
    runtime::StateRecord,
};

const GROUP: i16 = 3;
const MEMBER: i16 = 5;
const TARGET_EPOCH: i16 = 6;
const TARGET: i16 = 7;
const CURRENT: i16 = 8;
const REGEX: i16 = 16;
/// The version of all values.
const VERSION: i16 = 0;

/// The part of a group that a key names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Group,
    Member(String),
    TargetEpoch,
    Target(String),
    Current(String),
    Regex(String),
}

/// Returns the record of a change.
pub(crate) fn consumer_record(group: &str, change: &Change) -> StateRecord {
    let (kind, part) = match change {
        Change::Group(_) => (GROUP, None),
        Change::Member(id, _) => (MEMBER, Some(id)),
        Change::TargetEpoch(_) => (TARGET_EPOCH, None),
        Change::Target(id, _) => (TARGET, Some(id)),
        Change::Current(id, _) => (CURRENT, Some(id)),
        Change::Regex(regex, _) => (REGEX, Some(regex)),
    };
    let key = encoded(kind, |w| {
        w.string(group);
        if let Some(part) = part {
            w.string(part);
        }
    });
    StateRecord { key, value: value(change) }
}

fn value(change: &Change) -> Option<Bytes> {
    Some(match change {
        Change::Group(value) => {
            let (epoch, hash) = (*value)?;
            with_tagged_i64(epoch, hash)
        }
        Change::TargetEpoch(value) => {
            let (epoch, timestamp) = (*value)?;
            with_tagged_i64(epoch, timestamp)
        }
        Change::Member(_, profile) => {
            let profile = profile.as_ref()?;
            flexible(|w| write_profile(profile, w))
        }
        Change::Target(_, target) => {
            let target = target.as_ref()?;
            flexible(|w| {
                write_partitions(target, w);
                w.no_tags();
            })
        }
        Change::Current(_, current) => {
            let current = current.as_ref()?;
            flexible(|w| {
                w.i32(current.epoch);
                w.i32(current.previous_epoch);
                w.i8(current.state as i8);
                write_epochs(&current.assigned, w);
                write_epochs(&current.revoking, w);
                w.no_tags();
            })
        }
        Change::Regex(_, resolved) => {
            let resolved = resolved.as_ref()?;
            flexible(|w| {
                w.array(resolved.topics.len());
                resolved.topics.iter().for_each(|topic| w.string(topic));
                w.i64(resolved.version);
                w.i64(resolved.timestamp);
                w.no_tags();
            })
        }
    })
}

/// Encodes an epoch, and a number as tagged field 0 unless it is 0.
pub(super) fn with_tagged_i64(epoch: i32, tagged: i64) -> Bytes {
    flexible(|w| {
        w.i32(epoch);
        w.tag_count(u32::from(tagged != 0));
        if tagged != 0 {
            w.tag(0, |w| w.i64(tagged));
        }
    })
}

fn write_profile(profile: &Profile, w: &mut Writer) {
    w.nullable_string(profile.instance_id.as_deref());
    w.nullable_string(profile.rack_id.as_deref());
    w.string(&profile.client_id);
    w.string(&profile.client_host);
    w.array(profile.topics.len());
    profile.topics.iter().for_each(|topic| w.string(topic));
    w.string(&profile.regex);
    w.i32(profile.rebalance_timeout_ms);
    w.nullable_string(profile.assignor.as_deref());
    w.no_tags();
}

/// Reads the rest of a key whose first field was `kind`; `None` for an unknown kind.
pub(super) fn decode_part(
    kind: i16,
    r: &mut Reader<'_>,
) -> Result<Option<(String, Part)>, DecodeError> {
    if !matches!(kind, GROUP | MEMBER | TARGET_EPOCH | TARGET | CURRENT | REGEX) {
        return Ok(None);
    }
    let group = r.string("group")?.to_owned();
    let mut text = |what| r.string(what).map(str::to_owned);
    let part = match kind {
        MEMBER => Part::Member(text("member id")?),
        TARGET_EPOCH => Part::TargetEpoch,
        TARGET => Part::Target(text("member id")?),
        CURRENT => Part::Current(text("member id")?),
        REGEX => Part::Regex(text("regular expression")?),
        _ => Part::Group,
    };
    Ok(Some((group, part)))
}

/// Decodes the change that a record makes; `None` for an unknown version.
///
/// # Errors
/// The bytes are not a value.
pub(crate) fn decode_change(
    part: Part,
    value: Option<&[u8]>,
) -> Result<Option<Change>, DecodeError> {
    let Some(value) = value else {
        return Ok(Some(match part {
            Part::Group => Change::Group(None),
            Part::Member(id) => Change::Member(id, None),
            Part::TargetEpoch => Change::TargetEpoch(None),
            Part::Target(id) => Change::Target(id, None),
            Part::Current(id) => Change::Current(id, None),
            Part::Regex(regex) => Change::Regex(regex, None),
        }));
    };
    let value = Bytes::copy_from_slice(value);
    let mut r = Reader::new(&value, Encoding::Classic);
    if r.i16("value version")? != VERSION {
        return Ok(None);
    }
    r.set_encoding(Encoding::Flexible);
    let change = match part {
        Part::Group => Change::Group(Some(read_with_tagged_i64(&mut r)?)),
        Part::TargetEpoch => Change::TargetEpoch(Some(read_with_tagged_i64(&mut r)?)),
        Part::Member(id) => Change::Member(id, Some(read_profile(&mut r)?)),
        Part::Target(id) => {
            let target = read_partitions(&mut r)?;
            r.skip_tagged("target")?;
            Change::Target(id, Some(target))
        }
        Part::Current(id) => Change::Current(id, Some(read_current(&mut r)?)),
        Part::Regex(regex) => {
            let topics = r.array_of(1, "topics", |r| r.string("topic").map(str::to_owned))?;
            let (version, timestamp) = (r.i64("version")?, r.i64("timestamp")?);
            r.skip_tagged("regular expression")?;
            let topics = topics.into_iter().collect();
            Change::Regex(regex, Some(Resolved { topics, version, timestamp }))
        }
    };
    Ok(Some(change))
}

pub(super) fn read_with_tagged_i64(r: &mut Reader<'_>) -> Result<(i32, i64), DecodeError> {
    let epoch = r.i32("epoch")?;
    let mut tagged = 0;
    r.tagged("value", |tag, r| {
        if tag == 0 {
            tagged = r.i64("tagged value")?;
        }
        Ok(())
    })?;
    Ok((epoch, tagged))
}

fn read_profile(r: &mut Reader<'_>) -> Result<Profile, DecodeError> {
    let text = |text: Option<&str>| text.map(str::to_owned);
    let profile = Profile {
        instance_id: text(r.nullable_string("instance id")?),
        rack_id: text(r.nullable_string("rack id")?),
        client_id: r.string("client id")?.to_owned(),
        client_host: r.string("client host")?.to_owned(),
        topics: r
            .array_of(1, "topics", |r| r.string("topic").map(str::to_owned))?
            .into_iter()
            .collect(),
        regex: text(r.nullable_string("regular expression")?).unwrap_or_default(),
        rebalance_timeout_ms: r.i32("rebalance timeout")?,
        assignor: text(r.nullable_string("assignor")?),
    };
    // Tag 0 contains the data of classic protocol members, which do not occur here.
    r.skip_tagged("member")?;
    Ok(profile)
}

fn read_current(r: &mut Reader<'_>) -> Result<Current, DecodeError> {
    let epoch = r.i32("member epoch")?;
    let current = Current {
        epoch,
        previous_epoch: r.i32("previous epoch")?,
        state: MemberState::from_number(r.i8("state")?),
        assigned: read_epochs(epoch.max(0), r)?,
        revoking: read_epochs(epoch.max(0), r)?,
    };
    r.skip_tagged("current assignment")?;
    Ok(current)
}
