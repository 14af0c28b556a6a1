//! A consumer's position in one partition.
//!
//! Two offsets advance: the application has consumed up to the first, and the lane has fetched up to the second.
//! Every jump (a seek, a reset, damage) gives the position a new version. A response to a request for an older
//! version is discarded. Versions are unique over all partitions and assignments of a consumer, so a response for
//! an earlier assignment of the same partition is old as well.
//!
//! A position with a leader epoch must be validated by each new leader epoch before it is fetched from (KIP-320):
//! an unclean election may have replaced the records before it.
//!
//! Jumps: [`Position::seek`], [`Position::seek_to`], [`Position::reset`], [`Position::rewind`],
//! [`Position::on_recreated`]. Reset look-ups: [`Position::lookup`], [`Position::on_lookup`]. Validation:
//! [`Position::on_leader`], [`Position::validation`], then one of [`Position::on_validated`],
//! [`Position::on_unsupported`]. Fetching: [`Position::fetch_from`], then one of [`Position::on_fetched`],
//! [`Position::on_out_of_range`], [`Position::on_diverging`]. Delivery: [`Position::on_consumed`].
//!
//! # Invariants
//! - While a validation is due, [`Position::fetch_from`] is `None` and no fetch response counts.
//! - A jump or a newer leader epoch discards the validation in flight.
//! - No request names a leader epoch below the epoch of the position.

use curtail_wire::{ErrorCode, fetch::EpochEndOffset};

use crate::plant::{Plant, planted};

#[cfg(test)]
mod tests;

/// A version of a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(u64);

/// The source of a consumer's versions.
#[derive(Debug, Default)]
pub struct Versions(u64);

impl Versions {
    /// Returns a version that was never returned before.
    pub fn next_version(&mut self) -> Version {
        self.0 += 1;
        Version(self.0)
    }
}

/// Offset to look up for a position without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// The first offset of the log.
    Earliest,
    /// The end of the readable log.
    Latest,
    /// The first record of this time or later, in milliseconds since 1970-01-01 UTC; the end if there is none.
    Timestamp(i64),
}

/// `auto.offset.reset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Start at the first offset.
    Earliest,
    /// Start at the end.
    Latest,
    /// Start at the first record of this time or later, in milliseconds since 1970-01-01 UTC.
    Since(i64),
    /// Report it to the application.
    None,
}

impl Policy {
    fn reset(self) -> Option<Reset> {
        match self {
            Self::Earliest => Some(Reset::Earliest),
            Self::Latest => Some(Reset::Latest),
            Self::Since(time) => Some(Reset::Timestamp(time)),
            Self::None => None,
        }
    }
}

/// An offset and the leader epoch of the record before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Offset of the next record.
    pub offset: i64,
    /// Leader epoch of the record before it, -1 if unknown.
    pub epoch: i32,
}

impl Spot {
    /// An offset without a leader epoch.
    pub fn without_epoch(offset: i64) -> Self {
        Self { offset, epoch: -1 }
    }
}

/// Parameters of the next fetch, returned with the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchFrom {
    /// Version of the position.
    pub version: Version,
    /// First offset to read.
    pub offset: i64,
    /// Epoch of the last record fetched, -1 if unknown.
    pub last_fetched_epoch: i32,
    /// Leader epoch known, -1 if unknown.
    pub leader_epoch: i32,
}

/// Parameters of a validation, returned with the leader's response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validation {
    version: Version,
    /// The leader must have the record before this offset, written in this epoch.
    pub spot: Spot,
    /// Leader epoch to name in the request.
    pub leader_epoch: i32,
}

/// Records before a position that the log has lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncation {
    /// The position.
    pub at: Spot,
    /// First offset known to differ, with the epoch before it; `None` if the leader knows none.
    pub diverges: Option<Spot>,
}

