//! `curtail lab`: the experiments of the laboratory.

mod bench;
mod compare;
mod files;
mod kills;
mod publish;
mod table;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use curtail::{AdminConfig, security::SecurityConfig};
use curtail_lab::{
    experiments::{self, ClusterKind, Event, Experiment, Setting, Variant},
    peers::Client,
};

use crate::{
    failure::Failure,
    output, profile,
    settings::{ClientArguments, Property, properties, property},
};

/// Subcommands of `curtail lab`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Lists the experiments.
    List,
    /// Runs experiments. Exit code 0 if all conditions hold, 2 if not, 1 on error.
    Run(Box<RunArguments>),
    /// Runs a Trogdor or OpenMessaging Benchmark file.
    Bench(bench::Arguments),
    /// Kills brokers and clients repeatedly (kill -9) and checks that no acknowledged record was lost. Exit code 0 if no
    /// record was lost, duplicated, reordered or refused, 2 if one was, 1 on error.
    Kills(kills::Arguments),
    /// Copies exactly once until it is killed, for `lab kills`.
    #[command(hide = true)]
    KillsWorker(kills::WorkerArguments),
    /// Compares two runs: ratios of the second to the first, and which of them may be noise.
    Compare(compare::Arguments),
    /// Writes an HTML page from figures of earlier runs.
    Report(ReportArguments),
    /// Stores runs and regenerates the results pages, their charts, and the README's chart and table. Exit code 0 on
    /// success or, with --check, if all files are up to date; 1 otherwise.
    Publish(publish::Arguments),
}

/// Arguments of `curtail lab run`.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// Names of experiments, as in `curtail lab list`.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Cluster: embedded, sim (virtual time, at the published size), apache (started for the run; needs Java and Maven), or
    /// host:port of an existing one.
    #[arg(long, value_name = "CLUSTER", default_value = "embedded", value_parser = cluster)]
    cluster: ClusterKind,
    /// A security property of Curtail's clients at an existing cluster: security.*, ssl.* or sasl.*. May be given several
    /// times.
    #[arg(short = 'X', long = "property", alias = "command-property", value_name = "NAME=VALUE", value_parser = property)]
    properties: Vec<Property>,
    /// A file of client properties with the security settings for an existing cluster. Other settings are not used.
    #[arg(short = 'F', long, value_name = "FILE")]
    command_config: Option<PathBuf>,
    /// A profile with the security settings for an existing cluster: the client properties of NAME.properties in
    /// ~/.config/curtail, or in curtail of XDG_CONFIG_HOME.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Clients to run, separated by commas: curtail, curtail-completions (outcomes by batch), java, java-3.9, java-3.6,
    /// java-3.2, java-2.8, librdkafka, franz-go, confluent-rust, krafka. Drivers of clients other than Curtail are built
    /// from the project's checkout.
    #[arg(long, value_name = "LIST", default_value = "curtail", value_delimiter = ',')]
    client: Vec<Client>,
    /// A property of the brokers that the run starts, for example replica.fetch.backoff.ms=100. May be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = property)]
    cluster_property: Vec<Property>,
    /// Directory `peers` of the project's checkout [default: the one in the current directory or above it].
    #[arg(long, value_name = "DIR")]
    peers: Option<PathBuf>,
    /// Run only these arms, separated by commas.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    arm: Vec<String>,
    /// Run each arm also with these client properties, in turn with the unchanged one: what a setting does there. The name has
    /// letters, digits and hyphens. May be given several times.
    #[arg(long, value_name = "NAME:PROPERTY=VALUE,...", value_parser = variant)]
    variant: Vec<Variant>,
    /// How many times to run each arm, interleaved, on one cluster [default: depends on the experiment].
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// Length of the runs, as a fraction of the full length: above 0 and at most 1.
    #[arg(long, value_name = "F", default_value_t = 1.0)]
    scale: f64,
    /// Seed for random choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Run a consumer alongside every load, which adds the phases catch_up and fetch. The measured CPU time and broker load
    /// include it. Experiments that already have consumers do not need it.
    #[arg(long)]
    reader: bool,
    /// Print a timeline of the slowest records: their requests, those in flight before them and while they waited, the
    /// broker's own times (Apache Kafka's request log), leader changes, and the followers' fetches. It costs CPU time in
    /// client and brokers, so such a run explains latencies, and its figures are not comparable with others.
    #[arg(long)]
    why: bool,
    /// Write the figures to this file, as one line of JSON per experiment.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a self-contained HTML page with plots to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the result of each arm in the format of OpenMessaging Benchmark. With several arms, each has a separate file:
    /// FILE with experiment, arm and client before its extension.
    #[arg(long, value_name = "FILE")]
    omb: Option<PathBuf>,
    /// Write the latencies over time as an HdrHistogram interval log (V2), in nanoseconds, with one tag per arm.
    #[arg(long, value_name = "FILE")]
    hdr: Option<PathBuf>,
}

/// Arguments of `curtail lab report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArguments {
    /// Files written by `curtail lab run --json`.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// HTML file to write.
    #[arg(long, value_name = "FILE")]
    html: PathBuf,
}

