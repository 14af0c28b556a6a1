//! The load of `curtail perf produce` with no client at all: one thread, one blocking socket, one Produce request at a
//! time. The rest of a client (batching, retries, other brokers, a task that reads) costs what it costs beyond this.

#[path = "../../librdkafka/src/args.rs"]
mod args;
#[path = "../../librdkafka/src/measure.rs"]
mod measure;
mod produce;

use std::process::ExitCode;

use args::{Args, Tool};

/// A failure in words for the person who ran the command.
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
    if args.tool != Tool::Produce {
        return Err("the floor knows only the tool produce".into());
    }
    produce::run(&args)?.publish(args.json.as_deref())
}
