//! Messages between hosts: they take their time, and a link may hold them back or lose them.
//!
//! All hosts of a run share one paused runtime. [`Post::run`] sleeps until the next message arrives, so that virtual time
//! in which nothing happens costs nothing.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::OccupiedEntry},
    net::{IpAddr, SocketAddr},
    sync::{Arc, Weak},
    time::Duration,
};

use curtail_net::Entropy;
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::tcp::{Backlog, End, Message, Syn, SynAck};

/// Rate of the exponential distribution that latencies are drawn from, over the range from the shortest to the longest.
const RATE: f64 = 5.0;

/// First port that a client is given.
const FIRST_PORT: u32 = 49_152;

/// The messages of one run.
pub(super) struct Post {
    latency: (Duration, Duration),
    entropy: Entropy,
    inner: Mutex<Inner>,
    /// Wakes the task that delivers, for a message that arrives before all others.
    sooner: Notify,
}

#[derive(Default)]
struct Inner {
    /// Messages in flight, by arrival and in the order in which they were sent.
    flying: BTreeMap<(Instant, u64), Parcel>,
    sent: u64,
    held: Vec<Parcel>,
    /// Pairs of hosts, in both directions, whose messages wait.
    holding: BTreeSet<(IpAddr, IpAddr)>,
    /// Pairs of hosts whose messages are lost.
    losing: BTreeSet<(IpAddr, IpAddr)>,
    listeners: BTreeMap<SocketAddr, Arc<Backlog>>,
    /// Ends of open connections by host and peer.
    ends: BTreeMap<(IpAddr, IpAddr), Vec<Weak<End>>>,
    ports: u32,
}

/// A message and the hosts that it travels between.
struct Parcel {
    from: IpAddr,
    to: IpAddr,
    what: What,
}

/// The kinds of messages.
pub(super) enum What {
    /// Opens a connection.
    Syn(Syn),
    /// Responds to that.
    SynAck(SynAck),
    /// Something for one end of a connection.
    Segment(Arc<End>, Message),
}

impl Post {
    pub(super) fn new(latency: (Duration, Duration), entropy: Entropy) -> Self {
        Self { latency, entropy, inner: Mutex::default(), sooner: Notify::new() }
    }

