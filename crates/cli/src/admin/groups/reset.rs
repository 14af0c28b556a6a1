//! `curtail groups offsets reset`: as in Kafka's own tool, a dry run unless `--execute` is given.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use clap::Args;
use curtail::{
    Admin, TopicPartition,
    admin::{GroupOffsets, GroupState, OffsetSpec},
    config::IsolationLevel,
    transaction::OffsetAndMetadata,
};
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp, civil, tz::TimeZone};

use super::{One, committed, is_missing, partitions_of};
use crate::{
    admin::{Cell, Format, TopicSelection, admin, report, topic_selection},
    failure::Failure,
    names, output,
    settings::ClientArguments,
};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    group: One,
    #[command(flatten)]
    of: Of,
    #[command(flatten)]
    to: To,
    /// Print the new offsets without committing them; the default without --execute.
    #[arg(long, conflicts_with = "execute")]
    dry_run: bool,
    /// Commit the new offsets.
    #[arg(long)]
    execute: bool,
    /// Accept a group that does not exist; --execute then creates it.
    #[arg(long)]
    create: bool,
}

/// Partitions to reset.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Of {
    /// A topic, or some of its partitions. May be given several times.
    #[arg(short, long = "topic", value_name = "TOPIC[:0,1]", value_parser = topic_selection)]
    topics: Vec<TopicSelection>,
    /// All partitions with a committed offset of the group.
    #[arg(long)]
    all_topics: bool,
}

/// Target offset.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct To {
    /// To the log start offset.
    #[arg(long)]
    to_earliest: bool,
    /// To the log end offset.
    #[arg(long)]
    to_latest: bool,
    /// To the committed offset; to the log end offset where there is none.
    #[arg(long)]
    to_current: bool,
    /// To this offset, or to the log start or end offset if it is outside the log.
    #[arg(long, value_name = "OFFSET")]
    to_offset: Option<i64>,
    /// To the first record at or after this time: 2026-01-31T12:30:00.000, in UTC unless it
    /// ends with a UTC offset such as +02:00.
    #[arg(long, value_name = "TIME", value_parser = time)]
    to_datetime: Option<Timestamp>,
    /// To the first record of the last PT1H, P7D or other ISO 8601 duration.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    by_duration: Option<SignedDuration>,
    /// Forward by this number of records, or back if negative.
    #[arg(long, value_name = "RECORDS", allow_hyphen_values = true)]
    shift_by: Option<i64>,
    /// To the offsets of a file with a line TOPIC,PARTITION,OFFSET for each partition. An offset outside the log means the
    /// log start or end offset.
    #[arg(long, value_name = "FILE", group = "Of")]
    from_file: Option<PathBuf>,
}

impl To {
    /// The time of the first record to read, if this is one.
    fn time(&self) -> Result<Option<Timestamp>, Failure> {
        match self.by_duration {
            Some(duration) => {
                Timestamp::now().checked_sub(duration).map(Some).map_err(Failure::new)
            }
            None => Ok(self.to_datetime),
        }
    }
}

/// Parses a time, in UTC unless it has an offset.
pub(in crate::admin) fn time(text: &str) -> Result<Timestamp, String> {
    let with_zone = text.parse::<Timestamp>();
    let in_utc = || text.parse::<civil::DateTime>()?.to_zoned(TimeZone::UTC);
    let time = with_zone.or_else(|_| in_utc().map(|zoned| zoned.timestamp()));
    time.map_err(|_| "expected a time such as 2026-01-31T12:30:00.000".into())
}

fn duration(text: &str) -> Result<SignedDuration, String> {
    let span = text.parse::<Span>();
    // A day of a duration has 24 hours, as in Java.
    let exact = span.and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()));
    let duration = exact.ok().filter(|duration| !duration.is_negative());
    duration.ok_or_else(|| "expected a duration such as PT1H, PT30M or P7D".into())
}

/// Reads Kafka's file of offsets: `topic,partition,offset`.
fn from_file(path: &Path) -> Result<BTreeMap<TopicPartition, i64>, Failure> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("cannot read {shown}: {error}")))?;
    lines(&text).map_err(|problem| Failure::new(format!("{shown}{problem}")))
}

