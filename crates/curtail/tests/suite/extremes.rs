//! Every number and duration that a caller can pass, at its extremes: refused with its bound, or harmless.

mod calls;

use std::{cell::Cell, future::Future, time::Duration};

use crate::common::Backend;
use curtail::{
    Admin, AdminConfig, ConfigError, Consumer, ConsumerConfig, Error, Producer, ProducerConfig,
    Record, TopicPartition, TransactionalProducer, blocking, config::OffsetReset,
};

const INT: u64 = i32::MAX as u64;
const LONG: u64 = i64::MAX as u64;
const TOPIC: &str = "extremes";

/// A setter, which bypasses the property's parser.
enum Setter<C> {
    Time(fn(C, Duration) -> C),
    Size(fn(C, usize) -> C),
    Count(fn(C, u32) -> C),
    Signed(fn(C, i32) -> C),
    Part(fn(C, f64) -> C),
}

/// A setting: its property, the largest value that Kafka's type or the setting itself allows, and its setter. Bounds
/// of durations are in milliseconds.
type Row<C> = (&'static str, u64, Setter<C>);

/// The setter of a setting of `SecurityConfig::sasl.oidc`.
macro_rules! login {
    ($config:ident, Some $($field:ident).+) => {
        |config: $config, value| {
            let mut security = config.get_security().clone();
            security.sasl.oidc.$($field).+ = Some(value);
            config.security(security)
        }
    };
    ($config:ident, $($field:ident).+) => {
        |config: $config, value| {
            let mut security = config.get_security().clone();
            security.sasl.oidc.$($field).+ = value;
            config.security(security)
        }
    };
}

macro_rules! common {
    ($config:ident) => {
        vec![
            (
                "connections.max.idle.ms",
                LONG,
                Setter::Time(|c: $config, v| c.connections_max_idle(Some(v))),
            ),
            (
                "curtail.tcp.keepalive.idle.seconds",
                32_767_000,
                Setter::Time($config::tcp_keepalive_idle),
            ),
            (
                "curtail.tcp.keepalive.interval.seconds",
                32_767_000,
                Setter::Time($config::tcp_keepalive_interval),
            ),
            ("curtail.tcp.user.timeout.ms", INT, Setter::Time($config::tcp_user_timeout)),
            ("metadata.max.age.ms", LONG, Setter::Time($config::metadata_max_age)),
            (
                "metadata.recovery.rebootstrap.trigger.ms",
                LONG,
                Setter::Time($config::metadata_rebootstrap_trigger),
            ),
            (
                "receive.buffer.bytes",
                INT,
                Setter::Size(|c: $config, v| c.socket_buffers(None, Some(v))),
            ),
            (
                "reconnect.backoff.max.ms",
                LONG,
                Setter::Time(|c: $config, v| {
                    let first = c.get_reconnect_backoff();
                    c.reconnect_backoff(first, v)
                }),
            ),
            (
                "reconnect.backoff.ms",
                LONG,
                Setter::Time(|c: $config, v| {
                    let longest = c.get_reconnect_backoff_max();
                    c.reconnect_backoff(v, longest)
                }),
            ),
            ("request.timeout.ms", INT, Setter::Time($config::request_timeout)),
            (
                "retry.backoff.max.ms",
                LONG,
                Setter::Time(|c: $config, v| {
                    let first = c.get_retry_backoff();
                    c.retry_backoff(first, v)
                }),
            ),
            (
                "retry.backoff.ms",
                LONG,
                Setter::Time(|c: $config, v| {
                    let longest = c.get_retry_backoff_max();
                    c.retry_backoff(v, longest)
                }),
            ),
            (
                "sasl.login.connect.timeout.ms",
                INT,
                Setter::Time(login!($config, Some connect_timeout)),
            ),
            (
                "sasl.login.read.timeout.ms",
                INT,
                Setter::Time(login!($config, Some read_timeout)),
            ),
            (
                "sasl.login.refresh.buffer.seconds",
                3_600_000,
                Setter::Time(login!($config, refresh_buffer)),
            ),
            (
                "sasl.login.refresh.min.period.seconds",
                900_000,
                Setter::Time(login!($config, refresh_min_period)),
            ),
            (
                "sasl.login.refresh.window.factor",
                1,
                Setter::Part(login!($config, refresh_window_factor)),
            ),
            (
                "sasl.login.refresh.window.jitter",
                0,
                Setter::Part(login!($config, refresh_window_jitter)),
            ),
            (
                "sasl.login.retry.backoff.max.ms",
                LONG,
                Setter::Time(login!($config, retry_backoff_max)),
            ),
            (
                "sasl.login.retry.backoff.ms",
                LONG,
                Setter::Time(login!($config, retry_backoff)),
            ),
            (
                "sasl.oauthbearer.assertion.claim.exp.seconds",
                86_400_000,
                Setter::Time(login!($config, assertion.lifetime)),
            ),
            (
                "sasl.oauthbearer.assertion.claim.nbf.seconds",
                3_600_000,
                Setter::Time(login!($config, assertion.backdated)),
            ),
            (
                "send.buffer.bytes",
                INT,
                Setter::Size(|c: $config, v| c.socket_buffers(Some(v), None)),
            ),
            (
                "socket.connection.setup.timeout.ms",
                LONG,
                Setter::Time($config::connection_setup_timeout),
            ),
        ]
    };
}

fn of_producers() -> Vec<Row<ProducerConfig>> {
    let mut rows: Vec<Row<ProducerConfig>> = common!(ProducerConfig);
    rows.extend([
        ("batch.max.size", INT, Setter::Size(ProducerConfig::batch_max_size)),
        ("batch.size", INT, Setter::Size(ProducerConfig::batch_size)),
        ("buffer.memory", LONG, Setter::Size(ProducerConfig::buffer_memory)),
        (
            "curtail.broker.memory.percent",
            1_000_000,
            Setter::Count(ProducerConfig::broker_memory_percent),
        ),
        ("curtail.latency.target.ms", INT, Setter::Time(ProducerConfig::latency_target)),
        ("curtail.suspicion.max.ms", INT, Setter::Time(ProducerConfig::suspicion_max)),
        ("curtail.suspicion.min.ms", INT, Setter::Time(ProducerConfig::suspicion_min)),
        (
            "curtail.suspicion.multiple",
            u32::MAX.into(),
            Setter::Count(ProducerConfig::suspicion_multiple),
        ),
        ("delivery.timeout.ms", INT, Setter::Time(ProducerConfig::delivery_timeout)),
        ("linger.ms", LONG, Setter::Time(ProducerConfig::linger)),
        ("max.block.ms", LONG, Setter::Time(ProducerConfig::max_block)),
        ("max.in.flight.requests.per.connection", INT, Setter::Size(ProducerConfig::max_in_flight)),
        ("max.request.size", INT, Setter::Size(ProducerConfig::max_request_size)),
        ("metadata.max.idle.ms", LONG, Setter::Time(ProducerConfig::metadata_max_idle)),
        (
            "partitioner.availability.timeout.ms",
            LONG,
            Setter::Time(ProducerConfig::partitioner_availability_timeout),
        ),
        ("retries", INT, Setter::Count(ProducerConfig::retries)),
        ("transaction.timeout.ms", INT, Setter::Time(ProducerConfig::transaction_timeout)),
    ]);
    rows
}

fn of_consumers() -> Vec<Row<ConsumerConfig>> {
    let mut rows: Vec<Row<ConsumerConfig>> = common!(ConsumerConfig);
    rows.extend([
        ("auto.commit.interval.ms", INT, Setter::Time(ConsumerConfig::auto_commit_interval)),
        (
            "curtail.decompressed.batch.max.bytes",
            LONG,
            Setter::Size(ConsumerConfig::max_decompressed_batch),
        ),
        ("curtail.prefetch.bytes", LONG, Setter::Size(ConsumerConfig::prefetch_bytes)),
        ("default.api.timeout.ms", INT, Setter::Time(ConsumerConfig::default_api_timeout)),
        ("fetch.max.bytes", INT, Setter::Signed(ConsumerConfig::fetch_max_bytes)),
        ("fetch.max.wait.ms", INT, Setter::Time(ConsumerConfig::fetch_max_wait)),
        ("fetch.min.bytes", INT, Setter::Signed(ConsumerConfig::fetch_min_bytes)),
        ("heartbeat.interval.ms", INT, Setter::Time(ConsumerConfig::heartbeat_interval)),
        (
            "max.partition.fetch.bytes",
            INT,
            Setter::Signed(ConsumerConfig::max_partition_fetch_bytes),
        ),
        ("max.poll.interval.ms", INT, Setter::Time(ConsumerConfig::max_poll_interval)),
        ("max.poll.records", INT, Setter::Size(ConsumerConfig::max_poll_records)),
        ("session.timeout.ms", INT, Setter::Time(ConsumerConfig::session_timeout)),
    ]);
    rows
}

fn of_admins() -> Vec<Row<AdminConfig>> {
    let mut rows: Vec<Row<AdminConfig>> = common!(AdminConfig);
    let limit: Row<AdminConfig> =
        ("default.api.timeout.ms", INT, Setter::Time(AdminConfig::default_api_timeout));
    rows.push(limit);
    rows
}

/// An extreme value of a setting.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Extreme {
    /// Near zero.
    Small,
    /// The largest value in bounds.
    Bound,
    /// Beyond the bound.
    Beyond,
}

