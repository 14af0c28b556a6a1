//! Which topics to ask for next, and when.
//!
//! Topics are fetched because somebody needs them, again when an error says that they may have changed, and again
//! when they have grown old; they are forgotten when nobody has used them for `metadata.max.idle.ms`. A request
//! asks for a bounded group: what errors wait for never queues behind what has merely grown old, and no answer is
//! so large that parsing it keeps other tasks waiting.
//!
//! Rules:
//! * a topic is in one request at a time; whoever needs it meanwhile joins that request;
//! * the first refresh that an error asks for leaves at once; the next one of the same topic for the same [`Cause`] not
//!   before `retry.backoff.ms` have passed since its answer. What one broker has been asked about for a while never
//!   delays the first error of another;
//! * a topic that does not exist or lacks a leader is asked for again after `retry.backoff.ms` for about a second,
//!   which covers creation and election, and then with doubling pauses (KIP-580); one that nobody waits for any
//!   more is not asked for again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{backoff::Backoff, later::Later};

#[cfg(test)]
mod tests;

/// Repetitions at the shortest pause, before the pauses double.
const STEADY: u32 = 10;

/// When topics are asked for, and how many at once.
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
    /// Partitions that the topics of one request are known to have; a larger topic is asked for alone.
    pub group_partitions: usize,
}

/// What a topic is asked for again for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Somebody has no metadata of it, or a broker says that what there is is old.
    Topic,
    /// This broker hangs, or cannot be reached.
    Broker(i32),
}

/// What an answer said of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It is there and every partition has a leader.
    Complete,
    /// It is there, and some partition has no leader.
    Leaderless,
    /// An error, or nothing at all.
    Nothing,
}

/// The topics that somebody uses, and what is due.
#[derive(Debug)]
pub struct Refresh {
    policy: RefreshPolicy,
    topics: BTreeMap<Arc<str>, Entry>,
    /// Topics that somebody waits for, by due time.
    urgent: BTreeSet<(Instant, Arc<str>)>,
    /// Topics that grow old, by due time.
    aging: BTreeSet<(Instant, Arc<str>)>,
    /// Somebody wants to know the brokers, whatever the topics.
    brokers: bool,
}

#[derive(Debug)]
struct Entry {
    place: Place,
    /// What it has been asked for since the last request for it left.
    wanted: BTreeSet<Cause>,
    /// What the request under way asks for it for; nothing: it had grown old.
    asked: BTreeSet<Cause>,
    /// When it was last wanted or seen in use.
    used: Instant,
    /// The last answer described it.
    known: bool,
    /// Until when a refresh for the same cause waits.
    not_before: BTreeMap<Cause, Instant>,
    /// Answers in a row that were not complete.
    failures: u32,
}

/// Where an entry waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Urgent(Instant),
    Aging(Instant),
    /// In the request under way. `again`: due once more then, for an error that came since, of which a request that left
    /// before may know nothing.
    UnderWay {
        again: Option<Instant>,
    },
}

impl Refresh {
    /// Nothing to ask for.
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

    /// Somebody needs the topic and has no metadata of it, or an error says that what there is may be old.
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
            // A request for the same cause is joined; any other left without knowing of the error.
            Place::UnderWay { .. } if entry.asked.contains(&cause) => {}
            Place::UnderWay { again } => {
                let again = again.map_or(at, |due| due.min(at));
                entry.place = Place::UnderWay { again: Some(again) };
            }
            Place::Urgent(due) if due <= at => {}
            Place::Urgent(_) | Place::Aging(_) => self.put(name, Place::Urgent(at)),
        }
    }

    /// An error that concerns no topic in particular: every topic in use may have changed, and the brokers.
    pub fn want_all(&mut self, cause: Cause, now: Instant) {
        let names: Vec<Arc<str>> = self.topics.keys().cloned().collect();
        self.brokers |= names.is_empty();
        for name in names {
            self.want_known(&name, cause, now);
        }
    }

    /// When there is next something to ask for; `None` while nothing is in use or all of it is under way.
    pub fn next_due(&self, now: Instant) -> Option<Instant> {
        if self.brokers {
            return Some(now);
        }
        let urgent = self.urgent.first().map(|(at, _)| *at);
        let aging = self.aging.first().map(|(at, _)| *at);
        urgent.into_iter().chain(aging).min()
    }

    /// Topics that the next group would ask for although nobody has wanted them since their last answer. Whether
    /// they are still in use is for the caller to find out, before [`Self::take`].
    pub fn unwanted(&self, now: Instant) -> Vec<Arc<str>> {
        self.due(now)
            .take(self.policy.group_topics)
            .filter(|name| self.topics.get(name).is_some_and(|entry| entry.wanted.is_empty()))
            .collect()
    }

    /// What is due, most pressing first. What is only old waits until nothing else is due.
    fn due(&self, now: Instant) -> impl Iterator<Item = Arc<str>> + '_ {
        let pressing = self.urgent.first().is_some_and(|(at, _)| *at <= now);
        let list = if pressing { &self.urgent } else { &self.aging };
        list.iter().take_while(move |(at, _)| *at <= now).map(|(_, name)| name.clone())
    }

    /// The group to ask for now, and the topics that nobody uses any more, which are forgotten. `in_use` are those
    /// of [`Self::unwanted`] that somebody uses; `partitions` says how large a topic is known to be.
    ///
    /// `None` if nothing is to be asked; an empty group asks for the brokers only.
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

    /// The answer of the request under way has come. `unit` is a random draw from `[0, 1)`.
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
        // To fetch a topic for the first time is no error: the first one after it still leaves at once.
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

    /// The request under way has failed: its topics are as due as they were.
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
    /// Whether the topic may be forgotten, if nobody says that it is in use.
    fn is_idle(&self, now: Instant, max_idle: Option<Duration>) -> bool {
        if !self.wanted.is_empty() {
            return false;
        }
        !self.known || max_idle.is_some_and(|idle| now.saturating_duration_since(self.used) >= idle)
    }
}
