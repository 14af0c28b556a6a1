//! `curtail perf e2e`, after EndToEndLatency.

use clap::{Args, ValueEnum};
use curtail::{ConsumerConfig, ProducerConfig, config::Acks};
use curtail_lab::{
    latency::few_behind_p999,
    perf::{
        Event, Report, Target,
        e2e::{self, Options},
    },
};

use super::{arguments::Common, bar::Bar, lines, missing_topic, note_kept};
use crate::{failure::Failure, json_file::JsonFile, output, settings::set_both};

/// Arguments of `curtail perf e2e`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Records to send, warm-up included.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    num_records: u64,
    /// Records at the start that are not measured.
    #[arg(long, value_name = "N", default_value_t = 0)]
    warmup_records: u64,
    /// Acknowledgements to wait for [default: all].
    #[arg(long, value_name = "ACKS")]
    producer_acks: Option<ProducerAcks>,
    /// Bytes of a record's value.
    #[arg(long, value_name = "BYTES", default_value_t = 128)]
    record_size: usize,
    /// Bytes of a record's key; 0 for none.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    record_key_size: usize,
    /// Headers of a record.
    #[arg(long, value_name = "N", default_value_t = 0)]
    num_headers: usize,
    /// Bytes of a header's key.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    record_header_key_size: usize,
    /// Bytes of a header's value.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    record_header_size: usize,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ProducerAcks {
    /// The leader has appended the record.
    #[value(name = "1")]
    Leader,
    /// Every in-sync replica has appended the record.
    All,
}

/// Partitions of the topic in an embedded cluster.
const PARTITIONS: i32 = 30;

impl Arguments {
    fn options(&self) -> Result<Options, Failure> {
        let setting = self.common.setting()?;
        let (mut producer, mut consumer) = (ProducerConfig::default(), ConsumerConfig::default());
        set_both(&mut producer, &mut consumer, &setting.properties)?;
        match self.producer_acks {
            Some(ProducerAcks::Leader) => producer = producer.acks(Acks::Leader),
            Some(ProducerAcks::All) => producer = producer.acks(Acks::All),
            None => {}
        }
        let mut topic = self.common.topic(&setting.target, PARTITIONS);
        if matches!(setting.target, Target::Bootstrap(_)) {
            // Kafka's tool also creates a missing topic like this.
            topic.create = topic.create.or(Some((1, 1)));
        }
        Ok(Options {
            topic,
            target: setting.target,
            producer,
            consumer,
            records: self.num_records,
            warmup: self.warmup_records,
            record_size: self.record_size,
            key_size: self.record_key_size,
            headers: self.num_headers,
            header_key_size: self.record_header_key_size,
            header_value_size: self.record_header_size,
        })
    }
}

/// Measures and prints.
pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let options = arguments.options()?;
    let mut json = JsonFile::create(arguments.common.json.as_deref())?;
    let bar = Bar::new();
    let mut printed = Ok(());
    let report = e2e::run(&options, &mut |event: Event<'_>| {
        bar.show(&event);
        if let Event::Sample { index, latency } = event
            && printed.is_ok()
        {
            printed = bar.around(|| output::line(lines::e2e_sample(index, latency)));
        }
    });
    bar.finish();
    let report = report.map_err(missing_topic)?;
    printed?;
    print(&report)?;
    note_kept(&options.target, &options.topic.name);
    json.add(&report)
}

fn print(report: &Report) -> Result<(), Failure> {
    output::line(lines::e2e_total(report))?;
    if let Some(latency) = &report.latency_us {
        output::line(format_args!("Latency: {}.", lines::distribution(latency)))?;
    }
    if let Some(line) = few_behind_p999("p99.9", report.records) {
        output::line(line)?;
    }
    if let Some(table) = lines::phases(report) {
        output::line(table)?;
    }
    if let Some(line) = lines::unseparated(report) {
        output::line(line)?;
    }
    output::line(lines::cpu(report))
}
