//! Tries of new leaders: requests to partitions whose current leader has acknowledged nothing yet.

use std::{sync::Arc, time::Duration};

use super::Request;
use crate::producer::partition::Partition;

/// Limit for partitions with a new leader in the next request. A new leader is slow, and delays the rest of its request and
/// later requests (decision 0053).
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

    /// Whether a request with this many tries admits nothing more.
    pub(super) fn is_full(self, tried: usize) -> bool {
        matches!(self, Self::Apart(most) if tried >= most)
    }
}

/// Limit for a quick response, if [`PATIENCE`] times the connection's quickest one is shorter.
const QUICK: Duration = Duration::from_millis(20);
const PATIENCE: u32 = 4;

/// Number of tries per request of one connection.
///
/// It begins with one and doubles after each request that was full, quick, and acknowledged as a whole. Otherwise it
/// returns to one. So a new producer proves all leaders within a few requests, and slow new leaders are tried one by one.
pub(super) struct Trying {
    most: usize,
    quickest: Duration,
    /// Partitions of the last request with tries, until the next request shows whether they were acknowledged.
    last: Vec<Arc<Partition>>,
    was_quick: bool,
}

impl Default for Trying {
    fn default() -> Self {
        Self { most: 1, quickest: Duration::MAX, last: Vec::new(), was_quick: false }
    }
}

impl Trying {
    /// Returns the limit for the connection's next request, with these in flight.
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

    /// Records the response time of a request that is not settled yet.
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
