//! The client's side of one SASL exchange: which message to send next, and whether the broker proves its identity.
//!
//! The bytes are those inside SaslAuthenticate requests (KIP-152). Drive an exchange with [`Exchange::begin`], then
//! [`Exchange::answered`] for every response until [`Step::Done`].

#[cfg_attr(not(feature = "scram"), path = "sasl/no_scram.rs")]
mod scram;
#[cfg(all(test, feature = "scram"))]
mod tests;

use std::fmt;

use curtail_wire::Mechanism;
use zeroize::Zeroizing;

pub use scram::{Derivation, SaltedPassword};

/// Fewer iterations protect nothing; Kafka's brokers do not store fewer.
pub const MIN_ITERATIONS: u32 = 4_096;

/// The client does not run more iterations for a broker that has not proved its identity.
pub const MAX_ITERATIONS: u32 = 1_000_000;

const AWS_MSK_IAM: &str = "AWS_MSK_IAM";

/// The hash of a mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// SCRAM-SHA-256.
    Sha256,
    /// SCRAM-SHA-512.
    Sha512,
}

impl Hash {
    /// The mechanism that has it.
    #[must_use]
    pub fn mechanism(self) -> Mechanism {
        match self {
            Self::Sha256 => Mechanism::ScramSha256,
            Self::Sha512 => Mechanism::ScramSha512,
        }
    }
}

/// A text that appears in no log: a password or a token. Its memory is cleared when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Wraps the text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// The text itself.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

impl<T: Into<String>> From<T> for Secret {
    fn from(text: T) -> Self {
        Self::new(text)
    }
}

/// Credentials of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// For PLAIN.
    Plain {
        /// User name.
        username: String,
        /// Password.
        password: Secret,
    },
    /// For SCRAM.
    Scram {
        /// Hash of the mechanism.
        hash: Hash,
        /// User name, or the id of a delegation token.
        username: String,
        /// Password, or the token's secret.
        password: Secret,
        /// Whether it is a delegation token (KIP-48).
        is_token: bool,
    },
    /// For OAUTHBEARER.
    OAuthBearer {
        /// The token.
        token: Secret,
        /// Extensions (KIP-342): names and values.
        extensions: Vec<(String, String)>,
    },
    /// For AWS_MSK_IAM.
    AwsMskIam {
        /// The signed request in JSON.
        message: Secret,
    },
}

/// Why an exchange failed. It contains no secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SaslError {
    /// The credentials cannot be sent in this mechanism.
    #[error("{0}")]
    Unusable(&'static str),
    /// The broker's response breaks the mechanism's rules.
    #[error("the broker's response violates {mechanism}: {reason}")]
    Malformed {
        /// The mechanism.
        mechanism: &'static str,
        /// The rule that it breaks.
        reason: &'static str,
    },
    /// The broker refused, with this message.
    #[error("the broker refuses: {0}")]
    Refused(String),
    /// The broker does not know the password itself, so it is not the broker that the password belongs to.
    #[error("the broker did not prove that it knows the password; it may be an impostor")]
    Impostor,
    /// The broker asks for too few or too many iterations.
    #[error(
        "the broker asks for {0} SCRAM iterations; {MIN_ITERATIONS} to {MAX_ITERATIONS} are accepted"
    )]
    Iterations(u64),
}

/// The next step.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this and pass the response to [`Exchange::answered`].
    Send(Zeroizing<Vec<u8>>),
    /// Run [`Derivation::run`] on a thread that may block, and pass the result to [`Exchange::derived`].
    Derive(Derivation),
    /// Both sides are satisfied.
    Done,
}

/// One exchange.
#[derive(Debug)]
pub struct Exchange {
    state: State,
}

