//! Runs seeds of the simulation by hand. The long run, 10,000 seeds over the mixture and all scenarios:
//!
//! ```text
//! cargo run --release -p curtail-sim -- --scenario all --count 10000 --jobs 2 --quiet
//! ```
//!
//! Its last line states simulated hours per hour.
#![expect(clippy::print_stdout, reason = "a command line tool")]

use std::{
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Instant,
};

#[cfg(feature = "plants")]
use curtail_sim::ClientPlant;
use curtail_sim::{Plan, Plant, Scenario, plan::MemberBug, run, trace::Keep};

const USAGE: &str = "usage: curtail-sim --seed N [--count N] [--scenario NAME|all] [--jobs N] [--quiet] [--trace] [--plan] \
     [--plant NAME] [--bug NAME]";

const PLANTS: [(&str, Plant); 28] = [
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
    ("recover-without-checksum", Plant::RecoverWithoutChecksum),
    ("begin-with-gap", Plant::BeginWithGap),
    ("journal-unsynced", Plant::JournalUnsynced),
    ("reuse-producer-ids", Plant::ReuseProducerIds),
    ("serve-on-failed-disk", Plant::ServeOnFailedDisk),
    ("replicate-corrupt-batches", Plant::ReplicateCorruptBatches),
    ("elect-uncleanly", Plant::ElectUncleanly),
    ("serve-uncommitted", Plant::ServeUncommitted),
    ("retain-too-little", Plant::RetainTooLittle),
    ("ack-refused", Plant::AckRefused),
    ("fence-unsettled", Plant::FenceUnsettled),
    ("timers-by-wall-clock", Plant::TimersByWallClock),
    ("count-standstill", Plant::CountStandstill),
    ("skip-flush", Plant::SkipFlush),
    ("compact-unstable", Plant::CompactUnstable),
    ("tombstones-at-once", Plant::TombstonesAtOnce),
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
    ClientPlant::OF_SIMULATION.into_iter().find(|plant| format!("{plant:?}") == name)
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
    scenarios: Scenarios,
    jobs: u64,
    quiet: bool,
}

/// Source of the plans.
#[derive(Clone, Copy)]
enum Scenarios {
    Mixture,
    One(Scenario),
    /// The mixture and every scenario in turn.
    All,
}

impl Scenarios {
    fn plan(self, seed: u64) -> Plan {
        let turns = Scenario::ALL.len() as u64 + 1;
        match self {
            Self::Mixture => Plan::from_seed(seed),
            Self::One(scenario) => Plan::of(scenario, seed),
            Self::All => match Scenario::ALL.get((seed % turns) as usize) {
                Some(scenario) => Plan::of(*scenario, seed / turns),
                None => Plan::from_seed(seed / turns),
            },
        }
    }
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
        scenarios: Scenarios::Mixture,
        jobs: 1,
        quiet: false,
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
            "--jobs" => options.jobs = number(value()?)?.max(1),
            "--quiet" => options.quiet = true,
            "--scenario" => {
                options.scenarios = match value()?.as_str() {
                    "all" => Scenarios::All,
                    name => Scenarios::One(name.parse()?),
                }
            }
            _ => return Err(format!("unknown argument '{arg}'\n{USAGE}")),
        }
    }
    Ok(options)
}

/// Totals over all seeds.
#[derive(Default)]
struct Totals {
    failed: AtomicU64,
    simulated_ms: AtomicU64,
}

impl Options {
    fn plan(&self, seed: u64) -> Plan {
        let mut plan = self.scenarios.plan(seed);
        plan.plant = self.plant;
        #[cfg(feature = "plants")]
        {
            plan.client_plant = self.client_plant;
        }
        match self.bug {
            Some(bug) => plan.with_bug(bug),
            None => plan,
        }
    }

    fn play(&self, seed: u64, totals: &Totals) {
        let plan = self.plan(seed);
        if self.show_plan {
            println!("{plan:#?}");
        }
        let report = run(&plan, self.keep);
        if self.keep == Keep::All {
            report.trace.iter().for_each(|line| println!("{line}"));
        }
        let is_broken = !report.violations.is_empty();
        if is_broken || !self.quiet {
            println!(
                "seed {}: {:?}, hash {:016x}, {:?}, {} violations",
                plan.seed,
                report.elapsed,
                report.hash,
                report.counts,
                report.violations.len()
            );
        }
        totals.simulated_ms.fetch_add(report.elapsed.as_millis() as u64, Ordering::Relaxed);
        if is_broken {
            totals.failed.fetch_add(1, Ordering::Relaxed);
            println!("{}", report.describe());
        }
    }
}

fn main() -> ExitCode {
    let options = match parse() {
        Ok(options) => options,
        Err(error) => {
            println!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let (totals, next) = (Totals::default(), AtomicU64::new(options.seed));
    let end = options.seed + options.count;
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..options.jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    options.play(seed, &totals);
                }
            });
        }
    });
    let failed = totals.failed.into_inner();
    let simulated = totals.simulated_ms.into_inner() as f64 / 3_600_000.0;
    let took = began.elapsed().as_secs_f64() / 3600.0;
    println!(
        "{} seeds, {failed} with violations; {simulated:.2} simulated hours in {took:.3} hours, {:.0} per hour",
        options.count,
        simulated / took
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
