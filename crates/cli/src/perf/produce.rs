//! `curtail perf produce`, after kafka-producer-perf-test.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use curtail::{Env, ProducerConfig};
use curtail_lab::{
    latency::few_behind_p999,
    perf::{
        Event, Payload,
        produce::{self, Options, Outcome},
    },
};

use super::{
    arguments::{Common, MetricsFormat},
    bar::Bar,
    lines, missing_topic, note_kept,
};
use crate::{failure::Failure, json_file::JsonFile, output};

/// Arguments of `curtail perf produce`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Records to send, warm-up included.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    num_records: u64,
    /// Bytes of a record's value [default: 100].
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["payload_file", "payload_monotonic"])]
    record_size: Option<usize>,
    /// Take values from this file.
    #[arg(long, value_name = "FILE", conflicts_with = "payload_monotonic")]
    payload_file: Option<PathBuf>,
    /// Separator of the values in the file.
    #[arg(long, value_name = "TEXT", default_value = "\\n")]
    payload_delimiter: String,
    /// Use the number of each record as its value.
    #[arg(long)]
    payload_monotonic: bool,
    /// Records per second, or -1 for as fast as possible.
    #[arg(long, value_name = "RATE", default_value = "-1", allow_negative_numbers = true, value_parser = rate)]
    throughput: Rate,
    /// Records at the start that the steady-state figures exclude.
    #[arg(long, value_name = "N", default_value_t = 0)]
    warmup_records: u64,
    /// Milliseconds between two lines of progress.
    #[arg(long, value_name = "MS", default_value_t = 5000)]
    reporting_interval: u64,
    /// Send in transactions with this `transactional.id`; overrides one in --command-property or --command-config
    /// [default with --transaction-duration-ms: performance-producer- and a random number].
    #[arg(long, value_name = "ID")]
    transactional_id: Option<String>,
    /// Milliseconds after which a transaction is committed and the next one begins [default with --transactional-id: 3000].
    #[arg(long, value_name = "MS")]
    transaction_duration_ms: Option<u64>,
    /// Print the producer's metrics at the end, with Kafka's names or in Prometheus' format.
    #[arg(
        long,
        value_name = "FORMAT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "kafka"
    )]
    print_metrics: Option<MetricsFormat>,
}

/// Records per second; `None` for as fast as possible.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Rate(Option<f64>);

fn rate(text: &str) -> Result<Rate, String> {
    match text.parse::<f64>() {
        Ok(-1.0) => Ok(Rate(None)),
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(Rate(Some(rate))),
        _ => Err("expected records per second above 0, or -1 for no limit".into()),
    }
}

/// Partitions of the topic in an embedded cluster.
const PARTITIONS: i32 = 6;
const DEFAULT_SIZE: usize = 100;
/// As in Kafka's tool.
const DEFAULT_TRANSACTION_MS: u64 = 3000;

impl Arguments {
    fn payload(&self) -> Payload {
        if self.payload_monotonic {
            return Payload::Monotonic;
        }
        match &self.payload_file {
            Some(path) => Payload::File {
                path: path.clone(),
                delimiter: crate::console::unescape(&self.payload_delimiter),
            },
            None => Payload::Random { size: self.record_size.unwrap_or(DEFAULT_SIZE) },
        }
    }

    /// The `transactional.id` of the flags.
    fn transactional_id(&self, config: &ProducerConfig) -> Option<String> {
        let random = || {
            let entropy = Env::real().entropy;
            let (high, low) = (entropy.next_u64(), entropy.next_u64());
            format!("performance-producer-{high:016x}{low:016x}")
        };
        let wanted =
            self.transaction_duration_ms.is_some() && config.get_transactional_id().is_none();
        self.transactional_id.clone().or_else(|| wanted.then(random))
    }

    fn options(&self) -> Result<Options, Failure> {
        let setting = self.common.setting()?;
        let mut config = ProducerConfig::default();
        for (name, value) in &setting.properties {
            config.set(name, value)?;
        }
        if let Some(id) = self.transactional_id(&config) {
            config = config.transactional_id(id);
        }
        let duration = self.transaction_duration_ms.unwrap_or(DEFAULT_TRANSACTION_MS);
        Ok(Options {
            topic: self.common.topic(&setting.target, PARTITIONS),
            target: setting.target,
            config,
            transaction_duration: Duration::from_millis(duration),
            records: self.num_records,
            payload: self.payload(),
            rate: self.throughput.0,
            warmup: self.warmup_records,
            interval: Duration::from_millis(self.reporting_interval),
        })
    }
}

/// Measures and prints.
pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let options = arguments.options()?;
    let mut json = JsonFile::create(arguments.common.json.as_deref())?;
    let bar = Bar::new();
    let mut printed = Ok(());
    let outcome = produce::run(&options, &mut |event: Event<'_>| {
        bar.show(&event);
        if let Event::Window(window) = event
            && printed.is_ok()
        {
            printed = bar.around(|| output::line(lines::produce_window(window)));
        }
    });
    bar.finish();
    let outcome = outcome.map_err(missing_topic)?;
    printed?;
    print(&outcome)?;
    match arguments.print_metrics {
        Some(MetricsFormat::Kafka) => output::line(lines::metrics(&outcome.metrics.named()))?,
        Some(MetricsFormat::Prometheus) => output::print(&outcome.metrics.prometheus_text())?,
        None => {}
    }
    json.add(outcome.measured())?;
    // Also when records failed: the others are in the topic.
    note_kept(&options.target, &options.topic.name);
    match (outcome.whole.errors, outcome.whole.first_error) {
        (0, _) => Ok(()),
        (1, first) => Err(Failure::new(format!(
            "1 record was not acknowledged: {}",
            first.unwrap_or_default()
        ))),
        (errors, first) => Err(Failure::new(format!(
            "{errors} records were not acknowledged; the first: {}",
            first.unwrap_or_default()
        ))),
    }
}

fn print(outcome: &Outcome) -> Result<(), Failure> {
    output::line(lines::produce_total(&outcome.whole, false))?;
    if let Some(steady) = &outcome.steady {
        output::line(lines::produce_total(steady, true))?;
    }
    let measured = outcome.measured();
    if let Some(line) = lines::open_loop(measured) {
        output::line(line)?;
    }
    if let Some(latency) = &measured.send_latency_us {
        output::line(format_args!("Latency from the send: {}.", lines::distribution(latency)))?;
    }
    if let Some(line) = few_behind_p999("p99.9", measured.records) {
        output::line(line)?;
    }
    if let Some(table) = lines::phases(measured) {
        output::line(table)?;
    }
    output::line(lines::cpu(measured))
}
