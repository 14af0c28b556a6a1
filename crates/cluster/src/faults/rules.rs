//! The machine that decides what happens to a request.
//!
//! # Invariants
//! - A fault's random choices depend on its seed and on the requests that it concerns, in their
//!   order. Other requests and other faults do not change them.
//! - A fault with `times` affects that many and no more.

use std::time::Duration;

use curtail_wire::{ApiKey, ErrorCode};

use super::{
    ActiveFault, Disconnect, Fault, KafkaRelease, KafkaVersion, Requests, Sender, Time, When,
    WrongLeader, text::LONGEST,
};

/// A request, as far as faults distinguish requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// The broker that received it.
    pub(crate) broker: i32,
    pub(crate) api: ApiKey,
    pub(crate) client_id: &'a str,
}

impl<'a> Request<'a> {
    fn peer(&self) -> Peer<'a> {
        Peer { broker: self.broker, client_id: self.client_id }
    }
}

/// The sender of a request, and the broker that it is connected to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer<'a> {
    pub(super) broker: i32,
    pub(super) client_id: &'a str,
}

impl Peer<'_> {
    /// Returns whether it is connected to this broker and has this client id, each if given.
    pub(super) fn is_of(&self, broker: Option<i32>, client_id: Option<&str>) -> bool {
        broker.is_none_or(|broker| broker == self.broker) && is_client(client_id, self.client_id)
    }

    pub(super) fn is(&self, sender: Sender) -> bool {
        let is_broker = matches!(self.client_id, super::BROKER_ID | super::FETCHER_ID);
        match sender {
            Sender::Clients => !is_broker,
            Sender::Brokers => is_broker,
            Sender::All => true,
        }
    }
}

/// A part of a request that gets its own error code.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Item<'a> {
    /// The whole request, or a group or key in it.
    Request,
    Topic(&'a str),
    Partition(&'a str, i32),
}

/// The part of a request that is decided about.
#[derive(Clone, Copy, Debug)]
enum About<'a> {
    Item(Item<'a>),
    /// All of it. It has the parts that faults of these names concern.
    Whole(&'a [String]),
}

/// What happens to a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fate {
    pub(crate) delay: Duration,
    pub(crate) then: Then,
}

/// See [`Fate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    /// It is written.
    Write,
    /// Neither it nor a later response of the connection is written.
    Silence,
    /// This many of its bytes are written, then the connection closes.
    Close(u64),
}

/// A fault and its progress.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) name: String,
    pub(super) fault: Fault,
    seed: u64,
    draws: Draws,
    hits: u64,
}

impl Rule {
    pub(super) fn new(name: String, seed: u64, fault: Fault) -> Self {
        Self { name, fault, seed, draws: Draws(seed), hits: 0 }
    }

    pub(super) fn describe(&self) -> ActiveFault {
        let Self { name, seed, hits, fault, .. } = self;
        ActiveFault { name: name.clone(), seed: *seed, hits: *hits, fault: fault.clone() }
    }

    /// Whether it may still affect a request.
    pub(super) fn concerns_requests(&self) -> bool {
        match self.fault.requests() {
            Some(requests) => requests.times.is_none_or(|times| self.hits < times),
            None => matches!(self.fault, Fault::KafkaVersion(_)),
        }
    }

    /// Decides about one of the requests that it concerns.
    fn fires(&mut self) -> bool {
        let Some(Requests { times, rate, .. }) = self.fault.requests() else { return false };
        if times.is_some_and(|times| self.hits >= times) {
            return false;
        }
        let fires = rate.is_none_or(|rate| self.draws.unit() < rate);
        self.hits += u64::from(fires);
        fires
    }
}

/// The faults, oldest first.
#[derive(Debug, Default)]
pub(super) struct Rules(pub(super) Vec<Rule>);

impl Rules {
    /// Returns whether the connection closes instead of the request being handled.
    pub(super) fn closes(&mut self, request: &Request<'_>) -> bool {
        // Its parts are not known.
        self.newest(request, About::Whole(&[]), |fault| match fault {
            Fault::Disconnect(Disconnect { when: When::Request, .. }) => Some(()),
            _ => None,
        })
        .is_some()
    }

    /// Returns the error that refuses a part of a request.
    pub(super) fn error(&mut self, request: &Request<'_>, item: Item<'_>) -> Option<ErrorCode> {
        let found = self.newest(request, About::Item(item), |fault| match fault {
            Fault::Error(error) => Some(error.code),
            _ => None,
        });
        found.map(|(_, code)| code)
    }

    /// Returns whether the records of a partition arrive damaged.
    pub(super) fn corrupts(&mut self, request: &Request<'_>, item: Item<'_>) -> bool {
        self.newest(request, About::Item(item), |fault| match fault {
            Fault::Corrupt(_) => Some(()),
            _ => None,
        })
        .is_some()
    }

