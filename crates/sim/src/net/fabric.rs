//! What the hosts of one simulation share: names, the trace, and the state of their links.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Waker},
};

use curtail_net::Entropy;
use parking_lot::Mutex;

use super::Skew;
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
    /// Open connections by the pair of hosts they join.
    connections: Mutex<BTreeMap<Link, Vec<Weak<Life>>>>,
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

/// Whether a connection's end is still of use, and who waits on it.
#[derive(Default)]
pub(crate) struct Life {
    broken: AtomicBool,
    reader: Mutex<Option<Waker>>,
    writer: Mutex<Option<Waker>>,
}

impl Life {
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    pub(crate) fn wait_read(&self, cx: &Context<'_>) {
        *self.reader.lock() = Some(cx.waker().clone());
    }

    pub(crate) fn wait_write(&self, cx: &Context<'_>) {
        *self.writer.lock() = Some(cx.waker().clone());
    }

    pub(super) fn kill(&self) {
        self.broken.store(true, Ordering::Relaxed);
        for waiting in [&self.reader, &self.writer] {
            if let Some(waker) = waiting.lock().take() {
                waker.wake();
            }
        }
    }
}

/// Two hosts, the lower address first.
type Link = (IpAddr, IpAddr);

fn link(a: IpAddr, b: IpAddr) -> Link {
    (a.min(b), a.max(b))
}

impl Fabric {
    /// A network whose sockets take about one in `short_writes` writes only in part (0: none).
    pub fn new(trace: Trace, entropy: Entropy, short_writes: u64) -> Self {
        Self(Arc::new(Inner {
            trace,
            entropy,
            short_writes,
            names: Mutex::default(),
            connections: Mutex::default(),
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

    /// Makes a host known to the resolver.
    pub fn add_host(&self, name: &str, ip: IpAddr) {
        self.0.names.lock().insert(name.to_owned(), ip);
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

    pub(crate) fn join(&self, a: IpAddr, b: IpAddr) -> Arc<Life> {
        let life = Arc::new(Life::default());
        let mut connections = self.0.connections.lock();
        let on_link = connections.entry(link(a, b)).or_default();
        on_link.retain(|life| life.strong_count() > 0);
        on_link.push(Arc::downgrade(&life));
        life
    }

    /// Makes a link the caller's to break; false when it is somebody else's. Turmoil's link states cannot be combined.
    pub(crate) fn claim_link(&self, a: IpAddr, b: IpAddr) -> bool {
        self.0.claimed.lock().insert(link(a, b))
    }

    pub(crate) fn release_link(&self, a: IpAddr, b: IpAddr) {
        self.0.claimed.lock().remove(&link(a, b));
    }

    /// Both ends of every connection between two hosts fail, as after `TCP_USER_TIMEOUT` on a silent link.
    pub fn break_connections(&self, a: IpAddr, b: IpAddr) {
        let broken = self.0.connections.lock().remove(&link(a, b)).unwrap_or_default();
        for life in broken.iter().filter_map(Weak::upgrade) {
            life.kill();
        }
    }
}

impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fabric").finish_non_exhaustive()
    }
}