#[derive(Debug)]
enum State {
    /// The exchange has a single message; this is the mechanism.
    OneShot(&'static str),
    Scram(scram::Scram),
}

impl Exchange {
    /// Starts an exchange and returns its first message. `nonce` is unpredictable printable text without commas; only
    /// SCRAM needs it.
    ///
    /// # Errors
    /// [`SaslError::Unusable`] for credentials that the mechanism cannot carry.
    pub fn begin(
        credentials: &Credentials,
        nonce: &str,
    ) -> Result<(Self, Zeroizing<Vec<u8>>), SaslError> {
        match credentials {
            Credentials::Plain { username, password } => {
                let first = plain(username, password.reveal())?;
                Ok((Self { state: State::OneShot("PLAIN") }, first))
            }
            Credentials::Scram { hash, username, password, is_token } => {
                let (scram, first) =
                    scram::Scram::begin(*hash, username, password, *is_token, nonce)?;
                Ok((Self { state: State::Scram(scram) }, first))
            }
            Credentials::OAuthBearer { token, extensions } => {
                let first = bearer(token.reveal(), extensions)?;
                Ok((Self { state: State::OneShot("OAUTHBEARER") }, first))
            }
            Credentials::AwsMskIam { message } => {
                let first = Zeroizing::new(message.reveal().as_bytes().to_vec());
                Ok((Self { state: State::OneShot(AWS_MSK_IAM) }, first))
            }
        }
    }

    /// Handles the broker's response to the last message.
    ///
    /// # Errors
    /// See [`SaslError`]. The exchange has ended.
    pub fn answered(&mut self, bytes: &[u8]) -> Result<Step, SaslError> {
        match &mut self.state {
            // The response has the request's id, for Amazon's support.
            State::OneShot(AWS_MSK_IAM) => match bytes {
                [] => Err(SaslError::Malformed { mechanism: AWS_MSK_IAM, reason: "it is empty" }),
                _ => Ok(Step::Done),
            },
            State::OneShot(_) if bytes.is_empty() => Ok(Step::Done),
            // RFC 7628, 3.2.2: a response that is not empty gives the reason for a refusal, in JSON.
            State::OneShot("OAUTHBEARER") => Err(SaslError::Refused(readable(bytes))),
            State::OneShot(mechanism) => Err(SaslError::Malformed {
                mechanism,
                reason: "it is not empty although the exchange has ended",
            }),
            State::Scram(scram) => scram.answered(bytes),
        }
    }

    /// Takes the result of a [`Step::Derive`], or an earlier result of the same derivation.
    ///
    /// # Errors
    /// If no derivation is pending.
    pub fn derived(&mut self, salted: &SaltedPassword) -> Result<Step, SaslError> {
        match &mut self.state {
            State::Scram(scram) => scram.derived(salted),
            State::OneShot(_) => Err(SaslError::Unusable("no key derivation is pending")),
        }
    }
}

/// RFC 4616. Kafka accepts only the user name itself as the authorization id, or none.
fn plain(username: &str, password: &str) -> Result<Zeroizing<Vec<u8>>, SaslError> {
    if username.is_empty() || password.is_empty() {
        return Err(SaslError::Unusable("PLAIN needs a username and a password"));
    }
    if username.contains('\0') || password.contains('\0') {
        return Err(SaslError::Unusable("PLAIN cannot carry a NUL character"));
    }
    Ok(Zeroizing::new([b"\0", username.as_bytes(), b"\0", password.as_bytes()].concat()))
}

/// RFC 7628, 3.1.
fn bearer(token: &str, extensions: &[(String, String)]) -> Result<Zeroizing<Vec<u8>>, SaslError> {
    const SEPARATOR: char = '\x01';
    if token.is_empty() || token.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return Err(SaslError::Unusable("an OAUTHBEARER token must be printable and not empty"));
    }
    let mut message = Zeroizing::new(format!("n,,{SEPARATOR}auth=Bearer {token}{SEPARATOR}"));
    for (name, value) in extensions {
        let letters = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphabetic());
        let visible = |c: char| matches!(c, '\x21'..='\x7e' | ' ' | '\t' | '\r' | '\n');
        if !letters || name == "auth" || !value.chars().all(visible) {
            return Err(SaslError::Unusable(
                "an OAUTHBEARER extension needs a name of letters other than 'auth' and a printable value",
            ));
        }
        message.push_str(name);
        message.push('=');
        message.push_str(value);
        message.push(SEPARATOR);
    }
    message.push(SEPARATOR);
    Ok(Zeroizing::new(message.as_bytes().to_vec()))
}

/// Reduces a broker's message to a short line.
fn readable(bytes: &[u8]) -> String {
    const LONGEST: usize = 300;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * LONGEST)]);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST).collect()
}
