//! How many small requests a connection has in flight.
//!
//! Kafka serves one request of a connection at a time, and a produce with acks=all occupies the connection until it
//! is committed. A request sent while others are in flight therefore waits inside the broker. Compared with waiting
//! in the client, it gains only the network's time, and it cannot take in the records that arrive in that time.
//!
//! So requests that are not full wait for a response, unless the network's share is large enough that the broker
//! would be idle. Let `round_trip` be the time of a request sent alone, and `service` the time between the responses
//! of two requests, the second of which waited for the first. Then `round_trip / service` requests keep the broker
//! busy. One more does not wait there either, if it is sent when the broker has served the last one and that response
//! is still in flight.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use crate::{
    later::Later,
    plant::{Plant, planted},
};

/// Requests between probes. A probe exceeds the depth by one to refresh the service time.
const PROBE_EVERY: u32 = 64;

/// Divisor of the service time for the margin that is added to it before the broker counts as idle.
const CAUTION: u32 = 4;

/// The estimate for one connection. Requests with a complete batch do not consult it: [`super::Path::depth`] bounds
/// them.
#[derive(Debug, Default)]
pub(super) struct Pipelining {
    service: Option<Duration>,
    last_answer: Option<Instant>,
    /// When one more request finds the broker idle: from when it should have served the last one until that one's
    /// response is due. If the response is late, so is the broker.
    idle: Option<Range<Instant>>,
    since_probe: u32,
}

impl Pipelining {
    /// Records a response to a request that was sent behind others if `ahead` is not 0.
    pub(super) fn answered(
        &mut self,
        sent: Instant,
        ahead: usize,
        round_trip: Option<Duration>,
        now: Instant,
    ) {
        if let Some(last) = self.last_answer.filter(|&last| ahead > 0 && last > sent) {
            let lead = last.saturating_duration_since(sent);
            self.followed(lead, now.saturating_duration_since(last), round_trip);
        }
        self.last_answer = Some(now);
    }

    /// Records a response `gap` after the previous one, to a request sent `lead` before that one arrived.
    ///
    /// The gap is the service time only if the request had to wait in the broker. If `lead` is at most the network's
    /// time, the request found the broker idle. Then the gap is the one between the two requests, which only bounds
    /// the service time.
    fn followed(&mut self, lead: Duration, gap: Duration, round_trip: Option<Duration>) {
        // The network's part of the time of a request sent alone.
        let network =
            round_trip.unwrap_or_default().saturating_sub(self.service.unwrap_or_default());
        let has_waited = lead > network || planted(Plant::EveryGapCounts);
        if has_waited || self.service.is_none_or(|service| gap < service) {
            smooth(&mut self.service, gap);
        }
    }

    /// Whether a request that is not full should be sent now with `in_flight` in flight.
    pub(super) fn allows(
        &self,
        in_flight: usize,
        round_trip: Option<Duration>,
        now: Instant,
    ) -> bool {
        let depth = self.depth(round_trip);
        self.is_in_turn(in_flight, depth, now)
            || in_flight == depth && self.since_probe >= PROBE_EVERY
    }

    /// Records the request sent with `in_flight` in flight before it.
    pub(super) fn sent(&mut self, in_flight: usize, round_trip: Option<Duration>, now: Instant) {
        let is_in_turn = self.is_in_turn(in_flight, self.depth(round_trip), now);
        self.since_probe = if is_in_turn { self.since_probe + 1 } else { 0 };
        let (Some(round_trip), Some(service)) = (round_trip, self.service) else { return };
        let ahead = service.saturating_mul(u32::try_from(in_flight).unwrap_or(u32::MAX));
        let begins = self.idle.as_ref().map_or(now, |idle| idle.start.clamp(now, now.later(ahead)));
        self.idle = Some(begins.later(service).later(service / CAUTION)..begins.later(round_trip));
    }

    fn is_in_turn(&self, in_flight: usize, depth: usize, now: Instant) -> bool {
        in_flight < depth
            || in_flight == depth && self.idle.as_ref().is_some_and(|idle| idle.contains(&now))
    }

    fn depth(&self, round_trip: Option<Duration>) -> usize {
        let (Some(round_trip), Some(service)) = (round_trip, self.service) else {
            // Two requests in flight reveal the service time.
            return 2;
        };
        let service = service.as_nanos().max(1);
        usize::try_from(round_trip.as_nanos() / service).unwrap_or(usize::MAX).max(1)
    }
}

