//! Drives the crate `krafka` through the museum's cases: commands on standard input, replies on standard output.

#[path = "../../librdkafka/src/args.rs"]
mod args;
mod consumer;
mod producer;
mod settings;

use std::fmt::Display;
use std::io::{BufRead as _, Write as _};
use std::process::ExitCode;

use args::{Args, Tool};

/// A failure in words for the person who ran the command.
type Failure = Box<dyn std::error::Error>;

/// The crate does not report its version.
const VERSION: &str = "0.28.1";

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
    if args.tool != Tool::Drive {
        return Err("this driver has only the tool drive".into());
    }
    say(&format!("version krafka {VERSION}"));
    let runtime = tokio::runtime::Runtime::new()?;
    match args.role.as_str() {
        "producer" => runtime.block_on(producer::run(&args)),
        _ => runtime.block_on(consumer::run(&args)),
    }
}

/// Prints a line at once.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // This fails only if the reader has closed the pipe.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Reading blocks this thread only: the client's tasks run on the others.
fn commands() -> impl Iterator<Item = String> {
    std::io::stdin().lock().lines().map_while(Result::ok)
}

fn line(error: &impl Display) -> String {
    error.to_string().replace('\n', " ")
}

fn reply(outcome: krafka::Result<()>) {
    match outcome {
        Ok(()) => say("done"),
        Err(error) => say(&format!("error {}", line(&error))),
    }
}
