//! Which topics to request metadata for next, and when.
//!
//! A topic's metadata is fetched when a task needs it, after an error that suggests a change, and when it has grown
//! old. A topic is forgotten after `metadata.max.idle.ms` without use. A request names a bounded group of topics.
//! Urgent topics therefore never queue after merely old ones, and no response is so large that parsing it delays
//! other tasks.
//!
//! Rules:
//! * A topic is in one request at a time; a task that needs it joins the request in flight.
//! * The first refresh after an error leaves at once. The next one of the same topic for the same [`Cause`] waits for
//!   `retry.backoff.ms` after the response. Repeated refreshes because of one broker never delay the first error of
//!   another.
//! * A topic that does not exist or lacks a leader is requested again after `retry.backoff.ms` for about a second,
//!   which covers creation and election. After that the backoff doubles (KIP-580). A topic for which no task waits is
//!   not requested again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{backoff::Backoff, later::Later};

#[cfg(test)]
mod tests;

/// Repetitions at the shortest backoff, before it doubles.
const STEADY: u32 = 10;

/// When topics are requested, and how many at once.
#[derive(Clone, Copy, Debug)]
pub struct RefreshPolicy {
    /// `metadata.max.age.ms`.
    pub max_age: Duration,
    /// `metadata.max.idle.ms`; `None` keeps every topic that exists.
    pub max_idle: Option<Duration>,
    /// `retry.backoff.ms`, `retry.backoff.max.ms`.
    pub backoff: Backoff,
    /// Topics in one request, at least 1.
    pub group_topics: usize,
    /// Partitions that the topics of one request are known to have; a larger topic is requested alone.
    pub group_partitions: usize,
}

/// Why a topic is requested again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A task has no metadata of the topic, or a broker reports that the known metadata is old.
    Topic,
    /// This broker is unresponsive or unreachable.
    Broker(i32),
}

/// A topic's state in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It exists and every partition has a leader.
    Complete,
    /// It exists, and some partition has no leader.
    Leaderless,
    /// The response has an error for it, or leaves it out.
    Nothing,
}

/// The topics in use, and when each is due.
#[derive(Debug)]
pub struct Refresh {
    policy: RefreshPolicy,
    topics: BTreeMap<Arc<str>, Entry>,
    /// Topics that a task waits for, by due time.
    urgent: BTreeSet<(Instant, Arc<str>)>,
    /// Topics whose metadata ages, by due time.
    aging: BTreeSet<(Instant, Arc<str>)>,
    /// Whether a task needs the brokers, independent of topics.
    brokers: bool,
}

#[derive(Debug)]
struct Entry {
    place: Place,
    /// Causes since the last request for it left.
    wanted: BTreeSet<Cause>,
    /// Causes of the request in flight; empty if the metadata had grown old.
    asked: BTreeSet<Cause>,
    /// When it was last requested or seen in use.
    used: Instant,
    /// Whether the last response described it.
    known: bool,
    /// Earliest next refresh for each cause.
    not_before: BTreeMap<Cause, Instant>,
    /// Incomplete responses in a row.
    failures: u32,
}

/// The queue that an entry is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Urgent(Instant),
    Aging(Instant),
    /// The request in flight contains the topic. `again`: an error has made it due again. The request left before
    /// that error, so its response may not reflect it.
    UnderWay {
        again: Option<Instant>,
    },
}

impl Refresh {
    /// Creates an empty set of topics.
    pub fn new(policy: RefreshPolicy) -> Self {
        let policy = RefreshPolicy { group_topics: policy.group_topics.max(1), ..policy };
        Self {
            policy,
            topics: BTreeMap::new(),
            urgent: BTreeSet::new(),
            aging: BTreeSet::new(),
            brokers: false,
        }
    }

    /// Requests a refresh: a task has no metadata of the topic, or an error suggests that the known metadata is old.
    pub fn want(&mut self, topic: &str, cause: Cause, now: Instant) {
        if let Some((name, _)) = self.topics.get_key_value(topic) {
            let name = name.clone();
            return self.want_known(&name, cause, now);
        }
        let name: Arc<str> = topic.into();
        let entry = Entry {
            place: Place::Urgent(now),
            wanted: BTreeSet::from([cause]),
            asked: BTreeSet::new(),
            used: now,
            known: false,
            not_before: BTreeMap::new(),
            failures: 0,
        };
        self.urgent.insert((now, name.clone()));
        self.topics.insert(name, entry);
    }

    fn want_known(&mut self, name: &Arc<str>, cause: Cause, now: Instant) {
        let Some(entry) = self.topics.get_mut(name) else { return };
        entry.wanted.insert(cause);
        entry.used = now;
        let at = entry.not_before.get(&cause).map_or(now, |earliest| *earliest.max(&now));
        match entry.place {
            // A request for the same cause is joined; any other left before the error.
            Place::UnderWay { .. } if entry.asked.contains(&cause) => {}
            Place::UnderWay { again } => {
                let again = again.map_or(at, |due| due.min(at));
                entry.place = Place::UnderWay { again: Some(again) };
            }
            Place::Urgent(due) if due <= at => {}
            Place::Urgent(_) | Place::Aging(_) => self.put(name, Place::Urgent(at)),
        }
    }

    /// Requests a refresh of every topic in use and of the brokers, after an error that names no topic.
    pub fn want_all(&mut self, cause: Cause, now: Instant) {
        let names: Vec<Arc<str>> = self.topics.keys().cloned().collect();
        self.brokers |= names.is_empty();
        for name in names {
            self.want_known(&name, cause, now);
        }
    }