/// Configurations with a setting at its extremes.
fn extremes<C: Clone>(default: &C, (_, bound, field): &Row<C>) -> Vec<(Extreme, C)> {
    use Extreme::{Beyond, Bound, Small};
    let of = |values: Vec<(Extreme, C)>| values;
    match field {
        Setter::Time(set) => {
            let millis = Duration::from_millis;
            let values = [
                (Small, Duration::ZERO),
                (Small, Duration::from_nanos(1)),
                (Small, millis(1)),
                (Bound, millis(*bound)),
                (Beyond, millis(*bound) + Duration::from_secs(1)),
                (Beyond, Duration::MAX),
            ];
            of(values.map(|(extreme, v)| (extreme, set(default.clone(), v))).into())
        }
        Setter::Size(set) => {
            let bound = usize::try_from(*bound).expect("64 bits");
            let values =
                [(Small, 0), (Small, 1), (Bound, bound), (Beyond, bound + 1), (Beyond, usize::MAX)];
            of(values.map(|(extreme, v)| (extreme, set(default.clone(), v))).into())
        }
        Setter::Count(set) => {
            let bound = u32::try_from(*bound).expect("32 bits");
            let mut values = vec![(Small, 0), (Small, 1), (Bound, bound)];
            if let Some(beyond) = bound.checked_add(1) {
                values.extend([(Beyond, beyond), (Beyond, u32::MAX)]);
            }
            of(values.into_iter().map(|(extreme, v)| (extreme, set(default.clone(), v))).collect())
        }
        Setter::Signed(set) => {
            let values =
                [(Small, 0), (Small, 1), (Bound, i32::MAX), (Beyond, -1), (Beyond, i32::MIN)];
            of(values.map(|(extreme, v)| (extreme, set(default.clone(), v))).into())
        }
        Setter::Part(set) => {
            let values = [f64::NAN, f64::INFINITY, -1.0, 1.5, f64::MAX];
            of(values.map(|v| (Beyond, set(default.clone(), v))).into())
        }
    }
}

