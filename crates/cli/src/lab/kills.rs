//! `curtail lab kills`: kill -9, many times, and a check of the acknowledged records.

use std::path::PathBuf;

use clap::Args;
use curtail_lab::{
    experiments::ClusterKind,
    kills::{self, Event, Report, Soak, Worker},
};
use tokio::runtime::Builder;

use crate::{failure::Failure, output};

/// Arguments of `curtail lab kills`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Cluster to start and to kill: embedded, or apache (needs Java and Maven).
    #[arg(long, value_name = "CLUSTER", default_value = "apache", value_parser = super::cluster)]
    cluster: ClusterKind,
    /// Brokers to kill while keyed and keyless records are sent; 0 omits this part.
    #[arg(long, value_name = "N", default_value_t = 100)]
    broker_kills: u32,
    /// Brokers to kill during the exactly-once copy, and equally many of its processes; 0 omits this part.
    #[arg(long, value_name = "N", default_value_t = 30)]
    copy_kills: u32,
    /// Records per second and topic.
    #[arg(long, value_name = "N", default_value_t = 400.0, value_parser = rate)]
    rate: f64,
    /// Seed for victims and times of kills.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the report to this file as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Arguments of a copying process.
#[derive(Debug, Args)]
pub(crate) struct WorkerArguments {
    bootstrap: String,
    number: u32,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "expected a number".to_owned())?;
    if rate > 0.0 && rate <= 1e6 {
        Ok(rate)
    } else {
        Err("expected records per second above 0 and at most 1,000,000".into())
    }
}

/// Runs the crash test and prints its table.
pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.broker_kills == 0 && arguments.copy_kills == 0 {
        let text = "nothing to kill: --broker-kills or --copy-kills must be above 0";
        return Err(Failure::new(text));
    }
    let program = std::env::current_exe()
        .map_err(|error| Failure::new(format!("cannot find this program's own file: {error}")))?;
    let worker = [program.display().to_string(), "lab".into(), "kills-worker".into()];
    let soak = Soak {
        cluster: arguments.cluster.clone(),
        broker_kills: arguments.broker_kills,
        copy_kills: arguments.copy_kills,
        rate: arguments.rate,
        seed: arguments.seed,
        worker: worker.into(),
    };
    let report = soak.run(&mut |event| tell(event))?;
    output::print(&table(&report))?;
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&report).map_err(Failure::new)?;
        super::files::write(path, (text + "\n").as_bytes())?;
    }
    if report.held() { Ok(()) } else { Err(Failure::NotHeld) }
}

/// Runs one copying process. It ends with its standard input, so that it never outlives the command that started it.
pub(super) fn work(arguments: &WorkerArguments) -> Result<(), Failure> {
    std::thread::spawn(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(1);
    });
    let runtime = Builder::new_multi_thread().enable_all().build().map_err(Failure::new)?;
    let worker = Worker { bootstrap: arguments.bootstrap.clone(), number: arguments.number };
    Ok(runtime.block_on(kills::work(&worker))?)
}

fn tell(event: Event<'_>) {
    match event {
        Event::Starting => output::note("starting the cluster"),
        Event::Broker { id, done, of } => {
            output::note(format_args!("broker {id} killed and back in sync: {done} of {of}"));
        }
        Event::Worker { number, done, of } => {
            output::note(format_args!("copying process {number} killed: {done} of {of}"));
        }
        Event::Reading { topic } => output::note(format_args!("reading {topic} back")),
        _ => {}
    }
}

fn table(report: &Report) -> String {
    let mut text = format!(
        "{}: {} brokers killed under load; {} brokers and {} clients killed during an exactly-once copy, {} clients failed\n",
        report.cluster,
        report.broker_kills,
        report.copy_broker_kills,
        report.copy_client_kills,
        report.copy_client_failures,
    );
    let columns = [
        "topic",
        "sent",
        "acknowledged",
        "failed",
        "slowest ms",
        "read by",
        "records",
        "lost",
        "duplicated",
        "reordered",
    ];
    let mut rows = Vec::new();
    for topic in &report.topics {
        for reading in &topic.readings {
            rows.push(vec![
                topic.topic.clone(),
                topic.sent.to_string(),
                topic.acknowledged.to_string(),
                topic.failed.to_string(),
                topic.slowest_ms.map_or_else(|| "-".into(), |slowest| format!("{slowest:.0}")),
                reading.by.to_owned(),
                reading.records.to_string(),
                reading.lost.to_string(),
                reading.duplicated.to_string(),
                reading.reordered.to_string(),
            ]);
        }
    }
    text += &output::table(&columns, &rows);
    for topic in &report.topics {
        if let Some(error) = &topic.first_error {
            text += &format!("{}: first error: {error}\n", topic.topic);
        }
    }
    text += if report.held() {
        "held: nothing was lost, duplicated, reordered or refused\n"
    } else {
        "NOT held\n"
    };
    text
}
