//! `curtail lab bench`: benchmarks of other projects.

use std::path::PathBuf;

use clap::Args;
use curtail_lab::{
    bench::{Bench, Figures, Outcome},
    perf::Event,
};

use crate::{failure::Failure, json_file::JsonFile, output};

/// Arguments of `curtail lab bench`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A Trogdor task (JSON: ProduceBenchSpec, ConsumeBenchSpec, RoundTripWorkloadSpec), or a workload of the
    /// OpenMessaging Benchmark (YAML).
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The driver of a workload: settings of topics and clients (YAML).
    #[arg(long, value_name = "FILE")]
    driver: Option<PathBuf>,
    /// Brokers to use instead of those in the file. Without an address in either, an embedded cluster runs in this
    /// process.
    #[arg(long, value_name = "SERVERS")]
    bootstrap_server: Option<String>,
    /// Write status and latencies to this file, as JSON with latencies in microseconds.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Runs a benchmark; prints its status as JSON, and further figures and notes on standard error.
pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let bench = Bench::load(&arguments.file, arguments.driver.as_deref())?;
    let mut json = JsonFile::create(arguments.json.as_deref())?;
    let outcome = bench.run(arguments.bootstrap_server.as_deref(), &mut |event: Event<'_>| {
        if let Event::Preparing(what) = event {
            output::note(what);
        }
    })?;
    output::line(serde_json::to_string_pretty(&outcome.status).map_err(Failure::new)?)?;
    explain(&outcome);
    json.add(&outcome)?;
    match outcome.failure {
        Some(failure) => Err(Failure::new(failure)),
        None => Ok(()),
    }
}

fn explain(outcome: &Outcome) {
    for figures in [&outcome.from_send, &outcome.from_intended].into_iter().flatten() {
        let Figures { measured, latency_us: us } = figures;
        let ms = |micros: f64| micros / 1000.0;
        output::note(format_args!(
            "{measured}: {:.2} ms avg, {:.2} ms 50th, {:.2} ms 95th, {:.2} ms 99th, {:.2} ms 99.9th, {:.2} ms max",
            ms(us.avg),
            ms(us.p50),
            ms(us.p95),
            ms(us.p99),
            ms(us.p999),
            ms(us.max),
        ));
    }
    for note in &outcome.notes {
        output::note(note);
    }
}
