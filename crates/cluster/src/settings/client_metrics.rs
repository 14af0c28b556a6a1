//! Subscriptions to metrics of clients (KIP-714), as resources with settings.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use curtail_wire::ErrorCode;
use regex::Regex;

use super::{Changed, Given, SOURCE_CLIENT_METRICS, SOURCE_DEFAULT, Whose};
use crate::{
    controller::Refusal,
    topic_config::{Described, Kind, split},
};

const METRICS: &str = "metrics";
const INTERVAL: &str = "interval.ms";
const MATCH: &str = "match";

/// All settings of a subscription, with their types and defaults.
const SETTINGS: [(&str, Kind, &str); 3] =
    [(INTERVAL, Kind::Int, "300000"), (MATCH, Kind::List, ""), (METRICS, Kind::List, "")];

/// The push interval without a subscription.
pub(crate) const DEFAULT_INTERVAL: Duration = Duration::from_secs(300);

/// Attributes of a client that `match` may name.
const ATTRIBUTES: [&str; 6] = [
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
];

/// A subscription in force.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    /// Prefixes of names, or `*`.
    pub(crate) metrics: Vec<String>,
    pub(crate) interval: Duration,
    /// Expressions that attributes of a client match as a whole.
    matches: Vec<(String, Regex)>,
}

impl Subscription {
    /// Returns whether it applies to a client with these attributes.
    pub(crate) fn is_for(&self, attributes: &BTreeMap<&'static str, String>) -> bool {
        self.matches.iter().all(|(name, pattern)| {
            attributes.get(name.as_str()).is_some_and(|value| pattern.is_match(value))
        })
    }

    /// Parses the settings of a subscription.
    ///
    /// # Errors
    /// The reason, with Kafka's error code.
    fn new(given: &Given) -> Result<Self, Refusal> {
        if let Some(name) = given.keys().find(|name| !is_known(name)) {
            let reason = format!("Unknown client metrics configuration: {name}");
            return Err((ErrorCode::INVALID_REQUEST, reason));
        }
        let list = |name: &str| split(given.get(name).map_or("", String::as_str));
        let patterns = list(MATCH).map(|entry| pattern(&entry)).collect::<Result<_, _>>()?;
        Ok(Self { metrics: list(METRICS).collect(), interval: interval(given)?, matches: patterns })
    }
}

fn is_known(name: &str) -> bool {
    SETTINGS.iter().any(|(known, ..)| *known == name)
}

fn interval(given: &Given) -> Result<Duration, Refusal> {
    let Some(value) = given.get(INTERVAL) else { return Ok(DEFAULT_INTERVAL) };
    let Ok(ms) = value.trim().parse::<i32>() else {
        let reason =
            format!("Invalid value {value} for configuration {INTERVAL}: Not a number of type INT");
        return Err((ErrorCode::INVALID_CONFIG, reason));
    };
    match u64::try_from(ms) {
        Ok(positive) if (100..=3_600_000).contains(&ms) => Ok(Duration::from_millis(positive)),
        _ => {
            let reason = format!(
                "Invalid value {ms} for {INTERVAL}, interval must be between 100 and 3600000 (1 hour)"
            );
            Err((ErrorCode::INVALID_REQUEST, reason))
        }
    }
}

/// Parses `attribute=expression`.
fn pattern(entry: &str) -> Result<(String, Regex), Refusal> {
    let illegal =
        || (ErrorCode::INVALID_CONFIG, format!("Illegal client matching pattern: {entry}"));
    let parts: Vec<&str> = entry.split('=').map(str::trim).collect();
    let [name, expression] = parts[..] else { return Err(illegal()) };
    if !ATTRIBUTES.contains(&name) || expression.is_empty() {
        return Err(illegal());
    }
    let whole = Regex::new(&format!("^(?:{expression})$")).map_err(|_| illegal())?;
    Ok((name.to_owned(), whole))
}

/// Checks the settings of a subscription.
pub(super) fn check(given: &Given) -> Result<(), Refusal> {
    Subscription::new(given).map(drop)
}

/// Returns the settings of each subscription, by name.
pub(crate) fn subscriptions(
    changed: &Changed,
) -> impl Iterator<Item = (&str, &Arc<Given>, Subscription)> {
    changed.iter().filter_map(|(whose, given)| {
        let Whose::ClientMetrics(name) = whose else { return None };
        // The controller has validated it.
        Some((name.as_str(), given, Subscription::new(given).ok()?))
    })
}

/// Returns every setting of a subscription.
pub(crate) fn describe_client_metrics(changed: &Changed, name: &str) -> Vec<Described> {
    let given = changed.get(&Whose::ClientMetrics(name.to_owned()));
    let one = |(name, kind, default): (&'static str, Kind, &str)| {
        let own = given.and_then(|given| given.get(name));
        let (value, source) = match own {
            Some(value) => (value.clone(), SOURCE_CLIENT_METRICS),
            None => (default.to_owned(), SOURCE_DEFAULT),
        };
        let synonyms = vec![(name, value.clone(), source)];
        Described { name, kind, value, source, synonyms }
    };
    SETTINGS.into_iter().map(one).collect()
}
