//! `curtail consume`: records are printed.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, BufWriter, Write as _},
    slice,
    time::Duration,
};

use clap::{Args, builder::NonEmptyStringValueParser};
use curtail::{
    Admin, Consumer, ConsumerConfig, Error, TopicPartition, admin::OffsetSpec,
    config::IsolationLevel,
};
use tokio::runtime::Builder;

use super::{format::Format, note};
use crate::{failure::Failure, names, settings::ClientArguments};

/// Arguments of `curtail consume`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    client: ClientArguments,
    /// Topics to read. A topic that does not exist is an error, unless -X allow.auto.create.topics=true creates it.
    #[arg(value_name = "TOPIC")]
    bare: Vec<String>,
    /// Topic to read. May be given several times.
    #[arg(short = 't', long = "topic", value_name = "TOPIC")]
    flagged: Vec<String>,
    /// Partition to read of each topic [default: all].
    #[arg(short, long, conflicts_with = "group")]
    partition: Option<i32>,
    /// Join this group (group.id), share the topics with its other members, and commit the printed records. Ctrl-C leaves
    /// the group. Without it nothing is committed.
    #[arg(short = 'G', long, value_name = "GROUP", value_parser = NonEmptyStringValueParser::new())]
    group: Option<String>,
    /// Group protocol: classic, or consumer (KIP-848), where the brokers assign partitions (group.protocol).
    #[arg(long, value_name = "PROTOCOL", requires = "group")]
    group_protocol: Option<String>,
    /// Start position: beginning, end, an offset, -N for N records before the end of each partition, or s@MS for the first
    /// record at or after a timestamp in ms. An offset outside the log is an error, unless -X auto.offset.reset=earliest or
    /// latest chooses the position instead. With --group only beginning or end, which apply to partitions without a
    /// committed offset [default: beginning].
    #[arg(short, long, allow_hyphen_values = true, value_parser = Start::parse)]
    offset: Option<Start>,
    /// Start at the beginning, which is the default: --offset beginning.
    #[arg(long, conflicts_with = "offset")]
    from_beginning: bool,
    /// End after this number of records.
    #[arg(short, long, value_name = "N")]
    count: Option<u64>,
    /// End when every partition has been read to its current end.
    #[arg(short, long)]
    exit: bool,
    /// How to print a record: %t topic, %p partition, %o offset, %T timestamp in ms, %h headers, %k key, %K bytes of the key,
    /// %s value, %S bytes of the value (-1: null), %R the same as a 4-byte big-endian number, %% a percent sign. Escapes: \n \t
    /// \r \0 \\ \xNN. The format json is --json.
    #[arg(short, long, value_parser = Format::parse, conflicts_with_all = ["key_delimiter", "delimiter"])]
    format: Option<Format>,
    /// Print a JSON object for each record: topic, partition, offset, ts, headers, key and payload, as kcat does.
    #[arg(short = 'J', long, conflicts_with_all = ["format", "key_delimiter", "delimiter", "null"])]
    json: bool,
    /// Print the key before the value, separated by this text (an equals sign as -K '=').
    #[arg(short = 'K', long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    key_delimiter: Option<String>,
    /// Text to print after each record.
    #[arg(short = 'D', long, value_name = "TEXT", default_value = "\\n")]
    delimiter: String,
    /// Print NULL for a null key or value.
    #[arg(short = 'Z', long)]
    null: bool,
    /// Write each record at once. By default the records of one poll are written together.
    #[arg(short, long)]
    unbuffered: bool,
    /// Print records and errors only.
    #[arg(short, long)]
    quiet: bool,
}

impl Arguments {
    /// The topics, each once.
    fn topics(&self) -> Result<BTreeSet<&str>, Failure> {
        let topics: BTreeSet<&str> =
            self.bare.iter().chain(&self.flagged).map(String::as_str).collect();
        match topics.is_empty() {
            true => Err(Failure::new("no topic given; use for example --topic payments")),
            false => Ok(topics),
        }
    }

    fn start(&self) -> Start {
        self.offset.unwrap_or(Start::Beginning)
    }

    /// Whether a flag gives the start position.
    fn has_start(&self) -> bool {
        self.offset.is_some() || self.from_beginning
    }
}

/// Start position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Beginning,
    End,
    At(i64),
    BeforeEnd(i64),
    Time(i64),
}

impl Start {
    fn parse(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse().ok().filter(|n| *n >= 0);
        let start = match text {
            "beginning" => Some(Self::Beginning),
            "end" => Some(Self::End),
            _ => match (text.strip_prefix('-'), text.strip_prefix("s@")) {
                (Some(count), _) => number(count).map(Self::BeforeEnd),
                (_, Some(ms)) => number(ms).map(Self::Time),
                _ => number(text).map(Self::At),
            },
        };
        start.ok_or_else(|| "expected beginning, end, an offset, -N or s@MS".into())
    }
}