/// The names of the settings whose values are numbers.
fn numeric(properties: Vec<(&'static str, String)>) -> Vec<&'static str> {
    // Codec levels are checked with their codecs, and these two are shown empty while they follow others.
    let follow = ["sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms"];
    let is_number = |(name, value): &(&str, String)| {
        (value.parse::<f64>().is_ok() || follow.contains(name)) && !name.ends_with(".level")
    };
    properties.into_iter().filter(is_number).map(|(name, _)| name).collect()
}

/// Checks that a value beyond the bound is refused in one line that names the setting. Returns the accepted
/// configurations.
fn accepted<C: Clone>(
    default: &C,
    names: &[&str],
    rows: &[Row<C>],
    validate: impl Fn(&C) -> Result<(), ConfigError>,
) -> Vec<(&'static str, Extreme, C)> {
    let mut covered: Vec<_> = rows.iter().map(|(name, ..)| *name).collect();
    covered.sort_unstable();
    assert_eq!(covered, names, "a row for each number");
    validate(default).expect("the defaults are accepted");
    let mut usable = Vec::new();
    for row in rows {
        for (extreme, config) in extremes(default, row) {
            match (extreme, validate(&config)) {
                (_, Ok(())) if extreme != Extreme::Beyond => usable.push((row.0, extreme, config)),
                (Extreme::Beyond, Err(error @ ConfigError::Invalid { .. })) => {
                    let line = error.to_string();
                    assert!(line.starts_with(&format!("{}=", row.0)), "{line}");
                    let bounds = [" to ", "up to", "at most", "at least"];
                    assert!(bounds.iter().any(|b| line.contains(b)), "no bound: {line}");
                    assert_eq!(line.lines().count(), 1, "{line}");
                }
                (Extreme::Beyond, other) => panic!("{} beyond its bound: {other:?}", row.0),
                // Contradictions with other settings.
                (_, Err(error)) => assert!(error.to_string().contains(row.0), "{error}"),
                (_, Ok(())) => {}
            }
        }
    }
    usable
}

fn producers(bootstrap: &str) -> Vec<(&'static str, Extreme, ProducerConfig)> {
    let default = ProducerConfig::new(bootstrap);
    accepted(&default, &numeric(default.properties()), &of_producers(), ProducerConfig::validate)
}

fn consumers(bootstrap: &str) -> Vec<(&'static str, Extreme, ConsumerConfig)> {
    let default = ConsumerConfig::new(bootstrap).auto_offset_reset(OffsetReset::Earliest);
    accepted(&default, &numeric(default.properties()), &of_consumers(), ConsumerConfig::validate)
}

fn admins(bootstrap: &str) -> Vec<(&'static str, Extreme, AdminConfig)> {
    let default = AdminConfig::new(bootstrap);
    accepted(&default, &numeric(default.properties()), &of_admins(), AdminConfig::validate)
}

#[test]
fn numbers_beyond_their_bounds_are_refused_by_name() {
    assert!(!producers("localhost:1").is_empty());
    assert!(!consumers("localhost:1").is_empty());
    assert!(!admins("localhost:1").is_empty());
    let error = ProducerConfig::new("localhost:1").request_timeout(Duration::MAX).validate();
    assert_eq!(
        error.unwrap_err().to_string(),
        "request.timeout.ms=18446744073709551615999: expected milliseconds, at most 2147483647"
    );
}

#[test]
fn linger_beyond_the_delivery_timeout_extends_it_to_its_bound() {
    let config = ProducerConfig::new("localhost:1").linger(Duration::from_millis(LONG));
    config.validate().expect("as in Java");
    assert_eq!(config.get_delivery_timeout(), Duration::from_millis(INT));
}

thread_local! {
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

/// Runs on one thread, and fails if any task on it panicked: tokio would hide that.
fn run(body: impl Future<Output = ()>) {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.with(|panics| panics.set(panics.get() + 1));
        before(info);
    }));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(body);
    assert_eq!(PANICS.with(Cell::get), 0, "tasks that panicked");
}

