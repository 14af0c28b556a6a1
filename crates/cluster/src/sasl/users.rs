//! Users from the configuration, and the secrets that brokers store for them.

use std::{collections::BTreeMap, fmt, num::NonZeroU32};

use curtail_wire::Mechanism;
use ring::{
    error::Unspecified,
    hmac,
    rand::{SecureRandom, SystemRandom},
};

use super::{Credential, Credentials, Hash};

/// Iterations of a SCRAM proof: Kafka's default and minimum.
const ITERATIONS: NonZeroU32 = NonZeroU32::new(4096).expect("not zero");

/// A user that may authenticate with a password.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    name: String,
    password: String,
    mechanisms: Vec<Mechanism>,
}

/// Why a text is not a user. It does not contain the text, which has a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserError {
    /// The name or the password is missing.
    #[error("expected NAME:PASSWORD or NAME:PASSWORD:MECHANISM")]
    Incomplete,
    /// The text after the last colon resembles a mechanism's name, but is no mechanism with a password.
    #[error("{}", misnamed(*.0))]
    Mechanism(Mechanism),
}

/// The text of [`UserError::Mechanism`].
fn misnamed(nearest: Mechanism) -> String {
    match nearest {
        Mechanism::OAuthBearer => {
            "OAUTHBEARER has no passwords; the mechanism must be PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512".into()
        }
        nearest => format!(
            "no mechanism has the name after the last colon; did you mean {nearest}? A password with such an end needs \
             a mechanism after it"
        ),
    }
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User")
            .field("name", &self.name)
            .field("mechanisms", &self.mechanisms)
            .finish_non_exhaustive()
    }
}

impl User {
    /// Creates a user of all mechanisms with a password.
    #[must_use]
    pub fn new(name: impl Into<String>, password: impl Into<String>) -> Self {
        let mechanisms = Mechanism::PASSWORDS.to_vec();
        Self { name: name.into(), password: password.into(), mechanisms }
    }

    /// Restricts the user to these mechanisms.
    #[must_use]
    pub fn mechanisms(mut self, mechanisms: impl IntoIterator<Item = Mechanism>) -> Self {
        self.mechanisms = mechanisms.into_iter().collect();
        self
    }

    /// Parses `NAME:PASSWORD`, or `NAME:PASSWORD:MECHANISM` for one mechanism only. The text after
    /// the last colon belongs to the password unless it is a mechanism's name.
    ///
    /// # Errors
    /// The missing part, or the mechanism that the text after the last colon resembles. The message
    /// does not contain the text.
    pub fn parse(text: &str) -> Result<Self, UserError> {
        let (name, rest) = text.split_once(':').ok_or(UserError::Incomplete)?;
        let last = rest.rsplit_once(':');
        let user = match last.and_then(|(pass, name)| Some((pass, password_mechanism(name)?))) {
            Some((password, mechanism)) => Self::new(name, password).mechanisms([mechanism]),
            // As a part of the password it would give the user all mechanisms, and another password.
            None => match last.and_then(|(_, name)| resembled(name)) {
                Some(mechanism) => return Err(UserError::Mechanism(mechanism)),
                None => Self::new(name, rest),
            },
        };
        user.check().map(|()| user).map_err(|()| UserError::Incomplete)
    }

    /// Checks that every mechanism can send the name and the password.
    pub(crate) fn check(&self) -> Result<(), ()> {
        let usable = |text: &str| !text.is_empty() && !text.contains('\0');
        if usable(&self.name) && usable(&self.password) { Ok(()) } else { Err(()) }
    }

    /// Returns whether the user can authenticate with any of these mechanisms.
    pub(crate) fn has_one_of(&self, mechanisms: &[Mechanism]) -> bool {
        mechanisms.iter().any(|mechanism| self.mechanisms.contains(mechanism))
    }

    pub(crate) fn password(&self) -> &str {
        &self.password
    }

    /// The user's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

fn password_mechanism(name: &str) -> Option<Mechanism> {
    Mechanism::by_name(name).filter(|mechanism| Mechanism::PASSWORDS.contains(mechanism))
}

/// Returns the mechanism that a text resembles: the prefixes of the names in any case, and the hash functions.
fn resembled(text: &str) -> Option<Mechanism> {
    let kept = text.chars().filter(char::is_ascii_alphanumeric);
    let kept: String = kept.map(|letter| letter.to_ascii_uppercase()).collect();
    if kept.starts_with("PLAIN") {
        Some(Mechanism::Plain)
    } else if kept.contains("SHA512") || kept.starts_with("SCRAM") && kept.ends_with("512") {
        Some(Mechanism::ScramSha512)
    } else if kept.contains("SHA256") || kept.starts_with("SCRAM") {
        Some(Mechanism::ScramSha256)
    } else if kept.starts_with("OAUTHBEARER") {
        Some(Mechanism::OAuthBearer)
    } else {
        None
    }
}

/// The users of PLAIN. It does not reveal the passwords.
pub(crate) struct Users {
    /// Random key of this table: the tags below are meaningless elsewhere.
    key: hmac::Key,
    plain: BTreeMap<String, hmac::Tag>,
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Users").field(&self.plain.len()).finish()
    }
}

impl Users {
    /// Hashes the passwords for PLAIN and for SCRAM. A later entry of the same name adds to an
    /// earlier one.
    ///
    /// # Errors
    /// The operating system provides no random numbers.
    pub(crate) fn new(users: &[User]) -> Result<(Self, Credentials), Unspecified> {
        let random = SystemRandom::new();
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &random)?;
        let (mut plain, mut credentials) = (BTreeMap::new(), Credentials::new());
        for User { name, password, mechanisms } in users {
            let password = password.as_bytes();
            for mechanism in mechanisms {
                let hash = match mechanism {
                    Mechanism::Plain => {
                        plain.insert(name.clone(), hmac::sign(&key, password));
                        continue;
                    }
                    Mechanism::ScramSha256 => Hash::Sha256,
                    Mechanism::ScramSha512 => Hash::Sha512,
                    // These have no stored users.
                    Mechanism::OAuthBearer | Mechanism::AwsMskIam => continue,
                };
                let mut salt = vec![0; 16];
                random.fill(&mut salt)?;
                let salted = hash.salted(password, &salt, ITERATIONS);
                let credential = Credential::of_salted(hash, &salted, salt, ITERATIONS);
                credentials.insert((name.clone(), hash), credential.into());
            }
        }
        Ok((Self { key, plain }, credentials))
    }

    /// Returns whether this is the user's password. Unknown users take as long as known ones.
    pub(super) fn has_password(&self, name: &str, password: &str) -> bool {
        let tag = self.plain.get(name).map_or(&[][..], AsRef::as_ref);
        hmac::verify(&self.key, password.as_bytes(), tag).is_ok()
    }
}
