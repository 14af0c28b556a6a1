//! How many leaders that have acknowledged nothing yet one request tries.

use std::{sync::Arc, time::Duration};

use super::Request;
use crate::producer::partition::Partition;

/// What the next request may carry of partitions whose current leader has acknowledged nothing yet. Such a leader is slow, and
/// holds up whatever shares its request or follows it (decision 0053).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tries {
    /// Any number of them, with others.
    Any,
    /// At most this many of them, and no others.
    Apart(usize),
    /// None: a request with some is in flight.
    Later,
}

impl Tries {
    /// Whether a partition may join a request that carries this many batches, some of them tries.
    pub(super) fn admits(self, is_try: bool, tried: usize, carried: usize) -> bool {
        match self {
            Self::Any => true,
            Self::Later => !is_try,
            Self::Apart(most) if is_try => tried == carried && tried < most,
            Self::Apart(_) => tried == 0,
        }
    }
}

/// A response within this time, or within [`PATIENCE`] times the quickest one, costs the others nothing that they would notice.
const QUICK: Duration = Duration::from_millis(20);
const PATIENCE: u32 = 4;

/// The tries of one connection: one at first, twice as many after each request that was full, quick, and acknowledged as a
/// whole. A producer that has just started soon knows all leaders; leaders that have just been elected are tried one by one.
pub(super) struct Trying {
    most: usize,
    quickest: Duration,
    /// Partitions that the last request with a try carried, until they show whether it was acknowledged.
    last: Vec<Arc<Partition>>,
    was_quick: bool,
}

impl Default for Trying {
    fn default() -> Self {
        Self { most: 1, quickest: Duration::MAX, last: Vec::new(), was_quick: false }
    }
}

impl Trying {
    /// For the next request of the connection with these in flight.
    pub(super) fn next<'a>(&mut self, in_flight: impl Iterator<Item = &'a Request>) -> Tries {
        if in_flight
            .flat_map(|request| &request.batches)
            .any(|sent| !sent.partition.standing.is_proven())
        {
            return Tries::Later;
        }
        if !self.last.is_empty() {
            let acknowledged = self.last.iter().all(|partition| partition.standing.is_proven());
            let was_full = self.last.len() >= self.most;
            self.most = if acknowledged && was_full && self.was_quick { self.most * 2 } else { 1 };
            self.last.clear();
        }
        Tries::Apart(self.most)
    }

    /// Records that the response to a request, not yet settled, took this long.
    pub(super) fn answered(&mut self, request: &Request, took: Duration) {
        self.quickest = self.quickest.min(took);
        let partitions = || request.batches.iter().map(|sent| &sent.partition);
        if partitions().all(|partition| partition.standing.is_proven()) {
            return;
        }
        self.was_quick = took <= QUICK.max(self.quickest.saturating_mul(PATIENCE));
        self.last = partitions().cloned().collect();
    }
}
