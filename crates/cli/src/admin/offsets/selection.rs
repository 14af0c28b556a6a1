//! Topics, partitions and times of `curtail get-offsets`.

use curtail::{
    TopicPartition,
    admin::{OffsetSpec, TopicListing},
};
use jiff::Timestamp;
use regex::Regex;

use crate::admin::groups::reset;

/// An offset to look up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Time(pub(super) OffsetSpec);

/// Parses the times of kafka-get-offsets, and dates.
pub(super) fn time(text: &str) -> Result<Time, String> {
    let spec = match text {
        "latest" | "-1" => OffsetSpec::Latest,
        "earliest" | "-2" => OffsetSpec::Earliest,
        "max-timestamp" | "-3" => OffsetSpec::MaxTimestamp,
        "earliest-local" | "-4" => OffsetSpec::EarliestLocal,
        "latest-tiered" | "-5" => OffsetSpec::LatestTiered,
        _ => {
            let number = text.parse::<i64>().ok().filter(|ms| *ms >= 0);
            let ms = number.or_else(|| reset::time(text).ok().map(Timestamp::as_millisecond));
            OffsetSpec::Timestamp(ms.ok_or(
                "expected latest, earliest, max-timestamp, earliest-local, latest-tiered, a timestamp in ms or a time \
                 such as 2026-01-31T12:30:00.000",
            )?)
        }
    };
    Ok(Time(spec))
}

/// Partitions of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Partitions {
    All,
    These(Vec<i32>),
    /// From the first, before the second.
    Range(i32, i32),
}

/// A selection of topics and partitions.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    /// As it was given.
    pub(super) text: String,
    name: String,
    expression: Regex,
    partitions: Partitions,
    /// The time of this selection only.
    pub(super) time: Option<Time>,
}

/// Parses `TOPIC` or kcat's `TOPIC:PARTITION:TIME`.
pub(super) fn topic(text: &str) -> Result<Pattern, String> {
    if let [name, partition, at] = text.split(':').collect::<Vec<_>>()[..]
        && let (Ok(partition), Ok(time)) = (partition.parse(), time(at))
    {
        let found = Pattern::new(text, name, Partitions::These(vec![partition]))?;
        return Ok(Pattern { time: Some(time), ..found });
    }
    Pattern::new(text, text, Partitions::All)
}

/// Parses kafka-get-offsets' `TOPIC:PARTITIONS`.
pub(super) fn topic_partitions(text: &str) -> Result<Pattern, String> {
    let Some((name, partitions)) = text.split_once(':') else { return topic(text) };
    let number = |text: &str, default: i32| match text {
        "" => Some(default),
        text => text.parse::<i32>().ok().filter(|number| *number >= 0),
    };
    let parsed = match partitions.split_once('-') {
        _ if partitions.is_empty() => Some(Partitions::All),
        None => number(partitions, 0).map(|one| Partitions::These(vec![one])),
        Some((from, before)) => number(from, 0)
            .zip(number(before, i32::MAX))
            .map(|(from, before)| Partitions::Range(from, before)),
    };
    let partitions =
        parsed.ok_or("expected TOPIC, TOPIC:0, TOPIC:3-, TOPIC:-3 or TOPIC:0-3 (before 3)")?;
    let name = if name.is_empty() { ".*" } else { name };
    Pattern::new(text, name, partitions)
}

impl Pattern {
    fn new(text: &str, name: &str, partitions: Partitions) -> Result<Self, String> {
        let expression = Regex::new(&format!("^(?:{name})$"))
            .map_err(|_| "expected the name of a topic or a regular expression".to_owned())?;
        let (text, name) = (text.to_owned(), name.to_owned());
        Ok(Self { text, name, expression, partitions, time: None })
    }

    /// All partitions of all topics.
    pub(super) fn any() -> Self {
        let expression = Regex::new("").expect("the empty expression is valid");
        let (text, name) = ("all topics".to_owned(), String::new());
        Self { text, name, expression, partitions: Partitions::All, time: None }
    }

    /// Selects only these partitions; none are no restriction.
    pub(super) fn restrict(&mut self, partitions: &[i32]) {
        if !partitions.is_empty() && self.partitions == Partitions::All {
            self.partitions = Partitions::These(partitions.to_vec());
        }
    }

    /// The name, unless it can only be an expression.
    pub(super) fn topic_name(&self) -> Option<&str> {
        let is_legal = |c: char| c.is_ascii_alphanumeric() || ['.', '_', '-'].contains(&c);
        (!self.name.is_empty() && self.name.chars().all(is_legal)).then_some(self.name.as_str())
    }

    /// The selected partitions. A topic of this name is selected alone, although its dots match other characters as well.
    pub(super) fn select(&self, topics: &[TopicListing]) -> Vec<TopicPartition> {
        if let Some(topic) = topics.iter().find(|topic| topic.name == self.name) {
            return self.of(topic, true);
        }
        let matching = topics.iter().filter(|topic| self.expression.is_match(&topic.name));
        matching.flat_map(|topic| self.of(topic, false)).collect()
    }

    /// The partitions of one topic. Those named for one topic may be missing, which is an error of theirs.
    fn of(&self, topic: &TopicListing, is_named: bool) -> Vec<TopicPartition> {
        let count = i32::try_from(topic.partitions).unwrap_or(i32::MAX);
        let indexes: Vec<i32> = match &self.partitions {
            Partitions::All => (0..count).collect(),
            Partitions::These(these) => {
                these.iter().copied().filter(|index| is_named || *index < count).collect()
            }
            Partitions::Range(from, before) => (*from..(*before).min(count)).collect(),
        };
        indexes.into_iter().map(|index| TopicPartition::new(topic.name.as_str(), index)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_kafka_and_dates() {
        for (text, spec) in [
            ("latest", OffsetSpec::Latest),
            ("-2", OffsetSpec::Earliest),
            ("-3", OffsetSpec::MaxTimestamp),
            ("latest-tiered", OffsetSpec::LatestTiered),
            ("0", OffsetSpec::Timestamp(0)),
            ("1970-01-02T00:00:00Z", OffsetSpec::Timestamp(86_400_000)),
        ] {
            assert_eq!(time(text), Ok(Time(spec)), "{text}");
        }
        assert!(time("-6").is_err() && time("soon").is_err());
    }

    #[test]
    fn partitions_are_selected_as_by_kafka_get_offsets_and_kcat() {
        let these = |list: &[i32]| Partitions::These(list.to_vec());
        for (text, partitions) in [
            ("t", Partitions::All),
            ("t:", Partitions::All),
            ("t:4", these(&[4])),
            (":4", these(&[4])),
            ("t:1-3", Partitions::Range(1, 3)),
            ("t:1-", Partitions::Range(1, i32::MAX)),
            ("t:-3", Partitions::Range(0, 3)),
        ] {
            assert_eq!(topic_partitions(text).unwrap().partitions, partitions, "{text}");
        }
        for text in ["t:x", "t:1-x", "t:1-2-3", "t:-1-2", "(:1"] {
            assert!(topic_partitions(text).is_err(), "{text}");
        }
        let query = topic("t:1:7").unwrap();
        assert_eq!((query.topic_name(), &query.partitions), (Some("t"), &these(&[1])));
        assert_eq!(query.time, Some(Time(OffsetSpec::Timestamp(7))));
        assert_eq!(topic("(?:a|b)").unwrap().topic_name(), None);
    }
}
