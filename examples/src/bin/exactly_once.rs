//! Consumes orders and produces one invoice for each, though the program and a broker are killed in between.
//!
//! This program starts a cluster and itself again as the worker. It kills the worker and a broker, and starts another
//! worker.
#![allow(clippy::print_stdout)]

use std::{
    collections::BTreeMap,
    error::Error,
    process::{Child, Command},
    time::Duration,
};

use curtail::{
    Consumer, ConsumerConfig, Env, Producer, ProducerConfig, Record, TransactionalProducer,
    config::{IsolationLevel, OffsetReset},
    transaction::ExactlyOnce,
};
use curtail_cluster::{Cluster, ClusterConfig};

const ORDERS: usize = 1_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    match std::env::args().nth(1) {
        Some(bootstrap) => Ok(bill(&bootstrap).await?),
        None => supervise().await,
    }
}

/// The worker. Its ids are the same after a restart: a static member gets its partitions back at once, and the
/// transaction that the crashed worker left open is aborted at once.
async fn bill(bootstrap: &str) -> curtail::Result<()> {
    let config = ConsumerConfig::new(bootstrap)
        .group_id("billing")
        .group_instance_id("billing-1")
        .auto_offset_reset(OffsetReset::Earliest)
        .isolation_level(IsolationLevel::ReadCommitted)
        .enable_auto_commit(false)
        .max_poll_records(20);
    let mut orders = Consumer::new(config)?;
    orders.subscribe(["orders"])?;
    let config = ProducerConfig::new(bootstrap).transactional_id("billing-1");
    let mut billing = ExactlyOnce::new(orders, TransactionalProducer::new(config)?)?;

    let stop = async { drop(tokio::signal::ctrl_c().await) };
    billing
        .run(stop, |batch| async move {
            for order in batch.records() {
                let order = order.value().unwrap_or_default();
                // A record that cannot be written fails the commit.
                drop(batch.send(Record::to("invoices").value(order)).await?);
            }
            Ok::<(), curtail::Error>(())
        })
        .await?;
    billing.close().await
}

async fn supervise() -> Result<(), Box<dyn Error>> {
    let config = ClusterConfig {
        default_replication_factor: 3,
        min_insync_replicas: 2,
        num_partitions: 4,
        broker_session_timeout: Duration::from_secs(1),
        broker_heartbeat_interval: Duration::from_millis(200),
        ..ClusterConfig::default()
    };
    let cluster = Cluster::start(config, Env::real()).await?;
    let bootstrap = cluster.bootstrap();
    fill(&bootstrap).await?;

    let mut invoices = Invoices::open(&bootstrap)?;
    let worker = Worker::start(&bootstrap)?;
    invoices.read_until(ORDERS / 10).await?;
    drop(worker);
    println!("killed the worker after {} invoices", invoices.count());
    cluster.kill(1);
    println!("killed a broker");
    let _worker = Worker::start(&bootstrap)?;
    invoices.read_until(ORDERS).await?;
    let once = invoices.by_order.values().filter(|count| **count == 1).count();
    println!("{once} of {ORDERS} orders have exactly one invoice");
    Ok(())
}

/// The worker's process. It is killed (SIGKILL on Unix) when this is dropped.
struct Worker(Child);

impl Worker {
    fn start(bootstrap: &str) -> std::io::Result<Self> {
        Ok(Self(Command::new(std::env::current_exe()?).arg(bootstrap).spawn()?))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// The committed invoices.
struct Invoices {
    consumer: Consumer,
    by_order: BTreeMap<Vec<u8>, usize>,
}

impl Invoices {
    fn open(bootstrap: &str) -> curtail::Result<Self> {
        let config = ConsumerConfig::new(bootstrap)
            .group_id("audit")
            .auto_offset_reset(OffsetReset::Earliest)
            .isolation_level(IsolationLevel::ReadCommitted);
        let mut consumer = Consumer::new(config)?;
        consumer.subscribe(["invoices"])?;
        Ok(Self { consumer, by_order: BTreeMap::new() })
    }

    fn count(&self) -> usize {
        self.by_order.values().sum()
    }

    async fn read_until(&mut self, count: usize) -> curtail::Result<()> {
        while self.count() < count {
            for invoice in self.consumer.poll(Duration::from_secs(1)).await? {
                let order = invoice.value().unwrap_or_default().to_vec();
                *self.by_order.entry(order).or_default() += 1;
            }
        }
        Ok(())
    }
}

async fn fill(bootstrap: &str) -> curtail::Result<()> {
    let producer = Producer::new(ProducerConfig::new(bootstrap))?;
    for number in 0..ORDERS {
        let number = number.to_string();
        drop(producer.send(Record::to("orders").key(&number).value(&number)).await?);
    }
    producer.close().await
}
