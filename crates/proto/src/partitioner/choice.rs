//! The choice among brokers: who answers about as soon as any.
//!
//! Java weighs partitions by the number of their queued batches, so that a broker whose queue never grows keeps its
//! full share however slowly it answers. Here the measure is the time that a record added now has to expect until it
//! is acknowledged ([`crate::load::Load::expected_wait`]), and the choice is uniform among all that are about as good as
//! the best: equal brokers get equal shares, and a slow one gets nothing until the others are as slow, because
//! their queues have grown.

use std::time::Duration;

/// How much longer than the best a broker may take, in times the best, and still be as good.
const TIMES: u32 = 2;

/// What it may take longer in any case: below this, differences are noise.
const SLACK: Duration = Duration::from_millis(1);

/// What is known of one broker that leads partitions of the topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidate {
    /// How many usable partitions of the topic it leads.
    pub partitions: u32,
    /// Time until a record added now is acknowledged; zero where nothing is known yet.
    pub wait: Duration,
    /// How long its oldest request has been without an answer.
    pub unanswered: Option<Duration>,
    /// Whether records for it are on their way or waiting, so that its answer time is measured anyway.
    pub busy: bool,
}

/// How to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Uniformly (`partitioner.adaptive.partitioning.enable=false`).
    Uniform,
    /// By the time to expect.
    Adaptive {
        /// `partitioner.availability.timeout.ms`; `None` for zero, which switches it off.
        availability_timeout: Option<Duration>,
    },
}

/// What was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Index of the candidate.
    pub candidate: usize,
    /// Which of its partitions.
    pub nth: u32,
    /// Whether the broker is avoided otherwise and gets this one record to be measured.
    pub probe: bool,
    /// What the best broker's records have to expect.
    pub best: Duration,
}

/// Whether `wait` is too long beside the best of all.
pub fn is_late(wait: Duration, best: Duration) -> bool {
    wait > best.saturating_mul(TIMES).saturating_add(SLACK)
}

/// Chooses one partition. `draw` is any random number. `None` when no candidate has a partition.
pub fn choose(candidates: &[Candidate], rule: Rule, probe_due: bool, draw: u64) -> Option<Chosen> {
    let Rule::Adaptive { availability_timeout } = rule else {
        return among(candidates, |_| true, draw, Duration::ZERO);
    };
    let available = |c: &Candidate| {
        let unanswered = c.unanswered.unwrap_or_default();
        availability_timeout.is_none_or(|timeout| unanswered <= timeout)
    };
    let best_of = |fits: &dyn Fn(&Candidate) -> bool| {
        let fit = candidates.iter().filter(|c| c.partitions > 0 && fits(c));
        fit.map(|c| c.wait).min()
    };
    // When no broker is available, all are as good as none.
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

/// One of the partitions of the candidates that fit, each as likely as any other.
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
