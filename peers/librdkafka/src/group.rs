//! Reads a topic as a member of a group until it is terminated, and prints a line for everything that happens.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext, Rebalance};
use rdkafka::message::Message as _;

use crate::Failure;
use crate::args::Args;
use crate::properties::{self, Role};

static TERMINATED: AtomicBool = AtomicBool::new(false);

const POLL: Duration = Duration::from_millis(200);

pub fn run(args: &Args) -> Result<(), Failure> {
    let mut config = properties::consumer(&args.bootstrap);
    config
        .set("group.id", &args.group)
        .set("enable.auto.commit", "true")
        .set("auto.offset.reset", "earliest")
        .set("partition.assignment.strategy", &args.assignor);
    properties::apply(&mut config, &args.properties, Role::Consumer, false)?;
    await_termination()?;
    let consumer: BaseConsumer<Witness> = config.create_with_context(Witness)?;
    consumer.subscribe(&[&args.topic])?;
    while !TERMINATED.load(Ordering::SeqCst) {
        // Brokers that cannot be reached are tried again.
        let Some(Ok(message)) = consumer.poll(POLL) else { continue };
        let value = String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned();
        say(&format!("record {} {} {value}", message.partition(), message.offset()));
    }
    // Dropping it commits what was given out and leaves the group.
    drop(consumer);
    Ok(())
}

/// Threads that are started later do not see the signal either.
fn await_termination() -> Result<(), Failure> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.thread_block()?;
    std::thread::spawn(move || {
        if signals.wait().is_ok() {
            TERMINATED.store(true, Ordering::SeqCst);
        }
    });
    Ok(())
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Whoever read it is gone: there is nobody to tell.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

struct Witness;

impl ClientContext for Witness {}

impl ConsumerContext for Witness {
    fn pre_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let (what, partitions) = match rebalance {
            Rebalance::Assign(partitions) => ("assigned", partitions),
            Rebalance::Revoke(partitions) => ("revoked", partitions),
            Rebalance::Error(error) => return say(&format!("error {error}")),
        };
        let mut indexes: Vec<i32> = partitions.elements().iter().map(|p| p.partition()).collect();
        indexes.sort_unstable();
        let indexes: Vec<String> = indexes.iter().map(ToString::to_string).collect();
        say(format!("{what} {}", indexes.join(" ")).trim_end());
    }
}
