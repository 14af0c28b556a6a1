//! A proxy in front of a Kafka cluster, with the faults that can be made at the connections of clients.
//!
//! Clients connect to the proxy's bootstrap address. Responses that name brokers name a port of the proxy for
//! each of them instead, so that every connection of a client passes through it. The faults are those of the
//! embedded cluster ([`Fault`](crate::Fault)), without those inside a broker.
//!
//! # Example
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use curtail_cluster::{
//!     ApiKey, ErrorCode, Fault, Requests,
//!     proxy::{Proxy, ProxyConfig},
//! };
//!
//! let config = ProxyConfig::to("kafka:9092")?;
//! let proxy = Proxy::start(config, curtail_net::Env::real()).await?;
//! println!("clients connect to {}", proxy.bootstrap());
//! let refused = Requests::of(ApiKey::PRODUCE).times(3);
//! proxy.inject(Fault::error(refused, ErrorCode::NOT_LEADER_OR_FOLLOWER))?;
//! # Ok(())
//! # }
//! ```

mod addresses;
mod checked;
mod connection;
mod content;
mod directory;
mod lookup;
mod refuse;
mod versions;

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use curtail_net::{BoxFuture, Env, Listener, Net, Socket, SocketOptions};
use curtail_wire::frame::{DEFAULT_LIMIT, FrameError};
use parking_lot::Mutex;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

pub(crate) use self::checked::{check_request, check_response};
use self::{
    addresses::{Address, Node},
    connection::{Connection, InFlight},
    directory::Directory,
};
use crate::{
    config::Endpoint,
    faults::{ActiveFault, Changes, FaultError, Faults, Injection, LineSocket},
    observer::{Observer, Observers},
};

/// Most connections of each port. Further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 10_000;
/// Pause after accepting a connection failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time in which a broker that was not reachable must accept a connection, to count as reachable.
const PROBE_LIMIT: Duration = Duration::from_secs(1);
/// Time in which the names of brokers must resolve.
const RESOLVE_LIMIT: Duration = Duration::from_secs(1);
/// Time in which the addresses of a host must accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// The broker of a connection to an address that no response has named.
const UNKNOWN_BROKER: i32 = -1;

/// Secures a connection to the cluster, for example with TLS.
pub trait Secure: Send + Sync {
    /// Performs the handshake over `socket` with the node named `host`.
    fn secure<'a>(
        &'a self,
        socket: Box<dyn Socket>,
        host: &'a str,
    ) -> BoxFuture<'a, io::Result<Box<dyn Socket>>>;
}

/// The settings of a [`Proxy`].
#[derive(Clone)]
pub struct ProxyConfig {
    to: Vec<Endpoint>,
    /// The address of the bootstrap listener. Port 0 lets the system choose all ports. With another port,
    /// broker 0 has the next one, broker 1 the one after it, and so on up to broker 999, as far as they are
    /// free. Default: a free port of loopback.
    pub listen: SocketAddr,
    /// The host that clients connect to; the address of `listen` if absent.
    pub advertise: Option<String>,
    /// Secures connections to the cluster, which are plaintext if absent. Connections of clients are always
    /// plaintext.
    pub secure: Option<Arc<dyn Secure>>,
    /// Largest request or response in bytes. Default: 100 MiB, as in Kafka.
    pub max_frame: usize,
}

impl ProxyConfig {
    /// A proxy to the cluster with these bootstrap servers: `host:port`, separated by commas.
    ///
    /// # Errors
    /// [`ProxyError::Address`] if one is no address.
    pub fn to(bootstrap_servers: &str) -> Result<Self, ProxyError> {
        let wrong = |text: &str| ProxyError::Address(text.trim().to_owned());
        let target = |text: &str| target(text.trim()).ok_or_else(|| wrong(text));
        Ok(Self {
            to: bootstrap_servers.split(',').map(target).collect::<Result<_, _>>()?,
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            advertise: None,
            secure: None,
            max_frame: DEFAULT_LIMIT,
        })
    }
}

impl fmt::Debug for ProxyConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyConfig")
            .field("to", &self.to)
            .field("listen", &self.listen)
            .field("advertise", &self.advertise)
            .finish_non_exhaustive()
    }
}