/// Limit for a client, many times the duration with sound settings.
const LIMIT: Duration = Duration::from_secs(20);
/// For settings near zero, with which no call may succeed.
const GLANCE: Duration = Duration::from_millis(60);

/// Checks that a setting at its bound behaves as a very large one. Near zero any call may fail, but none panics.
async fn check<T>(
    name: &str,
    extreme: Extreme,
    outcome: impl Future<Output = Result<T, Error>>,
) -> Option<T> {
    let limit = if extreme == Extreme::Bound { LIMIT } else { GLANCE };
    match (extreme, tokio::time::timeout(limit, outcome).await) {
        (Extreme::Bound, Ok(Ok(done))) => Some(done),
        (Extreme::Bound, Ok(Err(error))) => panic!("{name} at its bound: {error}"),
        (Extreme::Bound, Err(_)) => panic!("{name} at its bound: hangs"),
        (_, Ok(outcome)) => outcome.ok(),
        (_, Err(_)) => None,
    }
}

#[test]
fn extreme_settings_of_producers_are_harmless() {
    run(async {
        let backend = Backend::embedded(1).await;
        backend.create_topic(TOPIC, 2, 1).await;
        for (name, extreme, config) in producers(&backend.bootstrap()) {
            let producer = Producer::new(config).expect("validated");
            check(name, extreme, async {
                let record = Record::to(TOPIC).value("x");
                let delivery = producer.send(record).await?;
                producer.flush().await?;
                delivery.await
            })
            .await;
        }
    });
}