    /// Returns the fault that names a wrong leader of a refused partition.
    pub(super) fn wrong_leader(
        &mut self,
        request: &Request<'_>,
        item: Item<'_>,
    ) -> Option<WrongLeader> {
        let found = self.newest(request, About::Item(item), |fault| match fault {
            Fault::WrongLeader(wrong) => Some(wrong.clone()),
            _ => None,
        });
        found.map(|(_, wrong)| wrong)
    }

    /// Adds the names of the faults that concern whole requests with this part.
    pub(super) fn name(&self, request: &Request<'_>, item: Item<'_>, named: &mut Vec<String>) {
        for rule in &self.0 {
            let of = rule.fault.requests().filter(|of| of.topic.is_some());
            let concerned = of.is_some_and(|of| matches(of, request) && has(of, item));
            if concerned && !named.contains(&rule.name) {
                named.push(rule.name.clone());
            }
        }
    }

    /// Decides about the response to a request. `named` is from [`Rules::name`], for all its parts.
    pub(super) fn fate(&mut self, request: &Request<'_>, named: &[String]) -> Fate {
        let whole = About::Whole(named);
        let late = self.newest(request, whole, |fault| match fault {
            Fault::Delay(delay) => Some(delay.time),
            _ => None,
        });
        let delay = late.map_or(Duration::ZERO, |(rule, time)| rule.draws.time(time));
        let ends = self.newest(request, whole, |fault| match fault {
            Fault::Silence(_) => Some(Then::Silence),
            Fault::Disconnect(Disconnect { when: When::Response, after_bytes, .. }) => {
                Some(Then::Close(*after_bytes))
            }
            _ => None,
        });
        Fate { delay, then: ends.map_or(Then::Write, |(_, then)| then) }
    }

    /// Returns how long a broker's disk is busy with an append.
    pub(super) fn disk_time(&mut self, broker: i32) -> Duration {
        let newest = self.0.iter_mut().rev().find_map(|rule| match rule.fault {
            Fault::SlowDisk(disk) if disk.broker == broker => Some((rule, disk.time)),
            _ => None,
        });
        let Some((rule, time)) = newest else { return Duration::ZERO };
        rule.hits += 1;
        rule.draws.time(time).min(LONGEST)
    }

    /// Returns the release whose API versions a client is offered.
    pub(super) fn release(&self, request: &Request<'_>) -> Option<KafkaRelease> {
        self.0.iter().rev().find_map(|rule| match &rule.fault {
            Fault::KafkaVersion(KafkaVersion { release, broker, client_id })
                if request.peer().is(Sender::Clients)
                    && request.peer().is_of(*broker, client_id.as_deref()) =>
            {
                Some(*release)
            }
            _ => None,
        })
    }

    /// Returns the newest fault of a kind that concerns the request and decides to affect it.
    fn newest<T>(
        &mut self,
        request: &Request<'_>,
        about: About<'_>,
        kind: impl Fn(&Fault) -> Option<T>,
    ) -> Option<(&mut Rule, T)> {
        self.0.iter_mut().rev().find_map(|rule| {
            let found = kind(&rule.fault)?;
            let of = rule.fault.requests().filter(|of| matches(of, request))?;
            let concerns = match about {
                About::Item(item) => has(of, item),
                About::Whole(named) => of.topic.is_none() || named.contains(&rule.name),
            };
            (concerns && rule.fires()).then_some((rule, found))
        })
    }
}

fn matches(of: &Requests, request: &Request<'_>) -> bool {
    let peer = request.peer();
    peer.is(of.from)
        && peer.is_of(of.broker, of.client_id.as_deref())
        && of.api.is_none_or(|api| api == request.api)
}

fn is_client(asked: Option<&str>, client_id: &str) -> bool {
    let Some(asked) = asked else { return true };
    match asked.strip_suffix('*') {
        Some(start) => client_id.starts_with(start),
        None => client_id == asked,
    }
}

fn has(of: &Requests, item: Item<'_>) -> bool {
    let is_topic = |name: &str| of.topic.as_deref().is_none_or(|topic| topic == name);
    match item {
        Item::Request => of.topic.is_none(),
        Item::Topic(name) => is_topic(name) && of.partition.is_none(),
        Item::Partition(name, index) => {
            is_topic(name) && of.partition.is_none_or(|partition| partition == index)
        }
    }
}

/// Random numbers from a seed (SplitMix64).
#[derive(Debug)]
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from 0 up to and without 1.
    fn unit(&mut self) -> f64 {
        // A float has 53 bits.
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn time(&mut self, time: Time) -> Duration {
        match time {
            Time::Fixed(time) => time,
            Time::Uniform(from, to) => {
                from.saturating_add(to.saturating_sub(from).mul_f64(self.unit()))
            }
            // 1 - x is never 0, and the factor at most 37.
            Time::Exponential(mean) => mean.min(LONGEST).mul_f64(-(1.0 - self.unit()).ln()),
        }
    }
}
