//! Quotas: how many bytes per second clients may write and read, at each broker.
//!
//! A client beyond its quota receives a `throttle_time_ms`, and its connection is not read until
//! that has passed (KIP-219).

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use imbl::OrdMap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// Bytes are counted in samples of one second (`quota.window.size.seconds`): the current one and
/// ten before it (`quota.window.num`).
const SAMPLE: Duration = Duration::from_secs(1);
const SAMPLES: u32 = 11;
/// Number of meters above which those of inactive clients are removed.
const MANY: usize = 1000;

/// One part of a quota's entity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Name {
    /// All users or clients without a specific quota.
    Default,
    Exactly(String),
}

/// The entity of a quota. At least one part is set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Entity {
    pub(crate) user: Option<Name>,
    pub(crate) client_id: Option<Name>,
}

/// The limited quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Limit {
    ProducerByteRate,
    ConsumerByteRate,
}

impl Limit {
    const ALL: [Self; 2] = [Self::ProducerByteRate, Self::ConsumerByteRate];

    /// Returns its name in Kafka.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ProducerByteRate => "producer_byte_rate",
            Self::ConsumerByteRate => "consumer_byte_rate",
        }
    }

    pub(crate) fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|limit| limit.name() == name)
    }
}

/// All quotas of the cluster: bytes per second.
pub(crate) type Quotas = OrdMap<Entity, BTreeMap<Limit, f64>>;

/// The clients that share a limit: with a quota for users all clients of a user, with one for
/// clients all clients of that id.
type Sharers = (Option<String>, Option<String>);

/// Returns the quota of a client, and the clients that share it.
fn of_client(quotas: &Quotas, limit: Limit, user: &str, client_id: &str) -> Option<(Sharers, f64)> {
    let exactly = |name: &str| Some(Name::Exactly(name.to_owned()));
    let default = || Some(Name::Default);
    // The most specific first, as in Kafka.
    let candidates = [
        (exactly(user), exactly(client_id)),
        (exactly(user), default()),
        (exactly(user), None),
        (default(), exactly(client_id)),
        (default(), default()),
        (default(), None),
        (None, exactly(client_id)),
        (None, default()),
    ];
    candidates.into_iter().find_map(|(of_user, of_client)| {
        let entity = Entity { user: of_user, client_id: of_client };
        let rate = *quotas.get(&entity)?.get(&limit)?;
        let sharers =
            (entity.user.map(|_| user.to_owned()), entity.client_id.map(|_| client_id.to_owned()));
        Some((sharers, rate))
    })
}

/// The byte counts of one broker.
#[derive(Default)]
pub(crate) struct Meters(Mutex<BTreeMap<(Limit, Sharers), Meter>>);

impl Meters {
    /// Returns the maximum bytes that a client may read before it is throttled; `None` without a
    /// limit.
    pub(crate) fn most(
        quotas: &Quotas,
        limit: Limit,
        (user, client_id): (&str, &str),
    ) -> Option<f64> {
        let (_, rate) = of_client(quotas, limit, user, client_id)?;
        Some(rate * (SAMPLE * (SAMPLES - 1)).as_secs_f64())
    }

    /// Reverts the last count, because the bytes were not sent.
    pub(crate) fn take_back(
        &self,
        quotas: &Quotas,
        limit: Limit,
        (user, client_id): (&str, &str),
        bytes: usize,
    ) {
        let Some((sharers, _)) = of_client(quotas, limit, user, client_id) else { return };
        if let Some(meter) = self.0.lock().get_mut(&(limit, sharers)) {
            meter.take_back(bytes);
        }
    }

    /// Counts bytes of a client and returns its throttle time, which is zero within the quota.
    pub(crate) fn count(
        &self,
        quotas: &Quotas,
        limit: Limit,
        (user, client_id): (&str, &str),
        bytes: usize,
        now: Instant,
    ) -> Duration {
        let Some((sharers, rate)) = of_client(quotas, limit, user, client_id) else {
            return Duration::ZERO;
        };
        let mut meters = self.0.lock();
        if meters.len() >= MANY {
            meters.retain(|_, meter| meter.is_in_use(now));
        }
        meters.entry((limit, sharers)).or_default().count(bytes, rate, now)
    }
}

/// Bytes of the last seconds.
#[derive(Default)]
struct Meter {
    /// The start time of each sample, and its bytes; oldest first.
    samples: VecDeque<(Instant, u64)>,
}

impl Meter {
    fn forget(&mut self, now: Instant) {
        let old = |began: Instant| now.saturating_duration_since(began) >= SAMPLE * SAMPLES;
        while self.samples.front().is_some_and(|(began, _)| old(*began)) {
            self.samples.pop_front();
        }
    }

    fn is_in_use(&self, now: Instant) -> bool {
        let last = self.samples.back();
        last.is_some_and(|(began, _)| now.saturating_duration_since(*began) < SAMPLE * SAMPLES)
    }

    fn take_back(&mut self, bytes: usize) {
        if let Some((_, counted)) = self.samples.back_mut() {
            *counted = counted.saturating_sub(bytes as u64);
        }
    }

    fn count(&mut self, bytes: usize, rate: f64, now: Instant) -> Duration {
        self.forget(now);
        match self.samples.back_mut() {
            Some((began, counted)) if now.saturating_duration_since(*began) < SAMPLE => {
                *counted += bytes as u64;
            }
            _ => self.samples.push_back((now, bytes as u64)),
        }
        let oldest = self.samples.front().map_or(now, |(began, _)| *began);
        // A new client counts as inactive before its first sample.
        let window = now.saturating_duration_since(oldest).max(SAMPLE * (SAMPLES - 1));
        let total: u64 = self.samples.iter().map(|(_, bytes)| bytes).sum();
        let excess = total as f64 / window.as_secs_f64() - rate;
        if excess <= 0.0 {
            return Duration::ZERO;
        }
        let silence = excess / rate * window.as_secs_f64();
        // Whole milliseconds, within the range of the protocol's field.
        let millis = (silence * 1000.0).round().min(f64::from(i32::MAX));
        Duration::from_millis(millis as u64)
    }
}
