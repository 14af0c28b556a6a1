//! Who may come in: users as they are configured, and what brokers keep of their passwords.

use std::{collections::BTreeMap, fmt, num::NonZeroU32};

use ring::{
    hmac,
    rand::{SecureRandom, SystemRandom},
};

use super::{Hash, Mechanism, scram::Verifier};

/// Rounds of hashing that a SCRAM proof costs: Kafka's default, and the least it takes.
const ITERATIONS: NonZeroU32 = NonZeroU32::new(4096).expect("not zero");

/// Somebody who may authenticate, with a password.
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
    /// A user of every mechanism that asks for a password.
    #[must_use]
    pub fn new(name: impl Into<String>, password: impl Into<String>) -> Self {
        let mechanisms = Mechanism::PASSWORDS.to_vec();
        Self { name: name.into(), password: password.into(), mechanisms }
    }

    /// The same user, with these mechanisms only.
    #[must_use]
    pub fn mechanisms(mut self, mechanisms: impl IntoIterator<Item = Mechanism>) -> Self {
        self.mechanisms = mechanisms.into_iter().collect();
        self
    }

    /// `NAME:PASSWORD`, or `NAME:PASSWORD:MECHANISM` for one mechanism only. What follows the last colon is a part of
    /// the password unless it is a mechanism's name.
    ///
    /// # Errors
    /// What is missing. The text is not in the message.
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

    /// Whether the name and the password can be sent by every mechanism.
    pub(crate) fn check(&self) -> Result<(), ()> {
        let usable = |text: &str| !text.is_empty() && !text.contains('\0');
        if usable(&self.name) && usable(&self.password) { Ok(()) } else { Err(()) }
    }

    /// Whether the user can authenticate with any of these.
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

/// What brokers know of the users. Passwords cannot be read from it.
pub(crate) struct Users {
    /// Made for this table: the tags below mean nothing elsewhere.
    key: hmac::Key,
    known: BTreeMap<String, Known>,
}

#[derive(Default)]
struct Known {
    plain: Option<hmac::Tag>,
    sha256: Option<Verifier>,
    sha512: Option<Verifier>,
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Users").field(&self.known.len()).finish()
    }
}

impl Users {
    /// Hashes the passwords; a later entry of the same name adds to an earlier one.
    ///
    /// # Errors
    /// When the operating system gives no randomness.
    pub(crate) fn new(users: &[User]) -> Result<Self, ring::error::Unspecified> {
        let random = SystemRandom::new();
        let mut users_of =
            Self { key: hmac::Key::generate(hmac::HMAC_SHA256, &random)?, known: BTreeMap::new() };
        for user in users {
            for mechanism in &user.mechanisms {
                users_of.add(user, *mechanism, &random)?;
            }
        }
        Ok(users_of)
    }

    fn add(
        &mut self,
        user: &User,
        mechanism: Mechanism,
        random: &SystemRandom,
    ) -> Result<(), ring::error::Unspecified> {
        let mut salt = [0; 16];
        random.fill(&mut salt)?;
        let known = self.known.entry(user.name.clone()).or_default();
        let verifier = |hash| Verifier::new(hash, &user.password, salt, ITERATIONS);
        match mechanism {
            Mechanism::Plain => known.plain = Some(hmac::sign(&self.key, user.password.as_bytes())),
            Mechanism::ScramSha256 => known.sha256 = Some(verifier(Hash::Sha256)),
            Mechanism::ScramSha512 => known.sha512 = Some(verifier(Hash::Sha512)),
            // It knows nobody.
            Mechanism::OauthBearer => {}
        }
        Ok(())
    }

    /// Whether this is the user's password. Unknown users take as long as known ones.
    pub(super) fn has_password(&self, name: &str, password: &str) -> bool {
        let kept = self.known.get(name).and_then(|known| known.plain.as_ref());
        let tag = kept.map_or(&[][..], AsRef::as_ref);
        hmac::verify(&self.key, password.as_bytes(), tag).is_ok()
    }

    pub(super) fn verifier(&self, name: &str, hash: Hash) -> Option<&Verifier> {
        let known = self.known.get(name)?;
        match hash {
            Hash::Sha256 => known.sha256.as_ref(),
            Hash::Sha512 => known.sha512.as_ref(),
        }
    }
}
