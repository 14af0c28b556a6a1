//! The brokers, settings and senders of a world.

use super::*;
use crate::link::Settings;

/// SplitMix64.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(super) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub(super) fn between(&mut self, least: Duration, most: Duration) -> Duration {
        least + US * self.below((most - least).as_micros() as usize + 1) as u32
    }
}

/// When a sender has records.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pattern {
    Paced(Duration),
    Bursts { every: Duration, records: usize },
    Unthrottled,
}

pub(super) struct Sender {
    pub(super) pattern: Pattern,
    pub(super) has_keys: bool,
    pub(super) current: usize,
}

/// A world before it begins.
pub(super) struct Plan {
    /// The draws of the run.
    pub(super) random: Random,
    pub(super) settings: Settings,
    pub(super) policy: BatchPolicy,
    pub(super) brokers: usize,
    pub(super) partitions: usize,
    pub(super) senders: Vec<Sender>,
    /// One-way delay.
    pub(super) network: Duration,
    /// Time that a broker takes for a request, without its bytes.
    pub(super) service: Duration,
    pub(super) has_faults: bool,
}

impl Plan {
    /// All faults, and settings and senders that depend on the seed.
    pub(super) fn mixed(seed: u64) -> Self {
        let mut random = Random(seed);
        let began = Instant::now();
        let mut settings = settings(began);
        settings.bounds.in_flight = [1, 2, 5][random.below(3)];
        settings.bounds.request = [1 << 20, 8 << 10][random.below(2)];
        settings.bounds.target = [Some(10 * MS), None][random.below(2)];
        settings.delivery_timeout = [3000, 20_000][random.below(2)] * MS;
        settings.request_timeout = 2000 * MS;
        let policy = BatchPolicy {
            batch_size: [1 << 10, 4 << 10][random.below(2)],
            batch_max_size: 16 << 10,
            max_request_size: settings.bounds.request,
            linger: [0, 5][random.below(2)] * MS,
            compression: Compression::from(Codec::None),
            delivery_timeout: settings.delivery_timeout,
            one_in_flight: settings.bounds.in_flight == 1,
            moves_refused: true,
            began,
        };
        let senders = (0..2 + random.below(3)).map(|current| {
            let pattern = match random.below(3) {
                0 => Pattern::Paced(random.between(100 * US, 20 * MS)),
                1 => Pattern::Bursts {
                    every: random.between(5 * MS, 100 * MS),
                    records: 1 + random.below(100),
                },
                _ => Pattern::Unthrottled,
            };
            Sender { pattern, has_keys: random.one_in(2), current }
        });
        let senders = senders.collect();
        let network = [50 * US, 500 * US, 5 * MS][random.below(3)];
        Self {
            random,
            settings,
            policy,
            brokers: 3,
            partitions: 6,
            senders,
            network,
            service: 200 * US,
            has_faults: true,
        }
    }

    /// One broker without faults, with two partitions, and one sender of records with keys.
    pub(super) fn calm(seed: u64, pattern: Pattern, network: Duration, service: Duration) -> Self {
        let mut plan = Self::mixed(seed);
        let settings = settings(plan.settings.began);
        plan.settings = settings;
        plan.settings.bounds.in_flight = 5;
        plan.policy.batch_size = 1 << 10;
        plan.policy.max_request_size = settings.bounds.request;
        plan.policy.linger = Duration::ZERO;
        plan.policy.delivery_timeout = settings.delivery_timeout;
        plan.policy.one_in_flight = false;
        let senders = vec![Sender { pattern, has_keys: true, current: 0 }];
        Self { brokers: 1, partitions: 2, senders, network, service, has_faults: false, ..plan }
    }
}
