//! Where a consumer stands in a partition.
//!
//! Two offsets move on: the one that the application has consumed up to, and ahead of it the one fetched up to.
//! Every jump (a seek, a reset, damage) gives the position a new version, and whatever was asked for an older
//! version is discarded when its answer comes. Versions are unique over all partitions and assignments of a
//! consumer, so that an answer for an earlier assignment of the same partition is old, too.
//!
//! Jumps: [`Position::seek`], [`Position::reset`], [`Position::rewind`], [`Position::on_recreated`]. Looking up a reset:
//! [`Position::lookup`], [`Position::on_lookup`]. Fetching: [`Position::fetch_from`], then one of
//! [`Position::on_fetched`], [`Position::on_out_of_range`], [`Position::on_diverging`]. Handing out:
//! [`Position::on_consumed`].

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
    /// A version never given out before.
    pub fn next_version(&mut self) -> Version {
        self.0 += 1;
        Version(self.0)
    }
}

/// Where to stand without an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// At the first offset of the log.
    Earliest,
    /// At the end of what is readable.
    Latest,
    /// At the first record of this time or later, in milliseconds since 1970-01-01 UTC; at the end if there is
    /// none.
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
    /// Leave it to the application.
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

/// What to ask a fetch for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchFrom {
    /// Version of the position; hand it back with the answer.
    pub version: Version,
    /// First offset wanted.
    pub offset: i64,
    /// Epoch of the last record fetched, -1 after a jump.
    pub last_fetched_epoch: i32,
}

/// What became of an answer that the position's offset does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The answer is for an older version or another offset: nothing changed.
    Stale,
    /// What was fetched before is good and not consumed yet; ask again after a pause.
    NotYet,
    /// The position moved, to an offset or to be looked up.
    Moved,
    /// The policy leaves it to the application; the position holds still at this offset until a seek.
    Unresolved(i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The offset is to be looked up.
    Lookup(Reset),
    /// Fetching at `fetch`, which is never before `consumed`.
    At { consumed: i64, fetch: i64, last_fetched_epoch: i32 },
    /// At an offset the log does not have, until the application decides.
    Stuck { offset: i64 },
}

/// A position in one partition.
#[derive(Clone, Debug)]
pub struct Position {
    version: Version,
    state: State,
}

impl Position {
    /// A position to be looked up by the policy; without one it waits for a seek, as if it stood at an offset
    /// that does not exist.
    pub fn by_policy(policy: Policy, versions: &mut Versions) -> Self {
        let state = policy.reset().map_or(State::Stuck { offset: -1 }, State::Lookup);
        Self { version: versions.next_version(), state }
    }

