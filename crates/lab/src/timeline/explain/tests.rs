use std::time::{Duration, Instant, SystemTime};

use super::{super::broker::ServedPartition, *};

/// The events of one run: milliseconds and fields.
fn timeline(events: &[(u64, &[(&'static str, &str)])]) -> Timeline {
    let start = Instant::now();
    let traced = events
        .iter()
        .map(|(at_ms, fields)| Traced {
            at: start + Duration::from_millis(*at_ms),
            fields: fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
        })
        .collect();
    let topics = vec!["t".to_owned()];
    Timeline { start, start_wall: SystemTime::now(), topics, traced, served: Vec::new() }
}

fn texts(of: &Timeline, partition: i32, offset: i64) -> Vec<String> {
    let place =
        Place { partition, offset, due: Duration::ZERO, acknowledged: Duration::from_millis(100) };
    of.explain(place).into_iter().map(|line| line.text).collect()
}

/// The connections of both lanes count their requests from 1.
#[test]
fn the_side_lane_has_its_own_requests() {
    let of = timeline(&[
        (
            1,
            &[
                ("event", "sent"),
                ("broker", "1"),
                ("branch", "Side"),
                ("correlation_id", "7"),
                ("ahead", "0"),
                ("batches", "t-0 3 0:5 2 0"),
            ],
        ),
        (
            2,
            &[
                ("event", "sent"),
                ("broker", "1"),
                ("branch", "Main"),
                ("correlation_id", "7"),
                ("ahead", "0"),
                ("batches", "t-1 3 0:9 1 0"),
            ],
        ),
        (
            3,
            &[
                ("event", "sent"),
                ("broker", "1"),
                ("branch", "Main"),
                ("correlation_id", "8"),
                ("ahead", "1"),
                ("batches", "t-1 3 0:10 1 0"),
            ],
        ),
        (4, &[("event", "disconnected"), ("broker", "1"), ("branch", "Main"), ("error", "reset")]),
        (
            9,
            &[
                ("event", "answered"),
                ("broker", "1"),
                ("branch", "Side"),
                ("correlation_id", "7"),
                ("results", "t-0 NONE 40 -1 -1"),
            ],
        ),
    ]);
    assert_eq!(
        texts(&of, 0, 41),
        [
            "due",
            "request 7 to broker 1 on the side lane: 2 records, attempt 0, leader epoch 3; 1 partitions in the request",
            "connection to broker 1 lost: reset",
            "response of broker 1: acknowledged",
        ]
    );
}

/// Requests on the side lane delay none on the main lane.
#[test]
fn a_request_is_behind_those_of_its_connection() {
    let sent = |at, branch, id, ahead, batches| {
        (
            at,
            [
                ("event", "sent"),
                ("broker", "1"),
                ("branch", branch),
                ("correlation_id", id),
                ("ahead", ahead),
                ("batches", batches),
            ],
        )
    };
    let requests = [
        sent(1, "Main", "7", "0", "t-1 3 0:9 1 0;t-2 3 0:4 1 0"),
        sent(2, "Side", "1", "0", "t-3 3 0:1 1 0"),
        sent(5, "Main", "8", "1", "t-0 3 0:5 2 0"),
    ];
    let answered = [
        ("event", "answered"),
        ("broker", "1"),
        ("branch", "Main"),
        ("correlation_id", "8"),
        ("results", "t-0 NONE 40 -1 -1"),
    ];
    let mut events: Vec<(u64, &[(&'static str, &str)])> =
        requests.iter().map(|(at, fields)| (*at, &fields[..])).collect();
    events.push((9, &answered));
    let lines = texts(&timeline(&events), 0, 40);
    assert!(
        lines.contains(
            &"  behind 1 requests with 2 partitions; the oldest was sent 4.0 ms before".into()
        ),
        "{lines:?}"
    );
}

/// A consumer in the same process has separate metadata.
#[test]
fn leader_changes_are_the_producers() {
    let of = timeline(&[
        (1, &[("event", "leaders"), ("client", READER), ("leaders", "t-0 2 4")]),
        (3, &[("event", "leaders"), ("client", "curtail"), ("leaders", "t-0 1 3;t-1 1 3")]),
        (
            4,
            &[
                ("event", "sent"),
                ("broker", "1"),
                ("branch", "Main"),
                ("correlation_id", "7"),
                ("ahead", "0"),
                ("batches", "t-0 3 0:5 2 0"),
            ],
        ),
        (
            9,
            &[
                ("event", "answered"),
                ("broker", "1"),
                ("branch", "Main"),
                ("correlation_id", "7"),
                ("results", "t-0 NONE 40 -1 -1"),
            ],
        ),
    ]);
    let changes: Vec<String> =
        texts(&of, 0, 40).into_iter().filter(|line| line.contains("knows")).collect();
    assert_eq!(changes, ["the producer knows: leader is broker 1, epoch 3 (one of 2 changes)"]);
}

/// A record that waits in the producer before its first request waits for earlier ones.
#[test]
fn requests_during_a_long_wait_are_named() {
    let event = |at, kind, id, more: &[(&'static str, &'static str)]| {
        let request =
            [("event", kind), ("broker", "1"), ("branch", "Main"), ("correlation_id", id)];
        (at, [&request[..], more].concat())
    };
    let sent = |at, id, batches| event(at, "sent", id, &[("ahead", "0"), ("batches", batches)]);
    let answered = |at, id, results| event(at, "answered", id, &[("results", results)]);
    let events = [
        sent(1, "7", "t-1 3 0:9 1 0;t-2 3 0:4 1 0"),
        sent(2, "8", "t-1 3 0:10 1 0"),
        answered(9, "8", "t-1 NONE 3 -1 -1"),
        answered(80, "7", "t-1 NONE 2 -1 -1;t-2 NONE 9 -1 -1"),
        sent(81, "9", "t-0 3 0:5 2 0"),
        answered(90, "9", "t-0 NONE 40 -1 -1"),
    ];
    let events: Vec<(u64, &[(&'static str, &str)])> =
        events.iter().map(|(at, fields)| (*at, &fields[..])).collect();
    let lines = texts(&timeline(&events), 0, 40);
    let named: Vec<&String> =
        lines.iter().filter(|line| line.contains("while it waited")).collect();
    let expected =
        "  while it waited, request 7 to broker 1 with 2 partitions was in flight for 79.0 ms";
    assert_eq!(named, [expected], "{lines:?}");
}

/// A follower that waits for other partitions does not fetch the record.
#[test]
fn long_fetches_that_do_not_name_the_partition_are_listed() {
    let request = [("broker", "1"), ("branch", "Main"), ("correlation_id", "7")];
    let sent = [&[("event", "sent"), ("ahead", "0"), ("batches", "t-0 3 0:5 1 0")], &request[..]];
    let answered = [&[("event", "answered"), ("results", "t-0 NONE 40 -1 -1")], &request[..]];
    let mut of = timeline(&[(1, &sent.concat()), (90, &answered.concat())]);
    let ms = Duration::from_millis;
    let fetch = |from: u64, until: u64, partitions| Served {
        broker: 1,
        sent: of.start_wall + ms(until),
        api: "FETCH".into(),
        client: "broker-3-fetcher-0".into(),
        correlation_id: 1,
        took: Took { total: (until - from) as f64, ..Took::default() },
        partitions,
        session: Some(Session { epoch: 7, forgotten: 2 }),
    };
    let asked = Some((40, 3));
    let named = ServedPartition { topic: "t".into(), partition: 0, asked, told: None };
    of.served = vec![fetch(10, 80, vec![]), fetch(80, 88, vec![]), fetch(15, 85, vec![named])];
    let lines = texts(&of, 0, 40);
    let others: Vec<_> = lines.iter().filter(|line| line.contains("without naming it")).collect();
    assert_eq!(
        others,
        [
            "  follower 3 fetches at broker 1 without naming it, for 70.0 ms: 0 partitions named, 0 answered, request 7 of its \
             session, which forgets 2"
        ]
    );
    assert!(lines.iter().any(|line| line.contains("fetches it at broker 1 from offset 40")));
}
