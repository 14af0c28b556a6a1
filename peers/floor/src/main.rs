//! The load of `curtail perf produce` without a client: one thread, one blocking socket, one Produce request
//! at a time. A client's batching, retries, further brokers and reading task add their cost to this.

#[path = "../../librdkafka/src/args.rs"]
mod args;
#[path = "../../librdkafka/src/measure.rs"]
mod measure;
mod produce;

use std::process::ExitCode;

use args::{Args, Tool};

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
    if args.tool != Tool::Produce {
        return Err("the floor knows only the tool produce".into());
    }
    produce::run(&args)?.publish(args.json.as_deref())
}
