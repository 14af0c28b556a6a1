//! Fetch sessions (KIP-227) and their cache. Pure: the caller passes the time in.
//!
//! A shard of the cache has a number of slots. A new session takes another session's slot only in
//! two cases:
//!
//! - The other session has been unused for `min.incremental.fetch.session.eviction.ms`.
//! - The other session is worth less: followers precede consumers, and many partitions precede few.
//!   A session younger than that interval is exempt, unless it is a consumer's and the new one is a
//!   follower's.
//!
//! A request without a slot is answered without a session, and the client sends a full fetch next
//! time.

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
/// The request is sessionless, or closes its session.
const FINAL_EPOCH: i32 = -1;

/// A topic, as the request names it.
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
    /// Position in the order of responses.
    order: u64,
}

#[derive(Debug)]
struct Session {
    by_ids: bool,
    privileged: bool,
    epoch: i32,
    created: Instant,
    last_used: Instant,
    /// Whether it had reached the age for comparison when it was last used.
    comparable: bool,
    partitions: BTreeMap<Key, Cached>,
    order: BTreeMap<u64, Key>,
    next_order: u64,
}

impl Session {
    fn put(&mut self, item: &Item) {
        let key = (item.topic.clone(), item.fetch.index);
        if let Some(cached) = self.partitions.get_mut(&key) {
            if cached.fetch.current_leader_epoch != item.fetch.current_leader_epoch {
                // Followers ignore a response to a fetch with an earlier epoch.
                cached.high_watermark = -1;
            }
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

    /// Tracks a partition's response and returns whether it has changed. Partitions with records
    /// move to the end of the order, so that the others get their turn in the next response.
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
        if answer.error.is_error() || answer.diverging_epoch.is_some() {
            // The reader does not use this high watermark, so the next response counts as changed.
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

/// A request's relation to sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// A sessionless fetch.
    Sessionless,
    /// Opens a session.
    Full { by_ids: bool, privileged: bool },
    /// Continues a session.
    Incremental { id: i32 },
}

impl Context {
    /// Returns the session that continues after an empty response.
    pub(crate) fn session_id(&self) -> i32 {
        match self {
            Self::Incremental { id } => *id,
            Self::Sessionless | Self::Full { .. } => NO_SESSION,
        }
    }
}

/// The value of a session: followers before consumers, then the number of partitions, then the id.
type Worth = (bool, usize, i32);

/// A part of a broker's sessions with separate slots (KAFKA-9401).
#[derive(Debug)]
struct Shard {
    slots: usize,
    eviction: Duration,
    /// The range of its session ids.
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

    fn expire_all(&mut self) -> usize {
        self.last_used.clear();
        std::mem::take(&mut self.sessions).len()
    }

    fn partitions(&self) -> usize {
        self.sessions.values().map(|session| session.partitions.len()).sum()
    }

    /// Finds a request's session and applies its changes. Returns the context and all partitions to
    /// fetch.
    ///
    /// # Errors
    /// The error code of the whole response.
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

    /// Ends a request. Returns the session id of the response, and the partitions without those
    /// that an incremental response omits. `candidate` returns random ids of this shard for a new
    /// session.
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

    /// Ensures a free slot for a session of `size` partitions, evicting a session that is worth
    /// less if necessary.
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
        // A follower may evict any consumer's session; otherwise only sessions of sufficient age
        // can be evicted.
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

/// Epochs increase and wrap to 1.
fn next_epoch(epoch: i32) -> i32 {
    if epoch == i32::MAX { 1 } else { epoch + 1 }
}
