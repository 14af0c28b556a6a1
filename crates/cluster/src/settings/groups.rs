//! Settings of groups: overrides of the brokers' `group.consumer.` and `group.streams.` settings for one group.

use std::{sync::Arc, time::Duration};

use super::{BrokerSettings, Changed, Given, SOURCE_GROUP, Whose, kind_of};
use crate::{
    config::ClusterConfig,
    coordinator::{consumer, streams},
    topic_config::Described,
};

const CONSUMER_SESSION: &str = "consumer.session.timeout.ms";
const CONSUMER_HEARTBEAT: &str = "consumer.heartbeat.interval.ms";
const STREAMS_ASSIGNMENT: &str = "streams.assignment.interval.ms";
const STREAMS_DELAY: &str = "streams.initial.rebalance.delay.ms";
const STREAMS_HEARTBEAT: &str = "streams.heartbeat.interval.ms";
const STREAMS_SESSION: &str = "streams.session.timeout.ms";
const STREAMS_STANDBYS: &str = "streams.num.standby.replicas";

/// A setting of groups.
struct Setting {
    name: &'static str,
    /// The setting of brokers that it overrides.
    of_brokers: &'static str,
    /// The least value, whatever the brokers' settings are.
    least: i32,
    /// The value of brokers.
    default: fn(&ClusterConfig) -> i32,
    /// The settings of brokers that bound it.
    bounds: &'static [Bound],
}

/// A bound of a setting.
struct Bound {
    name: &'static str,
    value: fn(&ClusterConfig) -> i32,
    is_upper: bool,
}

const fn at_least(name: &'static str, value: fn(&ClusterConfig) -> i32) -> Bound {
    Bound { name, value, is_upper: false }
}

const fn at_most(name: &'static str, value: fn(&ClusterConfig) -> i32) -> Bound {
    Bound { name, value, is_upper: true }
}

fn ms(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

fn number(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// All settings of groups, by name.
const SETTINGS: [Setting; 7] = [
    Setting {
        name: CONSUMER_HEARTBEAT,
        of_brokers: "group.consumer.heartbeat.interval.ms",
        least: 1,
        default: |c| ms(c.group_consumer_heartbeat_interval),
        bounds: &[
            at_least("group.consumer.min.heartbeat.interval.ms", |c| {
                ms(c.group_consumer_min_heartbeat_interval)
            }),
            at_most("group.consumer.max.heartbeat.interval.ms", |c| {
                ms(c.group_consumer_max_heartbeat_interval)
            }),
        ],
    },
    Setting {
        name: CONSUMER_SESSION,
        of_brokers: "group.consumer.session.timeout.ms",
        least: 1,
        default: |c| ms(c.group_consumer_session_timeout),
        bounds: &[
            at_least("group.consumer.min.session.timeout.ms", |c| {
                ms(c.group_consumer_min_session_timeout)
            }),
            at_most("group.consumer.max.session.timeout.ms", |c| {
                ms(c.group_consumer_max_session_timeout)
            }),
        ],
    },
    Setting {
        name: STREAMS_ASSIGNMENT,
        of_brokers: "group.streams.assignment.interval.ms",
        least: 0,
        default: |c| ms(c.group_streams_assignment_interval),
        bounds: &[
            at_least("group.streams.min.assignment.interval.ms", |c| {
                ms(c.group_streams_min_assignment_interval)
            }),
            at_most("group.streams.max.assignment.interval.ms", |c| {
                ms(c.group_streams_max_assignment_interval)
            }),
        ],
    },
    Setting {
        name: STREAMS_HEARTBEAT,
        of_brokers: "group.streams.heartbeat.interval.ms",
        least: 1,
        default: |c| ms(c.group_streams_heartbeat_interval),
        bounds: &[
            at_least("group.streams.min.heartbeat.interval.ms", |c| {
                ms(c.group_streams_min_heartbeat_interval)
            }),
            at_most("group.streams.max.heartbeat.interval.ms", |c| {
                ms(c.group_streams_max_heartbeat_interval)
            }),
        ],
    },
    Setting {
        name: STREAMS_DELAY,
        of_brokers: "group.streams.initial.rebalance.delay.ms",
        least: 0,
        default: |c| ms(c.group_streams_initial_rebalance_delay),
        bounds: &[],
    },
    Setting {
        name: STREAMS_STANDBYS,
        of_brokers: "group.streams.num.standby.replicas",
        least: 0,
        default: |c| number(c.group_streams_num_standby_replicas),
        bounds: &[at_most("group.streams.max.standby.replicas", |c| {
            number(c.group_streams_max_standby_replicas)
        })],
    },
    Setting {
        name: STREAMS_SESSION,
        of_brokers: "group.streams.session.timeout.ms",
        least: 1,
        default: |c| ms(c.group_streams_session_timeout),
        bounds: &[
            at_least("group.streams.min.session.timeout.ms", |c| {
                ms(c.group_streams_min_session_timeout)
            }),
            at_most("group.streams.max.session.timeout.ms", |c| {
                ms(c.group_streams_max_session_timeout)
            }),
        ],
    },
];

impl Setting {
    /// Returns the group's own value, if it has one.
    fn own(&self, given: &Given) -> Result<Option<i32>, String> {
        let Some(value) = given.get(self.name) else { return Ok(None) };
        let number = value.trim().parse::<i32>().ok().filter(|number| *number >= self.least);
        let kind = if self.least > 0 { "a positive int" } else { "an int of 0 or more" };
        let invalid =
            || format!("Invalid value {value} for configuration {}: not {kind}", self.name);
        number.ok_or_else(invalid).map(Some)
    }

    /// Checks the value in force against the bounds.
    fn check(&self, given: &Given, config: &ClusterConfig) -> Result<(), String> {
        let own = self.own(given)?;
        // Only an own interval of assignments is checked, as in Kafka.
        if own.is_none() && self.name == STREAMS_ASSIGNMENT {
            return Ok(());
        }
        let value = own.unwrap_or_else(|| (self.default)(config));
        for bound in self.bounds {
            let limit = (bound.value)(config);
            let (holds, relation) = match bound.is_upper {
                true => (value <= limit, "less than"),
                false => (value >= limit, "greater than"),
            };
            if !holds {
                return Err(format!("{} must be {relation} or equal to {}", self.name, bound.name));
            }
        }
        Ok(())
    }
}

fn setting(name: &str) -> Option<&'static Setting> {
    const { &SETTINGS }.iter().find(|setting| setting.name == name)
}

/// Returns the group's own value of a setting. The controller has validated it.
fn own(given: &Given, name: &str) -> Option<i32> {
    setting(name)?.own(given).ok().flatten()
}

fn own_millis(given: &Given, name: &str) -> Option<Duration> {
    let millis = own(given, name)?;
    Some(Duration::from_millis(millis.unsigned_abs().into()))
}

/// Checks the overrides of a group.
pub(super) fn check(given: &Given, config: &ClusterConfig) -> Result<(), String> {
    if let Some(name) = given.keys().find(|name| setting(name).is_none()) {
        return Err(format!("Unknown group config name: {name}"));
    }
    for setting in const { &SETTINGS } {
        setting.check(given, config)?;
    }
    for (session, heartbeat) in
        [(CONSUMER_SESSION, CONSUMER_HEARTBEAT), (STREAMS_SESSION, STREAMS_HEARTBEAT)]
    {
        let value = |name| {
            let default = setting(name).map_or(0, |setting| (setting.default)(config));
            own(given, name).unwrap_or(default)
        };
        if value(session) <= value(heartbeat) {
            return Err(format!("{session} must be greater than {heartbeat}"));
        }
    }
    Ok(())
}

fn given<'a>(changed: &'a Changed, group: &str) -> Option<&'a Arc<Given>> {
    if changed.is_empty() {
        return None;
    }
    changed.get(&Whose::Group(group.to_owned()))
}