    /// Returns when the next request is due; `None` while no topic is in use or all of them are in flight.
    pub fn next_due(&self, now: Instant) -> Option<Instant> {
        if self.brokers {
            return Some(now);
        }
        let urgent = self.urgent.first().map(|(at, _)| *at);
        let aging = self.aging.first().map(|(at, _)| *at);
        urgent.into_iter().chain(aging).min()
    }

    /// Topics of the next group that no task has requested since their last response. The caller finds out whether
    /// they are still in use, before [`Self::take`].
    pub fn unwanted(&self, now: Instant) -> Vec<Arc<str>> {
        self.due(now)
            .take(self.policy.group_topics)
            .filter(|name| self.topics.get(name).is_some_and(|entry| entry.wanted.is_empty()))
            .collect()
    }

    /// Due topics, most urgent first. Topics that are only old wait until no other topic is due.
    fn due(&self, now: Instant) -> impl Iterator<Item = Arc<str>> + '_ {
        let pressing = self.urgent.first().is_some_and(|(at, _)| *at <= now);
        let list = if pressing { &self.urgent } else { &self.aging };
        list.iter().take_while(move |(at, _)| *at <= now).map(|(_, name)| name.clone())
    }

    /// Returns the group to request now, and the topics that it forgets because they are not in use.
    ///
    /// `in_use` are the topics of [`Self::unwanted`] that are in use; `partitions` returns a topic's known size. The
    /// group is `None` if no request is due; an empty group requests the brokers only.
    pub fn take(
        &mut self,
        now: Instant,
        in_use: &BTreeSet<Arc<str>>,
        partitions: impl Fn(&str) -> usize,
    ) -> (Option<Vec<Arc<str>>>, Vec<Arc<str>>) {
        let due: Vec<Arc<str>> = self.due(now).take(self.policy.group_topics).collect();
        let (mut group, mut expired, mut size) = (Vec::new(), Vec::new(), 0);
        for name in due {
            let Some(entry) = self.topics.get_mut(&name) else { continue };
            if in_use.contains(&name) {
                entry.used = now;
            } else if entry.is_idle(now, self.policy.max_idle) {
                self.forget(&name);
                expired.push(name);
                continue;
            }
            let more = partitions(&name).max(1);
            if !group.is_empty() && size + more > self.policy.group_partitions {
                break;
            }
            size += more;
            entry.asked = std::mem::take(&mut entry.wanted);
            self.put(&name, Place::UnderWay { again: None });
            group.push(name);
        }
        let brokers = std::mem::take(&mut self.brokers);
        ((brokers || !group.is_empty()).then_some(group), expired)
    }

    /// Reports the response to the request in flight. `unit` is a random draw from `[0, 1)`.
    pub fn answered(&mut self, topic: &str, said: Said, now: Instant, unit: f64) {
        let Some((name, _)) = self.topics.get_key_value(topic) else { return };
        let name = name.clone();
        let Some(entry) = self.topics.get_mut(&name) else { return };
        let Place::UnderWay { again } = entry.place else { return };
        let mut causes = std::mem::take(&mut entry.asked);
        let backoff = self.policy.backoff;
        let first = !std::mem::replace(&mut entry.known, said != Said::Nothing);
        entry.failures = if said == Said::Complete { 0 } else { entry.failures.saturating_add(1) };
        entry.not_before.retain(|_, until| *until > now);
        if said != Said::Complete {
            causes.insert(Cause::Topic);
        }
        // The first fetch of a topic is no error: the first refresh after it still leaves at once.
        if !first || said != Said::Complete {
            let until = now.later(backoff.after(1, unit));
            entry.not_before.extend(causes.into_iter().map(|cause| (cause, until)));
        }
        let place = match said {
            Said::Complete => {
                again.map_or(Place::Aging(now.later(self.policy.max_age)), Place::Urgent)
            }
            Said::Leaderless | Said::Nothing => {
                let doublings = entry.failures.saturating_sub(STEADY);
                Place::Urgent(now.later(backoff.after(doublings + 1, unit)))
            }
        };
        self.put(&name, place);
    }

    /// Reports that the request in flight has failed: its topics are due again.
    pub fn failed(&mut self, group: &[Arc<str>], now: Instant) {
        self.brokers |= group.is_empty();
        for name in group {
            let Some(entry) = self.topics.get_mut(name) else { continue };
            let Place::UnderWay { .. } = entry.place else { continue };
            entry.wanted.append(&mut entry.asked);
            let old = entry.wanted.is_empty();
            let place = if old { Place::Aging(now) } else { Place::Urgent(now) };
            self.put(name, place);
        }
    }

    fn put(&mut self, name: &Arc<str>, place: Place) {
        let Some(entry) = self.topics.get_mut(name) else { return };
        match std::mem::replace(&mut entry.place, place) {
            Place::Urgent(at) => self.urgent.remove(&(at, name.clone())),
            Place::Aging(at) => self.aging.remove(&(at, name.clone())),
            Place::UnderWay { .. } => false,
        };
        match place {
            Place::Urgent(at) => self.urgent.insert((at, name.clone())),
            Place::Aging(at) => self.aging.insert((at, name.clone())),
            Place::UnderWay { .. } => false,
        };
    }

    fn forget(&mut self, name: &Arc<str>) {
        self.put(name, Place::UnderWay { again: None });
        self.topics.remove(name);
    }
}

impl Entry {
    /// Whether the topic may be forgotten, if no caller reports it as in use.
    fn is_idle(&self, now: Instant, max_idle: Option<Duration>) -> bool {
        if !self.wanted.is_empty() {
            return false;
        }
        !self.known || max_idle.is_some_and(|idle| now.saturating_duration_since(self.used) >= idle)
    }
}
