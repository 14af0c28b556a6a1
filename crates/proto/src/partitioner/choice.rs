//! The choice among brokers that respond about as fast as the fastest.
//!
//! The Java client weighs partitions by the number of their queued batches, so a broker whose queue never grows keeps
//! its full share however slowly it responds. Here the measure is the expected time until a record added now is
//! acknowledged ([`crate::path::Gate::expected_wait`]). The choice is uniform among all brokers about as good as the
//! best. Equal brokers get equal shares. A slow broker gets nothing until the queues of the others have grown and
//! made them as slow.

use std::time::Duration;

/// Multiple of the best wait up to which a broker counts as equally good.
const TIMES: u32 = 2;

/// Allowance on top of the multiple: below this, differences are noise.
const SLACK: Duration = Duration::from_millis(1);

/// One broker that leads partitions of the topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// Number of usable partitions of the topic that it leads.
    pub partitions: u32,
    /// Time until a record added now is acknowledged; zero if unknown.
    pub wait: Duration,
    /// Age of its oldest request without a response.
    pub unanswered: Option<Duration>,
    /// Whether records for it are in flight or waiting, so that its response time is measured anyway.
    pub busy: bool,
}

/// Rule of the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Uniformly (`partitioner.adaptive.partitioning.enable=false`).
    Uniform,
    /// Prefers brokers with the shortest expected wait (KIP-794).
    Adaptive {
        /// `partitioner.availability.timeout.ms`; `None` for zero, which switches it off.
        availability_timeout: Option<Duration>,
    },
    /// Prefers partitions with fewer queued batches, as the Java client does ([`super::by_queued_batches`]).
    QueuedBatches {
        /// As above.
        availability_timeout: Option<Duration>,
    },
}

/// The chosen partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Index of the candidate.
    pub candidate: usize,
    /// Index among the candidate's partitions.
    pub nth: u32,
    /// Whether the broker is otherwise avoided and gets this one record as a measurement.
    pub probe: bool,
    /// Expected wait of the best broker.
    pub best: Duration,
}

/// Whether `wait` is too long in comparison with the best broker's.
pub fn is_late(wait: Duration, best: Duration) -> bool {
    wait > best.saturating_mul(TIMES).saturating_add(SLACK)
}

impl Candidate {
    /// Whether no request has waited for its response for longer than `timeout`.
    pub fn is_available(&self, timeout: Option<Duration>) -> bool {
        timeout.is_none_or(|timeout| self.unanswered.unwrap_or_default() <= timeout)
    }
}

/// Chooses one partition, uniformly unless the rule is [`Rule::Adaptive`]. `draw` is any random number. Returns `None` if no candidate has a partition.
pub fn choose(candidates: &[Candidate], rule: Rule, probe_due: bool, draw: u64) -> Option<Chosen> {
    let Rule::Adaptive { availability_timeout } = rule else {
        return among(candidates, |_| true, draw, Duration::ZERO);
    };
    let available = |c: &Candidate| c.is_available(availability_timeout);
    let best_of = |fits: &dyn Fn(&Candidate) -> bool| {
        let fit = candidates.iter().filter(|c| c.partitions > 0 && fits(c));
        fit.map(|c| c.wait).min()
    };
    // When no broker is available, all count as equal.
    let (best, needs_available) = match best_of(&available) {
        Some(best) => (best, true),
        None => (best_of(&|_| true)?, false),
    };
    let good = |c: &Candidate| !is_late(c.wait, best) && (!needs_available || available(c));
    if probe_due {
        let probe = among(candidates, |c| !good(c) && !c.busy, draw, best);
        if let Some(chosen) = probe {
            return Some(Chosen { probe: true, ..chosen });
        }
    }
    among(candidates, good, draw, best)
}

/// Chooses uniformly among the partitions of the candidates that fit.
fn among(
    candidates: &[Candidate],
    fits: impl Fn(&Candidate) -> bool,
    draw: u64,
    best: Duration,
) -> Option<Chosen> {
    let fitting = || candidates.iter().enumerate().filter(|(_, c)| c.partitions > 0 && fits(c));
    let total: u64 = fitting().map(|(_, c)| u64::from(c.partitions)).sum();
    let mut nth = draw.checked_rem(total)? as u32;
    for (candidate, c) in fitting() {
        if nth < c.partitions {
            return Some(Chosen { candidate, nth, probe: false, best });
        }
        nth -= c.partitions;
    }
    None
}
