//! What a leader knows of its followers: pure bookkeeping, the time is passed in.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

/// A follower's progress in one leader epoch.
#[derive(Clone, Debug)]
struct Follower {
    /// Everything below has been appended there; -1 until its first fetch.
    end_offset: i64,
    /// Its log begins there; -1 until its first fetch.
    log_start: i64,
    /// When it last had all that the leader had.
    caught_up: Instant,
    /// The leader's end and the time at its previous fetch.
    previous: Option<(i64, Instant)>,
    /// Epoch of the incarnation that fetched last, where it said so.
    broker_epoch: Option<i64>,
}

impl Follower {
    fn new(now: Instant) -> Self {
        Self { end_offset: -1, log_start: -1, caught_up: now, previous: None, broker_epoch: None }
    }
}

/// The followers of a partition as its leader sees them, for one leader epoch.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    followers: BTreeMap<i32, Follower>,
    /// Where the log ended when the epoch began.
    pub(super) epoch_start: i64,
}

impl Progress {
    /// All followers count as caught up now: those out of sync have to prove it, those in sync get their time.
    pub(super) fn new(
        followers: impl Iterator<Item = i32>,
        epoch_start: i64,
        now: Instant,
    ) -> Self {
        let followers = followers.map(|id| (id, Follower::new(now))).collect();
        Self { followers, epoch_start }
    }

    /// A reassignment changes the followers within the epoch: who stays keeps what is known of it.
    pub(super) fn assign(&mut self, followers: impl Iterator<Item = i32>, now: Instant) {
        let mut known = std::mem::take(&mut self.followers);
        let one = |id| (id, known.remove(&id).unwrap_or_else(|| Follower::new(now)));
        self.followers = followers.map(one).collect();
    }

    /// Takes note of a fetch: the follower has everything from `start` to below `offset`. One of an earlier incarnation than seen
    /// says nothing.
    pub(super) fn fetched(
        &mut self,
        id: i32,
        (start, offset): (i64, i64),
        leader_end: i64,
        broker_epoch: Option<i64>,
        now: Instant,
    ) {
        let Some(follower) = self.followers.get_mut(&id) else { return };
        // What an incarnation had may be lost to the next one (KIP-903).
        if broker_epoch < follower.broker_epoch {
            return;
        }
        if offset >= leader_end {
            follower.caught_up = now;
        } else if let Some((end, at)) = follower.previous
            && offset >= end
        {
            // It has all that the leader had then: it keeps up, even if new records never let it reach the end.
            follower.caught_up = follower.caught_up.max(at);
        }
        follower.end_offset = offset;
        follower.log_start = start;
        follower.previous = Some((leader_end, now));
        follower.broker_epoch = broker_epoch;
    }

    /// Where a follower's log ends, as far as it has said; -1 before its first fetch.
    pub(super) fn end_offset(&self, id: i32) -> i64 {
        self.followers.get(&id).map_or(-1, |follower| follower.end_offset)
    }

    /// The earliest of the offsets at which the logs of the in-sync replicas begin.
    pub(super) fn low_watermark(&self, leader: i32, leader_start: i64, isr: &[i32]) -> i64 {
        let start = |id: &i32| self.followers.get(id).map_or(-1, |f| f.log_start);
        let followers = isr.iter().filter(|id| **id != leader).map(start);
        followers.min().unwrap_or(leader_start).min(leader_start)
    }

    /// The offset below which every in-sync replica has everything.
    pub(super) fn committed(&self, leader: i32, leader_end: i64, isr: &[i32]) -> i64 {
        let end = |id: &i32| match id {
            id if *id == leader => leader_end,
            id => self.followers.get(id).map_or(-1, |f| f.end_offset),
        };
        isr.iter().map(end).min().unwrap_or(leader_end)
    }

    /// What [`Self::committed`] would be if the slowest in-sync follower did not count: for a planted bug.
    pub(super) fn committed_without_slowest(
        &self,
        leader: i32,
        leader_end: i64,
        isr: &[i32],
    ) -> i64 {
        let without = |out: &i32| isr.iter().copied().filter(|id| id != out).collect::<Vec<_>>();
        let followers = isr.iter().filter(|id| **id != leader);
        let committed = followers.map(|out| self.committed(leader, leader_end, &without(out)));
        committed.max().unwrap_or(leader_end)
    }

    /// Whether a follower out of sync may come back: it has what is committed and what older leaders wrote.
    pub(super) fn may_join(&self, id: i32, high_watermark: i64) -> bool {
        self.followers
            .get(&id)
            .is_some_and(|f| f.end_offset >= high_watermark && f.end_offset >= self.epoch_start)
    }

    /// The incarnation that fetched last.
    pub(super) fn broker_epoch(&self, id: i32) -> Option<i64> {
        self.followers.get(&id)?.broker_epoch
    }

    /// In-sync followers that have not been at the leader's end for `lag`.
    pub(super) fn lagging(
        &self,
        isr: &[i32],
        leader_end: i64,
        lag: Duration,
        now: Instant,
    ) -> Vec<i32> {
        let late = |id: &&i32| {
            self.followers.get(id).is_some_and(|f| {
                f.end_offset != leader_end && now.saturating_duration_since(f.caught_up) > lag
            })
        };
        isr.iter().filter(late).copied().collect()
    }
}