fn lines(text: &str) -> Result<BTreeMap<TopicPartition, i64>, String> {
    let mut offsets = BTreeMap::new();
    for (line, number) in text.lines().zip(1..) {
        if line.trim().is_empty() {
            continue;
        }
        let (at, offset) = csv_line(line).ok_or_else(|| {
            format!(", line {number}: expected TOPIC,PARTITION,OFFSET, for example payments,0,42")
        })?;
        if offsets.insert(at.clone(), offset).is_some() {
            return Err(format!(", line {number}: {at} has an earlier line"));
        }
    }
    match offsets.is_empty() {
        true => Err(" has no line TOPIC,PARTITION,OFFSET".into()),
        false => Ok(offsets),
    }
}

fn csv_line(line: &str) -> Option<(TopicPartition, i64)> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    let [topic, partition, offset] = fields.as_slice() else { return None };
    let topic = topic.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(topic);
    let (partition, offset) = (partition.parse().ok()?, offset.parse().ok()?);
    (!topic.is_empty() && partition >= 0 && offset >= 0)
        .then(|| (TopicPartition::new(topic, partition), offset))
}

const NONE: &str = "no partitions";

pub(super) async fn run(arguments: &Arguments) -> Result<(), Failure> {
    let group = arguments.group.name()?;
    let file = arguments.to.from_file.as_deref().map(from_file).transpose()?;
    let admin = admin(&arguments.client)?;
    check_group(&admin, group, arguments.create).await?;
    let committed = committed(&admin, group).await?;
    let partitions = match &file {
        Some(offsets) => offsets.keys().cloned().collect(),
        None if arguments.of.all_topics => committed.keys().cloned().collect(),
        None => partitions_of(&admin, &arguments.of.topics).await?,
    };
    if partitions.is_empty() {
        let text = format!("group '{group}' has no committed offsets; name topics with --topic");
        return Err(Failure::new(text));
    }
    let file = file.unwrap_or_default();
    let plan = plan(&admin, &arguments.to, &partitions, &committed, &file).await?;
    let rows = plan.iter().map(|(at, offset)| {
        let topic = &*at.topic;
        vec![Cell::from(group), Cell::from(topic), at.partition.into(), offset.offset.into()]
    });
    let rows = rows.collect();
    let columns = ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"];
    if !arguments.execute {
        arguments.format.rows(&columns, rows, NONE)?;
        output::note("dry run: nothing changed; add --execute to apply");
        return Ok(());
    }
    let done = admin.alter_group_offsets(group, &plan).await?;
    report(done, |_, ()| Ok(()))?;
    arguments.format.rows(&columns, rows, NONE)
}

