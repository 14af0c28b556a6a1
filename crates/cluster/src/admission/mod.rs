//! Authentication on the brokers' listeners, and the resulting principals.
//!
//! Clients have one or more listeners on each broker. If none of them is PLAINTEXT, or if there is an
//! authorizer, brokers connect to each other on a separate one. It is on loopback, because all brokers
//! run in one process, and has a random password of this process.

mod authentication;
mod certificates;
#[cfg(test)]
mod tests;

pub(crate) use authentication::{Authentication, Now, Verdict};
use certificates::Material;

use std::{
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use curtail_net::{
    Socket,
    tls::{ServerConfig, TlsError, TlsSocket},
};
use ring::rand::{SecureRandom, SystemRandom};

use crate::{
    config::{ClusterConfig, Listener, ListenerName, Mechanism, User},
    error::ClusterError,
    sasl::{Credentials, Users},
};

/// The originator of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Principal {
    /// A broker of this cluster.
    Broker,
    /// A user by name.
    User(String),
}

impl Principal {
    /// The principal of an unauthenticated client.
    pub(crate) fn anonymous() -> Self {
        Self::User("ANONYMOUS".to_owned())
    }

    /// Returns the user's name; `None` for brokers.
    pub(crate) fn user(&self) -> Option<&str> {
        match self {
            Self::Broker => None,
            Self::User(name) => Some(name),
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A separate type, so that no user name can look like a broker.
            Self::Broker => f.write_str("Broker:"),
            Self::User(name) => write!(f, "User:{name}"),
        }
    }
}

/// The brokers' login name, the only one on their listener.
const BROKER: &str = "broker";

/// Timeout of the TLS handshake.
const TLS_LIMIT: Duration = Duration::from_secs(10);

/// The authentication requirements of one listener.
pub(crate) struct Admission {
    listener: ListenerName,
    tls: Option<Arc<ServerConfig>>,
    sasl: Option<Sasl>,
    for_whom: ForWhom,
    /// Delay of the response to a failure, so that passwords cannot be tried quickly.
    failure_delay: Duration,
}

/// The kind of peers a listener serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForWhom {
    Clients,
    Brokers,
}

#[derive(Debug)]
struct Sasl {
    mechanisms: Vec<Mechanism>,
    users: Arc<Users>,
    /// Lifetime of an authentication; zero means unlimited.
    lifetime: Duration,
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = self.tls.is_some();
        f.debug_struct("Admission")
            .field("listener", &self.listener)
            .field("tls", &tls)
            .field("sasl", &self.sasl)
            .finish_non_exhaustive()
    }
}

impl Admission {
    /// Completes the TLS handshake if the listener uses TLS. Returns the resulting socket and the
    /// client's principal without SASL.
    ///
    /// # Cancel safety
    /// Not cancel safe: a dropped future drops the connection.
    pub(crate) async fn shake_hands(
        &self,
        socket: Box<dyn Socket>,
    ) -> Result<(Box<dyn Socket>, Principal), TlsError> {
        let Some(config) = &self.tls else { return Ok((socket, Principal::anonymous())) };
        let socket = TlsSocket::accept(socket, Arc::clone(config), TLS_LIMIT).await?;
        let subject = socket.peer_certificates().first();
        let subject = subject.and_then(|certificate| certificates::subject(certificate));
        let principal = subject.map_or_else(Principal::anonymous, Principal::User);
        Ok((Box::new(socket), principal))
    }

    /// The listener whose connections it admits.
    pub(crate) fn listener(&self) -> &ListenerName {
        &self.listener
    }

    pub(crate) fn for_whom(&self) -> ForWhom {
        self.for_whom
    }

    pub(crate) fn failure_delay(&self) -> Duration {
        self.failure_delay
    }

    fn principal(&self, user: String) -> Principal {
        match self.for_whom {
            ForWhom::Clients => Principal::User(user),
            ForWhom::Brokers => Principal::Broker,
        }
    }
}

