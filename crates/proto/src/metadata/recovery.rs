//! Whom to ask, and when the brokers once known are of no more use.

use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// `metadata.recovery.strategy` (KIP-899).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecoveryStrategy {
    /// `none`: once brokers are known, only those are asked.
    None,
    /// `rebootstrap`: when the known brokers cannot be used, `bootstrap.servers` are asked again.
    #[default]
    Rebootstrap,
}

/// Addresses to try, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The known brokers only.
    Known,
    /// The known brokers, then `bootstrap.servers`.
    KnownThenBootstrap,
    /// `bootstrap.servers` only: the known brokers are not to be trusted any more.
    Bootstrap,
}

/// Keeps track of whether metadata still comes in.
#[derive(Clone, Debug)]
pub struct Recovery {
    strategy: RecoveryStrategy,
    /// `metadata.recovery.rebootstrap.trigger.ms` (KIP-1102).
    trigger: Duration,
    /// When the first of the failures since the last answer happened.
    failing_since: Option<Instant>,
    /// A broker said REBOOTSTRAP_REQUIRED.
    demanded: bool,
}

impl Recovery {
    /// A client that has just started.
    pub fn new(strategy: RecoveryStrategy, trigger: Duration) -> Self {
        Self { strategy, trigger, failing_since: None, demanded: false }
    }

    /// Metadata has come in.
    pub fn answered(&mut self) {
        self.failing_since = None;
        self.demanded = false;
    }

    /// A refresh has failed, with every broker that was tried.
    pub fn failed(&mut self, now: Instant) {
        self.failing_since.get_or_insert(now);
    }

    /// A broker said REBOOTSTRAP_REQUIRED (KIP-1102).
    pub fn demand(&mut self) {
        self.demanded = true;
    }

    /// Whom to ask now. `known`: whether any broker is known.
    pub fn source(&self, known: bool, now: Instant) -> Source {
        if !known {
            return Source::Bootstrap;
        }
        if self.strategy == RecoveryStrategy::None {
            return Source::Known;
        }
        let failing = self.failing_since.map(|since| now.saturating_duration_since(since));
        if self.demanded || failing.is_some_and(|failing| failing >= self.trigger) {
            return Source::Bootstrap;
        }
        Source::KnownThenBootstrap
    }
}
