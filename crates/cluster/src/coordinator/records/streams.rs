//! Records of streams groups (KIP-1071), as Kafka 4.3 writes them: StreamsGroupMetadata (17),
//! StreamsGroupMemberMetadata (19), StreamsGroupTargetAssignmentMetadata (20),
//! StreamsGroupTargetAssignmentMember (21), StreamsGroupCurrentMemberAssignment (22) and StreamsGroupTopology (23).
//!
//! Keys use the classic encoding, values of version 0 the flexible one. A topology has the layout that it has in
//! StreamsGroupHeartbeat.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use curtail_wire::{
    DecodeError, Encoding, Reader, Writer,
    cold::newer::streams::{Endpoint, Topology},
};

use super::{
    consumer::{read_with_tagged_i64, with_tagged_i64},
    encoded, flexible,
    partitions::{read_epochs, read_partitions, write_epochs, write_partitions},
};
use crate::coordinator::{
    runtime::StateRecord,
    streams::{Change, Current, GroupValue, Held, MemberState, Profile, Roles},
};

const GROUP: i16 = 17;
const MEMBER: i16 = 19;
const TARGET_EPOCH: i16 = 20;
const TARGET: i16 = 21;
const CURRENT: i16 = 22;
const TOPOLOGY: i16 = 23;
/// The version of all values.
const VERSION: i16 = 0;

/// Tags of a group's value.
const VALIDATED_EPOCH: u32 = 0;
const CONFIGS: u32 = 1;

/// The part of a group that a key names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StreamsPart {
    Group,
    Topology,
    Member(String),
    TargetEpoch,
    Target(String),
    Current(String),
}

/// Returns the record of a change.
pub(crate) fn streams_record(group: &str, change: &Change) -> StateRecord {
    let (kind, member) = match change {
        Change::Group(_) => (GROUP, None),
        Change::Topology(_) => (TOPOLOGY, None),
        Change::Member(id, _) => (MEMBER, Some(id)),
        Change::TargetEpoch(_) => (TARGET_EPOCH, None),
        Change::Target(id, _) => (TARGET, Some(id)),
        Change::Current(id, _) => (CURRENT, Some(id)),
    };
    let key = encoded(kind, |w| {
        w.string(group);
        if let Some(member) = member {
            w.string(member);
        }
    });
    StateRecord { key, value: value(change) }
}

fn value(change: &Change) -> Option<Bytes> {
    Some(match change {
        Change::Group(value) => {
            let value = value.as_ref()?;
            flexible(|w| write_group(value, w))
        }
        Change::Topology(topology) => {
            let topology = topology.as_ref()?;
            flexible(|w| topology.encode(w))
        }
        Change::Member(_, profile) => {
            let profile = profile.as_ref()?;
            flexible(|w| write_profile(profile, w))
        }
        Change::TargetEpoch(value) => {
            let (epoch, timestamp) = (*value)?;
            with_tagged_i64(epoch, timestamp)
        }
        Change::Target(_, target) => {
            let Roles { active, standby, warmup } = target.as_ref()?;
            flexible(|w| {
                [active, standby, warmup].into_iter().for_each(|tasks| write_partitions(tasks, w));
                w.no_tags();
            })
        }
        Change::Current(_, current) => {
            let current = current.as_ref()?;
            flexible(|w| {
                w.i32(current.epoch);
                w.i32(current.previous_epoch);
                w.i8(current.state as i8);
                write_held(&current.assigned, w);
                write_held(&current.revoking, w);
                w.no_tags();
            })
        }
    })
}

fn write_group(value: &GroupValue, w: &mut Writer) {
    w.i32(value.epoch);
    w.i64(value.metadata_hash);
    // As in Kafka the settings are always present, the epoch unless it is the default.
    let validated = value.validated_epoch != -1;
    w.tag_count(1 + u32::from(validated));
    if validated {
        w.tag(VALIDATED_EPOCH, |w| w.i32(value.validated_epoch));
    }
    w.tag(CONFIGS, |w| write_pairs(&value.configs, w));
}

fn write_pairs(pairs: &BTreeMap<String, String>, w: &mut Writer) {
    w.array(pairs.len());
    for (key, value) in pairs {
        w.string(key);
        w.string(value);
        w.no_tags();
    }
}

fn write_profile(profile: &Profile, w: &mut Writer) {
    w.nullable_string(profile.instance_id.as_deref());
    w.nullable_string(profile.rack_id.as_deref());
    w.string(&profile.client_id);
    w.string(&profile.client_host);
    w.i32(profile.rebalance_timeout_ms);
    w.i32(profile.topology_epoch);
    w.string(&profile.process_id);
    // A nullable structure follows a byte.
    w.i8(if profile.user_endpoint.is_some() { 1 } else { -1 });
    if let Some(Endpoint { host, port }) = &profile.user_endpoint {
        w.string(host);
        w.u16(*port);
        w.no_tags();
    }
    write_pairs(&profile.client_tags, w);
    w.no_tags();
}

fn write_held(held: &Held, w: &mut Writer) {
    write_epochs(&held.active, w);
    write_partitions(&held.standby, w);
    write_partitions(&held.warmup, w);
}

/// Returns whether keys of this kind belong to streams groups.
pub(super) fn is_part(kind: i16) -> bool {
    matches!(kind, GROUP | MEMBER..=TOPOLOGY)
}

