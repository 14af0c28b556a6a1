//! The network of a world: machines with a bandwidth each, and links with a delay.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    io::{self, IoSlice},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use curtail_net::{BoxFuture, Entropy, Env, Listener, Net, Socket, SocketOptions, WallClock};
use parking_lot::Mutex;
use tokio::{io::ReadBuf, sync::Notify};

use super::{Model, clock::Clock, pipe::Pipe};
use crate::net::EPOCH;

/// A machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostId(usize);

impl HostId {
    /// Its address: the first machine has 10.0.0.1.
    #[must_use]
    pub fn ip(self) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0001 + self.0 as u32))
    }
}

/// Carries bytes from machine to machine.
pub(super) struct Links {
    clock: Clock,
    model: Model,
    entropy: Entropy,
    cards: Mutex<Vec<Card>>,
}

/// A machine's network card: until when each direction is busy, in nanoseconds.
#[derive(Default)]
struct Card {
    outgoing: u64,
    /// From machines in the same zone, and from those in others. Messages from afar arrive later than they are due
    /// here, so that those from nearby must not wait for them.
    incoming: [u64; 2],
    /// Machines without a zone are near to all.
    zone: Option<String>,
    /// A machine outside the model: its traffic takes no bandwidth and the shortest delay.
    observes: bool,
}

impl Links {
    /// Returns the arrival time of bytes sent now. They pass both machines' cards after earlier bytes, and each card
    /// forwards bytes while more arrive.
    pub(super) fn carry(&self, from: HostId, to: HostId, bytes: usize) -> u64 {
        let now = self.clock.now();
        let mut cards = self.cards.lock();
        let is_far = match (&cards[from.0].zone, &cards[to.0].zone) {
            (Some(from), Some(to)) => from != to,
            _ => false,
        };
        let latency = self.model.latency + if is_far { self.model.zones } else { Duration::ZERO };
        let latency = nanos(latency);
        if cards[from.0].observes || cards[to.0].observes {
            return now + latency;
        }
        let jitter = self.entropy.below(nanos(self.model.jitter) + 1);
        let takes = nanos_for(bytes, self.model.bandwidth);
        let leaves = cards[from.0].outgoing.max(now);
        cards[from.0].outgoing = leaves + takes;
        let incoming = &mut cards[to.0].incoming[usize::from(is_far)];
        let comes = (leaves + latency + jitter).max(*incoming);
        *incoming = comes + takes;
        comes + takes
    }
}

