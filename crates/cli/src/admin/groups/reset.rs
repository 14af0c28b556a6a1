//! `curtail groups offsets reset`: as in Kafka's own tool, a dry run unless `--execute` is given.

use std::collections::BTreeMap;

use clap::Args;
use curtail::{
    Admin, TopicPartition,
    admin::{GroupOffsets, GroupState, OffsetSpec},
    config::IsolationLevel,
    transaction::OffsetAndMetadata,
};
use jiff::{Timestamp, civil, tz::TimeZone};

use super::{is_missing, partitions_of};
use crate::{
    admin::{Cell, Format, TopicSelection, admin, report, topic_selection},
    failure::Failure,
    output,
    settings::ClientArguments,
};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    client: ClientArguments,
    #[command(flatten)]
    format: Format,
    /// The group.
    #[arg(short, long, value_name = "GROUP")]
    group: String,
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
    /// Forward by this number of records, or back if negative.
    #[arg(long, value_name = "RECORDS", allow_hyphen_values = true)]
    shift_by: Option<i64>,
}

fn time(text: &str) -> Result<Timestamp, String> {
    let with_zone = text.parse::<Timestamp>();
    let in_utc = || text.parse::<civil::DateTime>()?.to_zoned(TimeZone::UTC);
    let time = with_zone.or_else(|_| in_utc().map(|zoned| zoned.timestamp()));
    time.map_err(|_| "expected a time such as 2026-01-31T12:30:00.000".into())
}

const NONE: &str = "no partitions";

pub(super) async fn run(arguments: &Arguments) -> Result<(), Failure> {
    let admin = admin(&arguments.client)?;
    let group = arguments.group.as_str();
    refuse_if_active(&admin, group).await?;
    let committed = committed(&admin, group).await?;
    let partitions = match arguments.of.all_topics {
        true => committed.keys().cloned().collect(),
        false => partitions_of(&admin, &arguments.of.topics).await?,
    };
    if partitions.is_empty() {
        let text = format!("group '{group}' has no committed offsets; name topics with --topic");
        return Err(Failure::new(text));
    }
    let plan = plan(&admin, &arguments.to, &partitions, &committed).await?;
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

/// Active members would continue from their positions and commit those.
async fn refuse_if_active(admin: &Admin, group: &str) -> Result<(), Failure> {
    for (_, described) in admin.describe_groups(&[group]).await? {
        match described {
            Ok(group) if group.state == GroupState::Empty => {}
            Ok(found) => {
                return Err(Failure::new(format!(
                    "group '{group}' is {}; stop its members before resetting its offsets",
                    found.state.name()
                )));
            }
            // The commit creates the group.
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

async fn committed(admin: &Admin, group: &str) -> Result<GroupOffsets, Failure> {
    let mut all = GroupOffsets::new();
    for (_, offsets) in admin.list_group_offsets(&[group]).await? {
        all.extend(offsets?);
    }
    Ok(all)
}

type Plan = Vec<(TopicPartition, OffsetAndMetadata)>;

async fn plan(
    admin: &Admin,
    to: &To,
    partitions: &[TopicPartition],
    committed: &GroupOffsets,
) -> Result<Plan, Failure> {
    let first = list(admin, partitions, OffsetSpec::Earliest).await?;
    let end = list(admin, partitions, OffsetSpec::Latest).await?;
    let found = match to.to_datetime {
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
            To { to_offset: Some(offset), .. } => (*offset).clamp(first, end),
            // A time after every record is the log end.
            To { to_datetime: Some(_), .. } => found.get(at).copied().unwrap_or(end),
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
    use super::time;

    #[test]
    fn times_are_utc_unless_they_say_otherwise() {
        let ms = |text| time(text).unwrap().as_millisecond();
        assert_eq!(ms("1970-01-02T00:00:00.000"), 86_400_000);
        assert_eq!(ms("1970-01-02T00:00:00.000Z"), 86_400_000);
        assert_eq!(ms("1970-01-02T01:00:00+01:00"), 86_400_000);
        assert!(time("yesterday").is_err());
    }
}