/// Refuses a group with members, which would continue from their positions and commit those. Refuses a missing group
/// unless it is `created`: the name may be mistyped, and the commit would create it.
async fn check_group(admin: &Admin, group: &str, created: bool) -> Result<(), Failure> {
    for (_, described) in admin.describe_groups(&[group]).await? {
        match described {
            Ok(group) if group.state == GroupState::Empty => {}
            // Before DescribeGroups version 6 a group that does not exist is dead.
            Ok(group) if group.state == GroupState::Dead && created => {}
            Ok(found) if found.state == GroupState::Dead => {
                return Err(names::missing_group(admin, group).await.not_created());
            }
            Ok(found) => {
                return Err(Failure::new(format!(
                    "group '{group}' is {}; stop its members before resetting its offsets",
                    found.state.name()
                )));
            }
            Err(error) if is_missing(&error) && created => {}
            Err(error) if is_missing(&error) => {
                return Err(names::missing_group(admin, group).await.not_created());
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

type Plan = Vec<(TopicPartition, OffsetAndMetadata)>;

async fn plan(
    admin: &Admin,
    to: &To,
    partitions: &[TopicPartition],
    committed: &GroupOffsets,
    file: &BTreeMap<TopicPartition, i64>,
) -> Result<Plan, Failure> {
    let first = list(admin, partitions, OffsetSpec::Earliest).await?;
    let end = list(admin, partitions, OffsetSpec::Latest).await?;
    let found = match to.time()? {
        Some(time) => list(admin, partitions, OffsetSpec::Timestamp(time.as_millisecond())).await?,
        None => BTreeMap::new(),
    };
    let mut plan = Plan::new();
    for at in partitions {
        // Start and end offset are known for every partition: otherwise `list` has returned an error.
        let (first, end) = (first.get(at).copied().unwrap_or(0), end.get(at).copied().unwrap_or(0));
        let current = committed.get(at);
        let target = match to {
            To { to_earliest: true, .. } => first,
            To { to_latest: true, .. } => end,
            To { from_file: Some(_), .. } => file.get(at).map_or(end, |at| (*at).clamp(first, end)),
            To { to_offset: Some(offset), .. } => (*offset).clamp(first, end),
            // A time after every record is the log end.
            To { to_datetime: Some(_), .. } | To { by_duration: Some(_), .. } => {
                found.get(at).copied().unwrap_or(end)
            }
            To { shift_by: Some(by), .. } => {
                let Some(current) = current else {
                    let text = format!(
                        "{at}: the group has no committed offset to shift; use --to-earliest, --to-latest or --to-offset"
                    );
                    return Err(Failure::new(text));
                };
                current.offset.saturating_add(*by).clamp(first, end)
            }
            _ => current.map_or(end, |current| current.offset),
        };
        plan.push((at.clone(), OffsetAndMetadata::new(target)));
    }
    Ok(plan)
}

async fn list(
    admin: &Admin,
    partitions: &[TopicPartition],
    spec: OffsetSpec,
) -> Result<BTreeMap<TopicPartition, i64>, Failure> {
    let wanted: Vec<_> = partitions.iter().map(|at| (at.clone(), spec)).collect();
    let mut offsets = BTreeMap::new();
    let listed = admin.list_offsets(&wanted, IsolationLevel::ReadUncommitted).await?;
    report(listed, |at, found| {
        offsets.extend(found.offset.map(|offset| (at.clone(), offset)));
        Ok(())
    })?;
    Ok(offsets)
}

#[cfg(test)]
mod tests {
    use curtail::TopicPartition;

    use super::{duration, lines, time};

    #[test]
    fn times_are_utc_unless_they_say_otherwise() {
        let ms = |text| time(text).unwrap().as_millisecond();
        assert_eq!(ms("1970-01-02T00:00:00.000"), 86_400_000);
        assert_eq!(ms("1970-01-02T00:00:00.000Z"), 86_400_000);
        assert_eq!(ms("1970-01-02T01:00:00+01:00"), 86_400_000);
        assert!(time("yesterday").is_err());
    }

    #[test]
    fn durations_are_iso_8601_and_not_negative() {
        for (text, seconds) in [
            ("PT1H", 3_600),
            ("PT90M", 5_400),
            ("P1DT1H0.5S", 90_000),
            ("P7D", 604_800),
            ("PT0S", 0),
        ] {
            assert_eq!(duration(text).unwrap().as_secs(), seconds, "{text}");
        }
        for text in ["", "1", "-PT1H", "PT-1H", "P1M", "P1Y", "an hour"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_file_of_offsets_has_a_line_for_each_partition() {
        let parsed = lines("t,0,5\n\n \"u\" , 1 , 0\r\n").unwrap();
        let at = |topic: &str, partition| TopicPartition::new(topic, partition);
        assert_eq!(parsed.into_iter().collect::<Vec<_>>(), [(at("t", 0), 5), (at("u", 1), 0)]);
        let expected = "expected TOPIC,PARTITION,OFFSET, for example payments,0,42";
        for text in ["t,0", "t,0,1,2", "t,x,1", "t,0,-1", ",0,1", "topic,partition,offset"] {
            let text = format!("t,7,1\n{text}\n");
            assert_eq!(lines(&text).unwrap_err(), format!(", line 2: {expected}"), "{text}");
        }
        assert_eq!(lines("t,0,1\nt,0,2").unwrap_err(), ", line 2: t-0 has an earlier line");
        assert_eq!(lines("\n").unwrap_err(), " has no line TOPIC,PARTITION,OFFSET");
    }
}