/// Splits `host:port`, with IPv6 addresses in brackets.
fn target(text: &str) -> Option<Endpoint> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let host = inner.unwrap_or(host);
    let is_host = !host.is_empty() && !host.contains(['/', ' ', '@']);
    (is_host && (inner.is_some() || !host.contains(':'))).then(|| Endpoint::stored(host, port))
}

/// Why a proxy could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// A bootstrap server is no address.
    #[error("'{0}' is no address of a broker; use HOST:PORT, as in kafka:9092")]
    Address(String),
    /// The proxy cannot listen.
    #[error("cannot listen on {addr}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The network's error.
        source: io::Error,
    },
    /// No bootstrap server accepts a connection.
    #[error("cannot reach {to}")]
    Unreachable {
        /// The bootstrap servers.
        to: String,
        /// The error of the last of them.
        source: io::Error,
    },
    /// The bootstrap server does not respond in Kafka's protocol.
    #[error("{to}: {source}")]
    NotKafka {
        /// The bootstrap servers.
        to: String,
        /// Why its bytes are no response.
        source: FrameError,
    },
}

/// A broker of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxiedBroker {
    /// The id of the broker.
    pub id: i32,
    /// The address here that clients connect to.
    pub address: String,
    /// Whether the latest connection to it succeeded.
    pub reachable: bool,
}

/// The state that all tasks share.
pub(crate) struct Shared {
    env: Env,
    to: Vec<Endpoint>,
    ip: IpAddr,
    secure: Option<Arc<dyn Secure>>,
    max_frame: usize,
    faults: Faults,
    directory: Directory,
    observers: Observers,
    /// One task for each port; none once the proxy has ended, also if a response names a node then.
    ports: Mutex<Option<JoinSet<()>>>,
}

/// A running proxy. It ends when it is dropped.
pub struct Proxy {
    shared: Arc<Shared>,
    addr: SocketAddr,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("addr", &self.addr).finish_non_exhaustive()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.shared.ports.lock().take());
    }
}

/// A proxy changes no broker.
struct NoBroker;

impl Changes for NoBroker {
    fn freeze(&self, _: i32, _: bool) {}
    fn freeze_metadata(&self, _: i32, _: bool) {}
    fn cut_off(&self, _: i32, _: bool) {}
    fn fill_disk(&self, _: i32, _: bool) {}
    fn delay_metadata(&self, _: i32, _: Option<Duration>) {}
}

impl Proxy {
    /// Listens, and asks the cluster for its brokers. A cluster that needs a login does not respond; its
    /// brokers become known with the first metadata of a client.
    ///
    /// # Errors
    /// The proxy cannot listen, or no bootstrap server accepts a connection and responds in Kafka's protocol.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped future has started nothing.
    pub async fn start(config: ProxyConfig, env: Env) -> Result<Self, ProxyError> {
        let ProxyConfig { to, listen, advertise, secure, max_frame } = config;
        let failed = |source| ProxyError::Listen { addr: listen, source };
        let listener = open(env.net.as_ref(), listen).await.map_err(failed)?;
        let addr = listener.local_addr().map_err(failed)?;
        let host = advertise.unwrap_or_else(|| listen.ip().to_string());
        let base = Some(listen.port()).filter(|port| *port != 0);
        let shared = Arc::new(Shared {
            faults: Faults::new(env.entropy.clone()),
            env,
            to,
            ip: listen.ip(),
            secure,
            max_frame,
            directory: Directory::new(host, base),
            observers: Observers::default(),
            ports: Mutex::new(Some(JoinSet::new())),
        });
        let proxy = Self { shared, addr };
        proxy.shared.look_up().await?;
        proxy.shared.serve(listener, Door::Bootstrap);
        Ok(proxy)
    }

