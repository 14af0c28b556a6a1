//! Memory per partition, counted by the allocator: `metadata_memory [TOPICS [PARTITIONS]]`.
//!
//! It first reports the memory of topics that are only known, then the additional memory of idle partitions
//! to which the producer has sent a record.

use std::alloc::System;

use curtail::{Consumer, ConsumerConfig, Producer, ProducerConfig, Record};
use curtail_lab::scripted::ScriptedCluster;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes that are allocated now.
fn live() -> isize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated as isize - stats.bytes_deallocated as isize
}

#[allow(clippy::print_stdout)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let topics: usize = args.next().map_or(Ok(5_000), |n| n.parse())?;
    let partitions: usize = args.next().map_or(Ok(50), |n| n.parse())?;
    let all = (topics * partitions) as f64;
    let cluster = ScriptedCluster::start(partitions)?;
    let names: Vec<String> = (0..topics).map(|n| format!("topic-{n:05}")).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let consumer = Consumer::new(ConsumerConfig::new(cluster.bootstrap()))?;
        let before = live();
        for name in &names {
            consumer.partitions_for(name).await?;
        }
        let snapshot = live() - before;
        consumer.close().await;

        // Buffers kept for reuse belong to buffer.memory, not to a partition.
        let config = ProducerConfig::new(cluster.bootstrap()).buffer_memory(1 << 20);
        let producer = Producer::new(config)?;
        let before = live();
        let warm: Vec<&str> = names.iter().map(String::as_str).collect();
        producer.warm_up(&warm).await?;
        let known = live() - before;
        for name in &names {
            for index in 0..partitions {
                drop(producer.send(Record::to(name).partition(index as i32).value("v")).await?);
            }
        }
        producer.flush().await?;
        let sent = live() - before;
        println!("{topics} topics of {partitions} partitions");
        println!("snapshot: {:.1} bytes per partition", snapshot as f64 / all);
        println!(
            "producer, not sent to: {:.1} bytes per partition",
            (known - snapshot) as f64 / all
        );
        println!("producer, sent to: {:.1} bytes per partition", (sent - snapshot) as f64 / all);
        producer.close().await
    })?;
    Ok(())
}
