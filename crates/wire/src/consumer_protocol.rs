//! What members of a consumer group tell each other through their coordinator, which does not read it: subscriptions
//! on the way to the leader, assignments on the way back, and the sticky assignors' user data (KIP-429, KIP-792,
//! KIP-881).
//!
//! Every blob begins with its version, and later versions only append fields. A version above the last one known here
//! is read as that one, and what follows is ignored, as in the Java client.

use std::sync::Arc;

use bytes::Bytes;

use crate::{DecodeError, Encoding, Reader, Writer};

#[cfg(test)]
mod tests;

/// The last version known, and the one that is written.
pub const VERSION: i16 = 3;

/// Partitions by topic.
pub type Partitions = Vec<(Arc<str>, Vec<i32>)>;

/// What a member wants and has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// Topics it wants to read.
    pub topics: Vec<Arc<str>>,
    /// For the assignor.
    pub user_data: Option<Bytes>,
    /// Partitions it owns (version 1 and later).
    pub owned: Partitions,
    /// Generation in which it was given them, -1 for none (version 2 and later).
    pub generation: i32,
    /// Where it is (version 3 and later).
    pub rack: Option<Arc<str>>,
}

/// Nothing wanted, nothing owned.
impl Default for Subscription {
    fn default() -> Self {
        Self { topics: Vec::new(), user_data: None, owned: Vec::new(), generation: -1, rack: None }
    }
}

/// What a member is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// Its partitions.
    pub partitions: Partitions,
    /// From the leader's assignor.
    pub user_data: Option<Bytes>,
}

/// User data of the assignor `sticky`: what the member had.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StickyData {
    /// The member's partitions.
    pub partitions: Partitions,
    /// Generation in which it was given them; members before Kafka 2.3 do not say.
    pub generation: Option<i32>,
}

impl Subscription {
    /// The bytes of this version.
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

    /// What the bytes say.
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
    /// The bytes of this version.
    #[must_use]
    pub fn encode(&self, version: i16) -> Bytes {
        let mut w = Writer::with_capacity(128);
        w.i16(version);
        put_partitions(&mut w, &self.partitions);
        w.nullable_bytes(self.user_data.as_deref());
        w.into_bytes()
    }

    /// What the bytes say. No bytes at all are an empty assignment: that is what the coordinator gives a member whom
    /// the leader has left out.
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
    /// The bytes: without a version of their own, the generation last.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut w = Writer::with_capacity(128);
        put_partitions(&mut w, &self.partitions);
        if let Some(generation) = self.generation {
            w.i32(generation);
        }
        w.into_bytes()
    }

    /// What the bytes say.
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

/// User data of the assignor `cooperative-sticky`: the generation in which the member was given what it owns. It has a
/// field of its own in later subscriptions; members of Kafka 2.4 to 3.1 read it here.
#[must_use]
pub fn encode_generation(generation: i32) -> Bytes {
    let mut w = Writer::with_capacity(4);
    w.i32(generation);
    w.into_bytes()
}

/// As [`encode_generation`] wrote it; `None` where the bytes are too few.
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