    /// Returns the address of the bootstrap listener.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the bootstrap address for clients.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        Endpoint::stored(self.shared.directory.host(), self.addr.port()).to_string()
    }

    /// Connects to the brokers that were not reachable, for at most a second, so that [`Proxy::brokers`] shows
    /// whether they are back. Otherwise it shows what the latest client has met.
    ///
    /// # Cancel safety
    /// Cancel safe: brokers that have not accepted stay unreachable.
    pub async fn probe(&self) {
        let mut probes = JoinSet::new();
        for (id, known) in self.shared.directory.brokers() {
            if !known.reachable {
                let shared = Arc::clone(&self.shared);
                probes.spawn(async move {
                    let node = Node::Broker(id);
                    let dialled = timeout(PROBE_LIMIT, shared.dial(Door::Node(node))).await;
                    if matches!(dialled, Ok(Ok(_))) {
                        shared.directory.set_reachable(node, true);
                    }
                });
            }
        }
        while probes.join_next().await.is_some() {}
    }

    /// Returns the brokers that the latest response with all brokers has named, by id.
    #[must_use]
    pub fn brokers(&self) -> Vec<ProxiedBroker> {
        let directory = &self.shared.directory;
        let brokers = directory.brokers().into_iter().map(|(id, known)| ProxiedBroker {
            id,
            address: Endpoint::stored(directory.host(), known.port).to_string(),
            reachable: known.reachable,
        });
        brokers.collect()
    }

    /// Injects a fault and returns its name. It stays until it is lifted.
    ///
    /// # Errors
    /// The fault contradicts itself, is one that only a broker can have, names a broker that no response has
    /// named, or has a name that is taken.
    pub fn inject(&self, fault: impl Into<Injection>) -> Result<String, FaultError> {
        let injection = fault.into();
        injection.fault.check_for_proxy()?;
        // Also one that the cluster does not name while it is down.
        let brokers = self.shared.directory.known_brokers();
        let injected = self.shared.faults.inject(injection, &brokers, &NoBroker);
        injected.map_err(|error| match error {
            FaultError::NoSuchBroker(id) => {
                let known: Vec<_> = brokers.iter().map(ToString::to_string).collect();
                let known = match known.is_empty() {
                    true => "known yet: none".to_owned(),
                    false => format!("known: {}", known.join(", ")),
                };
                FaultError::Invalid(format!("the cluster has named no broker {id} ({known})"))
            }
            error => error,
        })
    }

    /// Lifts a fault. Returns false if none has the name.
    pub fn lift(&self, name: &str) -> bool {
        self.shared.faults.lift(&NoBroker, |fault, _| fault == name) > 0
    }

    /// Lifts all faults and returns how many there were.
    pub fn lift_all(&self) -> usize {
        self.shared.faults.lift(&NoBroker, |_, _| true)
    }

    /// Returns all faults, oldest first.
    #[must_use]
    pub fn faults(&self) -> Vec<ActiveFault> {
        self.shared.faults.list()
    }

    /// Sends each response to an observer, as [`Observer::handled`].
    pub fn observe(&self, observer: Arc<dyn Observer>) {
        self.shared.observers.set(observer);
    }
}

/// Listens. `::` means IPv4, too, because the proxy has one address.
async fn open(net: &dyn Net, addr: SocketAddr) -> io::Result<Box<dyn Listener>> {
    match addr.ip() {
        IpAddr::V6(ip) if ip.is_unspecified() => net.listen_everywhere(addr.port()).await,
        _ => net.listen(addr).await,
    }
}

/// What clients of a port connect to.
#[derive(Clone, Copy, Debug)]
enum Door {
    /// The first bootstrap server that accepts.
    Bootstrap,
    Node(Node),
}

