//! Runs seeds of the simulation by hand.
#![expect(clippy::print_stdout, reason = "a command line tool")]

use std::process::ExitCode;

#[cfg(feature = "plants")]
use curtail_sim::ClientPlant;
use curtail_sim::{Plan, Plant, Scenario, plan::MemberBug, run, trace::Keep};

const USAGE: &str = "usage: curtail-sim --seed N [--count N] [--scenario NAME] [--trace] [--plan] [--plant NAME] \
     [--bug NAME]";

const PLANTS: [(&str, Plant); 12] = [
    ("ack-before-replication", Plant::AckBeforeReplication),
    ("no-sequence-check", Plant::NoSequenceCheck),
    ("no-truncation", Plant::NoTruncation),
    ("ack-on-move", Plant::AckOnMove),
    ("commit-by-majority", Plant::CommitByMajority),
    ("forget-producers-when-elected", Plant::ForgetProducersWhenElected),
    ("mix-up-answers", Plant::MixUpAnswers),
    ("hide-aborted", Plant::HideAborted),
    ("take-any-commit", Plant::TakeAnyCommit),
    ("forget-commits", Plant::ForgetCommits),
    ("rebalance-without-waiting", Plant::RebalanceWithoutWaiting),
    ("commit-in-memory", Plant::CommitInMemory),
];

const BUGS: [(&str, MemberBug); 3] = [
    ("commit-ahead", MemberBug::CommitAhead),
    ("read-on", MemberBug::ReadOn),
    ("skip", MemberBug::Skip),
];

#[cfg(feature = "plants")]
const CLIENT_PLANTS: &str = "client: the variants of curtail_proto::plant::Plant";
#[cfg(not(feature = "plants"))]
const CLIENT_PLANTS: &str = "client: only with cargo's --features plants";

/// A plant in the client, by the name of its variant.
#[cfg(feature = "plants")]
fn client_plant(name: &str) -> Option<ClientPlant> {
    ClientPlant::ALL.into_iter().find(|plant| format!("{plant:?}") == name)
}

struct Options {
    seed: u64,
    count: u64,
    keep: Keep,
    show_plan: bool,
    plant: Option<Plant>,
    #[cfg(feature = "plants")]
    client_plant: Option<ClientPlant>,
    bug: Option<MemberBug>,
    scenario: Option<Scenario>,
}

fn parse() -> Result<Options, String> {
    let mut options = Options {
        seed: 0,
        count: 1,
        keep: Keep::Tail,
        show_plan: false,
        plant: None,
        #[cfg(feature = "plants")]
        client_plant: None,
        bug: None,
        scenario: None,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value\n{USAGE}"));
        let number = |text: String| text.parse().map_err(|_| format!("'{text}' is not a number"));
        match arg.as_str() {
            "--seed" => options.seed = number(value()?)?,
            "--count" => options.count = number(value()?)?,
            "--trace" => options.keep = Keep::All,
            "--plan" => options.show_plan = true,
            "--plant" => {
                let name = value()?;
                #[cfg(feature = "plants")]
                if let Some(plant) = client_plant(&name) {
                    options.client_plant = Some(plant);
                    continue;
                }
                let plant = PLANTS.iter().find(|(known, _)| *known == name);
                let names = PLANTS.map(|(name, _)| name).join(", ");
                options.plant = Some(
                    plant
                        .ok_or(format!(
                            "unknown plant '{name}'; {CLIENT_PLANTS}; brokers: {names}"
                        ))?
                        .1,
                );
            }
            "--bug" => {
                let name = value()?;
                let bug = BUGS.iter().find(|(known, _)| *known == name);
                let names = BUGS.map(|(name, _)| name).join(", ");
                options.bug =
                    Some(bug.ok_or(format!("there is no bug '{name}'; there are {names}"))?.1);
            }
            "--scenario" => options.scenario = Some(value()?.parse()?),
            _ => return Err(format!("unknown argument '{arg}'\n{USAGE}")),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match parse() {
        Ok(options) => options,
        Err(error) => {
            println!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let mut failed = 0;
    for seed in options.seed..options.seed + options.count {
        let mut plan = match options.scenario {
            Some(scenario) => Plan::of(scenario, seed),
            None => Plan::from_seed(seed),
        };
        plan.plant = options.plant;
        #[cfg(feature = "plants")]
        {
            plan.client_plant = options.client_plant;
        }
        if let Some(bug) = options.bug {
            plan = plan.with_bug(bug);
        }
        if options.show_plan {
            println!("{plan:#?}");
        }
        let report = run(&plan, options.keep);
        if options.keep == Keep::All {
            report.trace.iter().for_each(|line| println!("{line}"));
        }
        println!(
            "seed {seed}: {:?}, hash {:016x}, {:?}, {} violations",
            report.elapsed,
            report.hash,
            report.counts,
            report.violations.len()
        );
        if !report.violations.is_empty() {
            failed += 1;
            println!("{}", report.describe());
        }
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
