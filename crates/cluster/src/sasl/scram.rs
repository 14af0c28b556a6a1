//! SCRAM (RFC 5802), without channel binding, as in Kafka's brokers.

use std::{fmt, num::NonZeroU32, sync::Arc};

use base64::{Engine, prelude::BASE64_STANDARD as BASE64};
use imbl::OrdMap;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

use super::{Hash, Refused, Step, same};

/// Random bytes in the server's part of the nonce.
const NONCE: usize = 24;

/// The stored credentials of SCRAM users.
pub(crate) type Credentials = OrdMap<(String, Hash), Arc<Credential>>;

/// A stored SCRAM credential. It does not reveal the password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Credential {
    #[serde(with = "in_base64")]
    salt: Vec<u8>,
    pub(crate) iterations: NonZeroU32,
    #[serde(with = "in_base64")]
    stored_key: Vec<u8>,
    #[serde(with = "in_base64")]
    server_key: Vec<u8>,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

impl Credential {
    /// Creates a credential from a password salted by a client (KIP-554).
    pub(crate) fn of_salted(
        hash: Hash,
        salted: &[u8],
        salt: Vec<u8>,
        iterations: NonZeroU32,
    ) -> Self {
        let client_key = hash.hmac(salted, b"Client Key");
        Self {
            salt,
            iterations,
            stored_key: hash.digest(&client_key),
            server_key: hash.hmac(salted, b"Server Key"),
        }
    }
}

/// Encoding of bytes in the lines of the controller's journal.
mod in_base64 {
    use base64::{Engine, prelude::BASE64_STANDARD as BASE64};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&BASE64.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        BASE64.decode(String::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// The server's side of one exchange.
pub(crate) struct Server {
    hash: Hash,
    state: State,
}

enum State {
    Begun,
    Challenged(Challenged),
    Over,
}

struct Challenged {
    user: String,
    /// The credential of the challenge. A change during the exchange takes effect with the next
    /// login.
    credential: Arc<Credential>,
    /// The client's header, which the client repeats in its last message.
    header: String,
    nonce: String,
    /// The two messages so far, in the form that both sides sign.
    signed: String,
}

impl Server {
    pub(super) fn new(hash: Hash) -> Self {
        Self { hash, state: State::Begun }
    }

    pub(super) fn step(
        &mut self,
        credentials: &Credentials,
        message: &[u8],
    ) -> Result<Step, Refused> {
        let message = std::str::from_utf8(message).map_err(|_| Refused::Invalid)?;
        match std::mem::replace(&mut self.state, State::Over) {
            State::Begun => self.first(credentials, message),
            State::Challenged(challenged) => self.last(&challenged, message),
            State::Over => Err(Refused::Invalid),
        }
    }

    fn first(&mut self, credentials: &Credentials, message: &str) -> Result<Step, Refused> {
        let first = ClientFirst::parse(message).ok_or(Refused::Invalid)?;
        let credential = credentials.get(&(first.user.clone(), self.hash));
        let credential = credential.ok_or(Refused::Invalid)?;
        if first.on_behalf_of.is_some_and(|name| name != first.user) {
            return Err(Refused::Because(
                "Authentication failed: Client requested an authorization id that is different from username",
            ));
        }
        let mut random = [0; NONCE];
        SystemRandom::new().fill(&mut random).map_err(|_| Refused::Invalid)?;
        let nonce = format!("{}{}", first.nonce, BASE64.encode(random));
        let salt = BASE64.encode(&credential.salt);
        let challenge = format!("r={nonce},s={salt},i={}", credential.iterations);
        self.state = State::Challenged(Challenged {
            user: first.user,
            credential: Arc::clone(credential),
            header: first.header.to_owned(),
            nonce,
            signed: format!("{},{challenge}", first.bare),
        });
        Ok(Step::Challenge(challenge.into_bytes()))
    }

    fn last(&self, challenged: &Challenged, message: &str) -> Result<Step, Refused> {
        let (unproved, proof) = message.rsplit_once(",p=").ok_or(Refused::Invalid)?;
        let mut parts = unproved.split(',');
        let header = parts.next().and_then(|part| part.strip_prefix("c="));
        let nonce = parts.next().and_then(|part| part.strip_prefix("r="));
        if header != Some(BASE64.encode(&challenged.header).as_str())
            || nonce != Some(challenged.nonce.as_str())
        {
            return Err(Refused::Invalid);
        }
        let proof = BASE64.decode(proof).map_err(|_| Refused::Invalid)?;
        let credential = &challenged.credential;
        let signed = format!("{},{unproved}", challenged.signed);
        let signature = self.hash.hmac(&credential.stored_key, signed.as_bytes());
        if proof.len() != signature.len() {
            return Err(Refused::Invalid);
        }
        let client_key: Vec<u8> = proof.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        if !same(&self.hash.digest(&client_key), &credential.stored_key) {
            return Err(Refused::Invalid);
        }
        let own = self.hash.hmac(&credential.server_key, signed.as_bytes());
        let last = format!("v={}", BASE64.encode(own)).into_bytes();
        Ok(Step::Proved { last, user: challenged.user.clone(), expires_ms: None })
    }
}

/// `n,[a=NAME],n=NAME,r=NONCE[,...]`
struct ClientFirst<'a> {
    /// The message up to and including the second comma.
    header: &'a str,
    on_behalf_of: Option<String>,
    /// The message after the header.
    bare: &'a str,
    user: String,
    nonce: &'a str,
}

impl<'a> ClientFirst<'a> {
    fn parse(message: &'a str) -> Option<Self> {
        let (binding, rest) = message.split_once(',')?;
        // "y": the client supports channel binding, but assumes that the server does not.
        if !matches!(binding, "n" | "y") {
            return None;
        }
        let (on_behalf_of, bare) = rest.split_once(',')?;
        let header = &message[..message.len() - bare.len()];
        let on_behalf_of = match on_behalf_of {
            "" => None,
            name => Some(saslname(name.strip_prefix("a=")?)?),
        };
        let mut parts = bare.split(',');
        let user = saslname(parts.next()?.strip_prefix("n=")?)?;
        let nonce = parts.next()?.strip_prefix("r=")?;
        let printable = nonce.bytes().all(|byte| byte.is_ascii_graphic());
        // Extensions are signed with the rest, and have no meaning here (RFC 5802).
        (!user.is_empty() && !nonce.is_empty() && printable).then_some(Self {
            header,
            on_behalf_of,
            bare,
            user,
            nonce,
        })
    }
}

/// Decodes a name, in which `=2C` is a comma and `=3D` an equals sign.
fn saslname(text: &str) -> Option<String> {
    let mut parts = text.split('=');
    let mut name = parts.next()?.to_owned();
    for part in parts {
        let (code, rest) = part.split_at_checked(2)?;
        name.push(match code {
            "2C" => ',',
            "3D" => '=',
            _ => return None,
        });
        name.push_str(rest);
    }
    Some(name)
}
