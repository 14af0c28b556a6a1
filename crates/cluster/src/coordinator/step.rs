//! Operations of a group's state machine. An operation works on a copy of the group that shares unchanged
//! parts, and returns it with the changes that lead to it, one per record.

use curtail_wire::ErrorCode;
use tokio::time::Instant;

/// The time of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(crate) now: Instant,
    /// Wall-clock time in ms since the Unix epoch.
    pub(crate) now_ms: i64,
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) code: ErrorCode,
    pub(crate) reason: String,
}

impl Refused {
    pub(crate) fn new(code: ErrorCode, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into() }
    }
}

impl From<ErrorCode> for Refused {
    fn from(code: ErrorCode) -> Self {
        Self::new(code, code.message())
    }
}

/// A state machine whose changes are stored. Loading applies the same changes as the operations do.
pub(crate) trait Machine: Clone {
    /// The change that one record makes.
    type Change: Clone;

    /// Applies a change. Deleting something that does not exist changes nothing.
    fn apply(&mut self, change: Self::Change);
}

/// The result of an operation.
#[derive(Debug)]
pub(crate) struct Step<G: Machine, T> {
    /// The group, once the changes are stored.
    pub(crate) group: G,
    pub(crate) changes: Vec<G::Change>,
    pub(crate) answer: T,
}

/// An operation in progress: the resulting group, and the changes that lead to it.
pub(super) struct Draft<G: Machine> {
    pub(super) group: G,
    pub(super) changes: Vec<G::Change>,
}

impl<G: Machine> Draft<G> {
    pub(super) fn of(group: &G) -> Self {
        Self { group: group.clone(), changes: Vec::new() }
    }

    pub(super) fn change(&mut self, change: G::Change) {
        self.group.apply(change.clone());
        self.changes.push(change);
    }

    pub(super) fn done<T>(self, answer: T) -> Step<G, T> {
        Step { group: self.group, changes: self.changes, answer }
    }
}