impl RunArguments {
    /// Security settings for an existing cluster, if the arguments name some.
    fn security(&self) -> Result<Option<SecurityConfig>, Failure> {
        let Self { properties, command_config, profile, .. } = self;
        if properties.is_empty() && command_config.is_none() && profile.is_none() {
            return Ok(None);
        }
        let is_security = |name: &str| {
            let families = ["security.", "ssl.", "sasl.", "config.providers"];
            families.iter().any(|family| name.starts_with(family))
        };
        if let Some(Property { name, .. }) = properties.iter().find(|p| !is_security(&p.name)) {
            return Err(Failure::new(format!(
                "--property {name}: it is no security setting; --variant NAME:{name}=VALUE shows what a setting does"
            )));
        }
        let client = ClientArguments {
            bootstrap_server: None,
            properties: properties.clone(),
            command_config: command_config.clone(),
            profile: None,
        };
        let profile = profile::given(profile.as_deref())?;
        let config: AdminConfig = client.config_with(profile.as_deref(), &[], &[])?;
        Ok(Some(config.get_security().clone()))
    }
}

pub(super) fn cluster(text: &str) -> Result<ClusterKind, String> {
    match text {
        "embedded" => Ok(ClusterKind::Embedded),
        "sim" => Ok(ClusterKind::Sim),
        "apache" => Ok(ClusterKind::Apache),
        servers if servers.contains(':') => Ok(ClusterKind::Bootstrap(servers.to_owned())),
        _ => Err("expected embedded, sim, apache or host:port".into()),
    }
}

fn variant(text: &str) -> Result<Variant, String> {
    let expected = "expected a name and properties, as in no-linger:linger.ms=0,batch.size=1000";
    let (name, list) = text.split_once(':').ok_or(expected)?;
    let pairs = list.split(',').map(|pair| property(pair).map(|p| (p.name, p.value)));
    let properties = pairs.collect::<Result<_, _>>().map_err(|_| expected)?;
    Ok(Variant { name: name.to_owned(), properties })
}

/// Runs `curtail lab`.
pub(crate) fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::List => list(),
        Command::Run(arguments) => run_all(arguments),
        Command::Bench(arguments) => bench::run(arguments),
        Command::Kills(arguments) => kills::run(arguments),
        Command::KillsWorker(arguments) => kills::work(arguments),
        Command::Compare(arguments) => compare::run(arguments),
        Command::Report(arguments) => report(arguments),
        Command::Publish(arguments) => publish::run(arguments),
    }
}

fn list() -> Result<(), Failure> {
    let all = experiments::all();
    let width = all.iter().map(|experiment| experiment.name().len()).max().unwrap_or(0);
    for experiment in all {
        output::line(format_args!(
            "{:width$}  {} ({})",
            experiment.name(),
            experiment.about(),
            experiment.source()
        ))?;
    }
    Ok(())
}

fn run_all(arguments: &RunArguments) -> Result<(), Failure> {
    let found: Vec<&dyn Experiment> =
        arguments.names.iter().map(|name| experiments::find(name)).collect::<Result<_, _>>()?;
    let setting = Setting {
        cluster: arguments.cluster.clone(),
        cluster_properties: properties(None, None, &arguments.cluster_property)?,
        security: arguments.security()?,
        arms: arguments.arm.clone(),
        variants: arguments.variant.clone(),
        rounds: arguments.rounds,
        clients: arguments.client.clone(),
        peers: arguments.peers.clone(),
        scale: arguments.scale,
        seed: arguments.seed,
        reader: arguments.reader,
        why: arguments.why,
    };
    // Created before the run, so that an unwritable file is reported at once.
    let mut outputs = files::Outputs::create(arguments)?;
    let command = files::without(std::env::args(), &files::OUTPUTS);
    let command = files::command(files::hidden(command));
    let commit = publish::commit();
    let mut reports = Vec::new();
    for experiment in found {
        let name = experiment.name();
        let mut report = experiments::run(experiment, &setting, &mut |event| tell(name, event))?;
        report.command.clone_from(&command);
        report.environment.commit.clone_from(&commit);
        output::print(&table::table(&report))?;
        outputs.add(&report)?;
        reports.push(report);
    }
    outputs.finish(&reports)?;
    let held = reports.iter().all(experiments::Report::held);
    if held { Ok(()) } else { Err(Failure::NotHeld) }
}

fn report(arguments: &ReportArguments) -> Result<(), Failure> {
    let mut reports = Vec::new();
    for path in &arguments.files {
        reports.extend(files::read(path)?);
    }
    files::write(&arguments.html, curtail_lab::page::page(&reports).as_bytes())
}

fn tell(experiment: &str, event: Event<'_>) {
    match event {
        Event::Building { client } => {
            output::note(format_args!("{experiment}: building the driver of {client}"));
        }
        Event::Starting => output::note(format_args!("{experiment}: starting the cluster")),
        Event::Rehearsing { run, at_most } => {
            output::note(format_args!("{experiment}: warming up, run {run} of at most {at_most}"));
        }
        Event::Without { arm, client, reason } => {
            output::note(format_args!("{experiment}: skipping {arm} with {client}: {reason}"));
        }
        Event::Turn { arm, client, done, of } => {
            output::note(format_args!("{experiment}: {arm} ({client}), run {} of {of}", done + 1));
        }
        _ => {}
    }
}
