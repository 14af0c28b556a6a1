//! The load of `curtail perf`, with Confluent's port of the Java client to Rust, the crate `confluent-kafka`.

#[path = "../../librdkafka/src/args.rs"]
mod args;
mod consume;
mod drive;
mod e2e;
mod follow;
mod group;
mod load;
#[path = "../../librdkafka/src/measure.rs"]
mod measure;
#[path = "../../librdkafka/src/membership.rs"]
mod membership;
#[path = "../../librdkafka/src/open_loop.rs"]
mod open_loop;
mod produce;
#[path = "../../curtail/src/read_back.rs"]
mod read_back;
#[path = "../../librdkafka/src/readings.rs"]
mod readings;
mod settings;

use std::process::ExitCode;

use args::{Args, Tool};
use measure::Report;
use tokio::runtime::Runtime;

/// A failure in words, for the user.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let args = Args::parse(std::env::args().skip(1))?;
    if args.tool == Tool::GroupConsume {
        // Must run before any thread is started, so that all threads block the signal.
        membership::await_termination()?;
        return Runtime::new()?.block_on(group::run(&args));
    }
    // As with `#[tokio::main]`: the main thread is not a worker of the runtime.
    let runtime = Runtime::new()?;
    let report: Report = match args.tool {
        Tool::Produce => produce::run(&args, &runtime)?,
        Tool::Load => load::run(&args, &runtime)?,
        Tool::Follow => runtime.block_on(follow::run(&args))?,
        Tool::Consume => runtime.block_on(consume::run(&args))?,
        Tool::Drive => return runtime.block_on(drive::run(&args)),
        Tool::EndToEnd | Tool::GroupConsume => runtime.block_on(e2e::run(&args))?,
    };
    report.publish(args.json.as_deref())
}
