//! Listeners: their names and security protocols, where brokers listen, and what they advertise.
//!
//! [`Listeners`] is the text of a property, for all brokers. [`ClusterConfig::listeners_of`] resolves
//! the properties into the [`Listener`]s of one broker, which are complete and do not contradict each
//! other.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    str::FromStr,
    sync::Arc,
};

use super::{ClusterConfig, ConfigError, SecurityProtocol};

/// The name of a listener, in upper case as in Kafka.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListenerName(Arc<str>);

impl ListenerName {
    /// The name in upper case; `None` unless it consists of letters, digits, `.`, `_` and `-`.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let valid = !name.is_empty() && name.chars().all(is_valid);
        valid.then(|| Self(name.to_ascii_uppercase().into()))
    }

    /// The listener between brokers that no client knows. No configured listener has this name.
    pub(crate) fn between_brokers() -> Self {
        Self("".into())
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<SecurityProtocol> for ListenerName {
    /// The listener that Kafka names after its protocol.
    fn from(protocol: SecurityProtocol) -> Self {
        Self(protocol.name().into())
    }
}

impl fmt::Display for ListenerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a text is no host, or no list of listeners.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {0}")]
pub struct ParseListenersError(&'static str);

/// The expected form of `listeners` and `advertised.listeners`.
pub(super) const EXPECTED: &str = "NAME://host:port, separated by commas; a semicolon before the listeners of each further broker";

/// The host of a listener.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    /// All addresses of the machine, IPv4 and IPv6; an empty host in Kafka's properties.
    Every,
    /// An address. An unspecified one (`0.0.0.0`, `::`) means all addresses of its family.
    Ip(IpAddr),
    /// A host name.
    Name(Arc<str>),
}

impl Host {
    /// Returns whether it means all addresses, of one family or both.
    #[must_use]
    pub fn is_unspecified(&self) -> bool {
        match self {
            Self::Every => true,
            Self::Ip(ip) => ip.is_unspecified(),
            Self::Name(_) => false,
        }
    }

    /// Returns whether only this machine reaches it. Of names that holds for `localhost`.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        match self {
            Self::Every => false,
            Self::Ip(ip) => ip.is_loopback(),
            Self::Name(name) => name.eq_ignore_ascii_case("localhost"),
        }
    }

    /// Returns whether sockets on both hosts could not have the same port.
    fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Every, _) | (_, Self::Every) => true,
            (Self::Ip(a), Self::Ip(b)) => {
                let wide = a.is_unspecified() || b.is_unspecified();
                a == b || (wide && a.is_ipv4() == b.is_ipv4())
            }
            // A name may be any address.
            (Self::Name(_), Self::Ip(ip)) | (Self::Ip(ip), Self::Name(_)) => ip.is_unspecified(),
            (Self::Name(a), Self::Name(b)) => a == b,
        }
    }
}

impl From<IpAddr> for Host {
    fn from(ip: IpAddr) -> Self {
        Self::Ip(ip)
    }
}

impl FromStr for Host {
    type Err = ParseListenersError;

    /// A host name, or an IP address with or without brackets. An empty text is [`Host::Every`].
    fn from_str(text: &str) -> Result<Self, ParseListenersError> {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        if let Ok(ip) = bare.unwrap_or(text).parse() {
            return Ok(Self::Ip(ip));
        }
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        match text {
            "" => Ok(Self::Every),
            name if name.chars().all(is_of_name) => Ok(Self::Name(name.into())),
            _ => Err(ParseListenersError("a host name or an IP address")),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every => Ok(()),
            Self::Ip(ip @ IpAddr::V6(_)) => write!(f, "[{ip}]"),
            Self::Ip(ip) => ip.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// A host and a port that clients connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    host: Arc<str>,
    port: u16,
}

impl Endpoint {
    /// `None` for a host that stands for all addresses: no client can connect to it.
    pub(crate) fn new(host: &Host, port: u16) -> Option<Self> {
        let text = match host {
            Host::Ip(ip) => ip.to_string().into(),
            Host::Name(name) => Arc::clone(name),
            Host::Every => return None,
        };
        (!host.is_unspecified()).then_some(Self { host: text, port })
    }

    /// An endpoint as a journal or a response has it.
    pub(crate) fn stored(host: &str, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// The host name, or the IP address without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port. It is 0 until the operating system has chosen one, if that was asked for.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The same host, with this port if none is configured.
    pub(crate) fn or_port(&self, port: u16) -> Self {
        let port = if self.port == 0 { port } else { self.port };
        Self { host: Arc::clone(&self.host), port }
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(addr: SocketAddr) -> Self {
        Self { host: addr.ip().to_string().into(), port: addr.port() }
    }
}

impl fmt::Display for Endpoint {
    /// The form of `bootstrap.servers`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// One entry of `listeners` or `advertised.listeners`: `NAME://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerAddress {
    /// The listener.
    pub name: ListenerName,
    /// The host.
    pub host: Host,
    /// Its port. In `listeners` 0 lets the operating system choose one; in `advertised.listeners` 0
    /// is the port that the broker listens on.
    pub port: u16,
}

impl FromStr for ListenerAddress {
    type Err = ParseListenersError;

    fn from_str(text: &str) -> Result<Self, ParseListenersError> {
        let parse = || {
            let (name, address) = text.split_once("://")?;
            let (host, port) = address.rsplit_once(':')?;
            // Without brackets the end of an IPv6 address could be the port.
            let host = if host.contains(':') && !host.starts_with('[') { None } else { Some(host) };
            Some(Self {
                name: ListenerName::new(name.trim())?,
                host: host?.parse().ok()?,
                port: port.parse().ok()?,
            })
        };
        parse().ok_or(ParseListenersError(EXPECTED))
    }
}

impl fmt::Display for ListenerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", self.name, self.host, self.port)
    }
}

/// The value of `listeners` or `advertised.listeners`, for all brokers of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listeners {
    /// The listeners of the first broker. Each further broker has the next port; port 0 stays 0.
    From(Vec<ListenerAddress>),
    /// One list per broker, in the order of their ids. In the property a semicolon separates them.
    Each(Vec<Vec<ListenerAddress>>),
}

impl Listeners {
    /// One listener per broker, named after its protocol. The first broker has this address, each
    /// further one the next port. Port 0 lets the operating system choose all ports.
    #[must_use]
    pub fn new(protocol: SecurityProtocol, first: SocketAddr) -> Self {
        Self::From(vec![one(protocol, first)])
    }

