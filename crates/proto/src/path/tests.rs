use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const TARGET: Duration = Duration::from_millis(10);

const BOUNDS: Bounds = Bounds {
    target: Some(TARGET),
    batch: 64 << 10,
    request: 1 << 20,
    in_flight: 5,
    suspicion: None,
};

const fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// A broker that serves one request after the other, each in a fixed time and a time for its bytes, `network` away.
#[derive(Clone, Copy, Debug)]
struct Model {
    fixed_us: f64,
    bytes_per_us: f64,
    network_us: f64,
    /// Partitions, whose number and `Bounds::batch` bound a request.
    partitions: usize,
}

/// Size of every record.
const RECORD: usize = 1 << 10;

/// Measurements of one run. Times are in microseconds.
#[derive(Debug, Default)]
struct Got {
    /// Bytes per microsecond.
    rate: f64,
    /// From the append to the response, in ascending order.
    waits: Vec<f64>,
    /// Longest time from when a record was due to its append.
    latest: f64,
    /// After each response.
    windows: Vec<usize>,
}

impl Got {
    /// Median time from the append to the response.
    fn p50(&self) -> Duration {
        Duration::from_nanos((self.waits[self.waits.len() / 2] * 1000.0) as u64)
    }
}

/// A request in flight to a [`Model`].
struct Flying {
    written: f64,
    ahead: usize,
    /// When each record was appended.
    records: Vec<f64>,
    done: f64,
}

impl Flying {
    fn bytes(&self) -> usize {
        self.records.len() * RECORD
    }
}

/// A sequential sender, the path and a broker, in virtual time.
struct World {
    bounds: Bounds,
    start: Instant,
    path: Path,
    gate: Gate,
    now: f64,
    free_at: f64,
    waiting: VecDeque<f64>,
    flying: VecDeque<Flying>,
    got: Got,
}

impl World {
    fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            start: Instant::now(),
            path: Path::new(bounds),
            gate: Gate::new(bounds.target.map(|_| bounds.request)),
            now: 0.0,
            free_at: 0.0,
            waiting: VecDeque::new(),
            flying: VecDeque::new(),
            got: Got::default(),
        }
    }

    fn at(&self, us: f64) -> Instant {
        self.start + Duration::from_nanos((us * 1000.0) as u64)
    }

    /// Runs until this time. The sender appends a record each `every` microseconds, or, if the gate does not admit it,
    /// once it does; with 0 it appends as fast as the gate admits, up to the memory's 32 MiB. Requests carry everything
    /// that waits, as many as the path allows.
    fn run(&mut self, model: Model, every: f64, until: f64) {
        let mut due = self.now;
        self.got = Got::default();
        let (began, mut bytes) = (self.now, 0);
        while self.now < until {
            while due <= self.now && self.waiting.len() < 32_768 && self.admits() {
                self.got.latest = self.got.latest.max(self.now - due);
                self.gate.charge(RECORD);
                self.waiting.push_back(self.now);
                due += every;
            }
            self.send(model);
            let opens_at = self.gate.opens_at().map_or(f64::INFINITY, |at| at.as_secs_f64() * 1e6);
            let next_append = if due > self.now { due } else { opens_at.max(self.now + 1.0) };
            let next_done = self.flying.front().map_or(f64::INFINITY, |request| request.done);
            if next_append < next_done && self.waiting.len() < 32_768 {
                self.now = next_append;
            } else {
                bytes += self.answer();
            }
        }
        self.got.waits.sort_by(f64::total_cmp);
        self.got.rate = bytes as f64 / (self.now - began);
    }

    fn admits(&self) -> bool {
        self.gate.admits(|| Duration::from_nanos((self.now * 1000.0) as u64))
    }

    fn send(&mut self, model: Model) {
        let now = self.at(self.now);
        let full = (self.bounds.batch * model.partitions).min(self.bounds.request);
        while !self.waiting.is_empty() && self.flying.len() < self.bounds.in_flight {
            let is_probe = self.flying.is_empty() && self.path.wants_probe(now);
            let is_complete =
                self.gate.is_full() || self.waiting.len() * RECORD >= self.bounds.batch;
            if !self.flying.is_empty() && !self.path.allows(self.flying.len(), is_complete, now) {
                break;
            }
            let most = if is_probe { SMALL.max(self.bounds.batch) } else { full } / RECORD;
            let ahead = self.flying.len();
            let records: Vec<f64> = self.waiting.drain(..most.min(self.waiting.len())).collect();
            let is_small = self.is_small(records.len() * RECORD);
            self.path.sent(ahead, is_small, now);
            let time = model.fixed_us + (records.len() * RECORD) as f64 / model.bytes_per_us;
            self.free_at = self.free_at.max(self.now + model.network_us / 2.0) + time;
            let done = self.free_at + model.network_us / 2.0;
            self.flying.push_back(Flying { written: self.now, ahead, records, done });
        }
        self.publish();
    }

    /// Whether a request measures the round trip, as in [`Response::is_small`]: a batch holds up to `Bounds::batch`.
    fn is_small(&self, bytes: usize) -> bool {
        bytes <= SMALL.max(self.bounds.batch)
    }

    fn publish(&self) {
        let oldest = self.flying.front();
        let oldest = oldest
            .map(|request| Oldest { written: self.at(request.written), bytes: request.bytes() });
        self.path.publish(self.flying.len(), 0, oldest, self.start, &self.gate);
    }

    /// The next response, and its bytes.
    fn answer(&mut self) -> usize {
        let request = self.flying.pop_front().expect("something is in flight");
        self.now = request.done;
        let bytes = request.bytes();
        let response = Response {
            written: self.at(request.written),
            ahead: request.ahead,
            bytes,
            batches: request.records.len().div_ceil(self.bounds.batch / RECORD).max(1),
            is_small: self.is_small(bytes),
            now: self.at(self.now),
        };
        self.path.answered(&response, &self.gate);
        self.gate.release(bytes);
        self.publish();
        self.got.windows.push(self.gate.window());
        self.got.waits.extend(request.records.iter().map(|sent| self.now - sent));
        bytes
    }
}