/// Effect of a response that the position's offset does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The response is for an older version, offset or leader epoch: nothing changed.
    Stale,
    /// Records fetched before are good and not consumed yet; ask again after a backoff.
    NotYet,
    /// The position moved, to an offset or to a look-up.
    Moved,
    /// Out of range, and without a policy the application must decide.
    Unresolved(i64),
    /// The log was truncated, and without a policy the application must decide.
    Truncated(Truncation),
}

/// Whether the leader has confirmed the record before the offset fetched next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Check {
    Passed,
    Due,
}

impl Check {
    /// `leader_epoch` is `None` while no leader is known, and negative if the brokers keep no epochs.
    fn of(spot: Spot, leader_epoch: Option<i32>) -> Self {
        match leader_epoch {
            Some(..0) => Self::Passed,
            _ if spot.epoch < 0 || planted(Plant::PositionNotValidated) => Self::Passed,
            _ => Self::Due,
        }
    }
}

/// Why a position needs the application's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// Out of range, or in a topic that was created again.
    NoSuchOffset,
    Truncated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No offset until the application or the group names one.
    Awaited,
    /// The offset must be looked up.
    Lookup(Reset),
    /// Fetching at `fetch`, which is never before `consumed`.
    At { consumed: Spot, fetch: Spot, check: Check },
    /// At an offset that the log does not have, until the application decides.
    Stuck { at: Spot, cause: Cause },
}

/// A position in one partition.
#[derive(Clone, Debug)]
pub struct Position {
    version: Version,
    state: State,
    /// `None` while no leader is known; -1 if the brokers keep no epochs.
    leader_epoch: Option<i32>,
}

impl Position {
    /// A position that the policy looks up. Without a policy it waits for a seek.
    pub fn by_policy(policy: Policy, versions: &mut Versions) -> Self {
        let state = policy.reset().map_or(State::Awaited, State::Lookup);
        Self { version: versions.next_version(), state, leader_epoch: None }
    }

    /// A position without an offset, until [`Self::seek_to`] or [`Self::begin`].
    pub fn awaited(versions: &mut Versions) -> Self {
        Self::by_policy(Policy::None, versions)
    }

    /// The version of the position.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Restarts according to the policy.
    pub fn begin(&mut self, policy: Policy, versions: &mut Versions) {
        *self = Self { leader_epoch: self.leader_epoch, ..Self::by_policy(policy, versions) };
    }

    /// Jumps to an offset.
    pub fn seek(&mut self, offset: i64, versions: &mut Versions) {
        self.seek_to(Spot::without_epoch(offset), versions);
    }

    /// Jumps to an offset, which the leader validates if its epoch is known.
    pub fn seek_to(&mut self, spot: Spot, versions: &mut Versions) {
        self.start(spot, Check::of(spot, self.leader_epoch), versions);
    }

    /// Jumps to an offset that must be looked up.
    pub fn reset(&mut self, to: Reset, versions: &mut Versions) {
        self.version = versions.next_version();
        self.state = State::Lookup(to);
    }

    /// Discards records fetched and not consumed, and fetches them again. A truncated position is validated again, so
    /// that it is reported again.
    pub fn rewind(&mut self, versions: &mut Versions) {
        match self.state {
            State::At { consumed, check, .. } => self.start(consumed, check, versions),
            State::Stuck { at, cause: Cause::Truncated } => self.seek_to(at, versions),
            State::Awaited | State::Lookup(_) | State::Stuck { .. } => {}
        }
    }

    fn start(&mut self, spot: Spot, check: Check, versions: &mut Versions) {
        if !planted(Plant::FetchAfterSeek) {
            self.version = versions.next_version();
        }
        self.state = State::At { consumed: spot, fetch: spot, check };
    }

    /// The pending look-up.
    pub fn lookup(&self) -> Option<(Version, Reset)> {
        match self.state {
            State::Lookup(to) => Some((self.version, to)),
            State::Awaited | State::At { .. } | State::Stuck { .. } => None,
        }
    }