/// Reads until an end condition or a signal.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let topics = arguments.topics()?;
    let config = config(arguments)?;
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::new)?;
    runtime.block_on(async {
        let creates = config.get_allow_auto_create_topics();
        let mut consumer = Consumer::new(config)?;
        consumer.connect().await?;
        let admin = names::admin(&arguments.client.all()?)?;
        for topic in topics.iter().filter(|_| !creates) {
            if let Some(missing) = names::missing_topic(&admin, topic).await? {
                return Err(missing.into());
            }
        }
        let read = match &arguments.group {
            None => match assign(arguments, &topics, &mut consumer, &admin).await {
                Ok(()) => read(arguments, &mut consumer).await,
                Err(failure) => Err(failure),
            },
            Some(_) => {
                consumer.subscribe(&topics)?;
                tokio::select! {
                    biased;
                    _ = tokio::signal::ctrl_c() => Ok(()),
                    read = read(arguments, &mut consumer) => read,
                }
            }
        };
        consumer.close().await;
        read
    })
}

/// Set to false by default, so that a mistyped topic is not created. With true the command waits for records
/// as Kafka's consumers do.
const AUTO_CREATE: &str = "allow.auto.create.topics";

/// The position in place of one outside the log.
const RESET: &str = "auto.offset.reset";

/// Properties and the settings that follow from the flags.
fn config(arguments: &Arguments) -> Result<ConsumerConfig, Failure> {
    let client = &arguments.client;
    // Before the others, so that a property given by name takes precedence.
    let create = (AUTO_CREATE, "false");
    let Some(group) = &arguments.group else {
        // A profile or a file may name an application's group, whose offsets must not change.
        return client.config(&[create], &[("enable.auto.commit", "false")]);
    };
    let reset = match arguments.start() {
        Start::Beginning => "earliest",
        Start::End => "latest",
        Start::At(_) | Start::BeforeEnd(_) | Start::Time(_) => {
            return Err(Failure::new(
                "with --group, --offset must be beginning or end; `curtail groups offsets reset` sets other offsets",
            ));
        }
    };
    let (mut defaults, mut fixed) = (vec![create], vec![("group.id", group.as_str())]);
    fixed.extend(arguments.group_protocol.as_deref().map(|name| ("group.protocol", name)));
    // A flag takes precedence over a profile and a file, and a property by name over the flag.
    let is_given = client.properties.iter().any(|property| property.name == RESET);
    match arguments.has_start() && !is_given {
        true => fixed.push((RESET, reset)),
        false => defaults.push((RESET, reset)),
    }
    client.config(&defaults, &fixed)
}

/// The longest single poll. Polls end with the first records; this only bounds how late an end is noticed.
const POLL: Duration = Duration::from_millis(200);

async fn read(arguments: &Arguments, consumer: &mut Consumer) -> Result<(), Failure> {
    let format = match &arguments.format {
        _ if arguments.json => Format::json(),
        Some(format) => format.clone(),
        None => Format::lines(arguments.key_delimiter.as_deref(), &arguments.delimiter),
    };
    let null = if arguments.null { "NULL" } else { "" };
    let mut out = BufWriter::new(io::stdout().lock());
    let mut left = arguments.count;
    // Fixed once, so that records written later do not keep the command from ending.
    let mut ends = BTreeMap::new();
    let mut unprinted = BTreeMap::new();
    loop {
        if left == Some(0) || (arguments.exit && at_end(consumer, &mut ends).await?) {
            give_back(consumer, &unprinted)?;
            return Ok(out.flush()?);
        }
        for record in consumer.poll(POLL).await? {
            // With -e no record after the ends is printed, so that the output does not depend on timing.
            let at = TopicPartition::new(record.topic(), record.partition());
            let beyond = ends.get(&at).is_some_and(|end| record.offset() >= *end);
            if beyond || left == Some(0) {
                unprinted.entry(at).or_insert(record.offset());
                continue;
            }
            format.write(&record, null, &mut out)?;
            if arguments.unbuffered {
                out.flush()?;
            }
            left = left.map(|left| left - 1);
        }
        out.flush()?;
    }
}

/// Whether every partition has been read to the end that it had when it was first seen. False without
/// partitions: a group may still assign some.
async fn at_end(
    consumer: &Consumer,
    ends: &mut BTreeMap<TopicPartition, i64>,
) -> Result<bool, Failure> {
    let assigned = consumer.assignment();
    let new: Vec<TopicPartition> =
        assigned.iter().filter(|at| !ends.contains_key(*at)).cloned().collect();
    if !new.is_empty() {
        ends.extend(consumer.end_offsets(&new).await?);
    }
    for partition in &assigned {
        if consumer.position(partition).await? < ends[partition] {
            return Ok(false);
        }
    }
    Ok(!assigned.is_empty())
}

/// Seeks back to records that were not printed, so that a group's commit leaves them to other members.
fn give_back(
    consumer: &mut Consumer,
    unprinted: &BTreeMap<TopicPartition, i64>,
) -> Result<(), Failure> {
    let assigned = consumer.assignment();
    for (at, offset) in unprinted.iter().filter(|(at, _)| assigned.contains(*at)) {
        consumer.seek(at, *offset)?;
    }
    Ok(())
}

