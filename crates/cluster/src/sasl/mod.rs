//! The broker's side of SASL: mechanisms, their users, and the state of one exchange. Without
//! sockets or clock.

mod oauth_bearer;
mod plain;
mod scram;
#[cfg(test)]
mod tests;
mod users;

use curtail_wire::Mechanism;
use ring::{digest, hmac, pbkdf2};
use serde::{Deserialize, Serialize};

pub(crate) use scram::{Credential, Credentials};
pub(crate) use users::Users;
pub use users::{User, UserError};

/// Why an authentication was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The client receives this reason.
    Because(&'static str),
    /// The client learns only that its credentials are invalid.
    Invalid,
}

/// The result of a client's message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The client must respond to this challenge.
    Challenge(Vec<u8>),
    /// The client is authenticated; it may expect the server's last message.
    Proved {
        last: Vec<u8>,
        user: String,
        /// Expiry of the client's token, in milliseconds since the Unix epoch.
        expires_ms: Option<i64>,
    },
}

/// The users that may authenticate.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    /// The users of PLAIN.
    pub(crate) users: &'a Users,
    /// The current credentials of SCRAM.
    pub(crate) credentials: &'a Credentials,
}

/// One exchange of a mechanism.
pub(crate) enum Exchange {
    Plain,
    Scram(scram::Server),
    OauthBearer(oauth_bearer::Server),
    /// A mechanism that the cluster's settings refuse.
    Unsupported,
}

impl Exchange {
    pub(crate) fn begin(mechanism: Mechanism) -> Self {
        match mechanism {
            Mechanism::Plain => Self::Plain,
            Mechanism::ScramSha256 => Self::Scram(scram::Server::new(Hash::Sha256)),
            Mechanism::ScramSha512 => Self::Scram(scram::Server::new(Hash::Sha512)),
            Mechanism::OAuthBearer => Self::OauthBearer(oauth_bearer::Server::default()),
            Mechanism::AwsMskIam => Self::Unsupported,
        }
    }

    /// Handles a client's message. The exchange ends with a refusal or a proof.
    pub(crate) fn step(
        &mut self,
        known: Known<'_>,
        message: &[u8],
        wall_ms: i64,
    ) -> Result<Step, Refused> {
        match self {
            Self::Plain => plain::check(known.users, message),
            Self::Scram(server) => server.step(known.credentials, message),
            Self::OauthBearer(server) => server.step(message, wall_ms),
            Self::Unsupported => Err(Refused::Invalid),
        }
    }
}

/// The hash function of a SCRAM mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Hash {
    #[serde(rename = "SCRAM-SHA-256")]
    Sha256,
    #[serde(rename = "SCRAM-SHA-512")]
    Sha512,
}

impl Hash {
    /// Returns the mechanism's code in the protocol (KIP-554).
    pub(crate) fn code(self) -> i8 {
        match self {
            Self::Sha256 => 1,
            Self::Sha512 => 2,
        }
    }

    /// Returns the hash with this code.
    pub(crate) fn of_code(code: i8) -> Option<Self> {
        [Self::Sha256, Self::Sha512].into_iter().find(|hash| hash.code() == code)
    }

    fn digest(self, data: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha256 => &digest::SHA256,
            Self::Sha512 => &digest::SHA512,
        };
        digest::digest(algorithm, data).as_ref().to_vec()
    }

    fn hmac(self, key: &[u8], data: &[u8]) -> Vec<u8> {
        let algorithm = match self {
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha512 => hmac::HMAC_SHA512,
        };
        hmac::sign(&hmac::Key::new(algorithm, key), data).as_ref().to_vec()
    }

    /// `Hi` of RFC 5802.
    fn salted(self, password: &[u8], salt: &[u8], iterations: std::num::NonZeroU32) -> Vec<u8> {
        let (algorithm, length) = match self {
            Self::Sha256 => (pbkdf2::PBKDF2_HMAC_SHA256, digest::SHA256_OUTPUT_LEN),
            Self::Sha512 => (pbkdf2::PBKDF2_HMAC_SHA512, digest::SHA512_OUTPUT_LEN),
        };
        let mut out = vec![0; length];
        pbkdf2::derive(algorithm, iterations, salt, password, &mut out);
        out
    }
}

/// Compares in time that does not depend on the position of the difference.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
}