    /// Applies the looked-up offset; -1 means that there is no record of that time or later. Returns whether it
    /// counted.
    pub fn on_lookup(&mut self, version: Version, offset: i64) -> bool {
        let State::Lookup(to) = self.state else { return false };
        if version != self.version {
            return false;
        }
        self.state = match to {
            _ if offset >= 0 => {
                let spot = Spot::without_epoch(offset);
                State::At { consumed: spot, fetch: spot, check: Check::Passed }
            }
            Reset::Timestamp(_) => State::Lookup(Reset::Latest),
            Reset::Earliest | Reset::Latest => return false,
        };
        true
    }

    /// Reports that a leader of this epoch is known; -1 if the brokers keep no epochs. A new epoch makes a validation
    /// due.
    pub fn on_leader(&mut self, epoch: i32) {
        if self.leader_epoch == Some(epoch) {
            return;
        }
        self.leader_epoch = Some(epoch);
        if let State::At { fetch, check, .. } = &mut self.state {
            *check = Check::of(*fetch, self.leader_epoch);
        }
    }

    /// Leader epoch last known, `None` before the first leader.
    pub fn leader_epoch(&self) -> Option<i32> {
        self.leader_epoch
    }

    /// The epoch to name in requests. A record read in a later epoch than the metadata's proves that epoch: an older
    /// leader must refuse the request.
    fn epoch_to_name(&self, spot: Spot) -> i32 {
        match self.leader_epoch {
            Some(known @ 0..) => known.max(spot.epoch),
            _ => -1,
        }
    }

    /// The validation to send to the leader.
    pub fn validation(&self) -> Option<Validation> {
        match self.state {
            State::At { fetch, check: Check::Due, .. } if self.leader_epoch.is_some() => {
                let leader_epoch = self.epoch_to_name(fetch);
                Some(Validation { version: self.version, spot: fetch, leader_epoch })
            }
            _ => None,
        }
    }

    /// Applies the leader's response: the largest epoch up to the requested one, and its end. `Ok` resumes fetching.
    ///
    /// # Errors
    /// The position's next state, if the leader lacks the record before it.
    pub fn on_validated(
        &mut self,
        asked: Validation,
        end: EpochEndOffset,
        policy: Policy,
        versions: &mut Versions,
    ) -> Result<(), Misfit> {
        if self.validation() != Some(asked) {
            return Err(Misfit::Stale);
        }
        if end.epoch >= 0 && end.end_offset >= asked.spot.offset {
            self.pass();
            return Ok(());
        }
        Err(self.diverged(end, policy, versions))
    }

    /// Reports that the leader cannot validate positions: fetching resumes without validation. Returns whether the
    /// report was about the current validation.
    pub fn on_unsupported(&mut self, asked: Validation) -> bool {
        let counts = self.validation() == Some(asked);
        if counts {
            self.pass();
        }
        counts
    }

    fn pass(&mut self) {
        if let State::At { check, .. } = &mut self.state {
            *check = Check::Passed;
        }
    }

    /// Parameters of the next fetch.
    pub fn fetch_from(&self) -> Option<FetchFrom> {
        match self.state {
            State::At { fetch, check: Check::Passed, .. } => Some(FetchFrom {
                version: self.version,
                offset: fetch.offset,
                last_fetched_epoch: match planted(Plant::PositionNotValidated) {
                    true => -1,
                    false => fetch.epoch,
                },
                leader_epoch: self.epoch_to_name(fetch),
            }),
            _ => None,
        }
    }

    /// The next record for the application, once its offset is known.
    pub fn consumed(&self) -> Option<Spot> {
        match self.state {
            State::At { consumed: at, .. } | State::Stuck { at, .. } => Some(at),
            State::Awaited | State::Lookup(_) => None,
        }
    }

