//! Cost of the outcomes of records: `delivery_cost serve`, and `delivery_cost BOOTSTRAP RECORDS SIZE
//! deliveries|tags|none [keyless]`.
//!
//! `serve` runs an embedded cluster and prints its bootstrap server. The other form sends the records to one partition,
//! on one thread. They name the partition or, with `keyless`, the producer chooses it. `deliveries` awaits each record's
//! `Delivery` in a `FuturesUnordered`, `tags` receives completions, and `none` drops the deliveries. Batches leave when
//! they are complete, so that runs differ little. For counts of instructions, run it under `valgrind --tool=callgrind`,
//! with two numbers of records: the difference leaves the start out.

#![allow(clippy::print_stdout, reason = "a program for people")]

use std::{error::Error, time::Duration};

use curtail::{Env, Producer, ProducerConfig, Record};
use curtail_cluster::{Cluster, ClusterConfig};
use futures_util::{FutureExt as _, StreamExt as _, stream::FuturesUnordered};
use tokio::task::yield_now;

const TOPIC: &str = "cost";
/// Records between two looks at the outcomes.
const ROUND: u64 = 64;

type Outcome = Result<(), Box<dyn Error>>;

async fn serve() -> Outcome {
    let cluster = Cluster::start(ClusterConfig::default(), Env::real()).await?;
    cluster.create_topic(TOPIC, 1, 1, &[])?;
    cluster.settled().await;
    println!("{}", cluster.bootstrap());
    std::future::pending().await
}

async fn await_each(producer: &Producer, records: u64, record: Record<'_>) -> Outcome {
    let mut waiting = FuturesUnordered::new();
    for number in 1..=records {
        waiting.push(producer.send(record).await?);
        if number % ROUND == 0 {
            yield_now().await;
            while let Some(Some(outcome)) = waiting.next().now_or_never() {
                outcome?;
            }
        }
    }
    producer.flush().await?;
    while let Some(outcome) = waiting.next().await {
        outcome?;
    }
    Ok(())
}

async fn receive_runs(producer: &Producer, records: u64, record: Record<'_>) -> Outcome {
    let (sink, mut completions) = producer.completions();
    let mut received = 0;
    for number in 1..=records {
        producer.send_tagged(record, number, &sink).await?;
        if number % ROUND == 0 {
            yield_now().await;
            while let Some(run) = completions.try_next() {
                run.outcome().map_err(Clone::clone)?;
                received += run.records().filter(|(_, offset)| offset.is_some()).count();
            }
        }
    }
    producer.flush().await?;
    drop(sink);
    while let Some(run) = completions.next().await {
        run.outcome().map_err(Clone::clone)?;
        received += run.tags().len();
    }
    assert_eq!(received as u64, records);
    Ok(())
}

async fn drop_each(producer: &Producer, records: u64, record: Record<'_>) -> Outcome {
    for number in 1..=records {
        drop(producer.send(record).await?);
        if number % ROUND == 0 {
            yield_now().await;
        }
    }
    Ok(producer.flush().await?)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (bootstrap, records, size, outcomes, is_keyless) = match args[..] {
        ["serve"] => return serve().await,
        [bootstrap, records, size, outcomes] => {
            (bootstrap, records.parse()?, size.parse()?, outcomes, false)
        }
        [bootstrap, records, size, outcomes, "keyless"] => {
            (bootstrap, records.parse()?, size.parse()?, outcomes, true)
        }
        _ => {
            return Err(
                "usage: delivery_cost serve | BOOTSTRAP RECORDS SIZE deliveries|tags|none [keyless]"
                    .into(),
            );
        }
    };
    let mut config = ProducerConfig::new(bootstrap).linger(Duration::from_secs(60));
    // A wait for the broker's window would depend on time.
    config.set("curtail.latency.target.ms", "0")?;
    let producer = Producer::new(config)?;
    producer.warm_up(&[TOPIC]).await?;
    let value = vec![b'v'; size];
    let record = Record::to(TOPIC).value(&value);
    let record = if is_keyless { record } else { record.partition(0) };
    match outcomes {
        "deliveries" => await_each(&producer, records, record).await?,
        "tags" => receive_runs(&producer, records, record).await?,
        "none" => drop_each(&producer, records, record).await?,
        other => return Err(format!("unknown outcomes: {other}").into()),
    }
    producer.close().await?;
    Ok(())
}