const SECOND: f64 = 1e6;

/// A sender that appends as fast as the gate admits, measured for three seconds after three others.
fn unthrottled(model: Model, bounds: Bounds) -> Got {
    let mut world = World::new(bounds);
    world.run(model, 0.0, 3.0 * SECOND);
    world.run(model, 0.0, 6.0 * SECOND);
    world.got
}

const NEARBY: Model =
    Model { fixed_us: 100.0, bytes_per_us: 150.0, network_us: 50.0, partitions: 6 };

/// `docs/decisions/0098`: a nearby broker, at 150 MB/s.
#[test]
fn a_sender_without_limit_waits_for_the_target_and_keeps_the_throughput() {
    let got = unthrottled(NEARBY, BOUNDS);
    let most = 393_216.0 / (100.0 + 393_216.0 / 150.0);
    assert!(got.rate > 0.97 * most, "{} of {most} bytes/us", got.rate);
    assert!(got.p50() <= TARGET, "{:?}", got.p50());
}

/// Commits of 3 ms: a window of the target's 10 ms would hold three of them.
#[test]
fn a_broker_with_slow_commits_keeps_three_quarters_of_its_throughput() {
    let got = unthrottled(Model { fixed_us: 3000.0, ..NEARBY }, BOUNDS);
    let most = 393_216.0 / (3000.0 + 393_216.0 / 150.0);
    assert!(got.rate > 0.75 * most, "{} of {most} bytes/us", got.rate);
    assert!(got.p50() <= Duration::from_millis(40), "{:?}", got.p50());
}

#[test]
fn a_distant_broker_is_kept_busy() {
    let model = Model { network_us: 5000.0, bytes_per_us: 100.0, ..NEARBY };
    let got = unthrottled(model, BOUNDS);
    assert!(got.rate > 90.0, "{} bytes/us", got.rate);
}

/// The window settles: it does not swing between extremes.
#[test]
fn the_window_converges() {
    for model in [NEARBY, Model { fixed_us: 3000.0, ..NEARBY }] {
        let windows = unthrottled(model, BOUNDS).windows;
        let (least, most) = (windows.iter().min().unwrap(), windows.iter().max().unwrap());
        assert!(*most < least + least / 2, "{least} to {most}: {model:?}");
    }
}

/// A path and its gate, with responses by hand.
struct Hand {
    path: Path,
    gate: Gate,
    start: Instant,
    now: Duration,
}

impl Hand {
    fn new() -> Self {
        let start = Instant::now();
        let (path, gate) = (Path::new(BOUNDS), Gate::new(Some(BOUNDS.request)));
        Self { path, gate, start, now: Duration::ZERO }
    }

