//! The command `curtail`: arguments and printing only.

mod admin;
mod cluster;
mod console;
mod control;
#[cfg(feature = "perf")]
mod doctor;
mod dump_log;
mod ending;
mod failure;
mod fault;
#[cfg(feature = "perf")]
mod json_file;
#[cfg(feature = "lab")]
mod lab;
mod names;
mod output;
#[cfg(feature = "perf")]
mod perf;
mod profile;
mod proxy;
mod settings;
mod shell;
mod signals;
mod usage;

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
    Cluster(Box<cluster::Arguments>),
    /// Runs a proxy in front of a Kafka cluster until Ctrl-C, with faults of the clients' connections.
    Proxy(Box<proxy::Arguments>),
    /// Lists, adds and lifts faults of a running embedded cluster or proxy, and runs scripts of them.
    #[command(subcommand)]
    Fault(fault::Command),
    /// Measures throughput and latency.
    #[cfg(feature = "perf")]
    #[command(subcommand)]
    Perf(perf::Command),
    /// Runs latency experiments and compares clients.
    #[cfg(feature = "lab")]
    #[command(subcommand)]
    Lab(lab::Command),
    /// Measures whether a cluster meets a latency target at a throughput, which phase takes the time, and which settings
    /// help. Exit code 0 if the target holds, 2 if not, 1 on error.
    #[cfg(feature = "perf")]
    Doctor(Box<doctor::Arguments>),
    /// Sends lines of standard input as records.
    #[command(short_flag = 'P')]
    Produce(console::produce::Arguments),
    /// Prints the records of topics.
    #[command(short_flag = 'C')]
    Consume(console::consume::Arguments),
    /// Creates, lists, describes, alters and deletes topics, and deletes records.
    #[command(subcommand)]
    Topics(admin::topics::Command),
    /// Lists, describes and deletes groups, and changes their offsets.
    #[command(subcommand)]
    Groups(admin::groups::Command),
    /// Describes and alters settings of topics, brokers and groups.
    #[command(subcommand)]
    Configs(admin::configs::Command),
    /// Lists, adds and removes ACLs.
    #[command(subcommand)]
    Acls(admin::acls::Command),
    /// Moves replicas to other brokers.
    #[command(subcommand)]
    Reassign(admin::reassign::Command),
    /// Elects preferred leaders, or out-of-sync ones (unclean).
    Elect(admin::elect::Arguments),
    /// Prints brokers, topics and partitions.
    #[command(short_flag = 'L')]
    Metadata(admin::metadata::Arguments),
    /// Prints offsets of partitions: first, last, or by time.
    #[command(short_flag = 'Q')]
    GetOffsets(Box<admin::offsets::Arguments>),
    /// Lists and describes transactions and producers, and finds and aborts hanging transactions.
    #[command(subcommand)]
    Transactions(admin::transactions::Command),
    /// Prints the log directories of brokers.
    #[command(subcommand)]
    LogDirs(admin::log_dirs::Command),
    /// Prints the metadata quorum: its state, and the lag of its replicas.
    #[command(subcommand)]
    Quorum(admin::quorum::Command),
    /// Prints and changes the levels of features.
    #[command(subcommand)]
    Features(admin::features::Command),
    /// Lists the brokers, prints the cluster's id, and unregisters brokers.
    #[command(subcommand)]
    Brokers(admin::brokers::Command),
    /// Prints the contents of a broker's log files, and reports damage.
    DumpLog(dump_log::Arguments),
    /// Prints a script that completes commands and flags in a shell.
    Completions(shell::Completions),
    /// Writes pages for man.
    Man(shell::Man),
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Cluster(arguments) => cluster::run(&arguments),
        Command::Proxy(arguments) => proxy::run(&arguments),
        Command::Fault(command) => fault::run(command),
        #[cfg(feature = "perf")]
        Command::Perf(command) => perf::run(command),
        #[cfg(feature = "lab")]
        Command::Lab(command) => lab::run(&command),
        #[cfg(feature = "perf")]
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Produce(arguments) => console::produce::run(&arguments),
        Command::Consume(arguments) => console::consume::run(&arguments),
        Command::Topics(command) => admin::topics::run(command),
        Command::Groups(command) => admin::groups::run(command),
        Command::Configs(command) => admin::configs::run(command),
        Command::Acls(command) => admin::acls::run(command),
        Command::Reassign(command) => admin::reassign::run(command),
        Command::Elect(arguments) => admin::elect::run(&arguments),
        Command::Metadata(arguments) => admin::metadata::run(arguments),
        Command::GetOffsets(arguments) => admin::offsets::run(&arguments),
        Command::Transactions(command) => admin::transactions::run(command),
        Command::LogDirs(command) => admin::log_dirs::run(command),
        Command::Quorum(command) => admin::quorum::run(command),
        Command::Features(command) => admin::features::run(command),
        Command::Brokers(command) => admin::brokers::run(command),
        Command::DumpLog(arguments) => dump_log::run(&arguments),
        Command::Completions(arguments) => shell::completions(&arguments),
        Command::Man(arguments) => shell::man(&arguments),
    }
}

fn main() -> ExitCode {
    let done = match Arguments::try_parse() {
        Ok(arguments) => run(arguments.command),
        Err(error) => {
            let given =
                std::env::args_os().skip(1).map(|given| given.to_string_lossy().into_owned());
            usage::explain(&error, &given.collect::<Vec<_>>())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has closed the output, as `head` does.
        Err(Failure::OutputClosed) => ExitCode::SUCCESS,
        #[cfg(feature = "perf")]
        Err(Failure::NotHeld) => ExitCode::from(2),
        Err(Failure::Message(text)) => {
            output::complain(&text);
            ExitCode::FAILURE
        }
    }
}
