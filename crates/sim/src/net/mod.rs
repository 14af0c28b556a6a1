//! The virtual network behind [`curtail_net`]'s seam.
//!
//! Messages travel between hosts with latencies from the seed. Sockets take some writes only in part, names may not exist,
//! and connections fail when their link has been silent for longer than `TCP_USER_TIMEOUT`.

mod fabric;
mod leaders;
mod post;
mod socket;
mod tcp;
#[cfg(test)]
mod tests;
mod watch;

pub use fabric::Fabric;
pub use watch::{Client, Presence};

use std::{
    io,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use curtail_net::{BoxFuture, Entropy, Env, Listener, Net, Socket, SocketOptions, WallClock};
use parking_lot::Mutex;
use socket::{SimListener, SimSocket};
use std::sync::Arc;

/// The network as one host of the simulation sees it.
#[derive(Clone, Debug)]
pub struct HostNet {
    fabric: Fabric,
    host: Arc<str>,
    client: Option<Client>,
}

impl HostNet {
    /// The network of `host`, which becomes known to the fabric.
    pub fn new(fabric: &Fabric, host: &str) -> Self {
        Self { fabric: fabric.clone(), host: host.into(), client: None }
    }

    fn ip(&self) -> IpAddr {
        self.fabric.host(&self.host)
    }
}

impl Net for HostNet {
    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move {
            let ip = match host.parse::<IpAddr>() {
                Ok(ip) => Some(ip),
                Err(_) => self.fabric.lookup(host),
            };
            match ip {
                Some(ip) => Ok(vec![SocketAddr::new(ip, port)]),
                None => Err(io::Error::new(io::ErrorKind::NotFound, "there is no such host")),
            }
        })
    }

    fn connect(
        &self,
        addr: SocketAddr,
        _: SocketOptions,
    ) -> BoxFuture<'_, io::Result<Box<dyn Socket>>> {
        Box::pin(async move {
            self.fabric.trace().event(&self.host, format_args!("connect {addr}"));
            let local = SocketAddr::new(self.ip(), self.fabric.post().next_port());
            let connected = tcp::connect(&self.fabric, local, addr).await;
            let outcome = connected.as_ref().err();
            self.fabric.trace().event(&self.host, format_args!("connected {addr} {outcome:?}"));
            let socket = SimSocket::new(connected?, &self.fabric, &self.host, self.client.as_ref());
            Ok(Box::new(socket) as Box<dyn Socket>)
        })
    }

    fn listen(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            // A virtual host has one address.
            let own = SocketAddr::new(self.ip(), addr.port());
            let listener = SimListener::bind(own, &self.fabric, &self.host)?;
            Ok(Box::new(listener) as Box<dyn Listener>)
        })
    }
}

/// Wall-clock time of a host: it starts at a fixed date, moves with virtual time, and may be wrong.
#[derive(Clone, Debug, Default)]
pub struct SimClock {
    skew: Skew,
}

/// How far a clock is off. Clones are handles to the same one.
#[derive(Clone, Debug, Default)]
pub struct Skew(Arc<Mutex<Wrong>>);

#[derive(Debug, Default)]
struct Wrong {
    by_ms: i64,
    ms_per_second: i64,
    since: Duration,
}

impl Wrong {
    fn now(&self) -> i64 {
        let since = crate::trace::now().saturating_sub(self.since).as_millis() as i64;
        self.by_ms + since * self.ms_per_second / 1000
    }
}

impl Skew {
    /// Makes the clock jump.
    pub(crate) fn jump(&self, by_ms: i64) {
        self.0.lock().by_ms += by_ms;
    }

    /// Makes the clock run faster, by so much in each second, or slower.
    pub(crate) fn drift(&self, ms_per_second: i64) {
        let mut wrong = self.0.lock();
        let by_ms = wrong.now();
        *wrong = Wrong { by_ms, ms_per_second, since: crate::trace::now() };
    }
}

/// 2026-01-01T00:00:00Z.
pub(crate) const EPOCH: Duration = Duration::from_secs(1_767_225_600);

impl WallClock for SimClock {
    fn now_ms(&self) -> i64 {
        (EPOCH + crate::trace::now()).as_millis() as i64 + self.skew.0.lock().now()
    }
}

/// `env` of a client on `host` whose connections are observed.
pub fn observed(fabric: &Fabric, host: &str, env: &Env, client: &Client) -> Env {
    let net = HostNet { client: Some(client.clone()), ..HostNet::new(fabric, host) };
    Env { net: Arc::new(net), ..env.clone() }
}

/// The environment of a client or a broker on `host`. `entropy` should be a separate fork.
pub fn env(fabric: &Fabric, host: &str, entropy: Entropy) -> Env {
    let wall = Arc::new(SimClock { skew: fabric.skew(host) });
    Env { net: Arc::new(HostNet::new(fabric, host)), wall, entropy }
}