    /// As [`Self::consumed`], but not while a validation may still move it.
    pub fn confirmed(&self) -> Option<Spot> {
        match self.state {
            State::At { consumed, fetch, check: Check::Due } if consumed.offset == fetch.offset => {
                None
            }
            _ => self.consumed(),
        }
    }

    /// Applies the fetched records up to `next.offset`, the last one of leader epoch `next.epoch`. Returns `false` if
    /// they must be discarded: they belong to an older request, or there are none.
    pub fn on_fetched(&mut self, asked: FetchFrom, next: Spot) -> bool {
        if !self.is_current(asked) || next.offset <= asked.offset {
            return false;
        }
        if let State::At { fetch, .. } = &mut self.state {
            *fetch = next;
        }
        true
    }

    /// Reports that the application has received everything before `next.offset`, the last record of epoch
    /// `next.epoch`. Returns whether it counted.
    pub fn on_consumed(&mut self, version: Version, next: Spot) -> bool {
        if version != self.version {
            return false;
        }
        let State::At { consumed, fetch, .. } = &mut self.state else { return false };
        if next.offset < consumed.offset || next.offset > fetch.offset {
            return false;
        }
        if next.offset > consumed.offset {
            *consumed = next;
        }
        true
    }

    /// Whether a response to this fetch counts.
    pub fn is_current(&self, asked: FetchFrom) -> bool {
        self.fetching(asked).is_some()
    }

    /// Consumed and fetched offsets, if a response to this request counts.
    fn fetching(&self, asked: FetchFrom) -> Option<(Spot, Spot)> {
        let FetchFrom { version, offset, leader_epoch, .. } = asked;
        match self.state {
            State::At { consumed, fetch, check: Check::Passed }
                if version == self.version
                    && (offset == fetch.offset || planted(Plant::FetchAfterSeek))
                    && leader_epoch == self.epoch_to_name(fetch) =>
            {
                Some((consumed, fetch))
            }
            _ => None,
        }
    }

    /// Reports that the broker's log does not have the requested offset.
    pub fn on_out_of_range(
        &mut self,
        asked: FetchFrom,
        policy: Policy,
        versions: &mut Versions,
    ) -> Misfit {
        let Some((consumed, fetch)) = self.fetching(asked) else { return Misfit::Stale };
        if consumed.offset < fetch.offset {
            return Misfit::NotYet;
        }
        let to = match policy.reset() {
            Some(_) if planted(Plant::OutOfRangeToEnd) => Some(Reset::Latest),
            to => to,
        };
        self.resolve(consumed, Cause::NoSuchOffset, to, versions)
    }

    /// Reports that the broker's log differs from the records read: an unclean election has truncated it at `end`.
    pub fn on_diverging(
        &mut self,
        asked: FetchFrom,
        end: EpochEndOffset,
        policy: Policy,
        versions: &mut Versions,
    ) -> Misfit {
        if !self.is_current(asked) {
            return Misfit::Stale;
        }
        self.diverged(end, policy, versions)
    }

    /// Handles a leader whose log has at most the records before `end`. Records fetched and not consumed were
    /// committed when they were read: the application receives them before the position moves.
    fn diverged(&mut self, end: EpochEndOffset, policy: Policy, versions: &mut Versions) -> Misfit {
        let State::At { consumed: at, fetch, .. } = self.state else { return Misfit::Stale };
        if at.offset < fetch.offset {
            return Misfit::NotYet;
        }
        if at.offset == 0 {
            // No record before it can be lost. A leader whose log is empty knows no epoch at all.
            self.seek(0, versions);
            return Misfit::Moved;
        }
        let known = end.epoch >= 0 && end.end_offset >= 0;
        let diverges = known.then_some(Spot { offset: end.end_offset, epoch: end.epoch });
        match (policy.reset(), diverges) {
            (None, _) => {
                self.stop(at, Cause::Truncated, versions);
                Misfit::Truncated(Truncation { at, diverges })
            }
            // An earlier epoch that reaches further does not show where the logs diverge.
            (Some(_), Some(spot)) if spot.offset >= at.offset => {
                self.seek(at.offset, versions);
                Misfit::Moved
            }
            (Some(_), Some(spot)) => {
                self.start(spot, Check::Passed, versions);
                Misfit::Moved
            }
            (Some(to), None) => {
                self.reset(to, versions);
                Misfit::Moved
            }
        }
    }

