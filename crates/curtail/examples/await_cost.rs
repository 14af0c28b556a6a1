//! Cost of awaiting the records of one batch: `await_cost [RECORDS]...`, 600 and 60000 unless given.
//!
//! Sends the records to an embedded cluster in one batch that lingers, and polls each delivery with a separate waker:
//! a first time, a second time, and then drops every second delivery. Prints the time of each step per record, which
//! should not depend on the number of records.

#![allow(clippy::print_stdout, reason = "a program for people")]

use std::{
    error::Error,
    future::Future as _,
    pin::Pin,
    sync::Arc,
    task::{Context, Wake, Waker},
    time::{Duration, Instant},
};

use curtail::{Delivery, Env, Producer, ProducerConfig, Record};
use curtail_cluster::{Cluster, ClusterConfig};

struct Ignore;

impl Wake for Ignore {
    fn wake(self: Arc<Self>) {}
}

fn poll_all(deliveries: &mut [Delivery], wakers: &[Waker]) {
    for (delivery, waker) in deliveries.iter_mut().zip(wakers) {
        assert!(Pin::new(delivery).poll(&mut Context::from_waker(waker)).is_pending());
    }
}

async fn measure(bootstrap: &str, records: usize) -> Result<(), Box<dyn Error>> {
    let config =
        ProducerConfig::new(bootstrap).batch_size(1_000_000).linger(Duration::from_secs(60));
    let producer = Producer::new(config)?;
    producer.warm_up(&["awaited"]).await?;
    let record = Record::to("awaited").partition(0).value("v");
    let mut deliveries = Vec::with_capacity(records);
    for _ in 0..records {
        deliveries.push(producer.try_send(record)?);
    }
    let first = deliveries.first().ok_or("no records")?;
    assert!(deliveries.iter().all(|delivery| delivery.shares_batch_with(first)));
    let wakers: Vec<Waker> = (0..records).map(|_| Waker::from(Arc::new(Ignore))).collect();
    let mut steps = Vec::new();
    let mut began = Instant::now();
    let mut step = |name: &'static str| {
        let per_record = began.elapsed().as_nanos() as f64 / records as f64;
        steps.push(format!("{name} {per_record:.0}"));
        began = Instant::now();
    };
    poll_all(&mut deliveries, &wakers);
    step("first poll");
    poll_all(&mut deliveries, &wakers);
    step("second poll");
    let mut keep = false;
    deliveries.retain(|_| {
        keep = !keep;
        keep
    });
    step("drop of half");
    println!("{records} records, ns per record: {}", steps.join(", "));
    producer.close().await?;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut sizes: Vec<usize> =
        std::env::args().skip(1).map(|arg| arg.parse()).collect::<Result<_, _>>()?;
    if sizes.is_empty() {
        sizes = vec![600, 60_000];
    }
    let cluster = Cluster::start(ClusterConfig::default(), Env::real()).await?;
    for records in sizes {
        measure(&cluster.bootstrap(), records).await?;
    }
    cluster.shutdown().await;
    Ok(())
}
