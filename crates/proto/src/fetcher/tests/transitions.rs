//! Each transition of the session and of the sessionless connections, and what responses and times lead to.

use super::*;

/// Brings a fetcher of one partition into a state.
fn in_state(name: &str) -> Bench {
    let mut bench = match name {
        "Closed" => {
            let mut bench = Bench::new();
            bench.seek(0);
            bench
        }
        "Sending" | "InFlight" | "Opening" => {
            in_state(if name == "Opening" { "Closed" } else { "Idle" })
        }
        _ => Bench::open(1),
    };
    match name {
        "Sending" => {
            bench.plan();
        }
        "InFlight" | "Opening" => {
            bench.send();
        }
        "Resting" => {
            bench.assign(0, Interest::Paused);
            bench.plan();
        }
        "LookingUp" => {
            bench.look_up(0);
            bench.plan();
        }
        _ => {}
    }
    let expected = if name == "Opening" { "InFlight" } else { name };
    assert_eq!(bench.state(), expected);
    bench
}

#[test]
fn the_session_changes_only_as_listed() {
    type Input = fn(&mut Bench);
    let plan: Input = |bench| {
        bench.plan();
    };
    let look_up: Input = |bench| {
        bench.look_up(0);
        bench.plan();
    };
    let drop: Input = |bench| {
        bench.fetcher.handle_assigned(&tp(0), Need::Nothing);
        bench.plan();
    };
    let lost: Input = |bench| bench.fetcher.handle_lost(Failure::Connection, bench.now, 0.5);
    let interrupted: Input = |bench| bench.fetcher.handle_interrupted();
    let answered: Input =
        |bench| bench.fetcher.handle_response(response(&[result(0)]), bench.now, || 0.5);
    let without_slot: Input = |bench| {
        let response = FetchResponse { session_id: 0, ..response(&[result(0)]) };
        bench.fetcher.handle_response(response, bench.now, || 0.5);
    };
    let evicted: Input = |bench| {
        let response = refusal(ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
        bench.fetcher.handle_response(response, bench.now, || 0.5);
    };
    let refused: Input = |bench| {
        let response = refusal(ErrorCode::UNKNOWN_SERVER_ERROR);
        bench.fetcher.handle_response(response, bench.now, || 0.5);
    };
    let looked_up: Input = |bench| bench.fetcher.handle_looked_up();
    let resumed: Input = |bench| {
        bench.assign(0, Interest::Wanted);
        bench.plan();
    };
    let paused: Input = |bench| {
        bench.assign(0, Interest::Paused);
        bench.plan();
    };
    let a_minute_later: Input = |bench| {
        bench.seek(1);
        bench.now += SESSION_REST;
        bench.plan();
    };
    let table: [(&str, Input, &str); 28] = [
        ("Closed", plan, "Sending"),
        ("Closed", look_up, "LookingUp"),
        ("Closed", drop, "Closed"),
        ("Closed", answered, "Closed"),
        ("Idle", plan, "Sending"),
        ("Idle", look_up, "LookingUp"),
        ("Idle", drop, "Idle"),
        ("Idle", paused, "Resting"),
        ("Idle", answered, "Idle"),
        ("Idle", lost, "Closed"),
        ("Resting", plan, "Resting"),
        ("Resting", resumed, "Sending"),
        ("Resting", look_up, "LookingUp"),
        ("Resting", a_minute_later, "Sending"),
        ("Resting", lost, "Closed"),
        ("Sending", plan, "Sending"),
        ("Sending", lost, "Closed"),
        ("InFlight", plan, "InFlight"),
        ("InFlight", answered, "Idle"),
        ("InFlight", evicted, "Closed"),
        ("InFlight", refused, "Closed"),
        ("InFlight", interrupted, "Idle"),
        ("InFlight", lost, "Closed"),
        ("Opening", answered, "Idle"),
        ("Opening", without_slot, "Closed"),
        ("Opening", interrupted, "Closed"),
        ("LookingUp", looked_up, "Idle"),
        ("LookingUp", lost, "Closed"),
    ];
    for (n, (from, input, to)) in table.into_iter().enumerate() {
        let mut bench = in_state(from);
        input(&mut bench);
        assert_eq!(bench.state(), to, "row {n}, from {from}");
    }
}

#[test]
fn a_session_is_opened_without_a_wait_and_then_waits_for_records() {
    let mut bench = Bench::new();
    bench.seek(0);
    let opening = bench.send();
    assert_eq!((opening.is_opening, opening.max_wait), (true, Duration::ZERO));
    assert_eq!((named(&opening), opening.session.session_epoch), (vec![0], 0));
    bench.respond(response(&[result(0)]));
    let next = bench.send();
    assert_eq!((next.is_opening, next.max_wait), (false, MAX_WAIT));
    assert_eq!((next.session.session_id, next.session.session_epoch), (5, 1));
    assert_eq!((named(&next), next.max_bytes), (vec![], SHARE / 2), "only changes are named");
}

#[test]
fn topics_without_an_id_are_named() {
    let mut bench = Bench::open(1);
    assert_eq!(*bench.fetcher.versions().end(), *curtail_wire::fetch::VERSIONS.end());
    let from = bench.positions[&tp(0)];
    let nameless = Wanted {
        from,
        topic_id: Uuid::ZERO,
        interest: Interest::Wanted,
        review_at: None,
        buffered: None,
    };
    bench.fetcher.handle_assigned(&TopicPartition::new("old", 0), Need::Fetch(nameless));
    assert_eq!(*bench.fetcher.versions().end(), 12);
    bench.fetcher.handle_assigned(&TopicPartition::new("old", 0), Need::Nothing);
    assert_eq!(*bench.fetcher.versions().end(), *curtail_wire::fetch::VERSIONS.end());
}

#[test]
fn a_working_connection_that_was_lost_is_replaced_at_once_and_others_back_off() {
    // Opened and lost, then used and lost, then an unusable response.
    let mut bench = Bench::new();
    bench.seek(0);
    bench.send();
    let pause = |bench: &Bench| bench.fetcher.poll_timeout().map(|at| at - bench.now);
    for wait in [100, 200] {
        bench.fetcher.handle_lost(Failure::Connection, bench.now, 0.5);
        assert_eq!(pause(&bench), Some(ms(wait)));
        assert_eq!(bench.plan(), Wake::Never);
        assert!(bench.fetcher.poll_transmit().is_none(), "the lane backs off");
        bench.now += ms(wait);
        bench.send();
    }
    bench.respond(response(&[result(0)]));
    bench.fetcher.handle_lost(Failure::Connection, bench.now, 0.5);
    assert_eq!(pause(&bench), Some(Duration::ZERO));
    let next = bench.send();
    assert_eq!((named(&next), next.session.session_id), (vec![0], 5), "the slot is freed");
    bench.respond(response(&[result(0)]));
    bench.fetcher.handle_lost(Failure::Response, bench.now, 0.5);
    assert_eq!(pause(&bench), Some(ms(100)));
}

#[test]
fn a_refused_fetch_backs_off_and_an_evicted_session_is_opened_at_once() {
    let mut bench = Bench::open(1);
    bench.send();
    bench.respond(refusal(ErrorCode::FETCH_SESSION_ID_NOT_FOUND));
    assert!(bench.send().is_opening);
    bench.fetcher.handle_response(refusal(ErrorCode::UNKNOWN_SERVER_ERROR), bench.now, || 0.5);
    let events = bench.events();
    assert!(
        matches!(events[..], [Event::Refused(ErrorCode::UNKNOWN_SERVER_ERROR), Event::Refresh]),
        "{events:?}"
    );
    assert_eq!(bench.fetcher.poll_timeout(), Some(bench.now + ms(100)));
}

#[test]
fn a_throttled_lane_pauses_up_to_the_request_timeout() {
    for (throttle, pause) in
        [(0, None), (-1, None), (70, Some(ms(70))), (i32::MAX, Some(REQUEST_TIMEOUT))]
    {
        let mut bench = Bench::open(1);
        bench.send();
        let response = FetchResponse { throttle_time_ms: throttle, ..response(&[]) };
        bench.fetcher.handle_response(response, bench.now, || 0.5);
        assert_eq!(bench.fetcher.pause_until, pause.map(|pause| bench.now + pause));
        let throttled = bench.events().into_iter().find_map(|event| match event {
            Event::Throttled(pause) => Some(pause),
            _ => None,
        });
        assert_eq!(throttled, pause);
    }
}

#[test]
fn results_are_told_apart() {
    let mut bench = Bench::open(4);
    bench.send();
    let end = EpochEndOffset { epoch: 2, end_offset: 9 };
    let leader = LeaderIdAndEpoch { leader_id: 4, leader_epoch: 8 };
    let moved = ErrorCode::NOT_LEADER_OR_FOLLOWER;
    let results = bench.respond(response(&[
        FetchPartitionResponse { high_watermark: 7, ..result(0) },
        FetchPartitionResponse { diverging_epoch: Some(end), ..result(1) },
        FetchPartitionResponse { preferred_read_replica: 3, ..result(2) },
        FetchPartitionResponse { error: moved, current_leader: Some(leader), ..result(3) },
        result(9),
    ]));
    let answers: Vec<&Answer> = results.iter().map(|result| &result.answer).collect();
    assert!(matches!(answers[0], Answer::Records(Ends { high_watermark: 7, readable: 7 }, _)));
    assert!(matches!(answers[1], Answer::Diverged(_, found) if *found == end));
    assert!(matches!(answers[2], Answer::Follow(3)));
    let Answer::Refused(verdict, code, leader) = answers[3] else { panic!("{answers:?}") };
    assert_eq!((*verdict, *code), (FetchVerdict::Moved, moved));
    assert_eq!(*leader, Some(Leader { id: 4, epoch: 8 }));
    assert_eq!(answers.len(), 4, "a partition that is not read has no result");
}

/// A partition without a request, while the session's fetch waits at the broker.
#[test]
fn a_fetch_is_interrupted_for_a_partition_that_it_does_not_name() {
    let no_need = BTreeSet::new();
    for (took, is_interrupted) in [(2, true), (499, true), (500, false)] {
        let mut bench = Bench::open(1);
        bench.fetcher.handle_open(ms(took));
        bench.send();
        let sent = bench.now;
        bench.now += ms(1);
        bench.fetcher.handle_changed(&no_need, |_| Need::Nothing, bench.now);
        assert_eq!(bench.fetcher.urgent_at(), None);
        let version = bench.versions.next_version();
        let lookup = LookUp { version, to: Reset::Earliest, leader_epoch: 3 };
        bench.fetcher.handle_changed(&BTreeSet::from([tp(1)]), |_| Need::LookUp(lookup), bench.now);
        // A busy lane is left alone for as long as a connection takes to open.
        let urgent_at = is_interrupted.then(|| sent + ms(took));
        assert_eq!(bench.fetcher.urgent_at(), urgent_at, "opening took {took} ms");
        let Some(urgent_at) = urgent_at else { continue };
        assert_eq!(bench.fetcher.poll_timeout(), Some(urgent_at));
        let events = bench.time_out();
        assert!(matches!(events[..], [Event::Interrupt]), "{events:?}");
        // The caller ignores it once part of the response has arrived.
        assert_eq!(bench.fetcher.urgent_at(), None);
    }
}

#[test]
fn only_needs_that_the_fetch_does_not_name_interrupt_it() {
    let mut bench = Bench::open(2);
    bench.send();
    let now = bench.now;
    let (known, both) = (bench.need(0, Interest::Wanted), BTreeSet::from([tp(0)]));
    let paused = bench.need(1, Interest::Paused);
    let from = FetchFrom { version: bench.versions.next_version(), ..bench.positions[&tp(0)] };
    let sought = Need::Fetch(Wanted {
        from,
        topic_id: TOPIC,
        interest: Interest::Wanted,
        review_at: None,
        buffered: None,
    });
    let wait = |version| Need::Wait { until: now + ms(40), version };
    let table: [(Need<Handle>, Option<Duration>); 6] = [
        (Need::Nothing, None),
        (known, None),
        (paused, None),
        (wait(None), None),
        (wait(Some(from.version)), Some(ms(40))),
        (sought, Some(Duration::ZERO)),
    ];
    for (n, (need, due)) in table.into_iter().enumerate() {
        let need = Cell::new(Some(need));
        bench.fetcher.handle_changed(&both, |_| need.take().unwrap(), now);
        let Main::InFlight(flight) = &bench.fetcher.main else { panic!("{n}") };
        assert_eq!(flight.unasked, due.map(|due| now + due), "row {n}");
    }
}

/// A backoff ends while the session's fetch, which does not name the partition, is in flight.
#[test]
fn the_end_of_a_backoff_interrupts_a_fetch() {
    let mut bench = Bench::open(2);
    let until = bench.now + ms(100);
    let version = bench.positions[&tp(1)].version;
    let wait = Need::Wait { until, version: Some(version) };
    bench.fetcher.handle_assigned(&tp(1), wait);
    bench.send();
    bench.fetcher.handle_changed(&BTreeSet::new(), |_| Need::Nothing, bench.now);
    let events = bench.time_out();
    assert!(matches!(events[..], [Event::Interrupt]) && bench.now == until, "{events:?}");
    bench.fetcher.handle_interrupted();
    let mut due = BTreeSet::new();
    bench.fetcher.due(bench.now, |held| held.get(), &mut due);
    assert_eq!(due, BTreeSet::from([tp(1)]));
    // A partition that has left by then needs nothing.
    let mut bench = Bench::open(2);
    bench.fetcher.handle_assigned(&tp(1), wait_of(bench.now + ms(100), version));
    bench.send();
    bench.fetcher.handle_changed(&BTreeSet::from([tp(1)]), |_| Need::Nothing, bench.now);
    assert_eq!(bench.fetcher.urgent_at(), None);
}

fn wait_of(until: Instant, version: Version) -> Need<Handle> {
    Need::Wait { until, version: Some(version) }
}

#[test]
fn a_late_broker_is_suspected_repeatedly_until_the_request_times_out() {
    let mut bench = Bench::open(1);
    bench.send();
    let sent = bench.now;
    for n in 1..=29 {
        let events = bench.time_out();
        assert!(matches!(events[..], [Event::Refresh]), "{events:?}");
        // The wait that the request allows is not counted.
        assert_eq!(bench.now, sent + MAX_WAIT + n * LIMIT);
    }
    let events = bench.time_out();
    assert!(
        matches!(events[..], [Event::TimedOut]) && bench.now == sent + REQUEST_TIMEOUT,
        "{events:?}"
    );
    // A connection that takes long to open may take as long to respond.
    let mut bench = Bench::open(1);
    bench.fetcher.handle_open(ms(3000));
    bench.send();
    let sent = bench.now;
    bench.time_out();
    assert_eq!(bench.now, sent + MAX_WAIT + ms(3000));
}

#[test]
fn a_session_is_closed_only_over_a_proven_connection() {
    let mut bench = Bench::open(1);
    let close = bench.fetcher.close().unwrap();
    assert_eq!((close.session.session_id, close.session.session_epoch), (5, -1));
    bench.fetcher.handle_lost(Failure::Connection, bench.now, 0.5);
    assert!(bench.fetcher.close().is_none());
}
