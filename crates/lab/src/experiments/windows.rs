//! A fault that is repeated within one run, so that other work of the machine affects the time with and
//! without the fault alike.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use super::{Sample, load::sleep_until};
use crate::perf::Result;

/// Rounds of three parts: quiet, fault, and a rest in which the effects of the fault fade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// Time before the first round.
    pub warmup: Duration,
    /// Length of the part before the fault.
    pub quiet: Duration,
    /// Length of the fault.
    pub fault: Duration,
    /// Length of the part after the fault, which does not count.
    pub rest: Duration,
    /// Number of rounds.
    pub rounds: u32,
}

/// Part of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Quiet,
    Fault,
    /// A rest, or before the first or after the last round.
    Rest,
}

impl Windows {
    fn round(&self) -> Duration {
        self.quiet + self.fault + self.rest
    }

    /// Begin and end of the fault in each round, since the start.
    pub(super) fn faults(&self) -> impl Iterator<Item = (Duration, Duration)> {
        let Self { warmup, quiet, fault, .. } = *self;
        let round = self.round();
        (0..self.rounds).map(move |number| {
            let from = warmup + round * number + quiet;
            (from, from + fault)
        })
    }

    /// Time from the start to the end of the last round.
    pub(super) fn whole(&self) -> Duration {
        self.warmup + self.round() * self.rounds
    }

    /// The part at a time in nanoseconds since the start.
    pub(super) fn part(&self, nanos: u64) -> Part {
        let at = Duration::from_nanos(nanos);
        let Some(within) = at.checked_sub(self.warmup).filter(|_| at < self.whole()) else {
            return Part::Rest;
        };
        let of_round = Duration::from_nanos((within.as_nanos() % self.round().as_nanos()) as u64);
        match of_round {
            of_round if of_round < self.quiet => Part::Quiet,
            of_round if of_round < self.quiet + self.fault => Part::Fault,
            _ => Part::Rest,
        }
    }

    /// Longest rest of the part at a time in nanoseconds since the start; `None` after the last round.
    pub(super) fn left(&self, nanos: u64) -> Option<Duration> {
        let at = Duration::from_nanos(nanos);
        if at < self.warmup {
            return Some(self.warmup - at);
        }
        let round = self.round();
        let within = at - self.warmup;
        let of_round = Duration::from_nanos((within.as_nanos() % round.as_nanos()) as u64);
        let ends = [self.quiet, self.quiet + self.fault, round];
        let end = ends.into_iter().find(|end| of_round < *end)?;
        (at < self.whole()).then(|| end - of_round)
    }

    /// Marks the fault of each round in a sample of a run that began at `start`.
    pub(super) fn mark(&self, sample: &mut Sample, start: Instant, what: &str) {
        for (from, until) in self.faults() {
            sample.mark(start, start + from, start + until, what);
        }
    }

    /// Calls `come` and `go` at the begin and end of each fault; returns at the end of the last round.
    ///
    /// # Errors
    /// Errors of `come` and `go`.
    pub(super) fn run(
        &self,
        start: Instant,
        mut come: impl FnMut() -> Result<()>,
        mut go: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        for (from, until) in self.faults() {
            sleep_until(start, from);
            come()?;
            sleep_until(start, until);
            go()?;
        }
        sleep_until(start, self.whole());
        Ok(())
    }
}
