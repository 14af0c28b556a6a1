//! `curtail perf consume`, after kafka-consumer-perf-test.

use std::time::Duration;

use clap::Args;
use curtail::ConsumerConfig;
use curtail_lab::perf::{
    Event, Target,
    consume::{self, From, Options, Outcome},
};
use tokio::runtime::Builder;

use super::{
    arguments::{Common, MetricsFormat},
    bar::Bar,
    date::{self, Pattern},
    lines::{self, ConsumeRow},
};
use crate::{failure::Failure, json_file::JsonFile, names, output, settings::BOOTSTRAP};

/// Arguments of `curtail perf consume`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Records to read.
    #[arg(long, visible_alias = "messages", value_name = "N", default_value_t = 1_000_000)]
    num_records: u64,
    /// Accepted for compatibility: all partitions are read by this one consumer, without a group.
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Not supported yet.
    #[arg(long, hide = true)]
    include: Option<String>,
    /// Maximum bytes fetched from one partition (max.partition.fetch.bytes).
    #[arg(long, value_name = "BYTES")]
    fetch_size: Option<i32>,
    /// Start at the end instead of the beginning.
    #[arg(long)]
    from_latest: bool,
    /// Milliseconds without a record after which the run ends.
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    timeout: u64,
    /// Print a row for each reporting interval instead of a total.
    #[arg(long)]
    show_detailed_stats: bool,
    /// Milliseconds of a reporting interval.
    #[arg(long, value_name = "MS", default_value_t = 5000)]
    reporting_interval: u64,
    /// Pattern of dates.
    #[arg(long, value_name = "PATTERN", default_value = date::DEFAULT, value_parser = Pattern::parse)]
    date_format: Pattern,
    /// Omit the header.
    #[arg(long)]
    hide_header: bool,
    /// Value size of the records that an embedded cluster's topic is filled with first, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 100, conflicts_with = "bootstrap_server")]
    record_size: usize,
    /// Print the consumer's metrics at the end, with Kafka's names or in Prometheus' format.
    #[arg(
        long,
        value_name = "FORMAT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "kafka"
    )]
    print_metrics: Option<MetricsFormat>,
}

/// Partitions of the topic in an embedded cluster.
const PARTITIONS: i32 = 6;

impl Arguments {
    fn options(&self) -> Result<Options, Failure> {
        if self.include.is_some() {
            return Err(Failure::new(
                "--include is not supported yet; name one topic with --topic",
            ));
        }
        if self.reporting_interval == 0 {
            return Err(Failure::new("--reporting-interval must be above 0"));
        }
        if self.group.is_some() {
            output::note("--group: this consumer reads all partitions, without a group");
        }
        let setting = self.common.setting()?;
        // A mistyped topic is not created, unless the property asks for it.
        let mut config = ConsumerConfig::default().allow_auto_create_topics(false);
        for (name, value) in &setting.properties {
            config.set(name, value)?;
        }
        if let Some(bytes) = self.fetch_size {
            config.set("max.partition.fetch.bytes", &bytes.to_string())?;
        }
        let embedded = matches!(setting.target, Target::Embedded(_));
        if embedded && self.from_latest {
            return Err(Failure::new(
                "--from-latest needs a cluster that others write to; give --bootstrap-server",
            ));
        }
        Ok(Options {
            topic: self.common.topic(&setting.target, PARTITIONS),
            target: setting.target,
            config,
            records: self.num_records,
            from: if self.from_latest { From::Latest } else { From::Earliest },
            timeout: Duration::from_millis(self.timeout),
            interval: Duration::from_millis(self.reporting_interval),
            fill: embedded.then_some(self.record_size),
        })
    }
}

/// Measures and prints.
pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let options = arguments.options()?;
    let mut json = JsonFile::create(arguments.common.json.as_deref())?;
    require_topic(&options, &arguments.common.setting()?.properties)?;
    let bar = Bar::new();
    if !arguments.hide_header {
        output::line(lines::consume_header(arguments.show_detailed_stats))?;
    }
    let mut printed = Ok(());
    let outcome = consume::run(&options, &mut |event: Event<'_>| {
        bar.show(&event);
        if let Event::Interval(interval) = event
            && arguments.show_detailed_stats
            && printed.is_ok()
        {
            let time = arguments.date_format.format(interval.at_ms);
            let row = ConsumeRow::interval(interval, Duration::ZERO, &time);
            printed = bar.around(|| output::line(row));
        }
    });
    bar.finish();
    let outcome = outcome?;
    printed?;
    if !arguments.show_detailed_stats {
        output::line(row(&outcome, &arguments.date_format))?;
    }
    if outcome.timed_out {
        output::note(format_args!(
            "WARNING: Exiting before consuming the expected number of records: timeout ({} ms) exceeded. \
             Use --timeout to wait longer.",
            arguments.timeout
        ));
    }
    output::note(lines::cpu(&outcome.report));
    match arguments.print_metrics {
        Some(MetricsFormat::Kafka) => output::line(lines::metrics(&outcome.metrics.named()))?,
        Some(MetricsFormat::Prometheus) => output::print(&outcome.metrics.prometheus_text())?,
        None => {}
    }
    json.add(&outcome.report)
}

/// Fails at once if the topic does not exist and neither the command nor the brokers shall create it.
fn require_topic(options: &Options, properties: &[(String, String)]) -> Result<(), Failure> {
    let Target::Bootstrap(servers) = &options.target else { return Ok(()) };
    if options.topic.create.is_some() || options.config.get_allow_auto_create_topics() {
        return Ok(());
    }
    let mut properties = properties.to_vec();
    properties.push((BOOTSTRAP.into(), servers.clone()));
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::new)?;
    runtime.block_on(async {
        let admin = names::admin(&properties)?;
        let missing = names::missing_topic(&admin, &options.topic.name).await?;
        missing.map_or(Ok(()), |missing| Err(missing.into()))
    })
}

fn row(outcome: &Outcome, dates: &Pattern) -> String {
    let row = ConsumeRow {
        bytes: outcome.bytes,
        records: outcome.report.records,
        elapsed: Duration::from_secs_f64(outcome.report.seconds),
        rebalance: outcome.assigning,
    };
    row.total(&dates.format(outcome.start_ms), &dates.format(outcome.end_ms))
}