/// The listeners of every broker.
#[derive(Debug)]
pub(crate) struct Admissions {
    /// In the order of the listeners.
    pub(crate) clients: Vec<Arc<Admission>>,
    pub(crate) brokers: BetweenBrokers,
    /// The file with the certificate that clients must trust, if the cluster has created it.
    pub(crate) ca_file: Option<PathBuf>,
    /// Credentials of the configured users.
    pub(crate) credentials: Credentials,
}

/// The listener that brokers use among themselves.
#[derive(Debug)]
pub(crate) enum BetweenBrokers {
    /// The clients' listener at this position.
    Shared(usize),
    Separate(BrokersOnly),
}

impl BetweenBrokers {
    pub(crate) fn separate(&self) -> Option<&BrokersOnly> {
        match self {
            Self::Shared(_) => None,
            Self::Separate(brokers) => Some(brokers),
        }
    }
}

/// The separate listener between brokers.
pub(crate) struct BrokersOnly {
    pub(crate) admission: Arc<Admission>,
    password: String,
}

impl fmt::Debug for BrokersOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokersOnly").field("admission", &self.admission).finish_non_exhaustive()
    }
}

impl BrokersOnly {
    /// Any free port of the loopback interface.
    pub(crate) const BIND: SocketAddr =
        SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    fn new() -> Result<Self, ring::error::Unspecified> {
        let mut random = [0; 32];
        SystemRandom::new().fill(&mut random)?;
        let password = BASE64_STANDARD.encode(random);
        let broker = User::new(BROKER, password.clone()).mechanisms([Mechanism::Plain]);
        let sasl = Sasl {
            mechanisms: vec![Mechanism::Plain],
            users: Arc::new(Users::new(&[broker])?.0),
            lifetime: Duration::ZERO,
        };
        let admission = Arc::new(Admission {
            listener: ListenerName::between_brokers(),
            tls: None,
            sasl: Some(sasl),
            for_whom: ForWhom::Brokers,
            failure_delay: Duration::from_millis(100),
        });
        Ok(Self { admission, password })
    }

    /// Returns a broker's message to another one with the mechanism PLAIN.
    pub(crate) fn credentials(&self) -> Vec<u8> {
        format!("\0{BROKER}\0{}", self.password).into_bytes()
    }
}

impl Admissions {
    /// `dir` stores the cluster's own certificates; `None` if nothing is stored.
    ///
    /// # Errors
    /// Certificates cannot be used or created.
    pub(crate) fn new(config: &ClusterConfig, dir: Option<&Path>) -> Result<Self, ClusterError> {
        let random = |_| ClusterError::NoRandomness;
        let security = &config.security;
        let (users, credentials) = Users::new(&security.users).map_err(random)?;
        let users = Arc::new(users);
        // The listeners of all brokers have the same names and protocols.
        let listeners = config.listeners_of(1)?;
        let has_tls = listeners.iter().any(|listener| listener.protocol.has_tls());
        let (server, ca_file) = match has_tls {
            true => {
                let material = Material::new(config, dir)?;
                (Some(material.server), material.ca_file)
            }
            false => (None, None),
        };
        let admission = |Listener { name, protocol, .. }: &Listener| {
            let sasl = protocol.has_sasl().then(|| Sasl {
                mechanisms: security.mechanisms.clone(),
                users: Arc::clone(&users),
                lifetime: security.max_reauth,
            });
            Arc::new(Admission {
                listener: name.clone(),
                tls: server.clone().filter(|_| protocol.has_tls()),
                sasl,
                for_whom: ForWhom::Clients,
                failure_delay: security.failed_authentication_delay,
            })
        };
        let clients = listeners.iter().map(admission).collect();
        let brokers = match config.listener_between_brokers(&listeners) {
            Some(at) => BetweenBrokers::Shared(at),
            None => BetweenBrokers::Separate(BrokersOnly::new().map_err(random)?),
        };
        Ok(Self { clients, brokers, ca_file, credentials })
    }
}
