//! `curtail perf`: the flags and the lines of Kafka's three tools.

mod arguments;
mod bar;
mod consume;
mod date;
mod e2e;
mod lines;
mod produce;

use clap::Subcommand;
use curtail::Error;
use curtail_lab::perf::{self, Target};

use crate::{failure::Failure, names, output};

/// Subcommands of `curtail perf`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Sends records at a rate or as fast as possible (kafka-producer-perf-test).
    Produce(Box<produce::Arguments>),
    /// Reads records as fast as possible (kafka-consumer-perf-test).
    Consume(Box<consume::Arguments>),
    /// Sends one record at a time and reads it back (EndToEndLatency).
    E2e(Box<e2e::Arguments>),
}

/// Runs `curtail perf`.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Produce(arguments) => produce::run(&arguments),
        Command::Consume(arguments) => consume::run(&arguments),
        Command::E2e(arguments) => e2e::run(&arguments),
    }
}

/// Names the topic that keeps the records of a run, on a cluster that outlives it.
fn note_kept(target: &Target, topic: &str) {
    if matches!(target, Target::Bootstrap(_)) {
        output::note(format_args!("topic {topic} keeps the records of this run"));
    }
}

/// The failure of a tool that writes to its topic.
fn missing_topic(error: perf::Error) -> Failure {
    match error {
        perf::Error::Client(Error::UnknownTopic(topic)) => names::not_created(&topic),
        error => error.into(),
    }
}
