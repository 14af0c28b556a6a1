//! Credit, paused partitions, sessionless fetches, and the imitations of Java's consumers.

use super::*;

/// Partition 0 has taken the share and has more at the broker; the others have nothing buffered.
fn undrained(partitions: i32) -> Bench {
    let mut bench = Bench::open(partitions);
    bench.store(0, 10, 1_000, 600);
    bench
}

#[test]
fn a_partition_that_is_not_drained_rests_the_session_and_the_others_are_read_beside_it() {
    let mut bench = undrained(2);
    let fetches = bench.beside();
    let [(Purpose::Coming, named, fetch)] = &fetches[..] else { panic!("{fetches:?}") };
    assert_eq!((&named[..], fetch.max_wait, fetch.max_bytes), (&[1][..], MAX_WAIT, 200));
    assert_eq!(bench.state(), "Resting");
    assert!(bench.beside().is_empty(), "it is requested once");
    // The lane is woken once half of the share is free, and the session continues.
    assert_eq!(bench.plan(), Wake::After(100));
    bench.handle(0).set(500);
    let next = bench.send();
    assert_eq!(
        (next.session.session_id, next.session.session_epoch),
        (5, 1),
        "no change of the session"
    );
}

#[test]
fn records_known_to_exist_are_fetched_at_once_and_not_twice() {
    let mut bench = undrained(3);
    bench.fetcher.handle_end(&tp(2), 50);
    let fetches = bench.beside();
    let purposes: Vec<_> =
        fetches.iter().map(|(purpose, named, _)| (*purpose, named.clone())).collect();
    assert_eq!(purposes, [(Purpose::Known, vec![2]), (Purpose::Coming, vec![1])]);
    assert_eq!(fetches[0].2.max_wait, Duration::ZERO);
    // The share is free again: the session waits for the known records, which it would return as well.
    bench.handle(0).set(0);
    bench.plan();
    assert!(bench.fetcher.poll_transmit().is_none());
    bench.respond_beside(Purpose::Known, response(&[result(2)]));
    bench.send();
}

#[test]
fn a_broker_without_the_records_assumed_is_asked_to_wait() {
    let mut bench = undrained(2);
    bench.fetcher.handle_end(&tp(1), 50);
    assert_eq!(bench.beside()[0].0, Purpose::Known);
    let results = bench.respond_beside(Purpose::Known, response(&[result(1)]));
    assert_eq!(results.len(), 1);
    // The caller records the end that the broker reports. Without a result, none is assumed.
    let purposes: Vec<Purpose> = bench.beside().into_iter().map(|(purpose, ..)| purpose).collect();
    assert_eq!(purposes, [Purpose::Coming]);
}

#[test]
fn a_waiting_sessionless_fetch_gives_way_to_one_that_names_all() {
    let mut bench = undrained(3);
    bench.fetcher.handle_assigned(&tp(2), Need::Nothing);
    assert_eq!(bench.beside()[0].1, [1]);
    bench.seek(2);
    let fetches = bench.beside();
    assert_eq!((fetches[0].0, &fetches[0].1[..]), (Purpose::Coming, &[1, 2][..]));
}

#[test]
fn results_that_a_sessionless_fetch_has_overtaken_are_ignored() {
    let mut bench = undrained(2);
    bench.beside();
    bench.handle(0).set(0);
    bench.send();
    let results = bench.respond_beside(Purpose::Coming, response(&[result(1)]));
    assert_eq!(results.len(), 1);
    bench.store(1, 5, 5, 10);
    let results = bench.respond(response(&[result(0), result(1)]));
    let partitions: Vec<_> = results.iter().map(|result| result.at.partition).collect();
    assert_eq!(partitions, [0]);
    // And a sessionless result counts only for the position that was requested.
    let mut bench = undrained(2);
    bench.beside();
    bench.seek(1);
    assert!(bench.respond_beside(Purpose::Coming, response(&[result(1)])).is_empty());
}

#[test]
fn a_spent_share_requests_nothing() {
    let mut bench = Bench::open(2);
    bench.store(0, 10, 10, SHARE);
    assert!(bench.beside().is_empty());
    assert_eq!((bench.plan(), bench.state()), (Wake::After(1), "Resting"));
}

#[test]
fn a_late_sessionless_response_makes_the_broker_suspect() {
    let mut bench = undrained(2);
    bench.beside();
    let sent = bench.now;
    for n in 1..=2 {
        let events = bench.time_out();
        assert!(matches!(events[..], [Event::Refresh]), "{events:?}");
        assert_eq!(bench.now, sent + MAX_WAIT + n * LIMIT);
    }
}

