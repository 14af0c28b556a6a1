use proptest::prelude::*;

use super::*;

const ID: Uuid = Uuid([7; 16]);
const INTERVAL: Duration = Duration::from_secs(10);
const NONE: Duration = Duration::ZERO;

fn subscription(metrics: &[&str]) -> Subscription {
    Subscription {
        client_instance_id: ID,
        id: 5,
        interval: INTERVAL,
        codecs: vec![Codec::Zstd, Codec::Gzip],
        max_bytes: 1000,
        delta: true,
        metrics: Selector::new(metrics.iter().map(|&prefix| prefix.to_owned()).collect()),
    }
}

/// A machine with a subscription, whose first push is due after one interval.
fn subscribed(now: Instant) -> Telemetry {
    let mut machine = Telemetry::new(now);
    assert_eq!(machine.step(now), Step::Subscribe(Uuid::ZERO));
    machine.subscribed(subscription(&["*"]), NONE, now, 0.5);
    machine
}

fn pushing(now: Instant) -> Telemetry {
    let mut machine = subscribed(now);
    assert_eq!(machine.step(now + INTERVAL), Step::Push { terminating: false });
    machine
}

#[test]
fn first_push_follows_the_subscription_after_half_to_one_and_a_half_intervals() {
    let now = Instant::now();
    for (unit, wait) in [(0.0, 5.0), (0.5, 10.0), (1.0, 15.0), (9.0, 15.0)] {
        let mut machine = Telemetry::new(now);
        let _ = machine.step(now);
        machine.subscribed(subscription(&["a"]), NONE, now, unit);
        assert_eq!(machine.step(now), Step::Wait(now + Duration::from_secs_f64(wait)), "{unit}");
    }
}

#[test]
fn pushes_continue_at_the_interval_and_no_sooner_than_the_throttle_time() {
    let now = Instant::now();
    let mut machine = pushing(now);
    assert_eq!(machine.step(now + INTERVAL), Step::End, "one request at a time");
    machine.pushed(ErrorCode::NONE, NONE, now);
    assert_eq!(machine.step(now), Step::Wait(now + INTERVAL));
    assert_eq!(machine.step(now + INTERVAL), Step::Push { terminating: false });
    machine.pushed(ErrorCode::NONE, 3 * INTERVAL, now);
    assert_eq!(machine.step(now), Step::Wait(now + 3 * INTERVAL));
}

#[test]
fn subscription_without_metrics_is_requested_again_at_the_next_interval() {
    let now = Instant::now();
    let mut machine = Telemetry::new(now);
    let _ = machine.step(now);
    machine.subscribed(subscription(&[]), NONE, now, 0.9);
    assert_eq!(machine.step(now), Step::Wait(now + INTERVAL));
    assert_eq!(machine.step(now + INTERVAL), Step::Subscribe(ID));
    assert!(!machine.close(), "nothing was requested, so nothing is pushed at the end");
}

#[test]
fn error_of_a_push_decides_when_the_subscription_is_requested_again() {
    let now = Instant::now();
    let at_once = Some(NONE);
    let table = [
        (ErrorCode::UNKNOWN_SUBSCRIPTION_ID, at_once),
        (ErrorCode::UNSUPPORTED_COMPRESSION_TYPE, at_once),
        (ErrorCode::TELEMETRY_TOO_LARGE, Some(INTERVAL)),
        (ErrorCode::THROTTLING_QUOTA_EXCEEDED, Some(INTERVAL)),
        (ErrorCode::INVALID_REQUEST, None),
        (ErrorCode::INVALID_RECORD, None),
        (ErrorCode::UNSUPPORTED_VERSION, None),
        (ErrorCode::CLUSTER_AUTHORIZATION_FAILED, None),
    ];
    for (error, wait) in table {
        let mut machine = pushing(now);
        machine.pushed(error, NONE, now);
        let Some(wait) = wait else {
            assert_eq!(machine.step(now + 100 * INTERVAL), Step::End, "{error}");
            assert_eq!(machine.client_instance_id(), Some(ID), "the id stays");
            continue;
        };
        assert_eq!(machine.step(now + wait), Step::Subscribe(ID), "{error}");
        let mut early = pushing(now);
        early.pushed(error, NONE, now);
        if !wait.is_zero() {
            assert_eq!(early.step(now), Step::Wait(now + wait), "{error}");
        }
    }
}

#[test]
fn error_of_a_subscription_never_leads_to_another_request_at_once() {
    let now = Instant::now();
    let table = [
        (ErrorCode::UNKNOWN_SUBSCRIPTION_ID, Step::Wait(now + DEFAULT_INTERVAL)),
        (ErrorCode::THROTTLING_QUOTA_EXCEEDED, Step::Wait(now + DEFAULT_INTERVAL)),
        (ErrorCode::INVALID_REQUEST, Step::End),
        (ErrorCode::UNSUPPORTED_VERSION, Step::End),
    ];
    for (error, expected) in table {
        let mut machine = Telemetry::new(now);
        let _ = machine.step(now);
        machine.refused(error, NONE, now);
        assert_eq!(machine.step(now), expected, "{error}");
    }
}

