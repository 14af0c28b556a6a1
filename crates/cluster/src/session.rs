//! Fetch sessions (KIP-227) and the cache that holds them: pure, the time is passed in.
//!
//! A shard of the cache has a number of slots. A new session takes one from another session only if that one has been
//! unused for `min.incremental.fetch.session.eviction.ms`, or is worth less: followers before consumers, many
//! partitions before few, where a session of that age is up for comparison at all. A request that gets no slot
//! is answered without a session, and the client fetches everything again next time.

mod cache;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    sync::Arc,
    time::Duration,
};

use curtail_wire::{
    ErrorCode, Uuid,
    fetch::{FetchPartition, FetchPartitionResponse, FetchRequest},
};
use tokio::time::Instant;

pub(crate) use self::cache::SessionCache;
pub use self::cache::SessionMetrics;

/// No session.
pub(crate) const NO_SESSION: i32 = 0;
/// The request opens a session.
const INITIAL_EPOCH: i32 = 0;
/// The request goes without a session, or closes one.
const FINAL_EPOCH: i32 = -1;

/// A topic as the request names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TopicRef {
    Name(Arc<str>),
    Id(Uuid),
}

/// A partition to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) topic: TopicRef,
    pub(crate) fetch: FetchPartition,
}

type Key = (TopicRef, i32);

#[derive(Clone, Debug)]
struct Cached {
    fetch: FetchPartition,
    high_watermark: i64,
    log_start: i64,
    /// Place in the order of answering.
    order: u64,
}

#[derive(Debug)]
struct Session {
    by_ids: bool,
    privileged: bool,
    epoch: i32,
    created: Instant,
    last_used: Instant,
    /// Whether it was old enough for comparison when it was last used.
    comparable: bool,
    partitions: BTreeMap<Key, Cached>,
    order: BTreeMap<u64, Key>,
    next_order: u64,
}

impl Session {
    fn put(&mut self, item: &Item) {
        let key = (item.topic.clone(), item.fetch.index);
        if let Some(cached) = self.partitions.get_mut(&key) {
            cached.fetch = item.fetch;
            return;
        }
        let order = self.next_order;
        self.next_order += 1;
        self.order.insert(order, key.clone());
        let cached = Cached { fetch: item.fetch, high_watermark: -1, log_start: -1, order };
        self.partitions.insert(key, cached);
    }

    fn forget(&mut self, key: &Key) {
        if let Some(cached) = self.partitions.remove(key) {
            self.order.remove(&cached.order);
        }
    }

    fn items(&self) -> Vec<Item> {
        let item = |key: &Key| {
            self.partitions.get(key).map(|c| Item { topic: key.0.clone(), fetch: c.fetch })
        };
        self.order.values().filter_map(item).collect()
    }

    /// Takes note of what is answered for a partition and says whether that is news. Partitions with records go
    /// to the end of the order, so that the others get their turn within the next answer's bytes.
    fn answered(&mut self, key: &Key, answer: &FetchPartitionResponse) -> bool {
        let Some(cached) = self.partitions.get_mut(key) else { return true };
        let news = !answer.records.is_empty()
            || answer.error.is_error()
            || answer.diverging_epoch.is_some()
            || answer.preferred_read_replica >= 0
            || answer.high_watermark != cached.high_watermark
            || answer.log_start_offset != cached.log_start;
        cached.high_watermark = answer.high_watermark;
        cached.log_start = answer.log_start_offset;
        if answer.error.is_error() {
            // Whatever comes after an error is news.
            cached.high_watermark = -1;
        }
        if !answer.records.is_empty() {
            self.order.remove(&cached.order);
            cached.order = self.next_order;
            self.next_order += 1;
            self.order.insert(cached.order, key.clone());
        }
        news
    }
}

/// How a request stands to sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// It does without.
    Sessionless,
    /// It wants one.
    Full { by_ids: bool, privileged: bool },
    /// It goes on in one.
    Incremental { id: i32 },
}

impl Context {
    /// The session that goes on if the request is answered with nothing.
    pub(crate) fn session_id(&self) -> i32 {
        match self {
            Self::Incremental { id } => *id,
            Self::Sessionless | Self::Full { .. } => NO_SESSION,
        }
    }
}

/// Bytes do not count here, only worth: followers before consumers, then size, then id.
type Worth = (bool, usize, i32);

/// A part of a broker's sessions, with slots of its own (KAFKA-9401).
#[derive(Debug)]
struct Shard {
    slots: usize,
    eviction: Duration,
    /// The ids of its sessions.
    ids: Range<i32>,
    sessions: BTreeMap<i32, Session>,
    last_used: BTreeSet<(Instant, i32)>,
    evictions: u64,
    forgotten: u64,
}

impl Shard {
    fn new(slots: usize, eviction: Duration, ids: Range<i32>) -> Self {
        let (sessions, last_used) = (BTreeMap::new(), BTreeSet::new());
        Self { slots, eviction, ids, sessions, last_used, evictions: 0, forgotten: 0 }
    }

    fn len(&self) -> usize {
        self.sessions.len()
    }

    fn partitions(&self) -> usize {
        self.sessions.values().map(|session| session.partitions.len()).sum()
    }

