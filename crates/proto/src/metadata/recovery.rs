//! Which brokers to request metadata from, and when the known brokers are abandoned.

use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// `metadata.recovery.strategy` (KIP-899).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecoveryStrategy {
    /// `none`: once brokers are known, metadata is requested from those only.
    None,
    /// `rebootstrap`: when the known brokers cannot be used, `bootstrap.servers` are used again.
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
    /// `bootstrap.servers` only: the known brokers are no longer trusted.
    Bootstrap,
}

/// Records whether metadata still arrives.
#[derive(Clone, Debug)]
pub struct Recovery {
    strategy: RecoveryStrategy,
    /// `metadata.recovery.rebootstrap.trigger.ms` (KIP-1102).
    trigger: Duration,
    /// Time of the first failure since the last response.
    failing_since: Option<Instant>,
    /// Whether a broker responded REBOOTSTRAP_REQUIRED.
    demanded: bool,
}

impl Recovery {
    /// Starts without a failure.
    pub fn new(strategy: RecoveryStrategy, trigger: Duration) -> Self {
        Self { strategy, trigger, failing_since: None, demanded: false }
    }

    /// Reports that metadata has arrived.
    pub fn answered(&mut self) {
        self.failing_since = None;
        self.demanded = false;
    }

    /// Reports that a refresh has failed with every broker that was tried.
    pub fn failed(&mut self, now: Instant) {
        self.failing_since.get_or_insert(now);
    }

    /// Reports that a broker responded REBOOTSTRAP_REQUIRED (KIP-1102).
    pub fn demand(&mut self) {
        self.demanded = true;
    }

    /// Returns the addresses to try now. `known`: whether any broker is known.
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