    /// Delivers messages, until it is dropped.
    pub(super) async fn run(&self) {
        loop {
            let next = self.inner.lock().flying.first_key_value().map(|((at, _), _)| *at);
            tokio::select! {
                biased;
                () = self.sooner.notified() => {}
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                    self.deliver();
                }
            }
        }
    }

    /// Delivers whatever has arrived.
    fn deliver(&self) {
        let now = Instant::now();
        loop {
            let parcel = {
                let mut inner = self.inner.lock();
                let first = inner.flying.first_entry().filter(|first| first.key().0 <= now);
                first.map(OccupiedEntry::remove)
            };
            let Some(parcel) = parcel else { return };
            self.arrive(parcel.what);
        }
    }

    fn arrive(&self, what: What) {
        match what {
            What::Syn(syn) => syn.arrive(self),
            What::SynAck(ack) => ack.arrive(),
            What::Segment(end, message) => end.arrive(message),
        }
    }

    /// Sends a message between two hosts. Messages to one end of a connection arrive in the order in which they were sent.
    pub(super) fn send(&self, from: IpAddr, to: IpAddr, what: What) {
        let at = Instant::now() + self.latency();
        let mut inner = self.inner.lock();
        if inner.losing.contains(&(from, to)) {
            drop(inner);
            lose(what);
            return;
        }
        let parcel = Parcel { from, to, what };
        if inner.holding.contains(&(from, to)) {
            inner.held.push(parcel);
            return;
        }
        let at = match &parcel.what {
            What::Segment(end, _) => end.in_order(at),
            _ => at,
        };
        inner.sent += 1;
        let key = (at, inner.sent);
        inner.flying.insert(key, parcel);
        let is_first = inner.flying.first_key_value().is_some_and(|(first, _)| *first == key);
        drop(inner);
        if is_first {
            self.sooner.notify_one();
        }
    }

    /// Time that one message takes.
    fn latency(&self) -> Duration {
        let (shortest, longest) = self.latency;
        // 53 random bits, as many as an f64 holds; never 0.
        let uniform = (self.entropy.below(1 << 53) + 1) as f64 / (1u64 << 53) as f64;
        let further = (longest - shortest).mul_f64(-uniform.ln() / RATE);
        (shortest + further).min(longest)
    }

    /// Makes messages between two hosts wait, those in flight too.
    pub(super) fn hold(&self, a: IpAddr, b: IpAddr) {
        let mut inner = self.inner.lock();
        inner.holding.extend([(a, b), (b, a)]);
        let held = inner.take(|from, to| (from, to) == (a, b) || (from, to) == (b, a));
        inner.held.extend(held);
    }

    /// Delivers the messages between two hosts that waited.
    pub(super) fn release(&self, a: IpAddr, b: IpAddr) {
        let mut inner = self.inner.lock();
        for way in [(a, b), (b, a)] {
            inner.holding.remove(&way);
        }
        let is_theirs = |parcel: &mut Parcel| [(a, b), (b, a)].contains(&(parcel.from, parcel.to));
        let held: Vec<Parcel> = inner.held.extract_if(.., is_theirs).collect();
        drop(inner);
        held.into_iter().for_each(|parcel| self.arrive(parcel.what));
    }

    /// Loses messages from one host to another, those in flight too.
    pub(super) fn lose(&self, from: IpAddr, to: IpAddr) {
        let mut inner = self.inner.lock();
        inner.losing.insert((from, to));
        let lost = inner.take(|sender, receiver| (sender, receiver) == (from, to));
        drop(inner);
        lost.into_iter().for_each(|parcel| lose(parcel.what));
    }

    /// Carries messages from one host to another again.
    pub(super) fn repair(&self, from: IpAddr, to: IpAddr) {
        self.inner.lock().losing.remove(&(from, to));
    }

    /// Makes an end known, for [`Self::break_connections`].
    pub(super) fn add_end(&self, end: &Arc<End>) {
        let mut inner = self.inner.lock();
        let ends = inner.ends.entry((end.local().ip(), end.peer().ip())).or_default();
        ends.retain(|end| end.strong_count() > 0);
        ends.push(Arc::downgrade(end));
    }

    /// Both ends of every connection between two hosts fail.
    pub(super) fn break_connections(&self, a: IpAddr, b: IpAddr) {
        let mut inner = self.inner.lock();
        let ends = [(a, b), (b, a)].map(|way| inner.ends.remove(&way).unwrap_or_default());
        drop(inner);
        ends.iter().flatten().filter_map(Weak::upgrade).for_each(|end| end.fail());
    }

    /// A free port for the next connection of a host.
    pub(super) fn next_port(&self) -> u16 {
        let mut inner = self.inner.lock();
        inner.ports += 1;
        (FIRST_PORT + inner.ports % (u32::from(u16::MAX) - FIRST_PORT)) as u16
    }

    pub(super) fn backlog(&self, addr: SocketAddr) -> Option<Arc<Backlog>> {
        self.inner.lock().listeners.get(&addr).cloned()
    }

    /// Listens at an address; false if another listener does.
    pub(super) fn add_listener(&self, addr: SocketAddr, backlog: &Arc<Backlog>) -> bool {
        let mut inner = self.inner.lock();
        let is_free = !inner.listeners.contains_key(&addr);
        if is_free {
            inner.listeners.insert(addr, Arc::clone(backlog));
        }
        is_free
    }

    pub(super) fn remove_listener(&self, addr: SocketAddr) {
        self.inner.lock().listeners.remove(&addr);
    }

    /// Forgets everything. Messages and connections refer to each other.
    pub(super) fn clear(&self) {
        let inner = std::mem::take(&mut *self.inner.lock());
        drop(inner);
    }
}

impl Inner {
    /// Takes messages out of their flight, in the order in which they were to arrive.
    fn take(&mut self, is_concerned: impl Fn(IpAddr, IpAddr) -> bool) -> Vec<Parcel> {
        let flying = std::mem::take(&mut self.flying).into_iter();
        let (taken, rest) = flying.partition(|(_, parcel)| is_concerned(parcel.from, parcel.to));
        self.flying = rest;
        let taken: BTreeMap<_, _> = taken;
        taken.into_values().collect()
    }
}

/// A connection that has lost a message delivers nothing after it.
fn lose(what: What) {
    if let What::Segment(end, _) = what {
        end.stall();
    }
}
