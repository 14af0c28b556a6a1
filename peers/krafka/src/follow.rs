//! Consumers that read a topic while another process sends a load to it.

use std::time::{Duration, Instant};

use krafka::consumer::Consumer;
use tokio::time::sleep;

use crate::Failure;
use crate::args::Args;
use crate::consume;
use crate::measure::{Cpu, Report};
use crate::open_loop::await_start;
use crate::readings::{self, PATIENCE, Readings};
use crate::settings;

pub async fn run(args: &Args) -> Result<Report, Failure> {
    if args.read_first > 0 {
        consume::run(&Args { records: args.read_first, ..args.clone() }).await?;
    }
    let mut consumers = Vec::new();
    for _ in 0..args.consumers {
        // As in separate applications: no shared connections.
        let kafka = settings::connect(args).await?;
        consumers.push(settings::consumer_at_end(args, &kafka).await?);
    }
    let start = await_start()?;
    let cpu = Cpu::now()?;
    let tasks: Vec<_> = consumers
        .into_iter()
        .map(|consumer| tokio::spawn(read(args.clone(), consumer, start)))
        .collect();
    let mut read = Vec::new();
    for task in tasks {
        read.push(task.await??);
    }
    let cpu = (cpu, Cpu::now()?);
    readings::finish(args, settings::CLIENT, settings::VERSION.into(), cpu, &read)
}

/// Reads until everything has been read or nothing more arrives.
async fn read(args: Args, consumer: Consumer, start: Instant) -> Result<Readings, String> {
    for partition in &args.from_beginning {
        let sought = consumer.seek_to_beginning(&args.topic, *partition).await;
        sought.map_err(|error| format!("partition {partition}: {error}"))?;
    }
    let mut readings = Readings::new(&args, start);
    while !readings.is_done() {
        let polled = consumer.poll(PATIENCE).await.map_err(|error| error.to_string())?;
        if polled.is_empty() {
            break;
        }
        let at = readings.now();
        for record in &polled {
            readings.take(record.value.as_deref(), record.partition, record.offset, at)?;
        }
        if args.work_ms > 0 {
            sleep(Duration::from_millis(args.work_ms)).await;
        }
    }
    consumer.close().await.map_err(|error| error.to_string())?;
    Ok(readings)
}
