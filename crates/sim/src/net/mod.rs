//! The virtual network behind [`curtail_net`]'s seam.
//!
//! Messages travel on turmoil's hosts and links, with latencies from the seed. What turmoil does not have is added
//! here: writes that take only a part, names that do not exist, and connections that die because their link has
//! been silent for longer than `TCP_USER_TIMEOUT`.

mod fabric;
mod leaders;
mod socket;
#[cfg(test)]
mod tests;
mod watch;

pub use fabric::Fabric;
pub use watch::{Client, Presence};

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use curtail_net::{BoxFuture, Entropy, Env, Listener, Net, Socket, SocketOptions, WallClock};
use parking_lot::Mutex;
use socket::{SimListener, SimSocket};
use std::sync::Arc;

/// The network as one host of the simulation sees it. Usable only on that host.
#[derive(Clone, Debug)]
pub struct TurmoilNet {
    fabric: Fabric,
    host: Arc<str>,
    client: Option<Client>,
}

impl TurmoilNet {
    /// The network of `host`, which must be a name that the fabric knows.
    pub fn new(fabric: &Fabric, host: &str) -> Self {
        Self { fabric: fabric.clone(), host: host.into(), client: None }
    }
}

impl Net for TurmoilNet {
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
            let stream = turmoil::net::TcpStream::connect(addr).await;
            let outcome = stream.as_ref().err();
            self.fabric.trace().event(&self.host, format_args!("connected {addr} {outcome:?}"));
            let socket = SimSocket::new(stream?, &self.fabric, &self.host, self.client.as_ref())?;
            Ok(Box::new(socket) as Box<dyn Socket>)
        })
    }

    fn listen(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            // A virtual host listens on all its addresses or none.
            let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), addr.port());
            let listener = turmoil::net::TcpListener::bind(any).await?;
            let listener = SimListener::new(listener, self.fabric.clone(), self.host.clone());
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
    let net = TurmoilNet { client: Some(client.clone()), ..TurmoilNet::new(fabric, host) };
    Env { net: Arc::new(net), ..env.clone() }
}

/// The environment of a client or a broker on `host`. `entropy` should be a separate fork.
pub fn env(fabric: &Fabric, host: &str, entropy: Entropy) -> Env {
    let wall = Arc::new(SimClock { skew: fabric.skew(host) });
    Env { net: Arc::new(TurmoilNet::new(fabric, host)), wall, entropy }
}
