//! The client against peers that violate the protocol. Their bytes may not make it panic, hang or fill its memory,
//! and the application receives one typed error of one line.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "hostile/aws.rs"]
mod aws;
#[path = "hostile/broker.rs"]
mod broker;
#[allow(dead_code, reason = "some of it is for other tests")]
#[path = "suite/security/certificates.rs"]
mod certificates;
#[path = "hostile/consume.rs"]
mod consume;
#[path = "hostile/deadlines.rs"]
mod deadlines;
#[path = "suite/security/endpoint.rs"]
mod endpoint;
#[path = "hostile/member.rs"]
mod member;
#[path = "hostile/mutate.rs"]
mod mutate;
#[path = "hostile/peers.rs"]
mod peers;
#[path = "hostile/pipe.rs"]
mod pipe;
#[path = "hostile/produce.rs"]
mod produce;
#[path = "hostile/refusals.rs"]
mod refusals;
#[path = "hostile/runtimes.rs"]
mod runtimes;
#[path = "hostile/sasl.rs"]
mod sasl;
#[path = "hostile/tokens.rs"]
mod tokens;
#[path = "hostile/topics.rs"]
mod topics;
#[path = "hostile/transactions.rs"]
mod transactions;
#[path = "hostile/validation.rs"]
mod validation;

use std::{cell::Cell, future::Future, sync::Once, time::Duration};

use broker::Broker;
use curtail::{
    Admin, AdminConfig, Consumer, ConsumerConfig, Error, Producer, ProducerConfig, Record,
    TopicPartition, config::OffsetReset,
};

/// Limit for every test; a test that reaches it hangs.
const HANGS: Duration = Duration::from_secs(60);

/// Limit in virtual time, of which a test may use much.
const HANGS_VIRTUALLY: Duration = Duration::from_secs(3600);

/// Limit for every call. Calls that must fail have limits of at most 1.5 s themselves, and the machine may be busy.
const CALL: Duration = Duration::from_secs(6);

/// `max.block.ms` of producers whose calls fail, or may fail.
const BLOCK: Duration = Duration::from_millis(500);

thread_local! {
    static PANICS: Cell<usize> = const { Cell::new(0) };
}

/// Runs a test on this thread alone. The client's tasks run here too. A panic in one of them fails the test, although
/// the runtime would catch it.
fn run(body: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    run_on(runtime.enable_all(), HANGS, body);
}

/// As [`run`], in virtual time, which jumps to the next timer when every task waits. For networks in memory only.
fn run_virtually(body: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    run_on(runtime.enable_time().start_paused(true), HANGS_VIRTUALLY, body);
}

fn run_on(runtime: &mut tokio::runtime::Builder, limit: Duration, body: impl Future<Output = ()>) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            default(info);
        }));
    });
    PANICS.set(0);
    let runtime = runtime.build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(limit, body).await.expect("the test ends in time");
    });
    drop(runtime);
    assert_eq!(PANICS.get(), 0, "a task panicked");
}

/// Waits for a call that must end without help.
async fn ends<T>(what: &str, call: impl Future<Output = T>) -> T {
    match tokio::time::timeout(CALL, call).await {
        Ok(result) => result,
        Err(_) => panic!("{what} hangs"),
    }
}

/// Checks that an error is one readable line.
fn check_error(error: &Error) {
    let text = error.report().to_string();
    assert!(!text.is_empty() && !text.contains(['\n', '\r', '\0']), "{text:?}");
    assert!(text.len() < 1000, "{text}");
}

fn admin_config(address: &str) -> AdminConfig {
    AdminConfig::new(address)
        .request_timeout(Duration::from_millis(500))
        .connection_setup_timeout(Duration::from_millis(500))
        .default_api_timeout(Duration::from_millis(1000))
        .retry_backoff(Duration::from_millis(5), Duration::from_millis(50))
        .reconnect_backoff(Duration::from_millis(5), Duration::from_millis(50))
}

fn producer_config(address: &str) -> ProducerConfig {
    ProducerConfig::default()
        .common(admin_config(address).get_common())
        // `ends` limits the calls that must succeed.
        .max_block(HANGS)
        .delivery_timeout(Duration::from_millis(1500))
        .linger(Duration::ZERO)
}

fn producer(broker: &Broker) -> Producer {
    Producer::with_env(producer_config(&broker.address.to_string()), &broker.env()).unwrap()
}

fn consumer_config(address: &str) -> ConsumerConfig {
    ConsumerConfig::default()
        .common(admin_config(address).get_common())
        .auto_offset_reset(OffsetReset::Earliest)
        .fetch_max_wait(Duration::from_millis(20))
}

fn consumer(broker: &Broker) -> Consumer {
    let config = consumer_config(&broker.address.to_string());
    let mut consumer = Consumer::with_env(config, &broker.env()).unwrap();
    consumer.assign([partition(0)]);
    consumer
}

fn admin(broker: &Broker) -> Admin {
    Admin::with_env(admin_config(&broker.address.to_string()), &broker.env()).unwrap()
}

/// Returns the error of a send. On a busy machine `max.block.ms` may end first; then it retries.
async fn refusal_of_a_send(producer: &Producer) -> Error {
    loop {
        match producer.send(record("x")).await.unwrap_err() {
            Error::Timeout { .. } => {}
            told => return told,
        }
    }
}

fn partition(index: i32) -> TopicPartition {
    TopicPartition::new(broker::TOPIC, index)
}

fn record(value: &str) -> Record<'_> {
    Record::to(broker::TOPIC).partition(0).value(value)
}

/// Sends one record and returns its outcome.
async fn deliver(producer: &Producer, value: &str) -> Result<Option<i64>, Error> {
    let delivery = ends("send", producer.send(record(value))).await?;
    Ok(ends("delivery", delivery).await?.offset)
}
