use std::net::Ipv4Addr;

use super::*;
use crate::settings::Whose;

const ID: Uuid = Uuid([1; 16]);
const INTERVAL: Duration = Duration::from_secs(1);
const MAX: usize = 100;

fn origin(connection: u64) -> Origin {
    let origin = Origin::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4711, connection);
    origin.software.set(("curtail".into(), "0.1.0".into())).unwrap();
    origin
}

fn subscribed(all: &[(&str, &[(&str, &str)])]) -> Changed {
    let one = |(name, settings): &(&str, &[(&str, &str)])| {
        let given: Given = settings.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
        (Whose::ClientMetrics((*name).to_owned()), Arc::new(given))
    };
    all.iter().map(one).collect()
}

fn all_metrics() -> Changed {
    subscribed(&[("all", &[("metrics", "*"), ("interval.ms", "1000")])])
}

fn push(id: i32) -> Pushed {
    Pushed { subscription_id: id, terminating: false, compression: 0, bytes: 10 }
}

struct Bench {
    instances: Instances,
    changed: Changed,
    now: Instant,
}

impl Bench {
    fn new(changed: Changed) -> Self {
        Self { instances: Instances::default(), changed, now: Instant::now() }
    }

    fn get(&mut self) -> Result<Asked, ErrorCode> {
        self.instances.get(&self.changed, ID, (&origin(1), "c"), self.now)
    }

    fn push(&mut self, pushed: &Pushed) -> Result<Codec, ErrorCode> {
        self.instances.push(&self.changed, ID, (&origin(1), "c"), pushed, MAX, self.now)
    }
}

#[tokio::test]
async fn subscriptions_that_match_are_merged() {
    let mut bench = Bench::new(subscribed(&[
        ("a", &[("metrics", "x.,y."), ("interval.ms", "5000"), ("match", "client_id=c")]),
        ("b", &[("metrics", "y.,z."), ("interval.ms", "2000")]),
        ("c", &[("metrics", "*"), ("interval.ms", "100"), ("match", "client_id=other")]),
    ]));
    let asked = bench.get().unwrap();
    assert_eq!(asked.metrics.iter().collect::<Vec<_>>(), ["x.", "y.", "z."]);
    assert_eq!(asked.interval, Duration::from_secs(2));
    bench.changed = subscribed(&[("a", &[("metrics", "x.")]), ("b", &[("metrics", "*")])]);
    assert_eq!(bench.get().unwrap().metrics.iter().collect::<Vec<_>>(), ["*"]);
    bench.changed = Changed::new();
    let none = bench.get().unwrap();
    assert_eq!((none.metrics.len(), none.interval), (0, DEFAULT_INTERVAL));
}

#[test]
fn subscription_id_is_kafkas() {
    // CRC-32C of "[*]300000" by Python's crc32c, and the hash of Java's Uuid.
    let all = BTreeSet::from(["*".to_owned()]);
    let id = subscription_id(&all, DEFAULT_INTERVAL, Uuid([0; 16]));
    assert_eq!(id as u32, crc32c::crc32c(b"[*]300000"));
    let mut bytes = [0; 16];
    bytes[0] = 0x80;
    bytes[15] = 0x01;
    let other = subscription_id(&all, DEFAULT_INTERVAL, Uuid(bytes));
    assert_eq!((id ^ other) as u32, 0x8000_0001);
}

#[tokio::test]
async fn requests_before_the_push_interval_are_throttled() {
    let mut bench = Bench::new(all_metrics());
    let id = bench.get().unwrap().id;
    assert_eq!(bench.get(), Err(ErrorCode::THROTTLING_QUOTA_EXCEEDED));
    // The first push may come early, the second may not.
    assert_eq!(bench.push(&push(id)), Ok(Codec::None));
    assert_eq!(bench.push(&push(id)), Err(ErrorCode::THROTTLING_QUOTA_EXCEEDED));
    bench.now += INTERVAL;
    assert_eq!(bench.push(&push(id)), Ok(Codec::None));
    // A terminating push is never too early, and is the last one.
    assert_eq!(bench.push(&Pushed { terminating: true, ..push(id) }), Ok(Codec::None));
    bench.now += INTERVAL;
    assert_eq!(bench.push(&push(id)), Err(ErrorCode::INVALID_REQUEST));
}

#[tokio::test]
async fn push_is_refused_with_kafkas_codes() {
    let mut bench = Bench::new(all_metrics());
    let id = bench.get().unwrap().id;
    let table = [
        (push(id ^ 1), ErrorCode::UNKNOWN_SUBSCRIPTION_ID),
        (Pushed { compression: 5, ..push(id) }, ErrorCode::UNSUPPORTED_COMPRESSION_TYPE),
        (Pushed { compression: -1, ..push(id) }, ErrorCode::UNSUPPORTED_COMPRESSION_TYPE),
        (Pushed { bytes: MAX + 1, ..push(id) }, ErrorCode::TELEMETRY_TOO_LARGE),
    ];
    for (pushed, expected) in table {
        assert_eq!(bench.push(&pushed), Err(expected));
        bench.now += INTERVAL;
    }
    for codec in CODECS {
        let pushed = Pushed { compression: codec.id() as i8, bytes: MAX, ..push(id) };
        assert_eq!(bench.push(&pushed), Ok(codec));
        bench.now += INTERVAL;
    }
}

#[tokio::test]
async fn changed_subscription_gives_another_id_and_is_not_throttled() {
    let mut bench = Bench::new(all_metrics());
    let id = bench.get().unwrap().id;
    assert_eq!(bench.push(&push(id)), Ok(Codec::None));
    bench.changed = subscribed(&[("all", &[("metrics", "x."), ("interval.ms", "1000")])]);
    assert_eq!(bench.push(&push(id)), Err(ErrorCode::UNKNOWN_SUBSCRIPTION_ID));
    // Apache Kafka throttles this request, although it means to serve it.
    assert_eq!(bench.get(), Err(ErrorCode::THROTTLING_QUOTA_EXCEEDED));
    bench.now += INTERVAL;
    assert_ne!(bench.get().unwrap().id, id);
}

#[tokio::test]
async fn client_is_forgotten_with_its_connection_and_after_three_silent_intervals() {
    let mut bench = Bench::new(all_metrics());
    let _ = bench.get().unwrap();
    bench.instances.disconnected(2);
    assert_eq!(bench.get(), Err(ErrorCode::THROTTLING_QUOTA_EXCEEDED));
    bench.instances.disconnected(1);
    assert!(bench.get().is_ok());
    bench.now += LEAST_EXPIRY;
    let _ = bench.instances.get(&bench.changed, Uuid([2; 16]), (&origin(9), "d"), bench.now);
    assert_eq!(bench.instances.by_id.len(), 1);
}

#[tokio::test]
async fn instances_are_bounded() {
    let mut bench = Bench::new(Changed::new());
    for number in 0..MOST_INSTANCES as u128 + 10 {
        let id = Uuid((number + 1).to_be_bytes());
        assert!(bench.instances.get(&bench.changed, id, (&origin(1), "c"), bench.now).is_ok());
    }
    assert_eq!(bench.instances.by_id.len(), MOST_INSTANCES);
}
