//! Chooses victims and moments, and brings brokers back.

use std::{thread, time::Duration};

use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};

use crate::{experiments::Testbed, perf::Result};

/// Longest time that all replicas are in sync before the next broker dies.
const BEFORE_MAX: Duration = Duration::from_millis(1500);
/// Longest time that a broker stays dead; beyond the brokers' session timeout of 3 s, so that both a quick return and an
/// election happen.
const DEAD_MAX: Duration = Duration::from_secs(5);

pub(super) struct Killer<'t> {
    pub(super) testbed: &'t Testbed,
    chance: SmallRng,
}

impl<'t> Killer<'t> {
    pub(super) fn new(testbed: &'t Testbed, seed: u64) -> Self {
        Self { testbed, chance: SmallRng::seed_from_u64(seed) }
    }

    /// Waits for the moment of the next fault.
    pub(super) fn pass_time(&mut self) {
        thread::sleep(self.up_to(BEFORE_MAX));
    }

    /// Kills a broker, starts it again, and waits until it is in sync again for all these topics. Between the two,
    /// `while_dead` runs once. Returns the broker's id.
    pub(super) fn kill_broker(
        &mut self,
        topics: &[&str],
        while_dead: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<i32> {
        let ids = self.testbed.broker_ids();
        let victim = ids[self.chance.random_range(0..ids.len())];
        self.testbed.kill(victim)?;
        thread::sleep(self.up_to(DEAD_MAX));
        while_dead(self)?;
        self.testbed.restart(victim)?;
        for topic in topics {
            self.testbed.await_healthy(topic, super::PARTITIONS.unsigned_abs() as usize)?;
        }
        Ok(victim)
    }

    /// Returns a random index below `count`.
    pub(super) fn choose(&mut self, count: usize) -> usize {
        self.chance.random_range(0..count)
    }

    fn up_to(&mut self, max: Duration) -> Duration {
        max.mul_f64(self.chance.random_range(0.0..1.0))
    }
}
