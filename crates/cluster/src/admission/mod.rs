//! Who may come in: what the brokers' listeners ask of those who connect, and who is on the other side then.
//!
//! Clients have one listener on each broker. When that asks for TLS or SASL, or when not everybody may do everything,
//! brokers reach each other on a second one (`inter.broker.listener.name` in Kafka): on loopback, as all of them run in
//! one process, and with a password that this process has made up for itself.

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
    config::{ClusterConfig, Mechanism, User},
    error::ClusterError,
    sasl::{Credentials, Users},
};

/// Who does something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Principal {
    /// A broker of this cluster.
    Broker,
    /// A user by name.
    User(String),
}

impl Principal {
    /// Whoever has not said who it is.
    pub(crate) fn anonymous() -> Self {
        Self::User("ANONYMOUS".to_owned())
    }

    /// The user's name; brokers are no users.
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
            // Another type, so that no user's name reads like it.
            Self::Broker => f.write_str("Broker:"),
            Self::User(name) => write!(f, "User:{name}"),
        }
    }
}

/// The name that brokers log in with on their own listener, which knows no other.
const BROKER: &str = "broker";

/// How long a client has for the TLS handshake.
const TLS_LIMIT: Duration = Duration::from_secs(10);

/// What one listener asks for.
pub(crate) struct Admission {
    tls: Option<Arc<ServerConfig>>,
    sasl: Option<Sasl>,
    for_whom: ForWhom,
    /// How long a failure goes unanswered, so that passwords cannot be tried quickly.
    failure_delay: Duration,
}

/// Whom a listener is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForWhom {
    Clients,
    Brokers,
}

#[derive(Debug)]
struct Sasl {
    mechanisms: Vec<Mechanism>,
    users: Users,
    /// How long an authentication holds; zero for ever.
    lifetime: Duration,
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tls = self.tls.is_some();
        f.debug_struct("Admission")
            .field("tls", &tls)
            .field("sasl", &self.sasl)
            .finish_non_exhaustive()
    }
}

impl Admission {
    /// Shakes hands if the listener speaks TLS: the socket to go on with, and who the client is without SASL.
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
    pub(crate) clients: Arc<Admission>,
    /// Where brokers reach each other, unless it is where clients do.
    pub(crate) brokers: Option<BrokersOnly>,
    /// The file with the certificate that clients have to trust, if the cluster has made it.
    pub(crate) ca_file: Option<PathBuf>,
    /// Of the users that the configuration names.
    pub(crate) credentials: Credentials,
}

/// The listener for brokers.
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
            users: Users::new(&[broker])?.0,
            lifetime: Duration::ZERO,
        };
        let admission = Arc::new(Admission {
            tls: None,
            sasl: Some(sasl),
            for_whom: ForWhom::Brokers,
            failure_delay: Duration::from_millis(100),
        });
        Ok(Self { admission, password })
    }

    /// What a broker says to another one with the mechanism PLAIN.
    pub(crate) fn credentials(&self) -> Vec<u8> {
        format!("\0{BROKER}\0{}", self.password).into_bytes()
    }
}

impl Admissions {
    /// `dir` is where the cluster keeps its own certificates, if it keeps anything.
    ///
    /// # Errors
    /// When certificates cannot be used or made.
    pub(crate) fn new(config: &ClusterConfig, dir: Option<&Path>) -> Result<Self, ClusterError> {
        let random = |_| ClusterError::NoRandomness;
        let security = &config.security;
        let (users, credentials) = Users::new(&security.users).map_err(random)?;
        let sasl = security.protocol.has_sasl().then(|| Sasl {
            mechanisms: security.mechanisms.clone(),
            users,
            lifetime: security.max_reauth,
        });
        let (tls, ca_file) = match security.protocol.has_tls() {
            true => {
                let material = Material::new(config, dir)?;
                (Some(material.server), material.ca_file)
            }
            false => (None, None),
        };
        let clients = Arc::new(Admission {
            tls,
            sasl,
            for_whom: ForWhom::Clients,
            failure_delay: security.failed_authentication_delay,
        });
        let brokers = match security.separates_brokers() {
            true => Some(BrokersOnly::new().map_err(random)?),
            false => None,
        };
        Ok(Self { clients, brokers, ca_file, credentials })
    }
}