#[test]
fn refused_codec_ends_compression() {
    let now = Instant::now();
    let mut machine = pushing(now);
    assert_eq!(machine.codec(), Codec::Zstd);
    machine.pushed(ErrorCode::UNSUPPORTED_COMPRESSION_TYPE, NONE, now);
    assert_eq!(machine.step(now), Step::Subscribe(ID));
    machine.subscribed(subscription(&["*"]), NONE, now, 0.0);
    assert_eq!(machine.codec(), Codec::None);
}

#[test]
fn payload_is_not_compressed_without_an_accepted_codec() {
    let now = Instant::now();
    let mut machine = Telemetry::new(now);
    let _ = machine.step(now);
    machine.subscribed(Subscription { codecs: vec![], ..subscription(&["*"]) }, NONE, now, 0.0);
    assert_eq!(machine.codec(), Codec::None);
}

#[test]
fn lost_connection_leads_to_another_subscription_with_the_same_id() {
    let now = Instant::now();
    let mut machine = pushing(now);
    machine.failed(now, 0.0);
    assert_eq!(machine.step(now), Step::Wait(now + INTERVAL / 2));
    assert_eq!(machine.step(now + INTERVAL), Step::Subscribe(ID));
}

#[test]
fn failures_in_a_row_double_the_wait_up_to_five_minutes() {
    let start = Instant::now();
    let mut machine = subscribed(start);
    let mut waits = Vec::new();
    let mut now = start + INTERVAL;
    for _ in 0..7 {
        assert!(matches!(machine.step(now), Step::Push { .. } | Step::Subscribe(_)));
        machine.failed(now, 0.5);
        let Step::Wait(until) = machine.step(now) else { panic!("{machine:?}") };
        waits.push((until - now).as_secs());
        now = until;
    }
    assert_eq!(waits, [10, 20, 40, 80, 160, 300, 300]);
    // A broker that answers this request may still close the connection at each push.
    assert_eq!(machine.step(now), Step::Subscribe(ID));
    machine.subscribed(subscription(&["*"]), NONE, now, 0.5);
    let Step::Wait(due) = machine.step(now) else { panic!("{machine:?}") };
    let _ = machine.step(due);
    machine.failed(due, 0.5);
    assert_eq!(machine.step(due), Step::Wait(due + DEFAULT_INTERVAL));
    // The response to a push ends the series.
    let mut machine = pushing(now);
    machine.failed(now, 0.5);
    assert_eq!(machine.step(now + INTERVAL), Step::Subscribe(ID));
    machine.subscribed(subscription(&["*"]), NONE, now, 0.5);
    let _ = machine.step(now + INTERVAL);
    machine.pushed(ErrorCode::NONE, NONE, now);
    let _ = machine.step(now + INTERVAL);
    machine.failed(now, 0.5);
    assert_eq!(machine.step(now), Step::Wait(now + INTERVAL));
}

#[test]
fn caller_that_waits_for_the_id_hurries_only_the_first_subscription() {
    let now = Instant::now();
    let mut machine = Telemetry::new(now);
    let _ = machine.step(now);
    machine.failed(now, 0.5);
    assert_eq!(machine.step(now), Step::Wait(now + DEFAULT_INTERVAL));
    machine.hurry(now);
    assert_eq!(machine.step(now), Step::Subscribe(Uuid::ZERO));
    machine.subscribed(subscription(&["*"]), NONE, now, 0.5);
    machine.hurry(now);
    assert_eq!(machine.step(now), Step::Wait(now + INTERVAL));
}

#[test]
fn zero_id_from_a_broker_ends_the_pushes() {
    let now = Instant::now();
    let mut machine = Telemetry::new(now);
    let _ = machine.step(now);
    let without = Subscription { client_instance_id: Uuid::ZERO, ..subscription(&["*"]) };
    machine.subscribed(without, NONE, now, 0.5);
    assert_eq!((machine.step(now), machine.client_instance_id()), (Step::End, None));
}

#[test]
fn terminating_push_is_sent_once_and_only_with_a_subscription() {
    let now = Instant::now();
    let mut fresh = Telemetry::new(now);
    assert!(!fresh.close());
    let mut asking = Telemetry::new(now);
    let _ = asking.step(now);
    assert!(!asking.close(), "the first subscription is still in flight");

    let mut waiting = subscribed(now);
    let mut in_flight = pushing(now);
    for machine in [&mut waiting, &mut in_flight] {
        assert!(machine.close());
        // The response to a push from before the close.
        machine.pushed(ErrorCode::UNKNOWN_SUBSCRIPTION_ID, NONE, now);
        assert_eq!(machine.step(now), Step::Push { terminating: true });
        machine.pushed(ErrorCode::NONE, NONE, now);
        assert_eq!(machine.step(now + 100 * INTERVAL), Step::End);
    }
}