/// Updates an average in which roughly the last eight samples count.
fn smooth(average: &mut Option<Duration>, sample: Duration) {
    *average = Some(average.map_or(sample, |old| old.saturating_mul(7).saturating_add(sample) / 8));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::RoundTrips;

    /// The estimate and the round trip, which comes from the requests that are sent alone.
    #[derive(Default)]
    struct Connection {
        pipelining: Pipelining,
        round_trips: RoundTrips,
    }

    impl Connection {
        fn allows(&self, in_flight: usize, now: Instant) -> bool {
            self.pipelining.allows(in_flight, self.round_trips.usual(), now)
        }

        fn sent(&mut self, in_flight: usize, now: Instant) {
            self.pipelining.sent(in_flight, self.round_trips.usual(), now);
        }

        fn answered(&mut self, sent: Instant, ahead: usize, now: Instant) {
            if ahead == 0 {
                self.round_trips.add(now - sent);
            }
            self.pipelining.answered(sent, ahead, self.round_trips.usual(), now);
        }
    }

    /// Simulates a broker that serves one request after the other, `network` away in each direction. It sends small
    /// requests as soon as they are allowed, at most five in flight. Returns the greatest number in flight once the
    /// estimate has settled, without probes.
    fn under_way(network: u64, service: u64) -> usize {
        let start = Instant::now();
        let at = |us: u64| start + Duration::from_micros(us);
        let mut connection = Connection::default();
        let mut under_way: std::collections::VecDeque<(u64, usize, u64)> = Default::default();
        let (mut now, mut broker_free, mut most) = (0, 0, [0; 6]);
        for round in 0..4000u32 {
            while under_way.len() < 5 && connection.allows(under_way.len(), at(now)) {
                let begins = broker_free.max(now + network);
                broker_free = begins + service;
                connection.sent(under_way.len(), at(now));
                under_way.push_back((now, under_way.len(), broker_free + network));
                if round > 500 {
                    most[under_way.len()] += 1;
                }
            }
            if let Some((sent, ahead, answer)) = under_way.pop_front() {
                now = answer;
                connection.answered(at(sent), ahead, at(now));
            }
        }
        // More often than probes alone would.
        (1..=5).rev().find(|&n| most[n] > 200).unwrap_or(0)
    }

    #[test]
    fn a_nearby_broker_gets_one_request_at_a_time() {
        assert_eq!(under_way(10, 80), 1);
        assert_eq!(under_way(200, 1500), 1);
    }

    #[test]
    fn a_distant_broker_is_kept_busy() {
        assert_eq!(under_way(50, 90), 2);
        assert_eq!(under_way(500, 50), 5);
    }

    #[test]
    fn the_estimate_follows_a_change() {
        let start = Instant::now();
        let at = |us: u64| start + Duration::from_micros(us);
        let mut connection = Connection::default();
        for n in 0..50 {
            let t = n * 1000;
            connection.answered(at(t), 0, at(t + 100));
            connection.answered(at(t), 1, at(t + 190));
        }
        assert!(!connection.allows(1, at(49_200)));
        for n in 0..50 {
            let t = 100_000 + n * 10_000;
            connection.answered(at(t), 0, at(t + 1000));
            connection.answered(at(t), 1, at(t + 1100));
        }
        assert!(connection.allows(4, at(600_000)));
    }

    /// Simulates small requests arriving at these times for a broker `network` away in each direction that serves one
    /// after the other. Returns their average wait in the client, without the first half.
    fn held(network: u64, service: u64, comes: impl Iterator<Item = u64>) -> u64 {
        let start = Instant::now();
        let at = |us: u64| start + Duration::from_micros(us);
        let mut connection = Connection::default();
        let mut under_way: std::collections::VecDeque<(u64, usize, u64)> = Default::default();
        let mut comes = comes.peekable();
        let (mut ready, mut broker_free) = (Vec::new(), 0);
        let mut waited = Vec::new();
        while let Some(&next) = comes.peek() {
            let answer = under_way.front().map_or(u64::MAX, |&(_, _, answer)| answer);
            let now = next.min(answer);
            if now == next {
                ready.push(next);
                comes.next();
            } else if let Some((sent, ahead, _)) = under_way.pop_front() {
                connection.answered(at(sent), ahead, at(now));
            }
            let ahead = under_way.len();
            if !ready.is_empty() && (ahead == 0 || ahead < 5 && connection.allows(ahead, at(now))) {
                waited.extend(ready.drain(..).map(|came| now - came));
                broker_free = broker_free.max(now + network) + service;
                connection.sent(ahead, at(now));
                under_way.push_back((now, ahead, broker_free + network));
            }
        }
        let settled = &waited[waited.len() / 2..];
        settled.iter().sum::<u64>() / settled.len() as u64
    }

    #[test]
    fn requests_that_meet_an_idle_broker_do_not_wait() {
        // One each half millisecond: the broker never has two at a time, though each is sent before the response to
        // the last.
        assert_eq!(held(300, 100, (0..4000).map(|n| n * 500)), 0);
        assert_eq!(held(300, 350, (0..4000).map(|n| n * 500)), 0);
    }

    #[test]
    fn no_request_follows_one_whose_response_is_late() {
        let start = Instant::now();
        let at = |us: u64| start + Duration::from_micros(us);
        let mut connection = Connection::default();
        for n in 0..50 {
            connection.answered(at(n * 10_000), 0, at(n * 10_000 + 700));
            connection.answered(at(n * 10_000 + 10), 1, at(n * 10_000 + 1100));
        }
        connection.sent(0, at(600_000));
        let allowed = |after: u64| connection.allows(1, at(600_000 + after));
        assert_eq!([0, 450, 550, 650, 750].map(allowed), [false, false, true, true, false]);
    }

    #[test]
    fn the_service_time_is_measured_among_spaced_requests() {
        // Two close together, then one after a gap longer than the service time.
        let comes = |n: u64| n / 3 * 2000 + [0, 50, 550][n as usize % 3];
        assert!(held(300, 100, (0..12_000).map(comes)) <= 10);
    }
}
