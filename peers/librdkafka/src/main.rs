//! The load of `curtail perf`, with librdkafka through the crate `rdkafka`.

mod args;
mod consume;
mod drive;
mod e2e;
mod follow;
mod group;
mod load;
mod measure;
mod membership;
mod open_loop;
mod produce;
mod properties;
mod read_back;
mod readings;

use std::process::ExitCode;

use args::{Args, Tool};

/// A failure in words, for the user.
type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let result = Args::parse(std::env::args().skip(1)).and_then(|args| {
        let report = match args.tool {
            Tool::Produce => produce::run(&args)?,
            Tool::Consume => consume::run(&args)?,
            Tool::EndToEnd => e2e::run(&args)?,
            Tool::Load => load::run(&args)?,
            Tool::Follow => follow::run(&args)?,
            Tool::GroupConsume => return group::run(&args),
            Tool::Drive => return drive::run(&args),
        };
        report.publish(args.json.as_deref())
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}
