//! `curtail get-offsets`: the selection and the output of kafka-get-offsets, and the queries of kcat -Q.

mod selection;

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use curtail::{Admin, TopicPartition, admin::OffsetSpec, config::IsolationLevel};

use self::selection::{Pattern, Time};
use super::{Cell, Format, admin, block_on, report};
use crate::{failure::Failure, names, output, settings::ClientArguments};

/// Arguments of `curtail get-offsets`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    format: Format,
    /// Topics [default: all]. A name that no topic has is a regular expression for whole names. As in kcat -Q,
    /// TOPIC:PARTITION:TIME names one partition and its time.
    #[arg(value_name = "TOPIC", value_delimiter = ',', value_parser = selection::topic)]
    bare: Vec<Pattern>,
    /// Topics, separated by commas. May be given several times.
    #[arg(short = 't', long = "topic", value_name = "TOPIC,...", value_delimiter = ',', value_parser = selection::topic)]
    flagged: Vec<Pattern>,
    /// Partitions of the topics, separated by commas [default: all].
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    partitions: Vec<i32>,
    /// Topics with partitions, separated by commas: TOPIC, TOPIC:0, TOPIC:3- (from 3), TOPIC:-3 (before 3), TOPIC:0-3 (from
    /// 0, before 3), and :0 for every topic.
    #[arg(
        long,
        value_name = "TOPIC:N,...",
        value_delimiter = ',',
        value_parser = selection::topic_partitions,
        conflicts_with_all = ["bare", "flagged", "partitions"]
    )]
    topic_partitions: Vec<Pattern>,
    /// Offset to print: latest (the end, -1), earliest (-2), max-timestamp (of the record with the largest timestamp, -3),
    /// earliest-local (-4), latest-tiered (-5), or of the first record at or after a timestamp in ms or a time such as
    /// 2026-01-31T12:30:00.000 in UTC.
    #[arg(long, value_name = "TIME", default_value = "latest", allow_hyphen_values = true, value_parser = selection::time)]
    time: Time,
    /// Leave out topics that are internal to Kafka.
    #[arg(long)]
    exclude_internal_topics: bool,
}

/// Runs `curtail get-offsets`.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    block_on(async {
        let admin = admin(&arguments.client)?;
        let wanted = wanted(&admin, arguments).await?;
        let mut found = BTreeMap::new();
        let mut failed = Vec::new();
        for (time, partitions) in wanted {
            let asked: Vec<_> = partitions.into_iter().map(|at| (at, time)).collect();
            let listed = admin.list_offsets(&asked, IsolationLevel::ReadUncommitted).await?;
            let known = report(listed, |at, offset| {
                found.insert((at.clone(), time), offset);
                Ok(())
            });
            failed.extend(known.err());
        }
        if arguments.format.json {
            let rows = found.iter().map(|((at, _), found)| {
                let topic = Cell::from(&*at.topic);
                vec![topic, at.partition.into(), found.offset.into(), found.timestamp.into()]
            });
            let columns = ["TOPIC", "PARTITION", "OFFSET", "TIMESTAMP"];
            arguments.format.rows(&columns, rows.collect(), "")?;
            return Failure::all(failed);
        }
        let mut without = Vec::new();
        for ((at, _), found) in &found {
            let TopicPartition { topic, partition } = at;
            match found.offset {
                Some(offset) => output::line(format_args!("{topic}:{partition}:{offset}"))?,
                None => without.push(at.to_string()),
            }
        }
        if !without.is_empty() {
            output::note(format_args!("no such record in {}", without.join(", ")));
        }
        Failure::all(failed)
    })
}

type Wanted = BTreeMap<OffsetSpec, BTreeSet<TopicPartition>>;

/// The selected partitions, by time.
async fn wanted(admin: &Admin, arguments: &Arguments) -> Result<Wanted, Failure> {
    let mut topics = admin.list_topics().await?;
    topics.retain(|topic| !(arguments.exclude_internal_topics && topic.internal));
    let mut patterns: Vec<Pattern> =
        [&arguments.bare, &arguments.flagged, &arguments.topic_partitions]
            .into_iter()
            .flatten()
            .cloned()
            .collect();
    if patterns.is_empty() {
        patterns.push(Pattern::any());
    }
    for pattern in &mut patterns {
        pattern.restrict(&arguments.partitions);
    }
    let mut wanted = Wanted::new();
    for pattern in &patterns {
        let selected = pattern.select(&topics);
        if selected.is_empty() {
            return Err(no_match(admin, pattern).await?);
        }
        let Time(time) = pattern.time.unwrap_or(arguments.time);
        wanted.entry(time).or_default().extend(selected);
    }
    Ok(wanted)
}

/// The failure for a pattern that selects no partition.
async fn no_match(admin: &Admin, pattern: &Pattern) -> Result<Failure, Failure> {
    if let Some(name) = pattern.topic_name()
        && let Some(missing) = names::missing_topic(admin, name).await?
    {
        return Ok(missing.into());
    }
    Ok(Failure::new(format!(
        "no topic or partition matches '{}'; `curtail topics describe` prints them",
        pattern.text
    )))
}