    /// Finds a request's session and applies its changes: the context and all partitions to fetch.
    ///
    /// # Errors
    /// What to answer to the whole request.
    fn begin(
        &mut self,
        request: &FetchRequest,
        by_ids: bool,
        now: Instant,
    ) -> Result<(Context, Vec<Item>), ErrorCode> {
        let topic_ref = |name: &str, id: Uuid| {
            if by_ids { TopicRef::Id(id) } else { TopicRef::Name(name.into()) }
        };
        let items = request.topics.iter().flat_map(|t| {
            let topic = topic_ref(&t.name, t.topic_id);
            t.partitions.iter().map(move |fetch| Item { topic: topic.clone(), fetch: *fetch })
        });
        let id = request.session_id;
        if matches!(request.session_epoch, INITIAL_EPOCH | FINAL_EPOCH) {
            // A full request replaces the session it names.
            self.remove(id);
            let items = items.collect();
            return Ok(match request.session_epoch {
                FINAL_EPOCH => (Context::Sessionless, items),
                _ => (Context::Full { by_ids, privileged: request.replica_id >= 0 }, items),
            });
        }
        let Some(session) = self.sessions.get_mut(&id) else {
            return Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
        };
        if session.epoch != request.session_epoch {
            return Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH);
        }
        if session.by_ids != by_ids {
            return Err(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR);
        }
        items.for_each(|item| session.put(&item));
        for topic in &request.forgotten {
            let name = topic_ref(&topic.name, topic.topic_id);
            self.forgotten += topic.partitions.len() as u64;
            topic.partitions.iter().for_each(|index| session.forget(&(name.clone(), *index)));
        }
        session.epoch = next_epoch(session.epoch);
        let items = session.items();
        if items.is_empty() {
            self.remove(id);
            return Ok((Context::Sessionless, items));
        }
        self.touch(id, now);
        Ok((Context::Incremental { id }, items))
    }

    fn touch(&mut self, id: i32, now: Instant) {
        if let Some(session) = self.sessions.get_mut(&id) {
            self.last_used.remove(&(session.last_used, id));
            session.last_used = now;
            session.comparable = now.saturating_duration_since(session.created) > self.eviction;
            self.last_used.insert((now, id));
        }
    }

    fn evict(&mut self, id: i32) {
        self.evictions += 1;
        self.remove(id);
    }

    fn remove(&mut self, id: i32) {
        if let Some(session) = self.sessions.remove(&id) {
            self.last_used.remove(&(session.last_used, id));
        }
    }

    /// Ends a request: the session id to answer, and the answers without those an incremental answer omits.
    /// `candidate` is a random id of the shard's for a new session.
    fn finish(
        &mut self,
        context: &Context,
        answers: Vec<(Item, FetchPartitionResponse)>,
        mut candidate: impl FnMut() -> i32,
        now: Instant,
    ) -> (i32, Vec<(Item, FetchPartitionResponse)>) {
        match context {
            Context::Sessionless => (NO_SESSION, answers),
            Context::Full { by_ids, privileged } => {
                if answers.is_empty() || !self.make_room(*privileged, answers.len(), now) {
                    return (NO_SESSION, answers);
                }
                let taken = |id: &i32| !self.ids.contains(id) || self.sessions.contains_key(id);
                let mut id = candidate();
                while taken(&id) {
                    id = candidate();
                }
                let mut session = Session {
                    by_ids: *by_ids,
                    privileged: *privileged,
                    epoch: next_epoch(INITIAL_EPOCH),
                    created: now,
                    last_used: now,
                    comparable: false,
                    partitions: BTreeMap::new(),
                    order: BTreeMap::new(),
                    next_order: 0,
                };
                answers.iter().for_each(|(item, _)| session.put(item));
                for (item, answer) in &answers {
                    session.answered(&(item.topic.clone(), item.fetch.index), answer);
                }
                self.sessions.insert(id, session);
                self.last_used.insert((now, id));
                (id, answers)
            }
            Context::Incremental { id } => {
                let Some(session) = self.sessions.get_mut(id) else { return (*id, answers) };
                let news = |(item, answer): &(Item, FetchPartitionResponse)| {
                    session.answered(&(item.topic.clone(), item.fetch.index), answer)
                };
                (*id, answers.into_iter().filter(news).collect())
            }
        }
    }

    /// Frees a slot for a session of `size` partitions, if there is none and another's is worth less.
    fn make_room(&mut self, privileged: bool, size: usize, now: Instant) -> bool {
        if self.sessions.len() < self.slots {
            return true;
        }
        let old = |at: Instant| now.saturating_duration_since(at) > self.eviction;
        if let Some((used, id)) = self.last_used.first().copied()
            && old(used)
        {
            self.evict(id);
            return true;
        }
        // A privileged newcomer may push out any consumer's session, others only sessions of some age.
        let up_for_comparison = |s: &Session| s.comparable || (privileged && !s.privileged);
        let worth =
            |(id, s): (&i32, &Session)| -> Worth { (s.privileged, s.partitions.len(), *id) };
        let least = self.sessions.iter().filter(|(_, s)| up_for_comparison(s)).map(worth).min();
        match least {
            Some(least) if (least.0, least.1) < (privileged, size) => {
                self.evict(least.2);
                true
            }
            _ => false,
        }
    }
}

/// Epochs count up and start again at 1.
fn next_epoch(epoch: i32) -> i32 {
    if epoch == i32::MAX { 1 } else { epoch + 1 }
}
