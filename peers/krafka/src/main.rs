//! The load of `curtail perf`, and the museum's cases, with the crate `krafka`: one delivery awaited for each record.

#[path = "../../librdkafka/src/args.rs"]
mod args;
#[path = "../../curtail/src/await_each.rs"]
mod await_each;
mod consume;
mod consumer;
mod e2e;
mod follow;
mod load;
#[path = "../../librdkafka/src/measure.rs"]
mod measure;
#[path = "../../librdkafka/src/open_loop.rs"]
mod open_loop;
mod produce;
mod producer;
#[path = "../../curtail/src/read_back.rs"]
mod read_back;
#[path = "../../librdkafka/src/readings.rs"]
mod readings;
mod settings;

use std::fmt::Display;
use std::io::{BufRead as _, Write as _};
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
    settings::check(&args)?;
    // As with `#[tokio::main]`: the main thread is not a worker of the runtime.
    let runtime = Runtime::new()?;
    let report: Report = match args.tool {
        Tool::Produce => runtime.block_on(produce::run(&args))?,
        Tool::Load => load::run(&args, &runtime)?,
        Tool::Follow => runtime.block_on(follow::run(&args))?,
        Tool::Consume => runtime.block_on(consume::run(&args))?,
        Tool::EndToEnd => runtime.block_on(e2e::run(&args))?,
        Tool::Drive => return runtime.block_on(drive(&args)),
        Tool::GroupConsume => return Err("this driver has no tool group-consume".into()),
    };
    report.publish(args.json.as_deref())
}

/// The museum's cases: commands on standard input, replies on standard output.
async fn drive(args: &Args) -> Result<(), Failure> {
    say(&format!("version krafka {}", settings::VERSION));
    match args.role.as_str() {
        "producer" => producer::run(args).await,
        _ => consumer::run(args).await,
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
