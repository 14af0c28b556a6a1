//! How many small requests to have under way on one connection.
//!
//! Kafka serves one request of a connection at a time, and a produce with acks=all occupies the connection until it is
//! committed. A request sent while others are under way therefore waits inside the broker; what it gains over waiting
//! in the client is the network's time alone, and what it loses is the chance to share a request with the records that
//! come meanwhile. So requests that are not full wait for an answer, unless the network's share is large enough that
//! the broker would stand idle: with `round_trip` the time of a request sent alone and `service` the time between the
//! answers of two that were under way together, the broker is busy with `round_trip / service` of them.

use std::time::{Duration, Instant};

/// Every so many requests one more is let through, so that the service time stays known.
const PROBE_EVERY: u32 = 64;

/// The estimate for one connection. Full requests do not ask it: they always use what is allowed.
#[derive(Debug, Default)]
pub struct Pipelining {
    round_trip: Option<Duration>,
    service: Option<Duration>,
    last_answer: Option<Instant>,
    since_probe: u32,
}

impl Pipelining {
    /// Takes note of an answer. `ahead` is the number of requests that were under way when it was sent.
    pub fn answered(&mut self, sent: Instant, ahead: usize, now: Instant) {
        match (ahead, self.last_answer) {
            (0, _) => smooth(&mut self.round_trip, now.saturating_duration_since(sent)),
            (_, Some(last)) if last > sent => {
                smooth(&mut self.service, now.saturating_duration_since(last));
            }
            _ => {}
        }
        self.last_answer = Some(now);
    }

    /// Whether a request that is not full should be sent now with `in_flight` under way.
    pub fn allows(&self, in_flight: usize) -> bool {
        let depth = self.depth();
        in_flight < depth || in_flight == depth && self.since_probe >= PROBE_EVERY
    }

    /// Takes note of a request sent with `in_flight` under way before it.
    pub fn sent(&mut self, in_flight: usize) {
        self.since_probe = if in_flight < self.depth() { self.since_probe + 1 } else { 0 };
    }

    fn depth(&self) -> usize {
        let (Some(round_trip), Some(service)) = (self.round_trip, self.service) else {
            // Two under way tell the service time.
            return 2;
        };
        let service = service.as_nanos().max(1);
        usize::try_from(round_trip.as_nanos() / service).unwrap_or(usize::MAX).max(1)
    }
}

/// An average in which the last eight or so samples count.
fn smooth(average: &mut Option<Duration>, sample: Duration) {
    *average = Some(average.map_or(sample, |old| (old * 7 + sample) / 8));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A broker that serves one request after the other, `network` away in each direction. Sends small requests one
    /// after the other as soon as they are allowed, at most five under way, and gives the greatest number under way
    /// once the estimate has settled, probes left out.
    fn under_way(network: u64, service: u64) -> usize {
        let start = Instant::now();
        let at = |us: u64| start + Duration::from_micros(us);
        let mut pipelining = Pipelining::default();
        let mut under_way: std::collections::VecDeque<(u64, usize, u64)> = Default::default();
        let (mut now, mut broker_free, mut most) = (0, 0, [0; 6]);
        for round in 0..4000u32 {
            while under_way.len() < 5 && pipelining.allows(under_way.len()) {
                let begins = broker_free.max(now + network);
                broker_free = begins + service;
                pipelining.sent(under_way.len());
                under_way.push_back((now, under_way.len(), broker_free + network));
                if round > 500 {
                    most[under_way.len()] += 1;
                }
            }
            if let Some((sent, ahead, answer)) = under_way.pop_front() {
                now = answer;
                pipelining.answered(at(sent), ahead, at(now));
            }
        }
        // More than a probe now and then.
        (1..=5).rev().find(|&n| most[n] > 200).unwrap_or(0)
    }

    #[test]
    fn a_broker_that_is_near_gets_one_at_a_time() {
        assert_eq!(under_way(10, 80), 1);
        assert_eq!(under_way(200, 1500), 1);
    }

    #[test]
    fn a_broker_that_is_far_is_kept_busy() {
        assert_eq!(under_way(50, 90), 2);
        assert_eq!(under_way(500, 50), 5);
    }

    #[test]
    fn the_estimate_follows_a_change() {
        let start = Instant::now();
        let at = |us: u64| start + Duration::from_micros(us);
        let mut pipelining = Pipelining::default();
        for n in 0..50 {
            let t = n * 1000;
            pipelining.answered(at(t), 0, at(t + 100));
            pipelining.answered(at(t), 1, at(t + 190));
        }
        assert!(!pipelining.allows(1));
        for n in 0..50 {
            let t = 100_000 + n * 10_000;
            pipelining.answered(at(t), 0, at(t + 1000));
            pipelining.answered(at(t), 1, at(t + 1100));
        }
        assert!(pipelining.allows(4));
    }
}
