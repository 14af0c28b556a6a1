//! Administration commands: common parts.

pub(crate) mod acls;
pub(crate) mod brokers;
pub(crate) mod configs;
pub(crate) mod elect;
pub(crate) mod features;
pub(crate) mod groups;
pub(crate) mod log_dirs;
pub(crate) mod metadata;
pub(crate) mod offsets;
pub(crate) mod quorum;
pub(crate) mod reassign;
pub(crate) mod topics;
pub(crate) mod transactions;

use std::{
    fmt::Display,
    path::Path,
    pin::{Pin, pin},
};

use clap::Args;
use curtail::{
    Admin, AdminConfig, TopicPartition,
    admin::{Each, TopicDescription},
};
use serde::de::DeserializeOwned;
use tokio::runtime::Builder;

use crate::{failure::Failure, names, output, settings::ClientArguments};

/// Output format.
#[derive(Debug, Args)]
pub(crate) struct Format {
    /// Print JSON instead of a table.
    #[arg(short = 'J', long)]
    json: bool,
}

impl Format {
    /// Prints rows as a table, or as a JSON array of objects whose names are the columns' in lower case. In place of a
    /// table without rows, `none` goes to standard error.
    fn rows(&self, columns: &[&str], rows: Vec<Vec<Cell>>, none: &str) -> Result<(), Failure> {
        if !self.json {
            if rows.is_empty() {
                output::note(none);
                return Ok(());
            }
            return output::print(&output::table(columns, &rows));
        }
        output::line(Self::objects(columns, rows))
    }

    /// The rows as a JSON array of objects.
    fn objects(columns: &[&str], rows: Vec<Vec<Cell>>) -> serde_json::Value {
        let names: Vec<String> =
            columns.iter().map(|name| name.to_lowercase().replace('-', "_")).collect();
        let objects = rows.into_iter().map(|row| {
            let fields = names.iter().cloned().zip(row.into_iter().map(Cell::into_json));
            serde_json::Value::Object(fields.collect())
        });
        serde_json::Value::Array(objects.collect())
    }
}

/// One value of a table.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    /// Words.
    Text(String),
    /// A number.
    Number(i64),
    /// Numbers in a significant order.
    Numbers(Vec<i32>),
    /// Names in a significant order.
    Names(Vec<String>),
    /// Yes or no.
    Bool(bool),
    /// Unknown or missing.
    None,
}

impl Cell {
    fn into_json(self) -> serde_json::Value {
        match self {
            Self::Text(text) => text.into(),
            Self::Number(number) => number.into(),
            Self::Numbers(numbers) => numbers.into(),
            Self::Names(names) => names.into(),
            Self::Bool(value) => value.into(),
            Self::None => serde_json::Value::Null,
        }
    }
}

impl Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => write!(f, "{number}"),
            Self::Numbers(numbers) => {
                let all: Vec<String> = numbers.iter().map(i32::to_string).collect();
                f.write_str(&all.join(","))
            }
            Self::Names(names) if names.is_empty() => f.write_str("-"),
            Self::Names(names) => f.write_str(&names.join(",")),
            Self::Bool(value) => write!(f, "{value}"),
            Self::None => f.write_str("-"),
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Cell {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<i32> for Cell {
    fn from(number: i32) -> Self {
        Self::Number(number.into())
    }
}

impl From<bool> for Cell {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

fn admin(client: &ClientArguments) -> Result<Admin, Failure> {
    Ok(Admin::new(client.config::<AdminConfig>(&[], &[])?)?)
}

/// Runs a command to its end.
fn block_on(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Failure::new)?;
    // `dyn`: tokio's runtime is compiled once, not for each command.
    let mut work = pin!(work);
    runtime.block_on(work.as_mut() as Pin<&mut dyn Future<Output = _>>)
}

/// Passes each success to `tell`; fails with all errors.
fn report<K, T>(
    results: Each<K, T>,
    mut tell: impl FnMut(&K, T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut failed = Vec::new();
    for (key, result) in results {
        match result {
            Ok(value) => tell(&key, value)?,
            Err(error) => failed.push(Failure::from(error)),
        }
    }
    Failure::all(failed)
}

/// As [`report`], for topics or groups: the error for a missing one names its nearest neighbour.
async fn report_named<T>(
    admin: &Admin,
    results: Each<String, T>,
    mut tell: impl FnMut(&String, T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut failed = Vec::new();
    for (name, result) in results {
        match result {
            Ok(value) => tell(&name, value)?,
            Err(error) => failed.push(names::failure(admin, &name, error).await),
        }
    }
    Failure::all(failed)
}

/// Reads a JSON file.
fn read_json<T: DeserializeOwned>(path: &Path, example: &str) -> Result<T, Failure> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("cannot read {shown}: {error}")))?;
    serde_json::from_str(&text)
        .map_err(|error| Failure::new(format!("{shown}: {error}; expected {example}")))
}