    /// One listener per broker, named after its protocol, with one address per broker.
    #[must_use]
    pub fn each(
        protocol: SecurityProtocol,
        addresses: impl IntoIterator<Item = SocketAddr>,
    ) -> Self {
        Self::Each(addresses.into_iter().map(|address| vec![one(protocol, address)]).collect())
    }

    /// One listener per broker, named after its protocol, on a free loopback port.
    #[must_use]
    pub fn local(protocol: SecurityProtocol) -> Self {
        Self::new(protocol, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    /// Returns the number of brokers, if each one's listeners are given.
    #[must_use]
    pub fn brokers(&self) -> Option<usize> {
        match self {
            Self::From(_) => None,
            Self::Each(lists) => Some(lists.len()),
        }
    }

    /// Returns the entries of the broker at `index`, which is 0 for the first one.
    fn of(&self, index: usize) -> Result<Vec<ListenerAddress>, ConfigError> {
        let first = match self {
            Self::From(first) => first,
            Self::Each(lists) => {
                let list = lists.get(index).cloned();
                return list.ok_or_else(|| contradiction("a broker has no listeners"));
            }
        };
        let next = |entry: &ListenerAddress| -> Result<ListenerAddress, ConfigError> {
            let port = match entry.port {
                0 => Some(0),
                first => u16::try_from(usize::from(first) + index).ok(),
            };
            let port = port.ok_or_else(|| {
                contradiction(format!(
                    "{entry}: {} brokers need as many ports from {} on, but ports are 1 to 65535",
                    index + 1,
                    entry.port
                ))
            })?;
            Ok(ListenerAddress { port, ..entry.clone() })
        };
        first.iter().map(next).collect()
    }

    /// Returns the entries of one broker as a separate list.
    pub(crate) fn of_broker(&self, id: i32) -> Option<Self> {
        self.of(index(id)).ok().map(Self::From)
    }
}

impl Default for Listeners {
    fn default() -> Self {
        Self::local(SecurityProtocol::Plaintext)
    }
}

fn one(protocol: SecurityProtocol, address: SocketAddr) -> ListenerAddress {
    ListenerAddress { name: protocol.into(), host: address.ip().into(), port: address.port() }
}

impl FromStr for Listeners {
    type Err = ParseListenersError;

    fn from_str(text: &str) -> Result<Self, ParseListenersError> {
        let list = |text: &str| text.split(',').map(|entry| entry.trim().parse()).collect();
        let mut lists: Vec<Vec<ListenerAddress>> =
            text.split(';').map(list).collect::<Result<_, _>>()?;
        match lists.len() {
            1 => Ok(Self::From(lists.remove(0))),
            _ => Ok(Self::Each(lists)),
        }
    }
}

impl fmt::Display for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |list: &Vec<ListenerAddress>| {
            list.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
        };
        match self {
            Self::From(list) => f.write_str(&show(list)),
            Self::Each(lists) => f.write_str(&lists.iter().map(show).collect::<Vec<_>>().join(";")),
        }
    }
}

/// `listener.security.protocol.map`: the protocol of each listener, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerProtocols(BTreeMap<ListenerName, SecurityProtocol>);

impl ListenerProtocols {
    fn of(&self, name: &ListenerName) -> Option<SecurityProtocol> {
        self.0.get(name).copied()
    }
}

impl Default for ListenerProtocols {
    /// Listeners named after a protocol use it.
    fn default() -> Self {
        use SecurityProtocol::{Plaintext, SaslPlaintext, SaslSsl, Ssl};
        Self([Plaintext, Ssl, SaslPlaintext, SaslSsl].map(|p| (p.into(), p)).into())
    }
}

impl FromStr for ListenerProtocols {
    type Err = ParseListenersError;

