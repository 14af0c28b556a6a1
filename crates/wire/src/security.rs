//! Security protocols of listeners and SASL mechanisms of clients, with Kafka's names.

use std::fmt;

#[cfg(test)]
mod tests;

/// `security.protocol` of a client, and the protocol of a broker's listener (`listener.security.protocol.map`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SecurityProtocol {
    /// Neither encryption nor authentication: every client is `User:ANONYMOUS`.
    #[default]
    Plaintext,
    /// TLS. The principal is the subject of the client's certificate, or `User:ANONYMOUS` without one.
    Ssl,
    /// SASL in plaintext.
    SaslPlaintext,
    /// SASL inside TLS.
    SaslSsl,
}

impl SecurityProtocol {
    const ALL: [Self; 4] = [Self::Plaintext, Self::Ssl, Self::SaslPlaintext, Self::SaslSsl];

    /// Kafka's name of the protocol.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Plaintext => "PLAINTEXT",
            Self::Ssl => "SSL",
            Self::SaslPlaintext => "SASL_PLAINTEXT",
            Self::SaslSsl => "SASL_SSL",
        }
    }

    /// The protocol of this name, in upper or lower case.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.name().eq_ignore_ascii_case(name))
    }

    /// Whether the connection uses TLS.
    #[must_use]
    pub fn has_tls(self) -> bool {
        matches!(self, Self::Ssl | Self::SaslSsl)
    }

    /// Whether clients must authenticate with SASL.
    #[must_use]
    pub fn has_sasl(self) -> bool {
        matches!(self, Self::SaslPlaintext | Self::SaslSsl)
    }
}

/// A SASL mechanism: `sasl.mechanism` of a client, one of `sasl.enabled.mechanisms` of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mechanism {
    /// User name and unencrypted password (RFC 4616). Only TLS keeps them secret on the network.
    Plain,
    /// A proof of the password with SHA-256 (RFC 5802, RFC 7677).
    ScramSha256,
    /// A proof of the password with SHA-512.
    ScramSha512,
    /// A token from a third party (RFC 7628, KIP-255).
    OAuthBearer,
    /// A request that credentials of AWS have signed, for Amazon MSK only. Not a mechanism of Apache Kafka, and not
    /// among [`Self::ALL`].
    AwsMskIam,
}

impl Mechanism {
    /// All mechanisms of Apache Kafka that are supported.
    pub const ALL: [Self; 4] =
        [Self::Plain, Self::ScramSha256, Self::ScramSha512, Self::OAuthBearer];
    /// The mechanisms that need a password.
    pub const PASSWORDS: [Self; 3] = [Self::Plain, Self::ScramSha256, Self::ScramSha512];

    /// Registered name, such as `SCRAM-SHA-512`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
            Self::OAuthBearer => "OAUTHBEARER",
            Self::AwsMskIam => "AWS_MSK_IAM",
        }
    }

    /// The mechanism of Apache Kafka of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mechanism| mechanism.name() == name)
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
