//! Whether the partition's broker knows the producer.
//!
//! A broker accepts any first sequence of a producer that it does not know. If it refuses the first batch and accepts
//! the second, the first can only be written after it. So one batch goes alone until it is written.

#[cfg(test)]
mod tests;

use std::time::Instant;

use super::{BatchPolicy, Idempotence, Incarnation, PartitionQueue};
use crate::{
    later::FAR,
    plant::{Plant, planted},
};

/// Number of terms in `delivery.timeout.ms`.
const TERMS: u16 = 4;

/// A quarter of `delivery.timeout.ms`, counted from [`BatchPolicy::began`].
///
/// The count wraps. With `delivery.timeout.ms=120000`, a write 22.7 days ago passes for a recent one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Term(u16);

impl Term {
    /// The term of `now`.
    pub(super) fn at(now: Instant, policy: &BatchPolicy) -> Self {
        let length = policy.delivery_timeout.min(FAR).as_millis() / u128::from(TERMS);
        let passed = now.saturating_duration_since(policy.began).as_millis() / length.max(1);
        Self(passed as u16)
    }

    /// Whether `delivery.timeout.ms` has surely not passed since. Returns false after three quarters of it at the
    /// earliest.
    fn is_recent(self, now: Self) -> bool {
        now.0.wrapping_sub(self.0) < TERMS
    }
}

/// Where and when a broker learned of the producer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    pub(super) topic: Incarnation,
    pub(super) since: Term,
}

impl<C> PartitionQueue<C> {
    /// Whether the broker of a batch that is sent now may not know this producer in this partition.
    ///
    /// A broker forgets a producer `producer.id.expiration.ms` after its last batch, and the client does not know that
    /// setting. Brokers need a multiple of `delivery.timeout.ms` to recognize duplicates, so a partition without a
    /// write for that long counts as forgotten. Between transactions brokers forget as well.
    pub(super) fn is_unknown_to_broker(&self, idempotence: Idempotence, sent: Known) -> bool {
        let is_recent = self.known_since.is_recent(sent.since) || planted(Plant::IdleNotProven);
        let known = self.numbering.filter(|n| n.known_in == Some(sent.topic) && is_recent);
        match idempotence {
            Idempotence::Off | Idempotence::Pending => false,
            Idempotence::As(_) => known.is_none(),
            Idempotence::Transaction(identity) => known.is_none_or(|n| n.id != identity.id),
        }
    }
}
