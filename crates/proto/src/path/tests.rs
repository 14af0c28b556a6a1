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

/// Measurements of a sender that appends as fast as the gate admits.
#[derive(Debug)]
struct Got {
    /// Bytes per microsecond.
    rate: f64,
    /// Median time from the append to the response.
    p50: Duration,
    windows: Vec<usize>,
}

/// Records of a kilobyte, appended whenever the gate admits one; requests of everything that waits, as many as the
/// depth allows. Runs for this many responses, and measures the second half.
fn unthrottled(model: Model, bounds: Bounds, responses: usize) -> Got {
    const RECORD: usize = 1 << 10;
    let start = Instant::now();
    let at = |us: f64| start + Duration::from_nanos((us * 1000.0) as u64);
    let (mut path, gate) = (Path::new(bounds), Gate::new(Some(bounds.request)));
    let (mut now, mut free_at) = (0.0_f64, 0.0_f64);
    let mut waiting: VecDeque<f64> = VecDeque::new();
    let mut flying: VecDeque<(f64, usize, Vec<f64>, f64)> = VecDeque::new();
    let (mut waits, mut windows, mut bytes, mut since) = (Vec::new(), Vec::new(), 0, 0.0);
    for number in 0..responses {
        while gate.admits(|| Duration::from_nanos((now * 1000.0) as u64)) && waiting.len() < 32_768
        {
            gate.charge(RECORD);
            waiting.push_back(now);
        }
        let is_probe = path.wants_probe(at(now));
        while flying.len() < path.depth() && !waiting.is_empty() && (!is_probe || flying.is_empty())
        {
            let full = (bounds.batch * model.partitions).min(bounds.request);
            let most = if is_probe { SMALL } else { full } / RECORD;
            path.sent(flying.len(), at(now));
            let records: Vec<f64> = waiting.drain(..most.min(waiting.len())).collect();
            let time = model.fixed_us + (records.len() * RECORD) as f64 / model.bytes_per_us;
            free_at = free_at.max(now + model.network_us / 2.0) + time;
            flying.push_back((now, flying.len(), records, free_at + model.network_us / 2.0));
        }
        let oldest = flying.front().map(|(written, _, records, _)| Oldest {
            written: at(*written),
            bytes: records.len() * RECORD,
        });
        path.publish(flying.len(), 0, oldest, start, &gate);
        let (written, ahead, records, done) = flying.pop_front().expect("something is in flight");
        now = done;
        let size = records.len() * RECORD;
        let batches = records.len().div_ceil(bounds.batch / RECORD).max(1);
        let (is_small, read) = (size <= SMALL, at(now));
        let response =
            Response { written: at(written), ahead, bytes: size, batches, is_small, now: read };
        path.answered(&response, &gate);
        gate.release(size);
        windows.push(gate.window());
        if number == responses / 2 {
            since = now;
        } else if number > responses / 2 {
            bytes += size;
            waits.extend(records.iter().map(|sent| now - sent));
        }
    }
    waits.sort_by(f64::total_cmp);
    let p50 = Duration::from_nanos((waits[waits.len() / 2] * 1000.0) as u64);
    Got { rate: bytes as f64 / (now - since), p50, windows }
}

const NEARBY: Model =
    Model { fixed_us: 100.0, bytes_per_us: 150.0, network_us: 50.0, partitions: 6 };

/// `docs/decisions/0098`: a nearby broker, at 150 MB/s.
#[test]
fn a_sender_without_limit_waits_for_the_target_and_keeps_the_throughput() {
    let got = unthrottled(NEARBY, BOUNDS, 2000);
    let most = 393_216.0 / (100.0 + 393_216.0 / 150.0);
    assert!(got.rate > 0.97 * most, "{} of {most} bytes/us", got.rate);
    assert!(got.p50 <= TARGET, "{:?}", got.p50);
}

/// Commits of 3 ms: a window of the target's 10 ms would hold three of them.
#[test]
fn a_broker_with_slow_commits_keeps_three_quarters_of_its_throughput() {
    let got = unthrottled(Model { fixed_us: 3000.0, ..NEARBY }, BOUNDS, 2000);
    let most = 393_216.0 / (3000.0 + 393_216.0 / 150.0);
    assert!(got.rate > 0.75 * most, "{} of {most} bytes/us", got.rate);
    assert!(got.p50 <= Duration::from_millis(40), "{:?}", got.p50);
}

#[test]
fn a_distant_broker_is_kept_busy() {
    let model = Model { network_us: 5000.0, bytes_per_us: 100.0, ..NEARBY };
    let got = unthrottled(model, BOUNDS, 4000);
    assert!(got.rate > 90.0, "{} bytes/us", got.rate);
}

/// The window settles: it does not swing between extremes.
#[test]
fn the_window_converges() {
    for model in [NEARBY, Model { fixed_us: 3000.0, ..NEARBY }] {
        let windows = unthrottled(model, BOUNDS, 2000).windows;
        let last = &windows[1500..];
        let (least, most) = (last.iter().min().unwrap(), last.iter().max().unwrap());
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
        path.sent(0, written);
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
