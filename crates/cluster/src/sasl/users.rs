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
    /// The missing part. The message does not contain the text.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "expected NAME:PASSWORD or NAME:PASSWORD:MECHANISM";
        let (name, rest) = text.split_once(':').ok_or(EXPECTED)?;
        let last = rest.rsplit_once(':');
        let user = match last.and_then(|(pass, name)| Some((pass, password_mechanism(name)?))) {
            Some((password, mechanism)) => Self::new(name, password).mechanisms([mechanism]),
            None => Self::new(name, rest),
        };
        user.check().map(|()| user).map_err(|()| EXPECTED)
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

    /// The user's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

fn password_mechanism(name: &str) -> Option<Mechanism> {
    Mechanism::by_name(name).filter(|mechanism| Mechanism::PASSWORDS.contains(mechanism))
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
                    // OAUTHBEARER has no stored users.
                    Mechanism::OAuthBearer => continue,
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
