//! Keyless records and one slow broker, in virtual time.

use std::time::Duration;

use curtail_sim::{
    Plan, Report,
    history::Outcome,
    plan::{Fault, FaultKind, ProducerPlan, Tuning},
    run,
    trace::Keep,
};

const MS: Duration = Duration::from_millis(1);

/// When the slow broker recovers.
const RECOVERS: Duration = Duration::from_secs(8);

/// One producer sends keyless records, one or two milliseconds apart, to three partitions with a leader each. Broker
/// 1 responds to every produce request 20 ms late for the first eight seconds.
fn slow_broker() -> Report {
    let producer = ProducerPlan {
        records: 20_000,
        pause: MS / 2,
        keyed: 0,
        linger: Duration::ZERO,
        batch_size: 512,
        batch_max_size: 2048,
        max_in_flight: 5,
        request_timeout: 3000 * MS,
        delivery_timeout: 20_000 * MS,
        route_around_trouble: true,
        tuning: Tuning::default(),
    };
    let slow = FaultKind::SlowAnswers { broker: 1, api: 0, by: 20 * MS };
    let plan = Plan {
        latency: (Duration::ZERO, MS),
        short_writes: 0,
        partitions: 3,
        segment_bytes: 1 << 30,
        producers: vec![producer],
        faults: vec![Fault { at: Duration::ZERO, lasts: RECOVERS, kind: slow }],
        ..Plan::from_seed(1)
    };
    run(&plan, Keep::Tail)
}

/// Records sent within a time, by the partition where they were acknowledged.
fn shares(report: &Report, from: Duration, to: Duration) -> [usize; 3] {
    let begin = report.history.sent.first().map(|sent| sent.at).unwrap_or_default();
    let mut shares = [0; 3];
    for sent in &report.history.sent {
        let at = sent.at - begin;
        if let Outcome::Acknowledged { partition, .. } = sent.outcome
            && at >= from
            && at < to
        {
            shares[partition as usize] += 1;
        }
    }
    shares
}

#[test]
fn a_slow_broker_is_only_measured_and_gets_its_share_back_when_it_recovers() {
    let report = slow_broker();
    assert!(report.violations.is_empty(), "{}", report.describe());
    let slow = shares(&report, Duration::from_secs(1), RECOVERS);
    let total: usize = slow.iter().sum();
    let least = *slow.iter().min().expect("three partitions");
    assert!(total > 3000 && least * 200 < total, "while one broker is slow: {slow:?}");
    let well = shares(&report, RECOVERS + Duration::from_secs(6), Duration::MAX);
    let total: usize = well.iter().sum();
    let least = *well.iter().min().expect("three partitions");
    assert!(total > 3000 && least * 5 > total, "after it has recovered: {well:?}");
}