/// The partitions of a topic, or only this one.
async fn selected(
    consumer: &Consumer,
    topic: &str,
    partition: Option<i32>,
) -> Result<Vec<TopicPartition>, Error> {
    let known = consumer.partitions_for(topic).await?;
    match partition {
        None => Ok(known.iter().map(|info| TopicPartition::new(topic, info.partition)).collect()),
        Some(wanted) if known.iter().any(|info| info.partition == wanted) => {
            Ok(vec![TopicPartition::new(topic, wanted)])
        }
        Some(partition) => {
            Err(Error::UnknownPartition { topic: topic.into(), partition, partitions: known.len() })
        }
    }
}

async fn assign(
    arguments: &Arguments,
    topics: &BTreeSet<&str>,
    consumer: &mut Consumer,
    admin: &Admin,
) -> Result<(), Failure> {
    let mut partitions = Vec::new();
    for topic in topics {
        partitions.extend(selected(consumer, topic, arguments.partition).await?);
    }
    consumer.assign(partitions.iter().cloned());
    match arguments.start() {
        Start::Beginning => consumer.seek_to_beginning(&partitions)?,
        Start::End => consumer.seek_to_end(&partitions)?,
        Start::At(offset) => {
            let properties = arguments.client.all()?;
            let reset = reset(&properties);
            let outside = check_range(arguments, admin, &partitions, offset, reset).await?;
            for partition in &partitions {
                let is_outside = outside.contains(partition);
                // The reset of the consumer itself could come after a check for the end (--exit).
                match reset.filter(|_| is_outside).map(str::to_ascii_lowercase).as_deref() {
                    Some("earliest") => consumer.seek_to_beginning(slice::from_ref(partition))?,
                    Some("latest") => consumer.seek_to_end(slice::from_ref(partition))?,
                    _ => consumer.seek(partition, offset)?,
                }
            }
        }
        Start::Time(ms) => {
            for partition in &partitions {
                consumer.seek_to_timestamp(partition, ms)?;
            }
        }
        Start::BeforeEnd(count) => {
            let begins = consumer.beginning_offsets(&partitions).await?;
            for (partition, end) in consumer.end_offsets(&partitions).await? {
                let begin = begins.get(&partition).copied().unwrap_or(0);
                consumer.seek(&partition, (end - count).max(begin))?;
            }
        }
    }
    Ok(())
}

/// The position in place of an offset outside the log, if the properties choose one.
fn reset(properties: &[(String, String)]) -> Option<&str> {
    let chosen = properties.iter().rfind(|(name, _)| name == RESET);
    chosen.map(|(_, value)| value.as_str()).filter(|value| !value.eq_ignore_ascii_case("none"))
}

/// Refuses an offset outside the log of one of the partitions. With a `reset` it returns these partitions, and says so.
///
/// Kafka's console consumer and kcat then start at the end, because `auto.offset.reset` is latest by default. The
/// requested records are missing, and nothing says so.
async fn check_range(
    arguments: &Arguments,
    admin: &Admin,
    partitions: &[TopicPartition],
    offset: i64,
    reset: Option<&str>,
) -> Result<BTreeSet<TopicPartition>, Failure> {
    // Brokers also accept offsets that only read_committed hides.
    let isolation = IsolationLevel::ReadUncommitted;
    let of = |spec: OffsetSpec| partitions.iter().map(|at| (at.clone(), spec)).collect::<Vec<_>>();
    let begins = admin.list_offsets(&of(OffsetSpec::Earliest), isolation).await?;
    let ends = admin.list_offsets(&of(OffsetSpec::Latest), isolation).await?;
    let (mut partitions, mut outside) = (BTreeSet::new(), Vec::new());
    for ((at, begin), (_, end)) in begins.into_iter().zip(ends) {
        let (begin, end) = (begin?.offset.unwrap_or(0), end?.offset.unwrap_or(0));
        // The end is the position of the next record.
        if (begin..=end).contains(&offset) {
            continue;
        }
        outside.push(match end - begin {
            0 => format!("{at} (empty, next offset {end})"),
            1 => format!("{at} (only offset {begin})"),
            _ => format!("{at} (offsets {begin} to {})", end - 1),
        });
        partitions.insert(at);
    }
    if outside.is_empty() {
        return Ok(partitions);
    }
    let outside = outside.join(", ");
    if let Some(reset) = reset {
        let decides = format_args!(
            "offset {offset} is outside the log of {outside}; {RESET}={reset} decides where to start there"
        );
        note(arguments.quiet, decides);
        return Ok(partitions);
    }
    Err(Failure::new(format!(
        "offset {offset} is outside the log of {outside}; use an offset of the log, or -X {RESET}=earliest or latest \
         to start at its beginning or end"
    )))
}
