//! Consumers that read a topic while another process sends a load to it.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::{Message as _, Offset};

use crate::Failure;
use crate::args::Args;
use crate::consume;
use crate::e2e::consumer_at_end;
use crate::measure::{Cpu, Report};
use crate::open_loop::await_start;
use crate::properties;
use crate::readings::{self, PATIENCE, Readings};

/// Most messages that count as one poll, the default of `max.poll.records` in the Java client. librdkafka returns one
/// message at a time.
const MOST: usize = 500;
const SEEK_LIMIT: Duration = Duration::from_secs(30);
/// Period of the timer that ends the application's work, as in tokio.
const TICK: u64 = 1_000_000;

pub fn run(args: &Args) -> Result<Report, Failure> {
    if args.read_first > 0 {
        consume::run(&Args { records: args.read_first, ..args.clone() })?;
    }
    let consumers: Vec<BaseConsumer> =
        (0..args.consumers).map(|_| consumer_at_end(args, &[])).collect::<Result<_, _>>()?;
    let start = await_start()?;
    let cpu = Cpu::now()?;
    let read = std::thread::scope(|scope| {
        let read = |consumer| scope.spawn(move || read(args, consumer, start));
        let threads: Vec<_> = consumers.iter().map(read).collect();
        let joined = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        joined.collect::<Result<Vec<_>, String>>()
    })?;
    let cpu = (cpu, Cpu::now()?);
    readings::finish(args, properties::CLIENT, properties::version(), cpu, &read)
}

/// Reads until everything has been read or nothing more arrives.
fn read(args: &Args, consumer: &BaseConsumer, start: Instant) -> Result<Readings, String> {
    for partition in &args.from_beginning {
        let sought = consumer.seek(&args.topic, *partition, Offset::Beginning, SEEK_LIMIT);
        sought.map_err(|error| format!("partition {partition}: {error}"))?;
    }
    let mut readings = Readings::new(args, start);
    while !readings.is_done() {
        let Some(first) = consumer.poll(PATIENCE) else { break };
        let buffered = std::iter::from_fn(|| consumer.poll(Duration::ZERO));
        let polled = std::iter::once(first).chain(buffered).take(MOST);
        let polled: Vec<_> = polled.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
        let at = readings.now();
        for message in &polled {
            readings.take(message.payload(), message.partition(), message.offset(), at)?;
        }
        if args.work_ms > 0 {
            std::thread::sleep(work(args, start));
        }
    }
    Ok(readings)
}

/// Length of the application's work that begins now, which ends on a full millisecond.
fn work(args: &Args, start: Instant) -> Duration {
    let now = start.elapsed().as_nanos() as u64;
    let end = (now + args.work_ms * TICK).next_multiple_of(TICK);
    Duration::from_nanos(end - now)
}