    /// Reports that the topic was deleted and created again: its log began after this reader, so all of it is unread.
    /// Epochs of the deleted topic are unrelated to it.
    pub fn on_recreated(&mut self, policy: Policy, versions: &mut Versions) -> Misfit {
        self.leader_epoch = None;
        match self.state {
            State::Awaited | State::Lookup(_) => Misfit::Stale,
            State::At { consumed: at, .. } | State::Stuck { at, .. } => {
                let to = policy.reset().map(|_| Reset::Earliest);
                self.resolve(Spot::without_epoch(at.offset), Cause::NoSuchOffset, to, versions)
            }
        }
    }

    fn resolve(
        &mut self,
        at: Spot,
        cause: Cause,
        to: Option<Reset>,
        versions: &mut Versions,
    ) -> Misfit {
        match to {
            Some(to) => {
                self.reset(to, versions);
                Misfit::Moved
            }
            None => {
                self.stop(at, cause, versions);
                Misfit::Unresolved(at.offset)
            }
        }
    }

    fn stop(&mut self, at: Spot, cause: Cause, versions: &mut Versions) {
        self.version = versions.next_version();
        self.state = State::Stuck { at, cause };
    }
}

/// The reaction to a partition's error in a Fetch response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchVerdict {
    /// No error.
    Good,
    /// The log does not have the offset: [`Position::on_out_of_range`].
    OutOfRange,
    /// The leader has changed: fetch from the named one at once if its epoch is newer, else after a metadata refresh.
    Moved,
    /// The topic or partition does not exist, or not yet: refresh the metadata, retry after a backoff.
    Missing,
    /// The metadata is not known to be wrong: retry after a backoff.
    Retry,
    /// Report it to the application; a retry may not help.
    Report,
}

/// Whether the error ends within milliseconds: the broker has not applied an election that the client may already
/// know.
pub fn is_soon_over(error: ErrorCode) -> bool {
    matches!(
        error,
        ErrorCode::NOT_LEADER_OR_FOLLOWER
            | ErrorCode::FENCED_LEADER_EPOCH
            | ErrorCode::UNKNOWN_LEADER_EPOCH
    )
}

/// Maps a partition's error in a Fetch or ListOffsets response to a reaction. Every code not named is reported.
pub fn classify(error: ErrorCode) -> FetchVerdict {
    match error {
        ErrorCode::NONE => FetchVerdict::Good,
        ErrorCode::OFFSET_OUT_OF_RANGE => FetchVerdict::OutOfRange,
        ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::FENCED_LEADER_EPOCH => FetchVerdict::Moved,
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
        | ErrorCode::UNKNOWN_TOPIC_ID
        | ErrorCode::INCONSISTENT_TOPIC_ID
        | ErrorCode::LEADER_NOT_AVAILABLE
        | ErrorCode::REPLICA_NOT_AVAILABLE
        | ErrorCode::KAFKA_STORAGE_ERROR
        | ErrorCode::LISTENER_NOT_FOUND => FetchVerdict::Missing,
        // The broker lags behind the metadata, or failed for no reason it can name.
        ErrorCode::UNKNOWN_LEADER_EPOCH
        | ErrorCode::OFFSET_NOT_AVAILABLE
        | ErrorCode::REQUEST_TIMED_OUT
        | ErrorCode::THROTTLING_QUOTA_EXCEEDED
        | ErrorCode::UNKNOWN_SERVER_ERROR => FetchVerdict::Retry,
        _ => FetchVerdict::Report,
    }
}