    /// A request of these bytes, which the broker takes this long to serve.
    fn turn(&mut self, bytes: usize, takes: Duration) {
        let written = self.start + self.now;
        self.now += takes;
        let now = self.start + self.now;
        let response = Response { written, ahead: 0, bytes, batches: 6, is_small: true, now };
        self.path.answered(&response, &self.gate);
        self.gate.set_idle();
    }

    /// A request of these bytes is sent, and is the only one in flight.
    fn request(&self, bytes: usize) {
        let oldest = Oldest { written: self.start + self.now, bytes };
        self.path.publish(1, bytes, Some(oldest), self.start, &self.gate);
    }

    fn is_open(&self) -> bool {
        self.gate.is_open(|| self.now)
    }
}

#[test]
fn before_the_first_response_one_request_may_be_outstanding() {
    let hand = Hand::new();
    hand.gate.charge(BOUNDS.request - 1);
    assert!(hand.is_open());
    hand.gate.charge(1);
    assert!(!hand.is_open());
    assert_eq!(hand.gate.opens_at(), None, "no time opens it");
    hand.gate.set_unreachable();
    assert!(hand.is_open(), "a broker that cannot be reached is bounded by memory alone");
}

/// The first commits of a new topic may take a second. A burst must not wait for them, since their time does not show how fast the
/// broker is.
#[test]
fn a_first_response_that_takes_long_opens_the_gate() {
    let mut hand = Hand::new();
    hand.gate.charge(BOUNDS.request);
    hand.request(BOUNDS.request);
    hand.now = FIRST_RESPONSE - us(1);
    assert!(!hand.is_open(), "a broker that is only cold responds in this time");
    hand.now = FIRST_RESPONSE;
    assert!(hand.is_open());
    hand.gate.charge(30 * BOUNDS.request);
    hand.now = Duration::ZERO;
    hand.turn(BOUNDS.request, us(700_000));
    hand.gate.release(BOUNDS.request);
    assert!(
        !hand.gate.is_standing() && hand.is_open(),
        "bytes that gathered during the wait do not count"
    );
}

/// A paced application must not be late at every broker because one pauses.
#[test]
fn a_pause_opens_the_gate_unless_the_queue_is_standing() {
    let mut hand = Hand::new();
    for _ in 0..50 {
        hand.turn(100_000, us(1000));
    }
    hand.gate.charge(hand.gate.window());
    assert!(hand.is_open(), "nothing is in flight");
    hand.request(100_000);
    assert!(!hand.is_open());
    hand.now += 2 * TARGET;
    assert!(hand.is_open(), "the broker pauses");
    hand.now -= 2 * TARGET;
    for _ in 0..200 {
        hand.turn(100_000, us(1000));
    }
    assert!(hand.gate.is_standing());
    hand.request(100_000);
    hand.now += 2 * TARGET;
    assert!(!hand.is_open(), "who outruns the broker gains nothing");
}

/// A large request is not late because of its size.
#[test]
fn a_request_that_takes_longer_than_the_target_is_no_pause() {
    let mut hand = Hand::new();
    for _ in 0..20 {
        hand.turn(1 << 20, us(13_000));
    }
    hand.gate.charge(10 << 20);
    for _ in 0..20 {
        hand.turn(1 << 20, us(13_000));
    }
    assert!(hand.gate.is_standing());
    hand.request(1 << 20);
    hand.now += us(13_000);
    assert!(!hand.is_open());
}

/// One large request at a time leaves nothing behind.
#[test]
fn requests_that_are_served_before_the_next_do_not_stand() {
    let mut hand = Hand::new();
    for _ in 0..20 {
        hand.gate.charge(256 << 10);
        hand.turn(256 << 10, us(8500));
        hand.gate.release(256 << 10);
        hand.now += us(40_000);
    }
    assert!(!hand.gate.is_standing());
}

#[test]
fn a_backlog_from_a_pause_does_not_hold_up_later_records() {
    let mut hand = Hand::new();
    for _ in 0..50 {
        hand.turn(100_000, us(1000));
    }
    hand.gate.charge(10_000_000);
    hand.turn(100_000, 5 * TARGET);
    hand.request(100_000);
    assert!(hand.is_open());
    // The drained part no longer excuses newer records.
    for _ in 0..99 {
        hand.gate.release(100_000);
        hand.turn(100_000, us(1000));
        hand.gate.charge(100_000);
    }
    hand.request(100_000);
    assert!(!hand.is_open());
}