/// Nanoseconds for this number of bytes at this rate.
pub(super) fn nanos_for(bytes: usize, per_second: u64) -> u64 {
    let nanos = bytes as u128 * 1_000_000_000 / u128::from(per_second.max(1));
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A network. Clones are handles to the same one.
#[derive(Clone)]
pub(super) struct Network(Arc<Shared>);

struct Shared {
    clock: Clock,
    links: Links,
    listeners: Mutex<BTreeMap<SocketAddr, Arc<Backlog>>>,
}

/// Connections that were not accepted yet.
#[derive(Default)]
struct Backlog {
    waiting: Mutex<VecDeque<(VirtualSocket, SocketAddr)>>,
    came: Notify,
}

impl Network {
    pub(super) fn new(clock: Clock, model: Model, entropy: Entropy) -> Self {
        let links = Links { clock: clock.clone(), model, entropy, cards: Mutex::default() };
        Self(Arc::new(Shared { clock, links, listeners: Mutex::default() }))
    }

    pub(super) fn add_host(&self, observes: bool, zone: Option<&str>) -> HostId {
        let mut cards = self.0.links.cards.lock();
        cards.push(Card { observes, zone: zone.map(str::to_owned), ..Card::default() });
        HostId(cards.len() - 1)
    }

    /// The environment of a client or a broker on this machine.
    pub(super) fn env(&self, host: HostId, entropy: Entropy) -> Env {
        let net = HostNet { network: self.clone(), host };
        Env { net: Arc::new(net), wall: Arc::new(Wall(self.0.clock.clone())), entropy }
    }

    fn host_of(&self, ip: IpAddr) -> Option<HostId> {
        (0..self.0.links.cards.lock().len()).map(HostId).find(|host| host.ip() == ip)
    }

    async fn connect(&self, from: HostId, addr: SocketAddr) -> io::Result<Box<dyn Socket>> {
        let Shared { clock, links, listeners } = &*self.0;
        let to = self.host_of(addr.ip()).ok_or(io::ErrorKind::HostUnreachable)?;
        clock.until(links.carry(from, to, 0)).await;
        let back = links.carry(to, from, 0);
        let backlog = listeners.lock().get(&addr).cloned();
        let Some(backlog) = backlog else {
            clock.until(back).await;
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        let limit = links.model.socket_buffer;
        let (there, here) = (Pipe::new(from, to, limit), Pipe::new(to, from, limit));
        let peer = SocketAddr::new(from.ip(), 0);
        let end = |reads: &Arc<Pipe>, writes: &Arc<Pipe>, peer| VirtualSocket {
            network: self.clone(),
            reads: Arc::clone(reads),
            writes: Arc::clone(writes),
            peer,
        };
        let ours = end(&here, &there, addr);
        backlog.waiting.lock().push_back((end(&there, &here, peer), peer));
        backlog.came.notify_one();
        clock.until(back).await;
        Ok(Box::new(ours))
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").finish_non_exhaustive()
    }
}

/// The network as one machine sees it.
struct HostNet {
    network: Network,
    host: HostId,
}

impl Net for HostNet {
    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        let unknown = |_| io::Error::new(io::ErrorKind::NotFound, "machines here have no names");
        let found = host.parse().map(|ip| vec![SocketAddr::new(ip, port)]).map_err(unknown);
        Box::pin(async move { found })
    }

    fn connect(
        &self,
        addr: SocketAddr,
        _: SocketOptions,
    ) -> BoxFuture<'_, io::Result<Box<dyn Socket>>> {
        Box::pin(self.network.connect(self.host, addr))
    }

    fn listen(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let backlog = Arc::new(Backlog::default());
            let mut listeners = self.network.0.listeners.lock();
            if listeners.contains_key(&addr) {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            listeners.insert(addr, Arc::clone(&backlog));
            let listener = VirtualListener { network: self.network.clone(), addr, backlog };
            Ok(Box::new(listener) as Box<dyn Listener>)
        })
    }
}

struct VirtualListener {
    network: Network,
    addr: SocketAddr,
    backlog: Arc<Backlog>,
}

impl Listener for VirtualListener {
    fn accept(&self) -> BoxFuture<'_, io::Result<(Box<dyn Socket>, SocketAddr)>> {
        Box::pin(async move {
            loop {
                let first = self.backlog.waiting.lock().pop_front();
                if let Some((socket, peer)) = first {
                    return Ok((Box::new(socket) as Box<dyn Socket>, peer));
                }
                self.backlog.came.notified().await;
            }
        })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.addr)
    }
}

impl Drop for VirtualListener {
    fn drop(&mut self) {
        self.network.0.listeners.lock().remove(&self.addr);
    }
}

/// One end of a connection.
struct VirtualSocket {
    network: Network,
    reads: Arc<Pipe>,
    writes: Arc<Pipe>,
    peer: SocketAddr,
}

impl Socket for VirtualSocket {
    fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let Shared { clock, links, .. } = &*self.network.0;
        self.writes.write(bufs, clock, links)
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writes.poll_room(cx, &self.network.0.clock)
    }

    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.reads.poll_read(cx, buf, &self.network.0.clock)
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }
}

impl Drop for VirtualSocket {
    fn drop(&mut self) {
        let Shared { clock, links, .. } = &*self.network.0;
        self.writes.end(clock, links);
        self.reads.abandon(clock, links);
    }
}

/// Wall-clock time that starts at a fixed date and moves with virtual time.
struct Wall(Clock);

impl WallClock for Wall {
    fn now_ms(&self) -> i64 {
        (EPOCH + Duration::from_nanos(self.0.now())).as_millis() as i64
    }
}