/// Reads the rest of a key whose first field was `kind`, for which [`is_part`] holds.
pub(super) fn decode_part(
    kind: i16,
    r: &mut Reader<'_>,
) -> Result<(String, StreamsPart), DecodeError> {
    let group = r.string("group")?.to_owned();
    let mut member = || r.string("member id").map(str::to_owned);
    let part = match kind {
        MEMBER => StreamsPart::Member(member()?),
        TARGET_EPOCH => StreamsPart::TargetEpoch,
        TARGET => StreamsPart::Target(member()?),
        CURRENT => StreamsPart::Current(member()?),
        TOPOLOGY => StreamsPart::Topology,
        _ => StreamsPart::Group,
    };
    Ok((group, part))
}

/// Decodes the change that a record makes; `None` for an unknown version.
///
/// # Errors
/// The bytes are not a value.
pub(crate) fn decode_streams_change(
    part: StreamsPart,
    value: Option<&[u8]>,
) -> Result<Option<Change>, DecodeError> {
    let Some(value) = value else {
        return Ok(Some(match part {
            StreamsPart::Group => Change::Group(None),
            StreamsPart::Topology => Change::Topology(None),
            StreamsPart::Member(id) => Change::Member(id, None),
            StreamsPart::TargetEpoch => Change::TargetEpoch(None),
            StreamsPart::Target(id) => Change::Target(id, None),
            StreamsPart::Current(id) => Change::Current(id, None),
        }));
    };
    let value = Bytes::copy_from_slice(value);
    let mut r = Reader::new(&value, Encoding::Classic);
    if r.i16("value version")? != VERSION {
        return Ok(None);
    }
    r.set_encoding(Encoding::Flexible);
    let r = &mut r;
    Ok(Some(match part {
        StreamsPart::Group => Change::Group(Some(read_group(r)?)),
        StreamsPart::Topology => Change::Topology(Some(Arc::new(Topology::decode(r)?))),
        StreamsPart::Member(id) => Change::Member(id, Some(read_profile(r)?)),
        StreamsPart::TargetEpoch => Change::TargetEpoch(Some(read_with_tagged_i64(r)?)),
        StreamsPart::Target(id) => {
            let (active, standby, warmup) =
                (read_partitions(r)?, read_partitions(r)?, read_partitions(r)?);
            r.skip_tagged("target")?;
            Change::Target(id, Some(Roles { active, standby, warmup }))
        }
        StreamsPart::Current(id) => Change::Current(id, Some(read_current(r)?)),
    }))
}

fn read_group(r: &mut Reader<'_>) -> Result<GroupValue, DecodeError> {
    let (epoch, metadata_hash) = (r.i32("epoch")?, r.i64("metadata hash")?);
    let (mut validated_epoch, mut configs) = (-1, BTreeMap::new());
    r.tagged("group", |tag, r| {
        match tag {
            VALIDATED_EPOCH => validated_epoch = r.i32("validated topology epoch")?,
            CONFIGS => {
                let read = r.nullable_array_of(3, "last assignment configs", read_pair)?;
                configs = read.unwrap_or_default().into_iter().collect();
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(GroupValue { epoch, metadata_hash, validated_epoch, configs })
}

fn read_pair(r: &mut Reader<'_>) -> Result<(String, String), DecodeError> {
    let (key, value) = (r.string("key")?.to_owned(), r.string("value")?.to_owned());
    r.skip_tagged("key and value")?;
    Ok((key, value))
}

fn read_profile(r: &mut Reader<'_>) -> Result<Profile, DecodeError> {
    let text = |text: Option<&str>| text.map(str::to_owned);
    let profile = Profile {
        instance_id: text(r.nullable_string("instance id")?),
        rack_id: text(r.nullable_string("rack id")?),
        client_id: r.string("client id")?.to_owned(),
        client_host: r.string("client host")?.to_owned(),
        rebalance_timeout_ms: r.i32("rebalance timeout")?,
        topology_epoch: r.i32("topology epoch")?,
        process_id: r.string("process id")?.to_owned(),
        user_endpoint: read_endpoint(r)?,
        client_tags: r.array_of(3, "client tags", read_pair)?.into_iter().collect(),
    };
    r.skip_tagged("member")?;
    Ok(profile)
}

fn read_endpoint(r: &mut Reader<'_>) -> Result<Option<Endpoint>, DecodeError> {
    if r.i8("user endpoint")? < 0 {
        return Ok(None);
    }
    let (host, port) = (r.string("host")?.to_owned(), r.u16("port")?);
    r.skip_tagged("endpoint")?;
    Ok(Some(Endpoint { host, port }))
}

fn read_current(r: &mut Reader<'_>) -> Result<Current, DecodeError> {
    let (epoch, previous_epoch) = (r.i32("member epoch")?, r.i32("previous member epoch")?);
    let state = MemberState::from_number(r.i8("state")?);
    let mut held = || -> Result<Held, DecodeError> {
        let active = read_epochs(epoch, r)?;
        Ok(Held { active, standby: read_partitions(r)?, warmup: read_partitions(r)? })
    };
    let (assigned, revoking) = (held()?, held()?);
    r.skip_tagged("current assignment")?;
    Ok(Current { epoch, previous_epoch, state, assigned, revoking })
}
