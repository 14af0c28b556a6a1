//! Messages between the members of a consumer group, which their coordinator forwards without reading: subscriptions
//! to the leader, assignments from it, and the sticky assignors' user data (KIP-429, KIP-792, KIP-881).
//!
//! Every message begins with its version, and later versions only append fields. A version above the last known one
//! is read as that one, and the rest is ignored, as in the Java client.

use std::sync::Arc;

use bytes::Bytes;

use crate::{DecodeError, Encoding, Reader, Writer};

#[cfg(test)]
mod tests;

/// The last known version, which is the one written.
pub const VERSION: i16 = 3;

/// Partitions by topic.
pub type Partitions = Vec<(Arc<str>, Vec<i32>)>;

/// Topics and partitions of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// Topics it subscribes to.
    pub topics: Vec<Arc<str>>,
    /// Data for the assignor.
    pub user_data: Option<Bytes>,
    /// Partitions it owns (version 1 and later).
    pub owned: Partitions,
    /// Generation of the owned partitions, -1 for none (version 2 and later).
    pub generation: i32,
    /// Rack of the member (version 3 and later).
    pub rack: Option<Arc<str>>,
}

/// No topics and no partitions.
impl Default for Subscription {
    fn default() -> Self {
        Self { topics: Vec::new(), user_data: None, owned: Vec::new(), generation: -1, rack: None }
    }
}

/// A member's assignment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// Partitions assigned to the member.
    pub partitions: Partitions,
    /// Data from the leader's assignor.
    pub user_data: Option<Bytes>,
}

/// User data of the assignor `sticky`: the member's previous assignment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StickyData {
    /// The member's partitions.
    pub partitions: Partitions,
    /// Generation of that assignment; members before Kafka 2.3 do not report it.
    pub generation: Option<i32>,
}

impl Subscription {
    /// Encodes in this version.
    #[must_use]
    pub fn encode(&self, version: i16) -> Bytes {
        let mut w = Writer::with_capacity(128);
        w.i16(version);
        w.array(self.topics.len());
        for topic in &self.topics {
            w.string(topic);
        }
        w.nullable_bytes(self.user_data.as_deref());
        if version >= 1 {
            put_partitions(&mut w, &self.owned);
        }
        if version >= 2 {
            w.i32(self.generation);
        }
        if version >= 3 {
            w.nullable_string(self.rack.as_deref());
        }
        w.into_bytes()
    }

    /// Decodes a subscription of any version.
    ///
    /// # Errors
    /// If they are malformed.
    pub fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        const WHAT: &str = "a member's subscription";
        let mut r = Reader::new(bytes, Encoding::Classic);
        let version = version(&mut r, WHAT)?;
        let topics = r.array_of(2, "topics", |r| Ok(r.string("topic")?.into()))?;
        let user_data = r.nullable_bytes("user data")?;
        let owned = if version >= 1 { partitions(&mut r, "owned partitions")? } else { Vec::new() };
        let generation = if version >= 2 { r.i32("generation")? } else { -1 };
        let rack = if version >= 3 { r.nullable_string("rack")?.map(Arc::from) } else { None };
        Ok(Self { topics, user_data, owned, generation, rack })
    }
}

impl Assignment {
    /// Encodes in this version.
    #[must_use]
    pub fn encode(&self, version: i16) -> Bytes {
        let mut w = Writer::with_capacity(128);
        w.i16(version);
        put_partitions(&mut w, &self.partitions);
        w.nullable_bytes(self.user_data.as_deref());
        w.into_bytes()
    }

    /// Decodes an assignment of any version. Zero bytes are an empty assignment: the coordinator sends that to a
    /// member that the leader has left out.
    ///
    /// # Errors
    /// If they are malformed.
    pub fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        const WHAT: &str = "a member's assignment";
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let mut r = Reader::new(bytes, Encoding::Classic);
        version(&mut r, WHAT)?;
        let partitions = partitions(&mut r, "assigned partitions")?;
        let user_data = r.nullable_bytes("user data")?;
        Ok(Self { partitions, user_data })
    }
}

impl StickyData {
    /// Encodes the user data: without a version, the generation last.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut w = Writer::with_capacity(128);
        put_partitions(&mut w, &self.partitions);
        if let Some(generation) = self.generation {
            w.i32(generation);
        }
        w.into_bytes()
    }

    /// Decodes user data.
    ///
    /// # Errors
    /// If they are malformed.
    pub fn decode(bytes: &Bytes) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes, Encoding::Classic);
        let partitions = partitions(&mut r, "previous assignment")?;
        let generation = if r.remaining() >= 4 { Some(r.i32("generation")?) } else { None };
        Ok(Self { partitions, generation })
    }
}

/// User data of the assignor `cooperative-sticky`: the generation of the member's owned partitions. Later
/// subscriptions have a separate field for it; members of Kafka 2.4 to 3.1 read it here.
#[must_use]
pub fn encode_generation(generation: i32) -> Bytes {
    let mut w = Writer::with_capacity(4);
    w.i32(generation);
    w.into_bytes()
}

/// Decodes user data of [`encode_generation`]; `None` if it is too short.
#[must_use]
pub fn decode_generation(bytes: &Bytes) -> Option<i32> {
    Reader::new(bytes, Encoding::Classic).i32("generation").ok()
}

fn version(r: &mut Reader<'_>, what: &'static str) -> Result<i16, DecodeError> {
    let version = r.i16("version")?;
    if version < 0 {
        return Err(DecodeError::UnsupportedVersion { what, version });
    }
    Ok(version.min(VERSION))
}

fn put_partitions(w: &mut Writer, partitions: &Partitions) {
    w.array(partitions.len());
    for (topic, indexes) in partitions {
        w.string(topic);
        w.array(indexes.len());
        for index in indexes {
            w.i32(*index);
        }
    }
}

fn partitions(r: &mut Reader<'_>, what: &'static str) -> Result<Partitions, DecodeError> {
    r.array_of(6, what, |r| {
        let topic = r.string("topic")?.into();
        let indexes = r.array_of(4, "partitions", |r| r.i32("partition"))?;
        Ok((topic, indexes))
    })
}