    fn from_str(text: &str) -> Result<Self, ParseListenersError> {
        let mut all = BTreeMap::new();
        for entry in text.split(',') {
            let parse = || {
                let (name, protocol) = entry.split_once(':')?;
                let name = ListenerName::new(name.trim())?;
                Some((name, SecurityProtocol::by_name(protocol.trim())?))
            };
            let (name, protocol) = parse().ok_or(ParseListenersError(EXPECTED_PROTOCOLS))?;
            if all.insert(name, protocol).is_some() {
                return Err(ParseListenersError(EXPECTED_PROTOCOLS));
            }
        }
        Ok(Self(all))
    }
}

/// The expected form of `listener.security.protocol.map`.
pub(super) const EXPECTED_PROTOCOLS: &str = "NAME:PROTOCOL, separated by commas, each name once; protocols are PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL";

impl fmt::Display for ListenerProtocols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = |(name, protocol): (&ListenerName, &SecurityProtocol)| {
            format!("{name}:{}", protocol.name())
        };
        f.write_str(&self.0.iter().map(entry).collect::<Vec<_>>().join(","))
    }
}

/// A listener of one broker.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listener {
    /// The name.
    pub name: ListenerName,
    /// The security protocol of clients.
    pub protocol: SecurityProtocol,
    /// The host to listen on.
    pub host: Host,
    /// The port to listen on; 0 lets the operating system choose.
    pub port: u16,
    /// The endpoint that clients receive. Port 0 is the one that the broker listens on.
    pub advertised: Endpoint,
}

impl Listener {
    /// Returns whether other machines can reach it.
    #[must_use]
    pub fn is_beyond_loopback(&self) -> bool {
        !self.host.is_loopback()
    }
}

fn contradiction(text: impl Into<String>) -> ConfigError {
    ConfigError::Contradiction(text.into())
}

fn index(id: i32) -> usize {
    usize::try_from(id - 1).unwrap_or(0)
}

/// Returns the names, which must differ.
fn distinct<'a>(
    entries: &'a [ListenerAddress],
    property: &str,
) -> Result<BTreeSet<&'a ListenerName>, ConfigError> {
    let mut seen = BTreeSet::new();
    match entries.iter().find(|entry| !seen.insert(&entry.name)) {
        Some(twice) => Err(contradiction(format!("{property} has {} twice", twice.name))),
        None => Ok(seen),
    }
}

fn names<'a>(entries: impl IntoIterator<Item = &'a ListenerName>) -> String {
    entries.into_iter().map(ListenerName::as_str).collect::<Vec<_>>().join(", ")
}

impl ClusterConfig {
    /// Returns the listeners of the broker `id`, 1 and up, in the order of `listeners`. Entries of
    /// `controller.listener.names` are left out: the controller of this cluster has no listener.
    ///
    /// # Errors
    /// The properties of listeners contradict each other.
    pub fn listeners_of(&self, id: i32) -> Result<Vec<Listener>, ConfigError> {
        let entries = self.entries(&self.listeners, "listeners", id)?;
        let seen = distinct(&entries, "listeners")?;
        let advertised = match &self.advertised_listeners {
            Some(advertised) => Some(self.entries(advertised, "advertised.listeners", id)?),
            None => None,
        };
        if let Some(advertised) = &advertised {
            distinct(advertised, "advertised.listeners")?;
        }
        let known = || names(entries.iter().map(|entry| &entry.name));
        if let Some(stray) = advertised.iter().flatten().find(|entry| !seen.contains(&entry.name)) {
            return Err(contradiction(format!(
                "advertised.listeners has {}, which listeners lacks; it has {}",
                stray.name,
                known()
            )));
        }
        entries.iter().map(|entry| self.listener(entry, advertised.as_deref())).collect()
    }

    fn entries(
        &self,
        of: &Listeners,
        property: &str,
        id: i32,
    ) -> Result<Vec<ListenerAddress>, ConfigError> {
        if let Some(lists) = of.brokers().filter(|lists| *lists != self.brokers as usize) {
            return Err(contradiction(format!(
                "{property} has the listeners of {lists} brokers, but the cluster has {}",
                self.brokers
            )));
        }
        let mut entries = of.of(index(id))?;
        entries.retain(|entry| !self.controller_listeners.contains(&entry.name));
        match entries.is_empty() {
            true => Err(contradiction(format!("{property} has no listener for clients"))),
            false => Ok(entries),
        }
    }

