//! The load of `curtail perf`, with Curtail in an ordinary program: default settings, tokio's multi-thread runtime, and
//! one delivery awaited for each record. With `--completions` it receives the outcomes of `produce` by batch instead.

#[path = "../../librdkafka/src/args.rs"]
mod args;
mod await_each;
mod consume;
mod e2e;
mod load;
#[path = "../../librdkafka/src/measure.rs"]
mod measure;
#[path = "../../librdkafka/src/open_loop.rs"]
mod open_loop;
mod produce;
mod read_back;
mod settings;

use std::process::ExitCode;

use args::{Args, Tool};
use measure::Report;
use settings::Outcomes;
use tokio::runtime::Runtime;

/// A failure in words, for the user.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {}", curtail::error::Report::new(&*failure));
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let outcomes = Outcomes::take_from(&mut args);
    let args = Args::parse(args.into_iter())?;
    if outcomes == Outcomes::Completions && args.tool != Tool::Produce {
        return Err("--completions is for produce".into());
    }
    // As with `#[tokio::main]`: the main thread is not a worker of the runtime.
    let runtime = Runtime::new()?;
    let report: Report = match args.tool {
        Tool::Produce => runtime.block_on(produce::run(&args, outcomes))?,
        Tool::Load => load::run(&args, &runtime)?,
        Tool::Consume => runtime.block_on(consume::run(&args))?,
        Tool::EndToEnd => runtime.block_on(e2e::run(&args))?,
        Tool::Follow => return Err("the laboratory reads with Curtail itself".into()),
        Tool::GroupConsume => return Err("use `curtail consume --group`".into()),
        Tool::Drive => return Err("the museum drives Curtail itself".into()),
    };
    report.publish(args.json.as_deref())
}