impl Shared {
    /// Serves a port until the proxy ends.
    fn serve(self: &Arc<Self>, listener: Box<dyn Listener>, door: Door) {
        let shared = Arc::clone(self);
        let mut ports = self.ports.lock();
        let Some(ports) = ports.as_mut() else { return };
        ports.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let has_room = connections.len() < MAX_CONNECTIONS;
                tokio::select! {
                    biased;
                    Some(_) = connections.join_next() => {}
                    accepted = listener.accept(), if has_room => match accepted {
                        Ok((socket, peer)) => {
                            connections.spawn(connect(Arc::clone(&shared), socket, peer.ip(), door));
                        }
                        // Too many open files, or a client that has gone already.
                        Err(_) => sleep(ACCEPT_PAUSE).await,
                    },
                }
            }
        });
    }

    /// Returns the port here of a node that a response names. A new node gets one.
    async fn port_of(self: &Arc<Self>, address: &Address) -> Result<u16, String> {
        let node = address.node;
        let target = Endpoint::stored(&address.host, address.port);
        if let Some(port) = self.directory.update(node, &target) {
            return Ok(port);
        }
        let _opening = self.directory.opening.lock().await;
        if let Some(port) = self.directory.update(node, &target) {
            return Ok(port);
        }
        let listener = self.open(self.directory.next_port(node)?).await?;
        let port = listener.local_addr().map_err(|error| error.to_string())?.port();
        tracing::info!(?node, host = target.host(), to = target.port(), port, "found a node");
        self.directory.add(node, target, port);
        self.serve(listener, Door::Node(node));
        Ok(port)
    }

    /// Reports a connection that the proxy closes.
    fn closed(&self, broker: i32, peer: IpAddr, reason: &str) {
        tracing::warn!(broker, %peer, reason, "connection closed");
        self.observers.tell(|observer, _| observer.disconnected(broker, peer, reason));
    }

    /// Listens on a port, or on a free one if it is taken.
    async fn open(&self, port: u16) -> Result<Box<dyn Listener>, String> {
        let net = self.env.net.as_ref();
        match open(net, SocketAddr::new(self.ip, port)).await {
            Err(error) if port != 0 => {
                tracing::warn!(port, %error, "cannot listen; using a free port");
                let any = SocketAddr::new(self.ip, 0);
                open(net, any).await.map_err(|error| error.to_string())
            }
            opened => opened.map_err(|error| error.to_string()),
        }
    }

    /// Connects to the node behind a port.
    async fn dial(&self, door: Door) -> io::Result<(Box<dyn Socket>, Endpoint)> {
        let targets = match door {
            Door::Bootstrap => self.to.clone(),
            Door::Node(node) => self.directory.target(node).into_iter().collect(),
        };
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for target in targets {
            let dialled = timeout(CONNECT_LIMIT, self.dial_target(&target)).await;
            match dialled.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(socket) => return Ok((socket, target)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Returns the broker with this address: by its text, or by what its name resolves to.
    async fn broker_at(&self, target: &Endpoint, peer: Option<SocketAddr>) -> Option<i32> {
        let known = self.directory.broker_at(target, peer);
        let (None, Some(peer)) = (known, peer) else { return known };
        let resolving = async {
            for (id, known) in self.directory.brokers() {
                let target = known.target;
                if target.port() != peer.port() {
                    continue;
                }
                let resolving = self.env.net.resolve(target.host(), target.port());
                let resolved = resolving.await.unwrap_or_default();
                if resolved.contains(&peer) {
                    return Some(id);
                }
            }
            None
        };
        timeout(RESOLVE_LIMIT, resolving).await.ok().flatten()
    }

    async fn dial_target(&self, target: &Endpoint) -> io::Result<Box<dyn Socket>> {
        // Clients decide how long they wait for a cluster that does not read.
        let options = SocketOptions { user_timeout: None, ..SocketOptions::default() };
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in self.env.net.resolve(target.host(), target.port()).await? {
            match self.env.net.connect(address, options).await {
                Ok(socket) => match &self.secure {
                    Some(secure) => return secure.secure(socket, target.host()).await,
                    None => return Ok(socket),
                },
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Serves a connection of a client.
async fn connect(shared: Arc<Shared>, client: Box<dyn Socket>, peer: IpAddr, door: Door) {
    let dialled = shared.dial(door).await;
    if let Door::Node(node) = door {
        shared.directory.set_reachable(node, dialled.is_ok());
    }
    let (cluster, target) = match dialled {
        Ok(dialled) => dialled,
        Err(error) => {
            let id = if let Door::Node(node) = door { node.id() } else { UNKNOWN_BROKER };
            shared.closed(id, peer, &format!("cannot reach the cluster: {error}"));
            return;
        }
    };
    let broker = match door {
        Door::Node(node) => node.id(),
        Door::Bootstrap => {
            let at = shared.broker_at(&target, cluster.peer_addr().ok()).await;
            at.unwrap_or(UNKNOWN_BROKER)
        }
    };
    let line = shared.faults.lines().line(broker);
    let client = Box::new(LineSocket { socket: client, line: Arc::clone(&line) });
    let in_flight = InFlight::new(shared.max_frame);
    let connection = Connection { shared, broker, peer, line, client, cluster, in_flight };
    if let Err(reason) = connection.converse().await {
        connection.shared.closed(broker, peer, &reason);
    }
}