#[test]
fn senders_that_wait_keep_newcomers_out() {
    let hand = Hand::new();
    hand.gate.set_queued(1);
    assert!(hand.is_open() && !hand.gate.admits(|| hand.now));
    hand.gate.set_queued(0);
    assert!(hand.gate.admits(|| hand.now));
}

/// Responses to requests that were sent alone, one a millisecond.
fn respond(path: &mut Path, gate: &Gate, start: Instant, count: u64, takes: Duration) {
    for number in 0..count {
        let written = start + us(1000 * number);
        path.sent(0, true, written);
        let now = written + takes;
        let response = Response { written, ahead: 0, bytes: 1000, batches: 1, is_small: true, now };
        path.answered(&response, gate);
    }
}

#[test]
fn without_a_window_requests_are_bounded_by_their_number_alone() {
    let bounds = Bounds { target: None, ..BOUNDS };
    let (mut path, gate, start) = (Path::new(bounds), Gate::new(None), Instant::now());
    respond(&mut path, &gate, start, 50, us(500));
    let much_later = start + 1000 * PROBE_EVERY;
    assert!(path.allows(bounds.in_flight - 1, true, much_later), "no probe is due");
    for (requests, is_blocked) in [(bounds.in_flight - 1, false), (bounds.in_flight, true)] {
        path.publish(requests, 0, None, start, &gate);
        assert_eq!(gate.is_blocked(), is_blocked);
    }
    gate.charge(1 << 40);
    assert!(gate.admits(|| Duration::ZERO));
}

#[test]
fn a_broker_is_late_while_a_response_is_overdue_and_after_one_that_was() {
    let suspicion = Suspicion::of_produce(4, Duration::from_millis(200), Duration::from_secs(2));
    for suspicion in [None, Some(suspicion)] {
        let bounds = Bounds { suspicion, ..BOUNDS };
        let (mut path, gate, start) = (Path::new(bounds), Gate::new(None), Instant::now());
        let now = start + Duration::from_secs(60);
        let is_late = |path: &Path, age_us, waiting| {
            assert_eq!(path.late_after().is_some(), suspicion.is_some());
            path.is_late(now - us(age_us), waiting, now)
        };
        let more_than_a_request = bounds.request + 1;
        respond(&mut path, &gate, start, 100, us(2000));
        assert!(!is_late(&path, 1000, 0));
        assert_eq!(is_late(&path, 10_000, 0), suspicion.is_some());
        respond(&mut path, &gate, start, 1, us(20_000));
        assert_eq!(is_late(&path, 0, 0), suspicion.is_some(), "the last response was late");
        assert!(!is_late(&path, 0, more_than_a_request), "because of what waits");
        assert_eq!(is_late(&path, 50_000, more_than_a_request), suspicion.is_some());
    }
}

proptest! {
    /// Whatever comes back, and however late: the window stays within its bounds, and nothing overflows.
    #[test]
    fn the_window_stays_within_bounds(
        turns in proptest::collection::vec((0..2_000_000usize, 0..10_000_000u64, 0..6usize, 0..100usize), 1..200),
    ) {
        let start = Instant::now();
        let (mut path, gate) = (Path::new(BOUNDS), Gate::new(Some(BOUNDS.request)));
        let mut now = start;
        for (bytes, takes, ahead, batches) in turns {
            let written = now;
            now += us(takes);
            let is_small = bytes <= SMALL;
            path.answered(&Response { written, ahead, bytes, batches, is_small, now }, &gate);
            prop_assert!(gate.window() >= FLOOR);
            prop_assert!(gate.window() <= BOUNDS.request * (BOUNDS.in_flight + SPARE));
            prop_assert!((1..=BOUNDS.in_flight).contains(&path.depth()));
        }
    }
}

#[test]
fn a_turn_excludes_the_wait_that_its_request_allows() {
    let ms = Duration::from_millis;
    let mut path = Path::of_exchanges(Suspicion::of_produce(4, ms(20), ms(2000)));
    assert_eq!(path.limit(), Some(ms(1000)));
    for _ in 0..100 {
        // A quiet partition: the broker responds once the wait is over.
        path.exchanged(ms(502), ms(500));
        // A busy one: it responds earlier.
        path.exchanged(ms(2), ms(500));
    }
    let limit = path.limit().unwrap();
    assert!(limit >= ms(20) && limit < ms(30), "{limit:?}");
}

