//! What the hosts of one simulation share: names, the trace, and the state of their links.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use curtail_net::Entropy;
use parking_lot::Mutex;

use super::{Skew, post::Post};
use crate::{
    history::{Disconnect, StaleSend},
    trace::Trace,
};

/// The shared state of the virtual network. Clones are handles to the same one.
#[derive(Clone)]
pub struct Fabric(Arc<Inner>);

struct Inner {
    trace: Trace,
    entropy: Entropy,
    short_writes: u64,
    names: Mutex<BTreeMap<String, IpAddr>>,
    post: Post,
    /// Whether the run has ended, so that what is dropped says nothing.
    over: AtomicBool,
    /// Links that a fault has in its hands.
    claimed: Mutex<BTreeSet<Link>>,
    /// Most bytes that a new connection of a client carries before it breaks; 0 for no limit.
    fuse: AtomicU64,
    /// By host, how far its clock is off.
    skews: Mutex<BTreeMap<String, Skew>>,
    /// Batches sent to former leaders.
    stale: Mutex<Vec<StaleSend>>,
    /// Connections that running clients closed.
    disconnects: Mutex<Vec<Disconnect>>,
}

/// Two hosts, the lower address first.
type Link = (IpAddr, IpAddr);

fn link(a: IpAddr, b: IpAddr) -> Link {
    (a.min(b), a.max(b))
}

impl Fabric {
    /// A network whose sockets take about one in `short_writes` writes only in part (0: none), with a shortest and a
    /// longest latency of messages.
    pub fn new(
        trace: Trace,
        entropy: Entropy,
        short_writes: u64,
        latency: (Duration, Duration),
    ) -> Self {
        let post = Post::new(latency, entropy.fork());
        Self(Arc::new(Inner {
            trace,
            entropy,
            short_writes,
            names: Mutex::default(),
            post,
            over: AtomicBool::new(false),
            claimed: Mutex::default(),
            fuse: AtomicU64::new(0),
            skews: Mutex::default(),
            stale: Mutex::default(),
            disconnects: Mutex::default(),
        }))
    }

    /// The trace that every event on the network goes into.
    pub fn trace(&self) -> &Trace {
        &self.0.trace
    }

    pub(super) fn post(&self) -> &Post {
        &self.0.post
    }

    /// Delivers messages, until it is dropped.
    pub async fn run(&self) {
        self.0.post.run().await;
    }

    /// Ends the network: from now on nothing is sent, and what is dropped leaves no trace.
    pub fn end(&self) {
        self.0.over.store(true, Ordering::Relaxed);
        self.0.post.clear();
    }

    pub(super) fn is_over(&self) -> bool {
        self.0.over.load(Ordering::Relaxed)
    }

    /// The address of a host, a new one for a new name.
    pub fn host(&self, name: &str) -> IpAddr {
        let mut names = self.0.names.lock();
        let next = Ipv4Addr::from_bits(0xc0a8_0001 + names.len() as u32);
        *names.entry(name.to_owned()).or_insert(next.into())
    }

    pub(crate) fn lookup(&self, name: &str) -> Option<IpAddr> {
        self.0.names.lock().get(name).copied()
    }

    /// How many of `len` bytes a write takes.
    pub(crate) fn write_limit(&self, len: usize) -> usize {
        if self.0.short_writes == 0 || self.0.entropy.below(self.0.short_writes) != 0 {
            return len;
        }
        1 + self.0.entropy.below(len as u64) as usize
    }

    /// From now on new connections of clients break after at most `after` bytes in one direction (0: they do not).
    pub(crate) fn set_fuse(&self, after: u64) {
        self.0.fuse.store(after, Ordering::Relaxed);
    }

    /// Bytes that a new connection of a client carries, written and read.
    pub(super) fn fuse(&self) -> (u64, u64) {
        let after = self.0.fuse.load(Ordering::Relaxed);
        if after == 0 {
            return (u64::MAX, u64::MAX);
        }
        let bytes = 1 + self.0.entropy.below(after);
        match self.0.entropy.below(2) {
            0 => (bytes, u64::MAX),
            _ => (u64::MAX, bytes),
        }
    }

    /// How far the clock of a host is off.
    pub(crate) fn skew(&self, host: &str) -> Skew {
        self.0.skews.lock().entry(host.to_owned()).or_default().clone()
    }

    /// Name of a host.
    pub(super) fn name_of(&self, ip: IpAddr) -> String {
        let names = self.0.names.lock();
        let found = names.iter().find(|(_, known)| **known == ip);
        found.map_or_else(|| ip.to_string(), |(name, _)| name.clone())
    }

    pub(super) fn add_stale(&self, sends: Vec<StaleSend>) {
        for send in sends {
            self.trace().event(&send.client, format_args!("stale {send:?}"));
            self.0.stale.lock().push(send);
        }
    }

    /// Batches sent to former leaders so far.
    pub(crate) fn stale(&self) -> Vec<StaleSend> {
        self.0.stale.lock().clone()
    }

    pub(super) fn add_disconnect(&self, disconnect: Disconnect) {
        self.trace().event(&disconnect.client, format_args!("closed {disconnect:?}"));
        self.0.disconnects.lock().push(disconnect);
    }

    /// Connections that running clients closed so far.
    pub(crate) fn disconnects(&self) -> Vec<Disconnect> {
        self.0.disconnects.lock().clone()
    }

    /// Makes messages between two hosts wait, those in flight too, until [`Self::release`].
    pub fn hold(&self, a: IpAddr, b: IpAddr) {
        self.0.post.hold(a, b);
    }

    /// Delivers the messages between two hosts that waited.
    pub fn release(&self, a: IpAddr, b: IpAddr) {
        self.0.post.release(a, b);
    }

    /// Loses messages from one host to another, until [`Self::repair`].
    pub fn lose(&self, from: IpAddr, to: IpAddr) {
        self.0.post.lose(from, to);
    }

    /// Carries messages from one host to another again.
    pub fn repair(&self, from: IpAddr, to: IpAddr) {
        self.0.post.repair(from, to);
    }

    /// Claims a link for one fault; false if another fault has it. States of a link cannot be combined.
    pub(crate) fn claim_link(&self, a: IpAddr, b: IpAddr) -> bool {
        self.0.claimed.lock().insert(link(a, b))
    }

    pub(crate) fn release_link(&self, a: IpAddr, b: IpAddr) {
        self.0.claimed.lock().remove(&link(a, b));
    }

    /// Both ends of every connection between two hosts fail, as after `TCP_USER_TIMEOUT` on a silent link.
    pub fn break_connections(&self, a: IpAddr, b: IpAddr) {
        self.0.post.break_connections(a, b);
    }
}

impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fabric").finish_non_exhaustive()
    }
}
