//! Settings of authentication and authorization.

use std::{fmt, path::PathBuf, time::Duration};

pub use curtail_wire::{Mechanism, SecurityProtocol};

use super::{ConfigError, Listener};
pub use crate::sasl::{User, UserError};

/// A password whose `Debug` output is hidden.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// The replacement for a shown password, as in Kafka.
    pub(crate) const HIDDEN: &str = "[hidden]";

    /// Wraps a password.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(crate) fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::HIDDEN)
    }
}

/// Whether clients need a certificate (`ssl.client.auth`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// Requests no certificate.
    #[default]
    None,
    /// Requests a certificate, and verifies it if the client sends one.
    Requested,
    /// Refuses clients without a certificate.
    Required,
}

impl ClientAuth {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Requested => "requested",
            Self::Required => "required",
        }
    }

    pub(super) fn by_name(name: &str) -> Option<Self> {
        [Self::None, Self::Requested, Self::Required].into_iter().find(|auth| auth.name() == name)
    }
}

/// The authorizer of clients' operations (`authorizer.class.name`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authorizer {
    /// No authorizer: every client may do everything.
    #[default]
    None,
    /// ACLs, as Kafka's `StandardAuthorizer`.
    Standard,
}

/// Settings of the brokers' listeners and of authorization.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Security {
    /// The users that may authenticate with SASL.
    pub users: Vec<User>,
    /// `sasl.enabled.mechanisms`: the SASL mechanisms offered. Kafka's default is GSSAPI, which is
    /// unsupported; the default here is all mechanisms with a password.
    pub mechanisms: Vec<Mechanism>,
    /// `connections.max.reauth.ms`: how long a SASL authentication is valid; zero means the
    /// connection's lifetime (KIP-368).
    pub max_reauth: Duration,
    /// `connection.authentication.timeout.ms`: time from the connection to the end of the client's
    /// authentication, including the TLS handshake. Specific to Curtail; Kafka closes such a
    /// connection after `connections.max.idle.ms`.
    pub authentication_timeout: Duration,
    /// `sasl.oauthbearer.allow.unsecured.tokens`: whether OAUTHBEARER, whose tokens are unsigned,
    /// is offered beyond loopback. Specific to Curtail.
    pub allow_unsecured_tokens: bool,
    /// `connection.failed.authentication.delay.ms`: delay of the response to a failed
    /// authentication.
    pub failed_authentication_delay: Duration,
    /// `ssl.keystore.location`: a PEM file with the brokers' private key and certificates. Without
    /// it the cluster creates them.
    pub key_store: Option<PathBuf>,
    /// `ssl.key.password`: decrypts the private key, if that is encrypted (PKCS#8 with PBES2).
    pub key_password: Option<Password>,
    /// `ssl.truststore.location`: a PEM file with the certificate authorities of client
    /// certificates.
    pub trust_store: Option<PathBuf>,
    /// `ssl.client.auth`.
    pub client_auth: ClientAuth,
    /// `authorizer.class.name`.
    pub authorizer: Authorizer,
    /// `super.users`: principals that may do everything, such as `User:admin`. The property
    /// separates them by semicolons.
    pub super_users: Vec<String>,
    /// `allow.everyone.if.no.acl.found`: whether a resource without ACLs is open to all clients.
    pub allow_everyone_if_no_acl: bool,
}

impl Default for Security {
    fn default() -> Self {
        Self {
            users: Vec::new(),
            mechanisms: Mechanism::PASSWORDS.to_vec(),
            max_reauth: Duration::ZERO,
            authentication_timeout: Duration::from_secs(10),
            allow_unsecured_tokens: false,
            failed_authentication_delay: Duration::from_millis(100),
            key_store: None,
            key_password: None,
            trust_store: None,
            client_auth: ClientAuth::None,
            authorizer: Authorizer::None,
            super_users: Vec::new(),
            allow_everyone_if_no_acl: false,
        }
    }
}

impl Security {
    /// Returns whether an authorizer decides what clients may do.
    pub(crate) fn has_authorizer(&self) -> bool {
        self.authorizer != Authorizer::None
    }

    /// Refuses a listener beyond loopback on which clients could claim any name.
    pub(super) fn validate_reach(&self, listeners: &[Listener]) -> Result<(), ConfigError> {
        if self.allow_unsecured_tokens || !self.mechanisms.contains(&Mechanism::OAuthBearer) {
            return Ok(());
        }
        let open =
            |listener: &&Listener| listener.protocol.has_sasl() && listener.is_beyond_loopback();
        match listeners.iter().find(open) {
            Some(Listener { name, host, port, .. }) => Err(ConfigError::Contradiction(format!(
                "OAUTHBEARER takes unsigned tokens, so on {name}://{host}:{port} every client could claim any name; \
                 remove it from sasl.enabled.mechanisms, listen on loopback, or set \
                 sasl.oauthbearer.allow.unsecured.tokens=true"
            ))),
            None => Ok(()),
        }
    }

    /// `listeners` are those of any one broker.
    pub(super) fn validate(&self, listeners: &[Listener]) -> Result<(), ConfigError> {
        let fail = |text: String| Err(ConfigError::Contradiction(text));
        let with = |has: fn(SecurityProtocol) -> bool| {
            listeners.iter().map(|listener| listener.protocol).find(|protocol| has(*protocol))
        };
        let protocols = || {
            let mut names: Vec<_> = listeners.iter().map(|l| l.protocol.name()).collect();
            names.dedup();
            names.join(" and ")
        };
        if self.mechanisms.contains(&Mechanism::AwsMskIam) {
            return fail(
                "AWS_MSK_IAM is a mechanism of Amazon MSK, which the embedded cluster does not have".into(),
            );
        }
        if self.users.iter().any(|user| user.check().is_err()) {
            return fail("a user needs a name and a password, both without NUL".into());
        }
        if let Some(protocol) = with(SecurityProtocol::has_sasl) {
            let may_enter = |user: &User| user.has_one_of(&self.mechanisms);
            let by_token = self.mechanisms.contains(&Mechanism::OAuthBearer);
            if !by_token && !self.users.iter().any(may_enter) {
                return fail(format!(
                    "{}: no client could authenticate; add a SASL user (`curtail cluster --user-file FILE`) with a mechanism of sasl.enabled.mechanisms",
                    protocol.name()
                ));
            }
        } else if !self.users.is_empty() {
            return fail(format!(
                "users authenticate with SASL only; a listener needs the protocol SASL_SSL or SASL_PLAINTEXT, not {}",
                protocols()
            ));
        }
        let tls = [
            ("ssl.keystore.location", self.key_store.is_some()),
            ("ssl.key.password", self.key_password.is_some()),
            ("ssl.truststore.location", self.trust_store.is_some()),
            ("ssl.client.auth", self.client_auth != ClientAuth::None),
        ];
        let has_tls = with(SecurityProtocol::has_tls).is_some();
        if let Some((name, _)) = tls.iter().find(|(_, set)| *set && !has_tls) {
            return fail(format!("{name} is for SSL and SASL_SSL, not for {}", protocols()));
        }
        if self.key_password.is_some() && self.key_store.is_none() {
            return fail(
                "ssl.key.password needs ssl.keystore.location, the key that it opens".into(),
            );
        }
        if self.client_auth != ClientAuth::None && self.trust_store.is_none() {
            return fail(format!(
                "ssl.client.auth={} needs ssl.truststore.location, the certificates to check clients' with",
                self.client_auth.name()
            ));
        }
        Ok(())
    }
}
