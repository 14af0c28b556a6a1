//! SCRAM (RFC 5802, RFC 7677) without channel binding, as Kafka speaks it (KIP-84).

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256, Sha512};
use subtle::ConstantTimeEq as _;
use zeroize::{Zeroize as _, Zeroizing};

use super::{Hash, MAX_ITERATIONS, MIN_ITERATIONS, SaslError, Secret, Step, readable};

/// GS2 header: no channel binding, no authorization id.
const GS2: &str = "n,,";

type Bytes = Zeroizing<Vec<u8>>;

impl Hash {
    fn digest(self, data: &[u8]) -> Bytes {
        Zeroizing::new(match self {
            Self::Sha256 => Sha256::digest(data).to_vec(),
            Self::Sha512 => Sha512::digest(data).to_vec(),
        })
    }

    fn hmac(self, key: &[u8], data: &[u8]) -> Bytes {
        // Keys of any length are valid: the error cannot happen, and an empty result would match nothing.
        Zeroizing::new(match self {
            Self::Sha256 => Hmac::<Sha256>::new_from_slice(key)
                .map(|mac| mac.chain_update(data).finalize().into_bytes().to_vec())
                .unwrap_or_default(),
            Self::Sha512 => Hmac::<Sha512>::new_from_slice(key)
                .map(|mac| mac.chain_update(data).finalize().into_bytes().to_vec())
                .unwrap_or_default(),
        })
    }
}

/// The key derivation of an exchange: slow on purpose, from milliseconds up to a second.
#[derive(Clone, PartialEq, Eq)]
pub struct Derivation {
    hash: Hash,
    password: Secret,
    salt: Vec<u8>,
    iterations: u32,
}

impl fmt::Debug for Derivation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Derivation").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

/// The result of a derivation. It is as good as the password for its salt.
#[derive(Clone)]
pub struct SaltedPassword(Bytes);

impl fmt::Debug for SaltedPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

impl Derivation {
    /// Derives the key on the caller's thread.
    #[must_use]
    pub fn run(&self) -> SaltedPassword {
        let password = self.password.reveal().as_bytes();
        let mut key = Zeroizing::new(vec![0; if self.hash == Hash::Sha256 { 32 } else { 64 }]);
        match self.hash {
            Hash::Sha256 => {
                pbkdf2::pbkdf2_hmac::<Sha256>(password, &self.salt, self.iterations, &mut key);
            }
            Hash::Sha512 => {
                pbkdf2::pbkdf2_hmac::<Sha512>(password, &self.salt, self.iterations, &mut key);
            }
        }
        SaltedPassword(key)
    }
}

/// One exchange.
pub(super) struct Scram {
    hash: Hash,
    password: Secret,
    nonce: String,
    /// The client's first message without its header.
    first_bare: String,
    state: State,
}

impl fmt::Debug for Scram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scram").field("hash", &self.hash).finish_non_exhaustive()
    }
}

enum State {
    /// The broker's first message has not arrived.
    First,
    /// A key is being derived. `signed` and `last` are the signed text and the last message, both without the proof.
    Deriving {
        signed: String,
        last: String,
    },
    /// The broker's last message must have this signature.
    Last {
        signature: Bytes,
    },
    Over,
}

impl Scram {
    pub(super) fn begin(
        hash: Hash,
        username: &str,
        password: &Secret,
        is_token: bool,
        nonce: &str,
    ) -> Result<(Self, Bytes), SaslError> {
        if username.is_empty() || password.reveal().is_empty() {
            return Err(SaslError::Unusable("SCRAM needs a username and a password"));
        }
        let name = username.replace('=', "=3D").replace(',', "=2C");
        let token = if is_token { ",tokenauth=true" } else { "" };
        let first_bare = format!("n={name},r={nonce}{token}");
        let first = Zeroizing::new(format!("{GS2}{first_bare}").into_bytes());
        let (password, nonce) = (password.clone(), nonce.to_owned());
        Ok((Self { hash, password, nonce, first_bare, state: State::First }, first))
    }