    fn listener(
        &self,
        entry: &ListenerAddress,
        advertised: Option<&[ListenerAddress]>,
    ) -> Result<Listener, ConfigError> {
        let ListenerAddress { name, host, port } = entry.clone();
        let Some(protocol) = self.listener_protocols.of(&name) else {
            return Err(contradiction(format!(
                "listener {name} has no security protocol; add {name}:PROTOCOL to listener.security.protocol.map"
            )));
        };
        let told = match advertised {
            Some(all) => all.iter().find(|told| told.name == name),
            None => Some(entry),
        };
        let Some(told) = told else {
            return Err(contradiction(format!(
                "advertised.listeners lacks {name}: its clients could not be directed to a broker"
            )));
        };
        let Some(endpoint) = Endpoint::new(&told.host, told.port) else {
            return Err(contradiction(match advertised {
                Some(_) => {
                    format!("advertised.listeners: no client can connect to {told}; name a host")
                }
                None => format!(
                    "{entry} listens on every address; set advertised.listeners to the host that clients connect to, \
                     such as {name}://localhost:{port}"
                ),
            }));
        };
        Ok(Listener { name, protocol, host, port, advertised: endpoint })
    }

    /// Replaces the listeners and the racks by those of one broker, which is what that broker describes.
    pub(crate) fn narrow_to(&mut self, id: i32) {
        self.racks = self.rack(id).map(str::to_owned).into_iter().collect();
        let narrowed = self.listeners.of_broker(id);
        self.listeners = narrowed.unwrap_or_else(|| self.listeners.clone());
        let advertised = self.advertised_listeners.as_ref();
        self.advertised_listeners = advertised.and_then(|all| all.of_broker(id));
    }

    /// Checks the listeners of every broker.
    pub(super) fn validate_listeners(&self) -> Result<(), ConfigError> {
        let first = self.listeners_of(1)?;
        for id in self.broker_ids() {
            let own = self.listeners_of(id)?;
            if !own.iter().map(|l| &l.name).eq(first.iter().map(|l| &l.name)) {
                return Err(contradiction(
                    "listeners: every broker needs the same names in the same order",
                ));
            }
            refuse_shared_ports(own.iter().map(|listener| (id, listener)), 1)?;
        }
        match &self.inter_broker_listener {
            Some(name) if !first.iter().any(|listener| listener.name == *name) => {
                Err(contradiction(format!(
                    "inter.broker.listener.name={name}: listeners has {}",
                    names(first.iter().map(|listener| &listener.name))
                )))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the brokers' ports differ, which brokers on one machine need.
    pub(crate) fn validate_ports(&self) -> Result<(), ConfigError> {
        let mut all = Vec::new();
        for id in self.broker_ids() {
            all.extend(self.listeners_of(id)?.into_iter().map(|listener| (id, listener)));
        }
        refuse_shared_ports(all.iter().map(|(id, listener)| (*id, listener)), self.brokers)
    }

    /// Returns the position of the listener that brokers use among themselves. `None` if they need
    /// a separate one, because no listener of clients could tell them from clients or needs no
    /// authentication.
    pub(crate) fn listener_between_brokers(&self, listeners: &[Listener]) -> Option<usize> {
        if self.security.has_authorizer() {
            return None;
        }
        let named = self.inter_broker_listener.as_ref();
        listeners.iter().position(|listener| {
            listener.protocol == SecurityProtocol::Plaintext
                && named.is_none_or(|name| *name == listener.name)
        })
    }
}

fn refuse_shared_ports<'a>(
    listeners: impl Iterator<Item = (i32, &'a Listener)>,
    brokers: u32,
) -> Result<(), ConfigError> {
    let mut by_port: BTreeMap<u16, Vec<(i32, &Listener)>> = BTreeMap::new();
    for (id, listener) in listeners.filter(|(_, listener)| listener.port != 0) {
        let sharing = by_port.entry(listener.port).or_default();
        let Some((other_id, other)) =
            sharing.iter().find(|(_, other)| other.host.overlaps(&listener.host))
        else {
            sharing.push((id, listener));
            continue;
        };
        let advice = match brokers {
            1 => "each listener needs its own",
            _ => {
                "each further broker takes the next port: leave room between the listeners' ports, or give each \
                 broker's listeners, separated by semicolons"
            }
        };
        return Err(contradiction(format!(
            "listener {} of broker {other_id} and listener {} of broker {id} have the same port, {}; {advice}",
            other.name, listener.name, listener.port
        )));
    }
    Ok(())
}
