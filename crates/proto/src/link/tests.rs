use proptest::prelude::*;

use super::*;

mod arena;

const MS: Duration = Duration::from_millis(1);

/// A batch by its number.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parcel {
    number: u32,
    created: Instant,
    bytes: usize,
}

impl Carried for Parcel {
    fn created(&self) -> Instant {
        self.created
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn reserved(&self) -> usize {
        1000
    }

    fn record_bytes(&self) -> usize {
        90
    }
}

type TestLink = Link<char, Parcel, u32>;

fn settings(began: Instant) -> Settings {
    Settings {
        bounds: Bounds {
            target: Some(10 * MS),
            batch: 64 << 10,
            request: 1 << 20,
            in_flight: 2,
            suspicion: Some(crate::path::Suspicion::of_produce(4, 200 * MS, 2000 * MS)),
        },
        request_timeout: 30_000 * MS,
        delivery_timeout: 120_000 * MS,
        has_responses: true,
        closes_after: None,
        began,
    }
}

/// An open link, and the time.
fn open_with(change: impl FnOnce(&mut Settings)) -> (TestLink, Instant) {
    let now = Instant::now();
    let mut settings = settings(now);
    change(&mut settings);
    let gate = Arc::new(Gate::new(settings.bounds.target.and(Some(settings.bounds.request))));
    let mut link = TestLink::new(settings, gate);
    link.handle_open(now);
    (link, now)
}

fn open() -> (TestLink, Instant) {
    open_with(|_| {})
}

fn parcel(number: u32, created: Instant) -> Parcel {
    Parcel { number, created, bytes: 100 }
}

/// Sends one batch, and writes it.
fn send(link: &mut TestLink, number: u32, now: Instant) {
    link.handle_sent(vec![parcel(number, now)], 0, now);
    assert!(link.handle_written(|| now).is_some());
}

fn queue(link: &mut TestLink, partition: char, readiness: Readiness) {
    link.handle_work(Entry { partition, ticket: Ticket::default() }, readiness);
}

fn events(link: &mut TestLink) -> Vec<Event<Parcel>> {
    std::iter::from_fn(|| link.poll_event()).collect()
}

/// The numbers of batches that expired, each with whether it was begun, or that moved.
fn numbers(link: &mut TestLink) -> Vec<(u32, bool)> {
    let number = |event: Event<Parcel>| match event {
        Event::Expired { batch, is_begun } => Some((batch.number, is_begun)),
        Event::Moved(batch) => Some((batch.number, true)),
        Event::LookUp { .. } | Event::Dead(_) => None,
    };
    events(link).into_iter().filter_map(number).collect()
}

fn reasons(link: &mut TestLink) -> Vec<Reason> {
    let reason = |event: Event<Parcel>| match event {
        Event::Dead(reason) => Some(reason),
        _ => None,
    };
    events(link).into_iter().filter_map(reason).collect()
}

#[test]
fn states_follow_the_table() {
    let (_, now) = open();
    let (soon, late) = (now + 5 * MS, now + 9 * MS);
    let (muted, held) = (|until| State::Muted { until }, |muted_until| State::Held { muted_until });
    let closing = State::Closing(Reason::NoResponse);
    type Input = fn(&mut TestLink, Instant);
    let open: Input = |link, now| link.handle_open(now);
    let lost: Input = |link, _| drop(link.handle_lost());
    let hold: Input = |link, _| link.handle_hold();
    let release: Input = |link, _| link.handle_release();
    let throttle: Input = |link, now| link.handle_throttle(5 * MS, now);
    let close: Input = |link, _| link.close(Reason::NoResponse);
    let pass: Input = |link, now| {
        link.poll_transmit(now + 5 * MS, |_| true);
    };
    let table = [
        // From, then to after: open, lost, hold, release, throttle, close, 5 ms.
        (
            State::Down,
            [
                State::Open,
                State::Down,
                State::Down,
                State::Down,
                State::Down,
                State::Down,
                State::Down,
            ],
        ),
        (
            State::Open,
            [State::Open, State::Down, held(None), State::Open, muted(soon), closing, State::Open],
        ),
        (
            muted(soon),
            [
                State::Open,
                State::Down,
                held(Some(soon)),
                muted(soon),
                muted(soon),
                closing,
                State::Open,
            ],
        ),
        (
            muted(late),
            [
                State::Open,
                State::Down,
                held(Some(late)),
                muted(late),
                muted(late),
                closing,
                muted(late),
            ],
        ),
        (
            held(None),
            [
                State::Open,
                State::Down,
                held(None),
                State::Open,
                held(Some(soon)),
                closing,
                held(None),
            ],
        ),
        (
            held(Some(late)),
            [
                State::Open,
                State::Down,
                held(Some(late)),
                muted(late),
                held(Some(late)),
                closing,
                held(Some(late)),
            ],
        ),
        (closing, [State::Open, State::Down, closing, closing, closing, closing, closing]),
    ];
    for (from, expected) in table {
        for (nth, input) in [open, lost, hold, release, throttle, close, pass].iter().enumerate() {
            let (mut link, _) = self::open();
            link.state = from;
            input(&mut link, now);
            assert_eq!(link.state(), expected[nth], "{from:?}, input {nth}");
        }
    }
}

#[test]
fn a_request_may_leave_only_in_the_open_state_below_the_limit_and_with_a_flushed_socket() {
    for (state, may) in [
        (State::Down, false),
        (State::Open, true),
        (State::Held { muted_until: None }, false),
        (State::Closing(Reason::Unused), false),
    ] {
        let (mut link, now) = open();
        link.state = state;
        assert_eq!(link.poll_transmit(now, |_| true).is_some(), may, "{state:?}");
    }
    let (mut link, now) = open();
    link.handle_throttle(5 * MS, now);
    assert!(link.poll_transmit(now + 4 * MS, |_| true).is_none());
    assert!(link.poll_transmit(now + 5 * MS, |_| true).is_some());

    link.handle_sent(vec![parcel(0, now)], 0, now);
    assert!(link.poll_transmit(now, |_| true).is_none() && !link.is_idle(), "bytes wait");
    link.handle_written(|| now);
    assert!(link.poll_transmit(now, |_| true).is_some() && !link.is_exhausted());
    send(&mut link, 1, now);
    assert!(link.poll_transmit(now, |_| true).is_none() && link.is_exhausted());
}

#[test]
fn incomplete_batches_wait_for_a_busy_broker() {
    let (mut link, now) = open_with(|settings| settings.bounds.in_flight = 5);
    for id in 0..40 {
        let at = now + 10 * MS * id;
        send(&mut link, 0, at);
        let answered = link.handle_response(id as i32, at + 2 * MS);
        assert!(answered.is_ok());
    }
    let at = now + 400 * MS;
    send(&mut link, 0, at);
    // The first of two in flight shows how long the broker takes for one.
    assert!(!link.waits_for_response(at, |_| false), "nothing waits");
    queue(&mut link, 'a', Readiness::Now);
    send(&mut link, 1, at);
    assert!(link.waits_for_response(at, |_| false));
    let is_late = at + 5 * MS;
    assert!(link.waits_for_response(is_late, |_| true), "behind a late response");
    for partition in 'b'..'z' {
        queue(&mut link, partition, Readiness::Now);
    }
    let mut looked = Vec::new();
    link.waits_for_response(at, |&partition| {
        looked.push(partition);
        false
    });
    assert_eq!(looked.len(), LOOK_AHEAD);
}

#[test]
fn partitions_fall_due_in_order_and_only_while_something_can_be_sent() {
    let (mut link, now) = open();
    queue(&mut link, 'b', Readiness::At(now + 7 * MS));
    queue(&mut link, 'a', Readiness::At(now + 5 * MS));
    assert_eq!(link.poll_timeout(), Some(now + 5 * MS));
    assert!(link.next_due(now + 4 * MS).is_none());
    link.handle_hold();
    assert!(link.next_due(now + 9 * MS).is_none());
    assert_eq!(link.poll_timeout(), None, "the end of the renewal makes the caller look");
    link.handle_release();
    assert_eq!(link.next_due(now + 6 * MS).map(|entry| entry.partition), Some('a'));
    assert!(link.next_due(now + 6 * MS).is_none());
    assert_eq!(link.next_timed(), Some(now + 7 * MS));

    link.handle_throttle(20 * MS, now);
    assert_eq!(link.poll_timeout(), Some(now + 20 * MS), "due while muted");
    queue(&mut link, 'c', Readiness::At(now + 30 * MS));
    link.handle_throttle(25 * MS, now);
    assert_eq!(link.poll_timeout(), Some(now + 25 * MS));
}

#[test]
fn nothing_lingers_while_the_window_is_full() {
    let (mut link, now) = open();
    queue(&mut link, 'a', Readiness::At(now + 5 * MS));
    link.gate.charge(1 << 20);
    assert!(link.gate.is_full());
    assert_eq!(link.next_due(now).map(|entry| entry.partition), Some('a'));
}

#[test]
fn a_permit_visits_each_partition_once_and_admits_up_to_the_limit() {
    let (mut link, now) = open_with(|settings| settings.bounds.target = None);
    for partition in ['a', 'b', 'c'] {
        queue(&mut link, partition, Readiness::Now);
    }
    let mut permit = link.poll_transmit(now, |_| true).expect("a permit");
    let mut visited = String::new();
    while let Some(entry) = link.next_ready(&mut permit) {
        visited.push(entry.partition);
        // A partition with more batches.
        link.handle_work(entry, Readiness::Now);
    }
    assert_eq!(visited, "abc");
    assert!(permit.admits(usize::MAX), "the first batch may be larger");
    permit.add(1 << 20);
    assert!(permit.admits(0) && !permit.admits(1));
    let mut permit = link.poll_transmit(now, |_| true).expect("a permit");
    let first = link.next_ready(&mut permit).expect("a partition");
    assert_eq!(first.partition, 'a');
    link.put_back(first);
    let mut permit = link.poll_transmit(now, |_| true).expect("a permit");
    assert_eq!(link.next_ready(&mut permit).expect("a partition").partition, 'a');
}

#[test]
fn the_request_that_measures_the_round_trip_goes_alone_and_is_small() {
    let (mut link, now) = open();
    let permit = link.poll_transmit(now, |_| true).expect("a permit");
    assert_eq!(permit.most, SMALL, "nothing is known of the broker");
    send(&mut link, 0, now);
    assert!(link.handle_response(0, now + MS).is_ok());
    let permit = link.poll_transmit(now + MS, |_| true).expect("a permit");
    assert_eq!(permit.most, 1 << 20);
}

#[test]
fn a_single_batch_measures_the_round_trip_whatever_its_size() {
    for (batches, measures) in [(1, true), (2, false)] {
        let (mut link, now) = open();
        let large = |number| Parcel { bytes: SMALL + 1, ..parcel(number, now) };
        link.handle_sent((0..batches).map(large).collect(), 0, now);
        assert!(link.handle_written(|| now).is_some());
        assert!(link.handle_response(0, now + MS).is_ok());
        let permit = link.poll_transmit(now + MS, |_| true).expect("a permit");
        assert_eq!(permit.most > SMALL, measures);
    }
}

#[test]
fn responses_belong_to_the_oldest_request() {
    let (mut link, now) = open();
    send(&mut link, 0, now);
    send(&mut link, 1, now);
    let out_of_step = link.handle_response(1, now).expect_err("not the oldest");
    assert_eq!((out_of_step.got, out_of_step.expected), (1, Some(0)));
    assert_eq!(link.held, 2000);
    let request = link.handle_response(0, now + MS).expect("the oldest");
    assert_eq!((request.batches[0].number, request.ahead), (0, 0));
    assert_eq!((link.held, link.in_flight().len()), (1000, 1));
    let lost = link.handle_lost();
    assert_eq!(lost.iter().map(|request| request.batches[0].number).collect::<Vec<_>>(), [1]);
    assert_eq!((link.held, link.state(), link.gate.is_idle()), (0, State::Down, true));
    link.handle_open(now);
    assert_eq!(link.next_correlation_id(), 0, "each connection counts for itself");
}

#[test]
fn a_suspicion_asks_for_lookups_with_growing_pauses_until_a_response() {
    let (mut link, now) = open();
    send(&mut link, 0, now);
    send(&mut link, 1, now + 900 * MS);
    // Without a response so far: one second.
    assert_eq!(link.poll_timeout(), Some(now + 1000 * MS));
    let mut at = now + 1000 * MS;
    let mut pauses = Vec::new();
    for nth in 0..5 {
        link.handle_timeout(at - MS);
        assert!(events(&mut link).is_empty(), "not due");
        link.handle_timeout(at);
        let looked_up = events(&mut link);
        let [Event::LookUp { is_new, limit }] = looked_up[..] else { panic!("{looked_up:?}") };
        assert_eq!((is_new, limit), (nth == 0, 1000 * MS));
        assert_eq!((link.gate.trouble(), link.is_suspect()), (Trouble::Suspect, true));
        let next = link.poll_timeout().expect("the next lookup");
        pauses.push((next - at).as_millis());
        at = next;
    }
    assert_eq!(pauses, [50, 100, 200, 200, 200]);
    assert!(link.look_again(at - 30 * MS), "another broker is unreachable");
    assert_eq!(link.poll_timeout(), Some(at - 30 * MS));
    // The second request was written later, and is not late.
    link.handle_response(0, at).expect("the oldest");
    assert!(!link.is_suspect() && !link.look_again(at) && link.gate.is_fine());
}

#[test]
fn a_suspicion_lasts_if_the_next_request_is_late_as_well() {
    let (mut link, now) = open();
    send(&mut link, 0, now);
    send(&mut link, 1, now);
    link.handle_timeout(now + 1000 * MS);
    link.handle_response(0, now + 20_000 * MS).expect("the oldest");
    assert_eq!(link.gate.trouble(), Trouble::Suspect);
    events(&mut link);
    link.handle_timeout(now + 20_000 * MS);
    assert!(matches!(events(&mut link)[..], [Event::LookUp { is_new: true, .. }]));
}

#[test]
fn a_connection_dies_of_a_request_without_a_response_or_of_a_full_socket() {
    let timeout = 30_000 * MS;
    let written = |link: &mut TestLink, now| send(link, 0, now);
    let stuck = |link: &mut TestLink, now| {
        link.handle_sent(vec![parcel(0, now)], 0, now);
        link.handle_blocked();
    };
    type Prepare<'a> = &'a dyn Fn(&mut TestLink, Instant);
    let cases: [(Prepare<'_>, bool, Reason); 3] = [
        (&written, true, Reason::NoResponse),
        (&stuck, true, Reason::SocketFull),
        (&stuck, false, Reason::SocketFull),
    ];
    for (prepare, has_responses, reason) in cases {
        let (mut link, now) = open_with(|settings| {
            settings.has_responses = has_responses;
            settings.bounds.suspicion = None;
        });
        prepare(&mut link, now);
        assert_eq!(link.poll_timeout(), Some(now + timeout));
        link.handle_timeout(now + timeout - MS);
        assert_eq!(reasons(&mut link), []);
        link.handle_timeout(now + timeout);
        assert_eq!((reasons(&mut link), link.state()), (vec![reason], State::Closing(reason)));
        link.handle_timeout(now + timeout);
        assert_eq!((reasons(&mut link), link.poll_timeout()), (vec![], None), "once");
        assert_eq!(link.handle_lost().len(), 1);
    }
}

#[test]
fn the_request_timeout_counts_from_the_write_if_the_socket_was_full() {
    for was_blocked in [false, true] {
        let (mut link, now) = open_with(|settings| settings.bounds.suspicion = None);
        link.handle_sent(vec![parcel(0, now)], 0, now);
        if was_blocked {
            link.handle_blocked();
        }
        let later = now + 7 * MS;
        let written = link.handle_written(|| later).expect("a request");
        assert!(written.unanswered.is_none() && written.built == now);
        let since = if was_blocked { later } else { now };
        assert_eq!(link.next_deadline(), Some(since + 30_000 * MS));
        assert!(link.handle_written(|| later).is_none(), "reported once");
    }
}

#[test]
fn without_responses_a_request_ends_with_its_write_or_its_connection() {
    let (mut link, now) = open_with(|settings| settings.has_responses = false);
    link.handle_sent(vec![parcel(0, now)], 0, now);
    assert_eq!((link.in_flight().len(), link.next_correlation_id()), (0, 1));
    let written = link.handle_written(|| now).expect("a request");
    assert_eq!(written.unanswered.expect("no response comes").batches[0].number, 0);
    assert!(link.is_idle() && link.poll_timeout().is_none());
    link.handle_sent(vec![parcel(1, now)], 0, now);
    assert_eq!(link.handle_lost()[0].batches[0].number, 1);
}

#[test]
fn an_unused_connection_closes_unless_a_partition_waits() {
    let (mut link, now) = open_with(|settings| settings.closes_after = Some(10 * MS));
    send(&mut link, 0, now);
    link.handle_timeout(now + 11 * MS);
    assert_eq!(reasons(&mut link), [], "a request is in flight");
    link.handle_response(0, now + 20 * MS).expect("the oldest");
    assert_eq!(link.poll_timeout(), Some(now + 30 * MS));
    let linger = now + 40 * MS;
    queue(&mut link, 'a', Readiness::At(linger));
    assert_eq!(
        link.poll_timeout(),
        Some(linger),
        "the caller would look again at once, indefinitely"
    );
    link.handle_timeout(now + 35 * MS);
    assert_eq!(reasons(&mut link), []);
    assert!(link.next_due(linger).is_some());
    link.handle_timeout(linger);
    assert_eq!(reasons(&mut link), [Reason::Unused]);
}

#[test]
fn without_responses_a_connection_is_used_while_requests_are_sent() {
    let (mut link, now) = open_with(|settings| {
        settings.has_responses = false;
        settings.closes_after = Some(10 * MS);
    });
    link.handle_sent(vec![parcel(0, now)], 0, now + 8 * MS);
    link.handle_timeout(now + 15 * MS);
    assert_eq!(reasons(&mut link), [], "bytes wait for the socket");
    assert!(link.handle_written(|| now + 16 * MS).is_some());
    link.handle_sent(vec![parcel(1, now)], 0, now + 17 * MS);
    assert!(link.handle_written(|| now + 17 * MS).is_some());
    link.handle_timeout(now + 26 * MS);
    assert_eq!(reasons(&mut link), []);
    assert_eq!(link.poll_timeout(), Some(now + 27 * MS));
    link.handle_timeout(now + 27 * MS);
    assert_eq!(reasons(&mut link), [Reason::Unused]);
}

#[test]
fn without_responses_a_request_that_waited_for_the_socket_counts_from_its_write() {
    let (mut link, now) = open_with(|settings| {
        settings.has_responses = false;
        settings.closes_after = Some(10 * MS);
    });
    link.handle_sent(vec![parcel(0, now)], 0, now);
    link.handle_blocked();
    assert!(link.handle_written(|| now + 15 * MS).is_some());
    link.handle_timeout(now + 15 * MS);
    assert_eq!(reasons(&mut link), []);
    assert_eq!(link.poll_timeout(), Some(now + 25 * MS));
}

#[test]
fn expired_batches_leave_their_requests_which_stay_in_flight() {
    let (mut link, now) = open();
    let old = now - 119_000 * MS;
    link.handle_sent(vec![parcel(0, old), parcel(1, now)], 7, now);
    link.handle_written(|| now);
    assert_eq!(link.next_expiry(), Some(now + 1000 * MS));
    let mut lost = Vec::new();
    assert!(link.handle_expiry(now + 999 * MS, |envelope| lost.push(*envelope)).is_none());
    assert_eq!((numbers(&mut link), &lost[..]), (vec![], &[][..]));
    assert!(link.handle_expiry(now + 1000 * MS, |envelope| lost.push(*envelope)).is_none());
    assert_eq!((numbers(&mut link), &lost[..]), (vec![(0, true)], &[7][..]));
    assert_eq!(link.next_expiry(), Some(now + 120_000 * MS));
    assert_eq!(link.held, 2000, "until the response");
    let request = link.handle_response(0, now + 1001 * MS).expect("the oldest");
    assert_eq!(request.batches.len(), 1);
}

#[test]
fn a_request_of_which_nothing_was_written_is_built_again_without_its_expired_batches() {
    for has_responses in [true, false] {
        let (mut link, now) = open_with(|settings| settings.has_responses = has_responses);
        let old = now - 119_000 * MS;
        link.handle_sent(vec![parcel(0, old), parcel(1, now)], 0, now);
        link.handle_blocked();
        let later = now + 1000 * MS;
        let withdrawn = link.handle_expiry(later, |_| {}).expect("withdrawn");
        assert_eq!(numbers(&mut link), [(0, false)]);
        assert_eq!((link.held, link.is_flushed()), (0, true));
        let id = link.next_correlation_id();
        assert_eq!(id, i32::from(!has_responses), "the bytes with the first id were dropped");
        assert_eq!((withdrawn.batches[0].number, withdrawn.built), (1, now));
        link.handle_sent_again(withdrawn, 0);
        assert_eq!(link.held, if has_responses { 1000 } else { 0 });
        // It has waited for the socket, so its timeout counts from the write.
        link.handle_written(|| later);
        assert_eq!(link.next_deadline(), has_responses.then(|| later + 30_000 * MS));
    }
    let (mut link, now) = open();
    link.handle_sent(vec![parcel(0, now - 119_000 * MS)], 0, now);
    link.handle_begun();
    assert!(link.handle_expiry(now + 1000 * MS, |_| {}).is_none(), "bytes were written");
    assert_eq!(numbers(&mut link), [(0, true)]);
}

#[test]
fn batches_follow_their_leaders_from_a_suspect_or_refusing_broker() {
    // Whether the broker is suspect, has refused; batches that move; whether the connection dies.
    let table = [
        (false, false, vec![], false),
        (false, true, vec![1, 2], false),
        (true, false, vec![1, 2], false),
        (true, true, vec![0, 1, 2], true),
    ];
    for (is_suspect, has_refused, expected, dies) in table {
        let (mut link, now) = open();
        link.handle_sent(vec![parcel(0, now), parcel(1, now)], 0, now);
        link.handle_written(|| now);
        send(&mut link, 2, now);
        if is_suspect {
            link.handle_timeout(now + 1000 * MS);
            events(&mut link);
        }
        link.handle_moved(has_refused, |batch, suspect| {
            assert_eq!(suspect, is_suspect);
            expected.contains(&batch.number)
        });
        let events = events(&mut link);
        let moved = events.iter().filter_map(|event| match event {
            Event::Moved(batch) => Some(batch.number),
            _ => None,
        });
        assert_eq!(moved.collect::<Vec<_>>(), expected);
        let is_dead = matches!(events.last(), Some(Event::Dead(Reason::Deserted)));
        assert_eq!(is_dead, dies, "{is_suspect} {has_refused}");
        assert_eq!(link.in_flight().len(), 2, "the responses are still awaited");
    }
}

/// What a link without partitions can be told.
#[derive(Clone, Debug)]
enum Input {
    Send(u8),
    Begin,
    Block,
    Write,
    Answer,
    Expire,
    Move,
    Time(u16),
    Hold(bool),
    Throttle(u8),
    Reconnect,
}

fn input() -> impl Strategy<Value = Input> {
    prop_oneof![
        4 => (1..4u8).prop_map(Input::Send),
        1 => Just(Input::Begin),
        1 => Just(Input::Block),
        4 => Just(Input::Write),
        3 => Just(Input::Answer),
        1 => Just(Input::Expire),
        1 => Just(Input::Move),
        3 => (0..4000u16).prop_map(Input::Time),
        1 => any::<bool>().prop_map(Input::Hold),
        1 => (0..200u8).prop_map(Input::Throttle),
        1 => Just(Input::Reconnect),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever happens, each batch leaves the link once, and the link's counts are those of its requests.
    #[test]
    fn each_batch_leaves_once(inputs in proptest::collection::vec(input(), 1..200), acks in any::<bool>()) {
        let (mut link, mut now) = open_with(|settings| {
            settings.has_responses = acks;
            settings.delivery_timeout = 3000 * MS;
            settings.request_timeout = 5000 * MS;
        });
        let (mut next, mut left, mut oldest) = (0, Vec::new(), 0);
        for input in inputs {
            match input {
                Input::Send(batches) => {
                    if link.poll_transmit(now, |_| true).is_some() {
                        let numbers = next..next + u32::from(batches);
                        next = numbers.end;
                        link.handle_sent(numbers.map(|n| parcel(n, now)).collect(), 0, now);
                    }
                }
                Input::Begin => link.handle_begun(),
                Input::Block => link.handle_blocked(),
                Input::Write => {
                    let written = link.handle_written(|| now).and_then(|written| written.unanswered);
                    left.extend(written.into_iter().flat_map(|request| request.batches));
                }
                Input::Answer if link.in_flight().len() > usize::from(!link.is_flushed()) => {
                    let request = link.handle_response(oldest, now).expect("the oldest");
                    oldest += 1;
                    left.extend(request.batches);
                }
                Input::Answer => {}
                Input::Expire => {
                    if let Some(withdrawn) = link.handle_expiry(now, |_| {})
                        && !withdrawn.batches.is_empty()
                    {
                        link.handle_sent_again(withdrawn, 0);
                    }
                }
                Input::Move => link.handle_moved(true, |batch, _| batch.number % 2 == 0),
                Input::Time(ms) => {
                    now += u32::from(ms) * MS;
                    link.handle_timeout(now);
                }
                Input::Hold(true) => link.handle_hold(),
                Input::Hold(false) => link.handle_release(),
                Input::Throttle(ms) => link.handle_throttle(u32::from(ms) * MS, now),
                Input::Reconnect => {}
            }
            let mut is_dead = matches!(input, Input::Reconnect);
            while let Some(event) = link.poll_event() {
                match event {
                    Event::Expired { batch, .. } | Event::Moved(batch) => left.push(batch),
                    Event::LookUp { .. } => {}
                    Event::Dead(_) => is_dead = true,
                }
            }
            if is_dead {
                left.extend(link.handle_lost().into_iter().flat_map(|request| request.batches));
                link.handle_open(now);
                oldest = 0;
            }
            prop_assert_eq!(link.held, link.in_flight().map(|request| request.reserved).sum::<usize>());
            prop_assert_eq!(link.gate.is_idle(), link.in_flight().len() == 0);
            let waits = !link.is_idle();
            prop_assert!(!waits || link.poll_timeout().is_some(), "a request without a deadline");
        }
        left.extend(link.handle_lost().into_iter().flat_map(|request| request.batches));
        let mut numbers: Vec<u32> = left.iter().map(|batch| batch.number).collect();
        numbers.sort_unstable();
        prop_assert_eq!(numbers, (0..next).collect::<Vec<_>>());
    }
}
