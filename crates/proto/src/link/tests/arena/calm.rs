//! Worlds of one broker without faults, for rules whose breach costs time and no record.

use super::*;

/// How long records and requests take.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// From each append to the outcome, in worlds without faults.
    pub(super) of_records: Vec<Duration>,
    /// Of the last response.
    last: Duration,
    /// Of the slowest response.
    longest: Duration,
    /// More than this is late in any case.
    late: Option<Duration>,
}

impl Times {
    pub(super) fn answered(&mut self, took: Duration) {
        self.last = took;
        self.longest = self.longest.max(took);
    }

    /// A request leaves while the oldest one in flight has this age.
    pub(super) fn followed(&self, age: Duration) {
        let is_late = self.late.is_some_and(|late| age > late || self.last > late);
        assert!(!is_late, "a request behind a response of a slow broker: {age:?}, {self:?}");
    }

    /// Twice as long as every response so far is late from now on.
    fn expect_slow_responses(&mut self) {
        self.late = Some(2 * self.longest);
    }

    fn median_of_records(&mut self) -> Duration {
        self.of_records.sort_unstable();
        self.of_records[self.of_records.len() / 2]
    }
}

impl World {
    /// Runs until the first time, and returns the median time of the records from then to the second.
    fn median(&mut self, settled: Duration, until: Duration) -> Duration {
        self.run(Length::Until(settled));
        self.times.of_records.clear();
        self.run(Length::Until(until));
        let median = self.times.median_of_records();
        self.finish();
        median
    }
}

/// Records come at a pace at which the broker never has two at a time.
pub(super) fn even_pace(seed: u64) {
    let mut world = World::new(Plan::calm(seed, Pattern::Paced(500 * US), 300 * US, 100 * US));
    let median = world.median(500 * MS, 1500 * MS);
    assert!(median < 750 * US, "records wait for an idle broker: {median:?}");
}

/// The first response takes fifteen times as long as the others. No batch is complete.
pub(super) fn cold_broker(seed: u64) {
    let mut plan = Plan::calm(seed, Pattern::Paced(2 * MS), 25 * US, 10 * MS);
    plan.policy.batch_size = 16 << 10;
    let mut world = World::new(plan);
    world.brokers[0].free_at += 150 * MS;
    let median = world.median(6000 * MS, 8000 * MS);
    assert!(median <= 20 * MS, "records wait behind others in the broker: {median:?}");
}

/// The broker takes ten times as long as before, as brokers do before an election.
pub(super) fn slow_broker(seed: u64) {
    let mut world = World::new(Plan::calm(seed, Pattern::Paced(MS), 100 * US, 2 * MS));
    world.run(Length::Until(1000 * MS));
    world.times.expect_slow_responses();
    world.service = 20 * MS;
    world.run(Length::Until(1300 * MS));
    world.times.late = None;
    world.finish();
}

/// The sender is faster than the broker. The window holds 16 round trips of 1.4 ms; memory alone would hold 170 ms.
pub(super) fn unthrottled(seed: u64) {
    let mut world = World::new(Plan::calm(seed, Pattern::Unthrottled, 50 * US, MS));
    let median = world.median(500 * MS, 1000 * MS);
    assert!(median <= 30 * MS, "records wait for more than the window: {median:?}");
}

#[test]
fn records_at_an_even_pace_do_not_wait_for_an_idle_broker() {
    even_pace(0);
}

#[test]
fn a_slow_first_response_is_forgotten() {
    cold_broker(0);
}

#[test]
fn no_request_follows_one_of_a_broker_that_became_slow() {
    slow_broker(0);
}

#[test]
fn a_sender_without_limit_waits_for_the_window() {
    unthrottled(0);
}