#[test]
fn extreme_settings_of_transactions_are_harmless() {
    run(async {
        let backend = Backend::embedded(1).await;
        backend.create_topic(TOPIC, 2, 1).await;
        let of_transactions = [
            "max.block.ms",
            "request.timeout.ms",
            "retry.backoff.ms",
            "retry.backoff.max.ms",
            "linger.ms",
        ];
        for (name, extreme, config) in producers(&backend.bootstrap()) {
            if !of_transactions.contains(&name) {
                continue;
            }
            let mut producer =
                TransactionalProducer::new(config.transactional_id(name)).expect("validated");
            check(name, extreme, async {
                producer.init_transactions().await?;
                let transaction = producer.begin_transaction().await?;
                drop(transaction.send(Record::to(TOPIC).value("x")).await?);
                transaction.commit().await
            })
            .await;
        }
    });
}

#[test]
fn extreme_settings_of_consumers_are_harmless() {
    run(async {
        let backend = Backend::embedded(1).await;
        backend.create_topic(TOPIC, 1, 1).await;
        let producer = Producer::new(ProducerConfig::new(backend.bootstrap())).expect("usable");
        producer.send(Record::to(TOPIC).value("x")).await.expect("sent").await.expect("written");
        for (name, extreme, config) in consumers(&backend.bootstrap()) {
            // A broker waits for these bytes up to fetch.max.wait.ms.
            let wait = Duration::MAX;
            let mut consumer = Consumer::new(config.clone()).expect("validated");
            consumer.assign([TopicPartition::new(TOPIC, 0)]);
            let read = check(name, extreme, async { consumer.poll(wait).await }).await;
            assert!(extreme != Extreme::Bound || !read.expect("records").is_empty(), "{name}");
            tokio::time::timeout(LIMIT, consumer.close()).await.expect("closed");
            let of_groups =
                name.contains("interval") || name.contains("session") || name.contains("api");
            if of_groups {
                in_a_group(name, extreme, config).await;
            }
        }
    });
}

async fn in_a_group(name: &str, extreme: Extreme, config: ConsumerConfig) {
    let mut consumer =
        Consumer::new(config.group_id(format!("g-{name}-{extreme:?}"))).expect("validated");
    consumer.subscribe([TOPIC]).expect("a group");
    let polled = async {
        let records = consumer.poll(Duration::MAX).await?;
        consumer.commit().await?;
        Ok(records)
    };
    // Coordinators refuse a session.timeout.ms beyond theirs.
    let extreme = if name == "session.timeout.ms" { Extreme::Small } else { extreme };
    check(name, extreme, polled).await;
    tokio::time::timeout(LIMIT, consumer.close()).await.ok();
}

#[test]
fn extreme_settings_of_admins_are_harmless() {
    run(async {
        let backend = Backend::embedded(1).await;
        for (name, extreme, config) in admins(&backend.bootstrap()) {
            let admin = Admin::new(config).expect("validated");
            check(name, extreme, admin.list_topics()).await;
        }
    });
}

#[test]
fn blocking_calls_take_any_duration() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let backend = runtime.block_on(Backend::embedded(1));
    runtime.block_on(backend.create_topic(TOPIC, 1, 1));
    let producer =
        blocking::Producer::new(ProducerConfig::new(backend.bootstrap())).expect("usable");
    let mut delivery = producer.send(Record::to(TOPIC).value("x")).expect("sent");
    delivery.wait_timeout(Duration::ZERO).expect("no outcome yet, or written");
    assert!(delivery.wait_timeout(Duration::MAX).expect("written").is_some());
    let config = ConsumerConfig::new(backend.bootstrap()).auto_offset_reset(OffsetReset::Earliest);
    let mut consumer = blocking::Consumer::new(config).expect("usable");
    consumer.assign([TopicPartition::new(TOPIC, 0)]);
    consumer.poll(Duration::ZERO).expect("nothing yet, or a record");
    consumer.seek_to_beginning(&[TopicPartition::new(TOPIC, 0)]).expect("sought");
    assert!(!consumer.poll(Duration::MAX).expect("a record").is_empty());
    consumer.seek_to_beginning(&[TopicPartition::new(TOPIC, 0)]).expect("sought");
    assert!(consumer.poll_batch(Duration::MAX).expect("a batch").is_some());
}