#[test]
fn sessionless_connections_close_with_the_last_partition_and_with_a_lost_connection() {
    for is_lost in [false, true] {
        let mut bench = undrained(2);
        bench.beside();
        match is_lost {
            true => bench.fetcher.handle_lost(Failure::Connection, bench.now, 0.5),
            false => {
                (0..2).for_each(|n| bench.fetcher.handle_assigned(&tp(n), Need::Nothing));
                bench.plan();
            }
        }
        let events = bench.events();
        assert!(matches!(events[..], [Event::CloseSessionless]), "{events:?}");
        assert!(bench.respond_beside(Purpose::Coming, response(&[result(1)])).is_empty());
        bench.plan();
        assert!(bench.events().is_empty(), "they are closed once");
    }
}

#[test]
fn a_resting_session_is_used_after_a_minute_for_one_batch() {
    let mut bench = undrained(2);
    bench.beside();
    bench.respond_beside(Purpose::Coming, response(&[result(1)]));
    let used = bench.fetcher.used;
    assert_eq!(bench.fetcher.poll_timeout(), Some(used + SESSION_REST));
    bench.now = used + SESSION_REST;
    let fetch = bench.send();
    assert_eq!((fetch.max_bytes, fetch.max_wait), (1, Duration::ZERO));
}

#[test]
fn a_paused_partition_stays_in_the_session_until_that_has_rested() {
    let mut bench = Bench::open(2);
    bench.assign(0, Interest::Paused);
    assert_eq!(bench.beside()[0].1, [1]);
    assert!(matches!(duty(&bench, 0), Some(Duty::Read(_))));
    bench.now += SESSION_REST;
    let fetch = bench.send();
    let forgotten: Vec<_> =
        fetch.session.forgotten.iter().map(|topic| &topic.partitions[..]).collect();
    assert_eq!(forgotten, [&[0][..]]);
    assert_eq!(duty(&bench, 0), None);
    // A partition that is paused before it was read does not enter the session.
    bench.respond(response(&[]));
    bench.assign(0, Interest::Paused);
    assert_eq!(duty(&bench, 0), None);
    bench.assign(0, Interest::Wanted);
    assert_eq!(named(&bench.send()), [0]);
}

#[test]
fn omitted_partitions_return_once_they_are_drained() {
    let mut bench = Bench::with(Buffered::Omit);
    (0..2).for_each(|n| bench.seek(n));
    bench.exchange(&[]);
    bench.store(0, 10, 10, 50);
    let fetch = bench.send();
    assert_eq!(fetch.session.forgotten.len(), 1);
    assert_eq!(duty(&bench, 0), Some(Duty::Omit));
    bench.respond(response(&[]));
    // A change in between does not bring it back.
    bench.assign(0, Interest::Wanted);
    assert_eq!((bench.plan(), duty(&bench, 0)), (Wake::After(1), Some(Duty::Omit)));
    let mut due = BTreeSet::new();
    bench.fetcher.due(bench.now, |held| held.get(), &mut due);
    assert!(due.is_empty());
    bench.handle(0).set(0);
    bench.fetcher.due(bench.now, |held| held.get(), &mut due);
    assert_eq!(due, BTreeSet::from([tp(0)]));
    bench.assign(0, Interest::Wanted);
    assert!(matches!(duty(&bench, 0), Some(Duty::Read(_))));
}

/// The application drains on another thread, at any time.
#[test]
fn an_omitted_partition_that_is_drained_while_the_lane_plans_is_reviewed_at_once() {
    let mut bench = Bench::with(Buffered::Omit);
    bench.seek(0);
    bench.exchange(&[]);
    bench.store(0, 10, 10, 50);
    assert_eq!(bench.plan(), Wake::After(1));
    let mut due = BTreeSet::new();
    bench.fetcher.due(bench.now, |held| held.get(), &mut due);
    bench.handle(0).set(0);
    assert!(due.is_empty());
    assert_eq!((bench.plan(), bench.fetcher.poll_timeout()), (Wake::After(0), None));
    assert!(bench.fetcher.poll_transmit().is_none());
}

#[test]
fn java_s_later_consumers_fetch_nothing_while_records_are_buffered() {
    for (buffered, elsewhere, is_sent) in [
        (Buffered::SkipBroker, 0, true),
        (Buffered::SkipBroker, 9, true),
        (Buffered::SkipAll, 0, true),
        (Buffered::SkipAll, 9, false),
    ] {
        for used in [0, 50] {
            let mut bench = Bench::with(buffered);
            bench.seek(0);
            let share = Share { total: SHARE, used };
            let room = Room { share, all_used: used + elsewhere };
            let wake = bench.fetcher.handle_drained(room, |held| held.get(), bench.now);
            assert_eq!(wake, if used > 0 { Wake::After(used) } else { Wake::Never });
            let transmit = bench.fetcher.poll_transmit();
            assert_eq!(transmit.is_some(), is_sent && used == 0, "{buffered:?} {elsewhere} {used}");
        }
    }
}