/// Brokers that become 20 ms slower: at each request, and on the way.
const SLOW: [Model; 2] =
    [Model { fixed_us: 20_000.0, ..NEARBY }, Model { network_us: 20_000.0, ..NEARBY }];

/// A sequential sender that waits for one broker is late at all of them.
#[test]
fn a_sender_with_a_pace_is_not_late_because_a_broker_becomes_slow() {
    for (model, every) in SLOW.into_iter().flat_map(|model| [(model, 500.0), (model, 250.0)]) {
        let mut world = World::new(BOUNDS);
        world.run(NEARBY, every, 5.0 * SECOND);
        world.run(model, every, 10.0 * SECOND);
        assert!(world.got.latest < 5000.0, "late by {} us: {model:?}", world.got.latest);
    }
}

/// At 10 MB/s, more is outstanding than the least window holds.
#[test]
fn the_window_follows_a_broker_that_becomes_slow() {
    for model in SLOW {
        let mut world = World::new(BOUNDS);
        world.run(NEARBY, 100.0, 5.0 * SECOND);
        world.run(model, 100.0, 8.5 * SECOND);
        world.run(model, 100.0, 20.0 * SECOND);
        assert!(world.got.latest < 1000.0, "late by {} us: {model:?}", world.got.latest);
    }
}

/// A window of the target's 10 ms would hold half a turn, and requests would become ever smaller.
#[test]
fn a_sender_without_limit_keeps_the_throughput_of_a_broker_that_becomes_slow() {
    let mut world = World::new(BOUNDS);
    world.run(NEARBY, 0.0, 5.0 * SECOND);
    world.run(SLOW[0], 0.0, 9.0 * SECOND);
    world.run(SLOW[0], 0.0, 19.0 * SECOND);
    let most = 393_216.0 / (20_000.0 + 393_216.0 / 150.0);
    assert!(world.got.rate > 0.75 * most, "{} of {most} bytes/us", world.got.rate);
    world.run(NEARBY, 0.0, 23.0 * SECOND);
    world.run(NEARBY, 0.0, 25.0 * SECOND);
    assert!(world.got.p50() <= TARGET, "{:?} once it is quick again", world.got.p50());
}

/// Its response time contains the time for its bytes, and must not count as a round trip.
#[test]
fn a_large_request_that_goes_alone_puts_off_no_probe() {
    let (mut path, start) = (Path::new(BOUNDS), Instant::now());
    for (is_small, is_due) in [(true, false), (false, true)] {
        let later = start + 2 * PROBE_EVERY;
        path.sent(0, true, start);
        path.sent(0, is_small, later);
        assert_eq!(path.wants_probe(later), is_due);
    }
}

/// The first response of a broker does not decide for good how many small requests are in flight. Each would wait in
/// the broker for those before it.
#[test]
fn a_slow_first_response_is_forgotten() {
    let unbounded = Bounds { target: None, ..BOUNDS };
    for bounds in [BOUNDS, unbounded] {
        let mut world = World::new(bounds);
        world.run(Model { fixed_us: 150_000.0, ..NEARBY }, 500.0, 1000.0);
        let warm = Model { fixed_us: 10_000.0, ..NEARBY };
        world.run(warm, 500.0, 5.0 * SECOND);
        world.run(warm, 500.0, 10.0 * SECOND);
        assert!(world.got.p50() <= us(20_000), "{:?}: {bounds:?}", world.got.p50());
    }
}

/// A batch of more than [`SMALL`] bytes cannot go in a smaller request, so such a request shows the round trip.
///
/// **Was a bug:** none did, each request had to be a probe, and a sender had one batch in flight.
#[test]
fn batches_larger_than_a_probe_keep_the_throughput() {
    let far = Model { network_us: 20_000.0, ..NEARBY };
    for (batch, model) in [(256 << 10, NEARBY), (256 << 10, far), (1 << 20, far)] {
        let bounds = Bounds { batch, ..BOUNDS };
        let got = unthrottled(model, bounds);
        let without = unthrottled(model, Bounds { target: None, ..bounds });
        assert!(got.rate > 0.9 * without.rate, "{} of {}: {model:?}", got.rate, without.rate);
    }
}
