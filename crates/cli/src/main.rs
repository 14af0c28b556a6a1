//! The command `curtail`: arguments and printing only.

mod cluster;
mod console;
mod failure;
mod lab;
mod output;
mod perf;
mod settings;
mod topics;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::failure::Failure;

/// Apache Kafka client, embedded cluster and measurements.
#[derive(Debug, Parser)]
#[command(name = "curtail", version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs an embedded cluster until Ctrl-C.
    Cluster(cluster::Arguments),
    /// Measures throughput and latency.
    #[command(subcommand)]
    Perf(perf::Command),
    /// Runs the experiments of the laboratory.
    #[command(subcommand)]
    Lab(lab::Command),
    /// Sends lines of standard input as records.
    Produce(console::produce::Arguments),
    /// Prints the records of a topic.
    Consume(console::consume::Arguments),
    /// Creates, lists, describes and deletes topics.
    #[command(subcommand)]
    Topics(topics::Command),
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Cluster(arguments) => cluster::run(&arguments),
        Command::Perf(command) => perf::run(command),
        Command::Lab(command) => lab::run(&command),
        Command::Produce(arguments) => console::produce::run(&arguments),
        Command::Consume(arguments) => console::consume::run(&arguments),
        Command::Topics(command) => topics::run(command),
    }
}

fn main() -> ExitCode {
    let done = match Arguments::try_parse() {
        Ok(arguments) => run(arguments.command),
        Err(error) => failure::usage(&error),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads the output has seen enough, as with `head`.
        Err(Failure::OutputClosed) => ExitCode::SUCCESS,
        Err(Failure::NotHeld) => ExitCode::from(2),
        Err(Failure::Message(text)) => {
            output::complain(&text);
            ExitCode::FAILURE
        }
    }
}
