//! The open listeners of one incarnation.

use std::{
    future::poll_fn,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    task::Poll,
};

use curtail_net::{Listener as Open, Net, Socket};

use super::Slot;
use crate::{
    admission::{Admission, BetweenBrokers, BrokersOnly},
    config::{Endpoint, Host, Listener},
    error::ClusterError,
};

/// Whether the brokers share a machine. Brokers on one machine reach each other where they listen,
/// whatever they advertise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Machines {
    One,
    Apart,
}

/// A listener, and where it listens.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) listener: Listener,
    /// The address of the first incarnation; later ones have the same port.
    bound: Option<SocketAddr>,
}

impl Place {
    pub(crate) fn new(listener: Listener) -> Self {
        Self { listener, bound: None }
    }

    fn port(&self) -> u16 {
        self.bound.map_or(self.listener.port, |bound| bound.port())
    }

    /// The endpoint that clients receive.
    pub(crate) fn endpoint(&self) -> Endpoint {
        self.listener.advertised.or_port(self.port())
    }

    /// An address at which the broker's machine reaches the listener. Before the first incarnation
    /// that of a host name is unknown, and is the unspecified one.
    pub(crate) fn addr(&self) -> SocketAddr {
        let ip = match (self.bound, &self.listener.host) {
            (Some(bound), _) => bound.ip(),
            (None, Host::Ip(ip)) => *ip,
            (None, Host::Every) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            (None, Host::Name(_)) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        };
        let ip = match (ip, self.bound) {
            (IpAddr::V4(ip), Some(_)) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            // A machine with IPv6 may lack the address `::1`.
            (IpAddr::V6(ip), Some(_)) if ip.is_unspecified() => match self.listener.host {
                Host::Every => Ipv4Addr::LOCALHOST.into(),
                _ => Ipv6Addr::LOCALHOST.into(),
            },
            (ip, _) => ip,
        };
        SocketAddr::new(ip, self.port())
    }
}

/// An open listener and what it requires.
pub(super) struct Entrance {
    open: Box<dyn Open>,
    admission: Arc<Admission>,
}

impl Entrance {
    /// The error of a listener that accepts no more connections.
    pub(super) fn failed(&self, source: io::Error) -> ClusterError {
        failed(&self.open.local_addr().unwrap_or(BrokersOnly::BIND), source)
    }
}

/// The open listeners: the separate one of brokers first, if there is one.
pub(super) struct Listening(Vec<Entrance>);

/// A connection and the peer's address.
pub(super) type Connected = (Box<dyn Socket>, SocketAddr);

impl Listening {
    /// Opens all listeners of a broker.
    pub(super) async fn open(slot: &Slot) -> Result<Self, ClusterError> {
        let mut entrances = Vec::new();
        if let Some(brokers) = slot.admissions.brokers.separate() {
            let open = slot.env.net.listen(BrokersOnly::BIND).await;
            let open = open.map_err(|source| failed(&BrokersOnly::BIND, source))?;
            entrances.push(Entrance { open, admission: Arc::clone(&brokers.admission) });
        }
        for (at, admission) in slot.admissions.clients.iter().enumerate() {
            let wanted = |place: &Place| (place.listener.host.clone(), place.port());
            let wanted = slot.places.lock().get(at).map(wanted);
            // Both follow the configuration.
            let Some((host, port)) = wanted else { continue };
            let refused = |source| failed(&format_args!("{host}:{port}"), source);
            let open = listen(slot.env.net.as_ref(), &host, port).await.map_err(refused)?;
            let bound = open.local_addr().map_err(refused)?;
            if let Some(place) = slot.places.lock().get_mut(at) {
                place.bound = Some(bound);
            }
            entrances.push(Entrance { open, admission: Arc::clone(admission) });
        }
        Ok(Self(entrances))
    }

    /// Returns the address of this broker for other brokers.
    pub(super) async fn inner_addr(&self, slot: &Slot) -> Result<SocketAddr, ClusterError> {
        let (addr, advertised) = match &slot.admissions.brokers {
            BetweenBrokers::Separate(_) => {
                let open = self.0.first().map(|entrance| entrance.open.local_addr());
                let open = open.unwrap_or(Err(io::ErrorKind::NotConnected.into()));
                return open.map_err(|source| failed(&BrokersOnly::BIND, source));
            }
            BetweenBrokers::Shared(at) => {
                let places = slot.places.lock();
                let place = places.get(*at).ok_or(ClusterError::NoSuchBroker(slot.id))?;
                (place.addr(), (place.listener.host.is_unspecified()).then(|| place.endpoint()))
            }
        };
        match advertised {
            // Only the advertised host leads to another machine.
            Some(to) if slot.machines == Machines::Apart => {
                let found = resolve(slot.env.net.as_ref(), to.host(), to.port()).await;
                found.map_err(|source| failed(&to, source))
            }
            _ => Ok(addr),
        }
    }

    /// Returns the next connection and its authentication.
    ///
    /// # Errors
    /// The network's error, with the listener that has it.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn accept(
        &self,
    ) -> Result<(Connected, &Arc<Admission>), (io::Error, &Entrance)> {
        let mut accepting: Vec<_> = self.0.iter().map(|entrance| entrance.open.accept()).collect();
        poll_fn(|cx| {
            for (accepted, entrance) in accepting.iter_mut().zip(&self.0) {
                if let Poll::Ready(accepted) = accepted.as_mut().poll(cx) {
                    let accepted = accepted.map(|accepted| (accepted, &entrance.admission));
                    return Poll::Ready(accepted.map_err(|error| (error, entrance)));
                }
            }
            Poll::Pending
        })
        .await
    }
}

fn failed(addr: &impl ToString, source: io::Error) -> ClusterError {
    ClusterError::Listen { addr: addr.to_string(), source }
}

async fn listen(net: &dyn Net, host: &Host, port: u16) -> io::Result<Box<dyn Open>> {
    match host {
        Host::Ip(ip) => net.listen(SocketAddr::new(*ip, port)).await,
        Host::Name(name) => net.listen(resolve(net, name, port).await?).await,
        Host::Every => net.listen_everywhere(port).await,
    }
}

/// Returns the first IPv4 address of a host, as Java does, or its first IPv6 address.
async fn resolve(net: &dyn Net, host: &str, port: u16) -> io::Result<SocketAddr> {
    if let Ok(ip) = host.parse() {
        return Ok(SocketAddr::new(ip, port));
    }
    let found = net
        .resolve(host, port)
        .await
        .map_err(|error| io::Error::new(io::ErrorKind::NotFound, error.to_string()))?;
    let first = found.iter().find(|addr| addr.is_ipv4()).or(found.first()).copied();
    first.ok_or_else(|| io::ErrorKind::NotFound.into())
}