#[test]
fn second_close_leaves_the_terminating_push_pending() {
    let now = Instant::now();
    let mut machine = subscribed(now);
    assert!(machine.close() && machine.close());
    assert_eq!(machine.step(now), Step::Push { terminating: true });
    assert!(machine.close() && !machine.has_ended(), "in progress");
    machine.pushed(ErrorCode::NONE, NONE, now);
    assert!(!machine.close() && machine.has_ended());
    let mut ended = subscribed(now);
    assert!(ended.close());
    ended.end();
    assert_eq!((ended.close(), ended.step(now)), (false, Step::End));
}

#[test]
fn selector_matches_prefixes_and_everything() {
    let table: [(&[&str], &str, bool); 7] = [
        (&[], "a.b", false),
        (&["*"], "a.b", true),
        (&[""], "a.b", true),
        (&["a."], "a.b", true),
        (&["a.b.c"], "a.b", false),
        (&["x", "a.b"], "a.b", true),
        (&["*", "x"], "a.b", false),
    ];
    for (requested, name, has) in table {
        let selector = Selector::new(requested.iter().map(|&text| text.to_owned()).collect());
        assert_eq!(selector.has(name), has, "{requested:?}");
    }
}

#[test]
fn interval_is_bounded_below() {
    for (ms, expected) in [
        (0, DEFAULT_INTERVAL),
        (-1, DEFAULT_INTERVAL),
        (1, LEAST_INTERVAL),
        (100, LEAST_INTERVAL),
        (2000, Duration::from_secs(2)),
    ] {
        assert_eq!(Subscription::interval_of(ms), expected, "{ms}");
    }
}

#[test]
fn payload_limit_is_one_mebibyte_if_the_broker_names_none() {
    for (bytes, expected) in [(0, 1 << 20), (-1, 1 << 20), (1, 1), (i32::MAX, i32::MAX as usize)] {
        assert_eq!(Subscription::max_bytes_of(bytes), expected, "{bytes}");
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Step,
    Subscribed { interval: i32, has_metrics: bool },
    Refused(i16),
    Pushed(i16),
    Failed,
    Hurry,
    Close,
    End,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => Just(Event::Step),
        2 => (any::<i32>(), any::<bool>())
            .prop_map(|(interval, has_metrics)| Event::Subscribed { interval, has_metrics }),
        1 => (-1_i16..130).prop_map(Event::Refused),
        2 => (-1_i16..130).prop_map(Event::Pushed),
        1 => Just(Event::Failed),
        1 => Just(Event::Hurry),
        1 => Just(Event::Close),
        1 => Just(Event::End),
    ]
}

proptest! {
    /// Whatever brokers answer and whenever, the machine has one request in progress, pushes only with a subscription,
    /// and nothing after the terminating push.
    #[test]
    fn requests_follow_the_states_of_the_kip(
        events in prop::collection::vec((event(), 0_u64..400_000, 0.0..1.0_f64), 0..60),
    ) {
        let mut now = Instant::now();
        let mut machine = Telemetry::new(now);
        let (mut in_progress, mut terminated) = (None, false);
        let (mut closes, mut ended) = (false, false);
        for (event, ms, unit) in events {
            now += Duration::from_millis(ms);
            let throttle = Duration::from_millis(ms % 7);
            match (event, in_progress) {
                (Event::Step, _) => match machine.step(now) {
                    step @ (Step::Subscribe(_) | Step::Push { .. }) => {
                        prop_assert!(in_progress.is_none() && !terminated && !ended, "{step:?}");
                        if let Step::Push { terminating } = step {
                            prop_assert!(machine.subscription().is_some());
                            prop_assert_eq!(terminating, closes);
                            terminated = terminating;
                        }
                        in_progress = Some(step);
                    }
                    Step::Wait(until) => prop_assert!(until > now && in_progress.is_none()),
                    Step::End => prop_assert!(in_progress.is_some() || machine.has_ended()),
                },
                (Event::Subscribed { interval, has_metrics }, Some(Step::Subscribe(_))) => {
                    let metrics: &[&str] = if has_metrics { &["*"] } else { &[] };
                    let interval = Subscription::interval_of(interval);
                    let received = Subscription { interval, ..subscription(metrics) };
                    machine.subscribed(received, throttle, now, unit);
                    in_progress = None;
                }
                (Event::Refused(code), Some(Step::Subscribe(_))) => {
                    machine.refused(ErrorCode(code), throttle, now);
                    in_progress = None;
                }
                (Event::Pushed(code), Some(Step::Push { .. })) => {
                    machine.pushed(ErrorCode(code), throttle, now);
                    in_progress = None;
                }
                (Event::Failed, Some(_)) => {
                    machine.failed(now, unit);
                    in_progress = None;
                }
                (Event::Hurry, _) => machine.hurry(now),
                // The client waits for a request in progress before it takes the next step.
                (Event::Close, None) => {
                    let would_push = machine.would_push();
                    prop_assert_eq!(machine.close(), would_push);
                    closes = true;
                }
                (Event::Close, Some(Step::Push { terminating: true })) => {
                    prop_assert_eq!(machine.close(), !ended);
                }
                (Event::End, _) => {
                    machine.end();
                    ended = true;
                }
                _ => {}
            }
        }
    }
}