/// Returns the settings in force for a group of the consumer protocol; groups without overrides use `settings`.
pub(crate) fn of_group(
    settings: &Arc<consumer::Settings>,
    changed: &Changed,
    group: &str,
) -> Arc<consumer::Settings> {
    let Some(given) = given(changed, group) else { return Arc::clone(settings) };
    let mut settings = (**settings).clone();
    if let Some(timeout) = own_millis(given, CONSUMER_SESSION) {
        settings.session_timeout = timeout;
    }
    if let Some(interval) = own_millis(given, CONSUMER_HEARTBEAT) {
        settings.heartbeat_interval = interval;
    }
    settings.into()
}

/// Like [`of_group`], for a streams group.
pub(crate) fn of_streams_group(
    settings: &Arc<streams::Settings>,
    changed: &Changed,
    group: &str,
) -> Arc<streams::Settings> {
    let Some(given) = given(changed, group) else { return Arc::clone(settings) };
    let mut settings = (**settings).clone();
    for (name, field) in [
        (STREAMS_SESSION, &mut settings.session_timeout),
        (STREAMS_HEARTBEAT, &mut settings.heartbeat_interval),
        (STREAMS_DELAY, &mut settings.initial_delay),
        (STREAMS_ASSIGNMENT, &mut settings.assignment_interval),
    ] {
        if let Some(value) = own_millis(given, name) {
            *field = value;
        }
    }
    if let Some(standbys) = own(given, STREAMS_STANDBYS) {
        settings.standbys = standbys.unsigned_abs();
    }
    settings.into()
}

/// Returns every setting of a group.
pub(crate) fn describe_group(
    brokers: &BrokerSettings,
    changed: &Changed,
    group: &str,
) -> Vec<Described> {
    let given = given(changed, group);
    let one = |setting: &'static Setting| {
        let Setting { name, of_brokers, .. } = setting;
        let own = given.and_then(|given| given.get(*name));
        let own = own.map(|value| (*name, value.clone(), SOURCE_GROUP));
        let layers = brokers.layers(of_brokers).into_iter();
        let layers = layers.map(|(value, source)| (*of_brokers, value, source));
        let synonyms: Vec<_> = own.into_iter().chain(layers).collect();
        let (value, source) =
            synonyms.first().map(|(_, value, source)| (value.clone(), *source))?;
        Some(Described { name, kind: kind_of(name, &value), value, source, synonyms })
    };
    const { &SETTINGS }.iter().filter_map(one).collect()
}