/// `TOPIC:0,1,2`, or a topic with all its partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TopicSelection {
    topic: String,
    partitions: Option<Vec<i32>>,
}

fn topic_selection(text: &str) -> Result<TopicSelection, String> {
    let Some((topic, partitions)) = text.split_once(':') else {
        return Ok(TopicSelection { topic: text.to_owned(), partitions: None });
    };
    let numbers = partitions.split(',').map(|number| number.trim().parse::<i32>());
    match numbers.collect() {
        Ok(numbers) => Ok(TopicSelection { topic: topic.to_owned(), partitions: Some(numbers) }),
        Err(_) => Err("expected TOPIC or TOPIC:0,1,2".into()),
    }
}

/// Topics and partitions, as bare arguments or by flag.
#[derive(Debug, Args)]
struct Selections {
    /// Topics, or some of their partitions.
    #[arg(value_name = "TOPIC[:0,1]", value_parser = topic_selection)]
    bare: Vec<TopicSelection>,
    /// A topic, or some of its partitions. May be given several times.
    #[arg(short = 't', long = "topic", value_name = "TOPIC[:0,1]", value_parser = topic_selection)]
    flagged: Vec<TopicSelection>,
}

impl Selections {
    fn all(&self) -> Vec<TopicSelection> {
        self.bare.iter().chain(&self.flagged).cloned().collect()
    }
}

/// Descriptions of topics that must exist.
async fn described(
    admin: &Admin,
    topics: &[&str],
) -> Result<Vec<(String, TopicDescription)>, Failure> {
    let mut found = Vec::new();
    for (name, described) in admin.describe_topics(topics).await? {
        match described {
            Ok(topic) => found.push((name, topic)),
            Err(error) => return Err(names::failure(admin, &name, error).await),
        }
    }
    Ok(found)
}

/// The selected partitions; a topic without a list selects all its partitions.
async fn partitions_of(
    admin: &Admin,
    selections: &[TopicSelection],
) -> Result<Vec<TopicPartition>, Failure> {
    let open = selections.iter().filter(|selection| selection.partitions.is_none());
    let open: Vec<&str> = open.map(|selection| selection.topic.as_str()).collect();
    let mut all = Vec::new();
    if !open.is_empty() {
        for (name, topic) in described(admin, &open).await? {
            all.extend(
                topic.partitions.iter().map(|p| TopicPartition::new(name.as_str(), p.partition)),
            );
        }
    }
    for TopicSelection { topic, partitions } in selections {
        let named = partitions.iter().flatten();
        all.extend(named.map(|index| TopicPartition::new(topic.as_str(), *index)));
    }
    all.sort_unstable();
    all.dedup();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::{TopicSelection, topic_selection};

    #[test]
    fn partitions_follow_a_colon() {
        let some = |partitions: Option<Vec<i32>>| {
            Ok::<_, String>(TopicSelection { topic: "t".into(), partitions })
        };
        assert_eq!(topic_selection("t"), some(None));
        assert_eq!(topic_selection("t:0, 2"), some(Some(vec![0, 2])));
        assert!(topic_selection("t:x").is_err());
        assert!(topic_selection("t:").is_err());
    }
}