    pub(super) fn answered(&mut self, bytes: &[u8]) -> Result<Step, SaslError> {
        let text = std::str::from_utf8(bytes).map_err(|_| self.malformed("it is not text"))?;
        if let Some(refusal) = text.strip_prefix("e=") {
            return Err(SaslError::Refused(readable(refusal.as_bytes())));
        }
        match std::mem::replace(&mut self.state, State::Over) {
            State::First => self.first(text),
            State::Last { signature } => self.last(text, &signature),
            State::Deriving { .. } | State::Over => {
                Err(self.malformed("it came when no response was due"))
            }
        }
    }

    /// `r=nonce,s=salt,i=iterations`
    fn first(&mut self, text: &str) -> Result<Step, SaslError> {
        let mut parts = text.split(',');
        let mut part = |name: &str| parts.next().and_then(|part| part.strip_prefix(name));
        let nonce = part("r=").ok_or_else(|| self.malformed("the nonce is missing"))?;
        let salt = part("s=").ok_or_else(|| self.malformed("the salt is missing"))?;
        let iterations = part("i=").ok_or_else(|| self.malformed("the iterations are missing"))?;
        let adds = nonce.strip_prefix(&self.nonce).is_some_and(|added| !added.is_empty());
        if !adds {
            return Err(self.malformed("its nonce does not begin with the client's"));
        }
        let salt = STANDARD.decode(salt).map_err(|_| self.malformed("its salt is not Base64"))?;
        let iterations: u64 =
            iterations.parse().map_err(|_| self.malformed("its iterations are not a number"))?;
        let fits = u32::try_from(iterations)
            .ok()
            .filter(|count| (MIN_ITERATIONS..=MAX_ITERATIONS).contains(count));
        let iterations = fits.ok_or(SaslError::Iterations(iterations))?;
        let last = format!("c={},r={nonce}", STANDARD.encode(GS2));
        let signed = format!("{},{text},{last}", self.first_bare);
        self.state = State::Deriving { signed, last };
        let password = self.password.clone();
        Ok(Step::Derive(Derivation { hash: self.hash, password, salt, iterations }))
    }

    pub(super) fn derived(&mut self, salted: &SaltedPassword) -> Result<Step, SaslError> {
        let State::Deriving { signed, last } = std::mem::replace(&mut self.state, State::Over)
        else {
            return Err(SaslError::Unusable("no key derivation is pending"));
        };
        let hash = self.hash;
        let client_key = hash.hmac(&salted.0, b"Client Key");
        let mut proof = hash.hmac(&hash.digest(&client_key), signed.as_bytes());
        proof.iter_mut().zip(client_key.iter()).for_each(|(p, k)| *p ^= k);
        let message = format!("{last},p={}", STANDARD.encode(&*proof));
        proof.zeroize();
        let signature = hash.hmac(&hash.hmac(&salted.0, b"Server Key"), signed.as_bytes());
        self.state = State::Last { signature };
        Ok(Step::Send(Zeroizing::new(message.into_bytes())))
    }

    /// `v=signature`
    fn last(&mut self, text: &str, signature: &[u8]) -> Result<Step, SaslError> {
        let given = text.split(',').next().and_then(|part| part.strip_prefix("v="));
        let given = given.ok_or_else(|| self.malformed("the signature is missing"))?;
        let given =
            STANDARD.decode(given).map_err(|_| self.malformed("its signature is not Base64"))?;
        if given.is_empty() || !bool::from(given.ct_eq(signature)) {
            return Err(SaslError::Impostor);
        }
        Ok(Step::Done)
    }

    fn malformed(&self, reason: &'static str) -> SaslError {
        SaslError::Malformed { mechanism: self.hash.mechanism().name(), reason }
    }
}
