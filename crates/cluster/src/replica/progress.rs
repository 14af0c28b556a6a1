//! A leader's bookkeeping of its followers. Pure: the caller passes the time in.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

/// A follower's progress in one leader epoch.
#[derive(Clone, Debug)]
struct Follower {
    /// The follower has everything below this offset; -1 until its first fetch.
    end_offset: i64,
    /// The follower's log start offset; -1 until its first fetch.
    log_start: i64,
    /// When it last had all of the leader's records.
    caught_up: Instant,
    /// The leader's end offset and the time at its previous fetch.
    previous: Option<(i64, Instant)>,
    /// Epoch of the incarnation that fetched last, if it sent one.
    broker_epoch: Option<i64>,
}

impl Follower {
    fn new(now: Instant) -> Self {
        Self { end_offset: -1, log_start: -1, caught_up: now, previous: None, broker_epoch: None }
    }
}

/// The leader's view of a partition's followers in one leader epoch.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    followers: BTreeMap<i32, Follower>,
    /// The end of the log when the epoch began.
    pub(super) epoch_start: i64,
}

impl Progress {
    /// All followers start as caught up: in-sync ones get their full time, and out-of-sync ones
    /// must prove it.
    pub(super) fn new(
        followers: impl Iterator<Item = i32>,
        epoch_start: i64,
        now: Instant,
    ) -> Self {
        let followers = followers.map(|id| (id, Follower::new(now))).collect();
        Self { followers, epoch_start }
    }

    /// Applies a reassignment within the epoch; followers that stay keep their progress.
    pub(super) fn assign(&mut self, followers: impl Iterator<Item = i32>, now: Instant) {
        let mut known = std::mem::take(&mut self.followers);
        let one = |id| (id, known.remove(&id).unwrap_or_else(|| Follower::new(now)));
        self.followers = followers.map(one).collect();
    }

    /// Records a fetch: the follower has everything from `start` to below `offset`. Fetches of an
    /// earlier incarnation are ignored.
    pub(super) fn fetched(
        &mut self,
        id: i32,
        (start, offset): (i64, i64),
        leader_end: i64,
        broker_epoch: Option<i64>,
        now: Instant,
    ) {
        let Some(follower) = self.followers.get_mut(&id) else { return };
        // The next incarnation may have lost records that this one had (KIP-903).
        if broker_epoch < follower.broker_epoch {
            return;
        }
        if offset >= leader_end {
            follower.caught_up = now;
        } else if let Some((end, at)) = follower.previous
            && offset >= end
        {
            // It had all of the leader's records at that time, so it keeps up even if new records
            // arrive constantly.
            follower.caught_up = follower.caught_up.max(at);
        }
        follower.end_offset = offset;
        follower.log_start = start;
        follower.previous = Some((leader_end, now));
        follower.broker_epoch = broker_epoch;
    }

    /// Returns a follower's end offset, as of its last fetch; -1 before its first one.
    pub(super) fn end_offset(&self, id: i32) -> i64 {
        self.followers.get(&id).map_or(-1, |follower| follower.end_offset)
    }

    /// Returns the smallest log start offset of the in-sync replicas.
    pub(super) fn low_watermark(&self, leader: i32, leader_start: i64, isr: &[i32]) -> i64 {
        let start = |id: &i32| self.followers.get(id).map_or(-1, |f| f.log_start);
        let followers = isr.iter().filter(|id| **id != leader).map(start);
        followers.min().unwrap_or(leader_start).min(leader_start)
    }

    /// Returns the offset below which every in-sync replica has everything.
    pub(super) fn committed(&self, leader: i32, leader_end: i64, isr: &[i32]) -> i64 {
        let end = |id: &i32| match id {
            id if *id == leader => leader_end,
            id => self.followers.get(id).map_or(-1, |f| f.end_offset),
        };
        isr.iter().map(end).min().unwrap_or(leader_end)
    }

    /// Returns the value of [`Self::committed`] without the slowest in-sync follower: for a planted
    /// bug.
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

    /// Returns whether an out-of-sync follower may rejoin: it has all committed records and those
    /// of earlier leaders.
    pub(super) fn may_join(&self, id: i32, high_watermark: i64) -> bool {
        self.followers
            .get(&id)
            .is_some_and(|f| f.end_offset >= high_watermark && f.end_offset >= self.epoch_start)
    }

    /// Returns the incarnation that fetched last.
    pub(super) fn broker_epoch(&self, id: i32) -> Option<i64> {
        self.followers.get(&id)?.broker_epoch
    }

    /// Returns in-sync followers that have not reached the leader's end for `lag`.
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
