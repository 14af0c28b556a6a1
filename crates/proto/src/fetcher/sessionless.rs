//! The two connections for fetches without a session.

use std::{collections::BTreeMap, time::Instant};

use crate::{TopicPartition, later::Later, position::FetchFrom};

/// The purpose of a sessionless fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    /// Records known to exist: the broker responds at once.
    Known,
    /// Records that may arrive: the broker waits for them.
    Coming,
}

/// Positions that a fetch names.
pub(super) type Asked = BTreeMap<TopicPartition, FetchFrom>;

/// One connection.
#[derive(Debug, Default)]
enum Line {
    #[default]
    Closed,
    Idle,
    InFlight {
        asked: Asked,
        /// When to request metadata from other brokers.
        suspect_at: Instant,
    },
}

/// Both connections.
#[derive(Debug, Default)]
pub(super) struct Sessionless {
    known: Line,
    coming: Line,
}

impl Sessionless {
    fn line(&mut self, purpose: Purpose) -> &mut Line {
        match purpose {
            Purpose::Known => &mut self.known,
            Purpose::Coming => &mut self.coming,
        }
    }

    fn in_flight(&mut self) -> impl Iterator<Item = &mut Instant> {
        [&mut self.known, &mut self.coming].into_iter().filter_map(|line| match line {
            Line::InFlight { suspect_at, .. } => Some(suspect_at),
            Line::Closed | Line::Idle => None,
        })
    }

    /// Whether a fetch of records known to exist is in flight.
    pub(super) fn awaits_known(&self) -> bool {
        matches!(self.known, Line::InFlight { .. })
    }

    /// Whether a fetch in flight names the partition with the same position.
    pub(super) fn asks(&self, at: &TopicPartition, from: FetchFrom) -> bool {
        [&self.known, &self.coming].into_iter().any(|line| match line {
            Line::InFlight { asked, .. } => asked.get(at) == Some(&from),
            Line::Closed | Line::Idle => false,
        })
    }

    /// A fetch is sent.
    pub(super) fn sent(&mut self, purpose: Purpose, asked: Asked, suspect_at: Instant) {
        *self.line(purpose) = Line::InFlight { asked, suspect_at };
    }

    /// A response has arrived. Returns what its request named; `None` if no request was in flight.
    pub(super) fn answered(&mut self, purpose: Purpose) -> Option<Asked> {
        let line = self.line(purpose);
        match std::mem::replace(line, Line::Idle) {
            Line::InFlight { asked, .. } => Some(asked),
            other => {
                *line = other;
                None
            }
        }
    }

    /// Closes both connections. Returns whether one was open.
    pub(super) fn close(&mut self) -> bool {
        let Self { known, coming } = std::mem::take(self);
        !matches!((known, coming), (Line::Closed, Line::Closed))
    }

    /// When the next response makes the broker suspect.
    pub(super) fn suspect_at(&self) -> Option<Instant> {
        let lines = [&self.known, &self.coming].into_iter();
        let times = lines.filter_map(|line| match line {
            Line::InFlight { suspect_at, .. } => Some(*suspect_at),
            Line::Closed | Line::Idle => None,
        });
        times.min()
    }

    /// Whether a response is overdue. It is again after another `patience`.
    pub(super) fn suspect(&mut self, now: Instant, patience: std::time::Duration) -> bool {
        let mut is_overdue = false;
        for suspect_at in self.in_flight().filter(|at| **at <= now) {
            *suspect_at = suspect_at.later(patience);
            is_overdue = true;
        }
        is_overdue
    }
}
