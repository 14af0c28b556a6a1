//! All sessions of a broker, in shards as in Kafka (KAFKA-9401). A session's id identifies its
//! shard, new sessions go to the shards in turn, and each shard has separate slots.

use std::time::Duration;

use curtail_wire::{
    ErrorCode,
    fetch::{FetchPartitionResponse, FetchRequest},
};
use tokio::time::Instant;

use super::{Context, Item, NO_SESSION, Shard};

/// Shards per broker.
const SHARDS: usize = 8;

/// The sessions of a broker.
#[derive(Debug)]
pub(crate) struct SessionCache {
    shards: Vec<Shard>,
    /// Number of requests for a new session so far.
    turns: usize,
}

/// Metrics of a broker's fetch sessions, with the names of Kafka's
/// `kafka.server:type=FetchSessionCache`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionMetrics {
    /// `NumIncrementalFetchSessions`.
    pub sessions: usize,
    /// `NumIncrementalFetchPartitionsCached`.
    pub partitions: usize,
    /// `IncrementalFetchSessionEvictionsPerSec`, as a count since the broker started.
    pub evictions: u64,
    /// Partitions that readers have removed from their sessions. Kafka does not count these.
    pub forgotten: u64,
}

impl SessionCache {
    /// Distributes `slots` evenly over the shards, rounded down: with fewer slots than shards there
    /// are none.
    pub(crate) fn new(slots: usize, eviction: Duration) -> Self {
        Self::with_shards(SHARDS, slots, eviction)
    }

    pub(super) fn with_shards(shards: usize, slots: usize, eviction: Duration) -> Self {
        let ids = i32::MAX / i32::try_from(shards).unwrap_or(i32::MAX);
        let shard = |number: i32| {
            let first = (number * ids).max(NO_SESSION + 1);
            Shard::new(slots / shards, eviction, first..(number + 1) * ids)
        };
        Self { shards: (0..i32::MAX).take(shards).map(shard).collect(), turns: 0 }
    }

    pub(crate) fn metrics(&self) -> SessionMetrics {
        SessionMetrics {
            sessions: self.shards.iter().map(Shard::len).sum(),
            partitions: self.shards.iter().map(Shard::partitions).sum(),
            evictions: self.shards.iter().map(|shard| shard.evictions).sum(),
            forgotten: self.shards.iter().map(|shard| shard.forgotten).sum(),
        }
    }

    /// Forgets all sessions and returns how many there were.
    pub(crate) fn expire_all(&mut self) -> usize {
        self.shards.iter_mut().map(Shard::expire_all).sum()
    }

    fn of(&mut self, id: i32) -> Option<&mut Shard> {
        self.shards.iter_mut().find(|shard| shard.ids.contains(&id))
    }

    /// Finds a request's session and applies its changes. Returns the context and all partitions to
    /// fetch.
    ///
    /// # Errors
    /// The error code of the whole response.
    pub(crate) fn begin(
        &mut self,
        request: &FetchRequest,
        by_ids: bool,
        now: Instant,
    ) -> Result<(Context, Vec<Item>), ErrorCode> {
        // An id outside all shards belongs to no session.
        let shard = match self.of(request.session_id) {
            Some(shard) => shard,
            None => match self.shards.first_mut() {
                Some(shard) => shard,
                None => return Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND),
            },
        };
        shard.begin(request, by_ids, now)
    }

    /// Ends a request. Returns the session id of the response, and the partitions without those
    /// that an incremental response omits. `random` returns any number.
    pub(crate) fn finish(
        &mut self,
        context: &Context,
        answers: Vec<(Item, FetchPartitionResponse)>,
        mut random: impl FnMut() -> u64,
        now: Instant,
    ) -> (i32, Vec<(Item, FetchPartitionResponse)>) {
        let shard = match context {
            Context::Sessionless => None,
            Context::Full { .. } => {
                let turn = self.turns % self.shards.len().max(1);
                self.turns = self.turns.wrapping_add(1);
                self.shards.get_mut(turn)
            }
            Context::Incremental { id } => self.of(*id),
        };
        let Some(shard) = shard else { return (NO_SESSION, answers) };
        let ids = shard.ids.clone();
        let among = u64::from((ids.end - ids.start).unsigned_abs());
        // The remainder is below the number of ids, so the sum is one of them.
        let candidate = || ids.start + i32::try_from(random() % among.max(1)).unwrap_or_default();
        shard.finish(context, answers, candidate, now)
    }
}