    /// A position that somebody else will name, with [`Self::seek`] or [`Self::reset`].
    pub fn awaited(versions: &mut Versions) -> Self {
        Self::by_policy(Policy::None, versions)
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Jumps to an offset.
    pub fn seek(&mut self, offset: i64, versions: &mut Versions) {
        if !planted(Plant::FetchAfterSeek) {
            self.version = versions.next_version();
        }
        self.state = State::At { consumed: offset, fetch: offset, last_fetched_epoch: -1 };
    }

    /// Jumps to an offset that is to be looked up.
    pub fn reset(&mut self, to: Reset, versions: &mut Versions) {
        self.version = versions.next_version();
        self.state = State::Lookup(to);
    }

    /// Gives up what has been fetched and not consumed, and fetches it again.
    pub fn rewind(&mut self, versions: &mut Versions) {
        if let State::At { consumed, .. } = self.state {
            self.seek(consumed, versions);
        }
    }

    /// What is to be looked up.
    pub fn lookup(&self) -> Option<(Version, Reset)> {
        match self.state {
            State::Lookup(to) => Some((self.version, to)),
            State::At { .. } | State::Stuck { .. } => None,
        }
    }

    /// Takes the looked-up offset in; -1 says that there is no record of the time asked for. Whether it counted.
    pub fn on_lookup(&mut self, version: Version, offset: i64) -> bool {
        let State::Lookup(to) = self.state else { return false };
        if version != self.version {
            return false;
        }
        self.state = match to {
            _ if offset >= 0 => {
                State::At { consumed: offset, fetch: offset, last_fetched_epoch: -1 }
            }
            Reset::Timestamp(_) => State::Lookup(Reset::Latest),
            Reset::Earliest | Reset::Latest => return false,
        };
        true
    }

    /// What to fetch next.
    pub fn fetch_from(&self) -> Option<FetchFrom> {
        match self.state {
            State::At { fetch, last_fetched_epoch, .. } => {
                Some(FetchFrom { version: self.version, offset: fetch, last_fetched_epoch })
            }
            State::Lookup(_) | State::Stuck { .. } => None,
        }
    }

    /// The offset of the next record for the application, once known.
    pub fn consumed(&self) -> Option<i64> {
        match self.state {
            State::At { consumed, .. } => Some(consumed),
            State::Stuck { offset } if offset >= 0 => Some(offset),
            State::Stuck { .. } | State::Lookup(_) => None,
        }
    }

    /// Takes the records `asked..next` in, the last of leader epoch `epoch`. `false` says that they answer an older
    /// question and must be discarded.
    pub fn on_fetched(&mut self, version: Version, asked: i64, next: i64, epoch: i32) -> bool {
        if version != self.version {
            return false;
        }
        let State::At { fetch, last_fetched_epoch, .. } = &mut self.state else { return false };
        if (*fetch != asked || next <= asked) && !planted(Plant::FetchAfterSeek) {
            return false;
        }
        *fetch = next;
        *last_fetched_epoch = epoch;
        true
    }

    /// The application has been given everything before `next`. Whether it counted.
    pub fn on_consumed(&mut self, version: Version, next: i64) -> bool {
        if version != self.version {
            return false;
        }
        let State::At { consumed, fetch, .. } = &mut self.state else { return false };
        if next < *consumed || next > *fetch {
            return false;
        }
        *consumed = next;
        true
    }

    /// The broker says that its log does not have the offset asked for.
    pub fn on_out_of_range(
        &mut self,
        version: Version,
        asked: i64,
        policy: Policy,
        versions: &mut Versions,
    ) -> Misfit {
        let State::At { consumed, fetch, .. } = self.state else { return Misfit::Stale };
        if version != self.version || fetch != asked {
            return Misfit::Stale;
        }
        if consumed < fetch {
            return Misfit::NotYet;
        }
        self.resolve(asked, policy.reset(), versions)
    }

    /// The broker says that the log parts from what was read: an unclean election has cut it at `end`.
    pub fn on_diverging(
        &mut self,
        version: Version,
        asked: i64,
        end: EpochEndOffset,
        policy: Policy,
        versions: &mut Versions,
    ) -> Misfit {
        let State::At { consumed, fetch, .. } = self.state else { return Misfit::Stale };
        if version != self.version || fetch != asked {
            return Misfit::Stale;
        }
        if consumed < fetch && end.end_offset >= consumed {
            // Only what is fetched and not consumed may have been cut: fetching it again is enough.
            self.rewind(versions);
            return Misfit::Moved;
        }
        if policy == Policy::None || end.end_offset < 0 {
            return self.resolve(asked, policy.reset(), versions);
        }
        self.seek(end.end_offset.min(asked), versions);
        Misfit::Moved
    }

    /// The topic was deleted and made anew: its log began after this reader, so everything in it is unread.
    pub fn on_recreated(&mut self, policy: Policy, versions: &mut Versions) -> Misfit {
        match self.state {
            State::Lookup(_) => Misfit::Stale,
            State::At { consumed: offset, .. } | State::Stuck { offset } => {
                let to = policy.reset().map(|_| Reset::Earliest);
                self.resolve(offset, to, versions)
            }
        }
    }

    fn resolve(&mut self, offset: i64, to: Option<Reset>, versions: &mut Versions) -> Misfit {
        match to {
            Some(to) => {
                self.reset(to, versions);
                Misfit::Moved
            }
            None => {
                self.version = versions.next_version();
                self.state = State::Stuck { offset };
                Misfit::Unresolved(offset)
            }
        }
    }
}

/// What a partition's error in a Fetch answer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchVerdict {
    /// There is none.
    Good,
    /// The log does not have the offset: [`Position::on_out_of_range`].
    OutOfRange,
    /// The leader is elsewhere: at once to the one named, if its epoch is newer; else after a look at the metadata.
    Moved,
    /// The topic or partition is not there, or not yet: look at the metadata, try again after a pause.
    Missing,
    /// Nothing is known to be wrong with the metadata: try again after a pause.
    Retry,
    /// The application has to know; trying again may not help.
    Report,
}

/// Whether an error says that a broker has yet to learn who leads, which takes milliseconds: the epoch that the client
/// knows may be newer already.
pub fn is_soon_over(error: ErrorCode) -> bool {
    matches!(
        error,
        ErrorCode::NOT_LEADER_OR_FOLLOWER
            | ErrorCode::FENCED_LEADER_EPOCH
            | ErrorCode::UNKNOWN_LEADER_EPOCH
    )
}

/// Maps a partition's error in a Fetch or ListOffsets answer to what to do. Every code not named is reported.
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
        // The broker is behind the metadata, or failed for no reason it can name.
        ErrorCode::UNKNOWN_LEADER_EPOCH
        | ErrorCode::OFFSET_NOT_AVAILABLE
        | ErrorCode::REQUEST_TIMED_OUT
        | ErrorCode::THROTTLING_QUOTA_EXCEEDED
        | ErrorCode::UNKNOWN_SERVER_ERROR => FetchVerdict::Retry,
        _ => FetchVerdict::Report,
    }
}
