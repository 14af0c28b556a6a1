//! SCRAM users (KIP-554). The password never leaves the client: brokers receive it salted and hashed.

use std::{collections::BTreeSet, fmt};

use bytes::Bytes;
use curtail_net::secret_bytes;
use curtail_proto::sasl::MAX_ITERATIONS;
use curtail_wire::{ErrorCode, cold::messages};
use messages::{
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse,
    alter_user_scram_credentials_request::{ScramCredentialDeletion, ScramCredentialUpsertion},
    describe_user_scram_credentials_request::UserName,
};
use pbkdf2::pbkdf2_hmac;
use sha2::{Sha256, Sha512};
use zeroize::Zeroizing;

use super::{Admin, Call, Each, broker_error, text};
use crate::{Error, Result};

/// Hash function for passwords.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ScramMechanism {
    /// SCRAM-SHA-256.
    Sha256,
    /// SCRAM-SHA-512.
    Sha512,
}

impl ScramMechanism {
    fn wire(self) -> i8 {
        match self {
            Self::Sha256 => 1,
            Self::Sha512 => 2,
        }
    }

    fn from_wire(code: i8) -> Option<Self> {
        match code {
            1 => Some(Self::Sha256),
            2 => Some(Self::Sha512),
            _ => None,
        }
    }

    /// Kafka's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "SCRAM-SHA-256",
            Self::Sha512 => "SCRAM-SHA-512",
        }
    }

    /// The salted password of RFC 5802. Its memory is overwritten when it is dropped.
    fn salted(self, password: &[u8], salt: &[u8], iterations: u32) -> Zeroizing<Vec<u8>> {
        match self {
            Self::Sha256 => {
                let mut hash = Zeroizing::new(vec![0; 32]);
                pbkdf2_hmac::<Sha256>(password, salt, iterations, &mut hash);
                hash
            }
            Self::Sha512 => {
                let mut hash = Zeroizing::new(vec![0; 64]);
                pbkdf2_hmac::<Sha512>(password, salt, iterations, &mut hash);
                hash
            }
        }
    }
}

/// A user's credential, without secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScramCredential {
    /// Hash function.
    pub mechanism: ScramMechanism,
    /// Number of iterations.
    pub iterations: i32,
}

/// A change of a user's credentials. Its [`Debug`] form has no secrets, and passwords are overwritten when it is
/// dropped.
#[derive(Clone, Debug)]
pub struct ScramChange {
    user: String,
    mechanism: ScramMechanism,
    action: Action,
}

#[derive(Clone)]
enum Action {
    Delete,
    Upsert { password: Zeroizing<Vec<u8>>, iterations: u32, salt: Option<Vec<u8>> },
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Delete => f.write_str("Delete"),
            Self::Upsert { iterations, .. } => {
                f.debug_struct("Upsert").field("iterations", iterations).finish_non_exhaustive()
            }
        }
    }
}

/// Minimum of RFC 7677, which Kafka accepts.
const ITERATIONS: u32 = 4096;
const TOO_MANY_ITERATIONS: Error = Error::IllegalState("SCRAM iterations: at most 1,000,000");
/// Bytes of a generated salt.
const SALT: usize = 24;

impl ScramChange {
    /// Sets a user's password for this mechanism, with 4096 iterations and a random salt.
    pub fn upsert(
        user: impl Into<String>,
        mechanism: ScramMechanism,
        password: impl Into<Vec<u8>>,
    ) -> Self {
        let password = Zeroizing::new(password.into());
        let action = Action::Upsert { password, iterations: ITERATIONS, salt: None };
        Self { user: user.into(), mechanism, action }
    }

    /// Deletes a user's password for a mechanism.
    pub fn delete(user: impl Into<String>, mechanism: ScramMechanism) -> Self {
        Self { user: user.into(), mechanism, action: Action::Delete }
    }

    /// Sets the number of iterations of the hash. Kafka accepts 4,096 to 16,384, and the client at most 1,000,000.
    /// Ignored for a deletion.
    #[must_use]
    pub fn iterations(mut self, count: u32) -> Self {
        if let Action::Upsert { iterations, .. } = &mut self.action {
            *iterations = count;
        }
        self
    }

    /// Sets the salt, instead of random bytes. Ignored for a deletion.
    #[must_use]
    pub fn salt(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        if let Action::Upsert { salt, .. } = &mut self.action {
            *salt = Some(bytes.into());
        }
        self
    }

    /// Whether hashing would take too long, so that it is refused.
    fn is_excessive(&self) -> bool {
        matches!(self.action, Action::Upsert { iterations, .. } if iterations > MAX_ITERATIONS)
    }

    fn deletion(&self) -> Option<ScramCredentialDeletion> {
        matches!(self.action, Action::Delete).then(|| {
            ScramCredentialDeletion::default()
                .with_name(text(&self.user))
                .with_mechanism(self.mechanism.wire())
        })
    }

    fn upsertion(&self) -> Option<ScramCredentialUpsertion> {
        let Action::Upsert { password, iterations, salt } = &self.action else { return None };
        let salt = salt.clone().unwrap_or_else(|| secret_bytes::<SALT>().to_vec());
        let salted = self.mechanism.salted(password, &salt, *iterations);
        Some(
            ScramCredentialUpsertion::default()
                .with_name(text(&self.user))
                .with_mechanism(self.mechanism.wire())
                .with_iterations(i32::try_from(*iterations).unwrap_or(i32::MAX))
                .with_salt(salt.into())
                .with_salted_password(Bytes::from_owner(salted)),
        )
    }
}

impl Admin {
    /// Returns the credentials of the given users, or of all users with credentials, with a result for each user.
    ///
    /// # Errors
    /// If no broker responds within `default.api.timeout.ms`, or the request is refused.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn describe_user_scram_credentials<'a>(
        &'a self,
        users: Option<&'a [&'a str]>,
    ) -> Call<'a, Each<String, Vec<ScramCredential>>> {
        let what = "describing users (default.api.timeout.ms)";
        self.retried(what, move |_| self.describe_users_once(users))
    }

    async fn describe_users_once(
        &self,
        users: Option<&[&str]>,
    ) -> Result<Each<String, Vec<ScramCredential>>> {
        let named = |users: &[&str]| {
            users.iter().map(|user| UserName::default().with_name(text(user))).collect()
        };
        let request = DescribeUserScramCredentialsRequest::default().with_users(users.map(named));
        let answer: DescribeUserScramCredentialsResponse =
            self.ask_controller(0..=0, |_| request).await?;
        let message = answer.error_message.as_deref();
        ErrorCode(answer.error_code).ok().map_err(|code| broker_error("users", code, message))?;
        let results = answer.results.into_iter().map(|found| {
            let user = found.user.to_string();
            let result = user_result(&user, found.error_code, found.error_message.as_deref());
            let credentials = found.credential_infos.iter().filter_map(|info| {
                let mechanism = ScramMechanism::from_wire(info.mechanism)?;
                Some(ScramCredential { mechanism, iterations: info.iterations })
            });
            (user, result.map(|()| credentials.collect()))
        });
        Ok(results.collect())
    }

    /// Sets or deletes passwords of users, with a result for each user. Kafka refuses a user who is named twice in
    /// one call (DUPLICATE_RESOURCE).
    ///
    /// ```no_run
    /// # async fn example(admin: &curtail::Admin, password: String) -> curtail::Result<()> {
    /// use curtail::admin::{ScramChange, ScramMechanism};
    ///
    /// let change = ScramChange::upsert("billing", ScramMechanism::Sha512, password).iterations(8192);
    /// for (user, changed) in admin.alter_user_scram_credentials(&[change]).await? {
    ///     println!("{user}: {changed:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the controller does not respond within `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// A dropped call may still have been carried out.
    pub fn alter_user_scram_credentials<'a>(
        &'a self,
        changes: &'a [ScramChange],
    ) -> Call<'a, Each<String, ()>> {
        let users: Vec<String> = changes.iter().map(|change| change.user.clone()).collect();
        let what = "changing users (default.api.timeout.ms)";
        self.rounds(what, users, move |open, _| self.alter_users_once(changes, open))
    }

    async fn alter_users_once(
        &self,
        changes: &[ScramChange],
        open: BTreeSet<String>,
    ) -> Result<Each<String, ()>> {
        let excessive: BTreeSet<&String> = changes
            .iter()
            .filter(|change| change.is_excessive())
            .map(|change| &change.user)
            .collect();
        let (refused, open): (BTreeSet<String>, BTreeSet<String>) =
            open.into_iter().partition(|user| excessive.contains(user));
        let mut results: Each<String, ()> =
            refused.into_iter().map(|user| (user, Err(TOO_MANY_ITERATIONS))).collect();
        if open.is_empty() {
            return Ok(results);
        }
        let open: Vec<ScramChange> =
            changes.iter().filter(|change| open.contains(&change.user)).cloned().collect();
        let deletions = open.iter().filter_map(ScramChange::deletion).collect();
        // Hashing takes up to a second.
        let hash = move || open.iter().filter_map(ScramChange::upsertion).collect();
        let upsertions = tokio::task::spawn_blocking(hash).await;
        let request = AlterUserScramCredentialsRequest::default()
            .with_deletions(deletions)
            .with_upsertions(upsertions.map_err(|_| Error::Closed)?);
        let answer: AlterUserScramCredentialsResponse =
            self.ask_controller(0..=0, |_| request).await?;
        results.extend(answer.results.into_iter().map(|done| {
            let user = done.user.to_string();
            let result = user_result(&user, done.error_code, done.error_message.as_deref());
            (user, result)
        }));
        Ok(results)
    }
}

fn user_result(user: &str, code: i16, message: Option<&str>) -> Result<()> {
    ErrorCode(code).ok().map_err(|code| broker_error(&format!("user '{user}'"), code, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677: its server key follows from this salted password.
    #[test]
    fn passwords_are_salted_as_in_the_rfc() {
        let salt = [
            0x5b, 0x6d, 0x99, 0x68, 0x9d, 0x12, 0x35, 0x8e, 0xec, 0xa0, 0x4b, 0x14, 0x12, 0x36,
            0xfa, 0x81,
        ];
        let salted = ScramMechanism::Sha256.salted(b"pencil", &salt, 4096);
        let hex: String = salted.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "c4a49510323ab4f952cac1fa99441939e78ea74d6be81ddf7096e87513dc615d");
    }

    #[test]
    fn nothing_secret_is_shown() {
        let change =
            ScramChange::upsert("alice", ScramMechanism::Sha256, "hunter2").salt(*b"salty");
        let shown = format!("{change:?}");
        assert!(shown.contains("alice") && shown.contains("4096"), "{shown}");
        let bytes = format!("{:?}", b"hunter2".as_slice());
        assert!(!shown.contains("hunter2") && !shown.contains(&bytes), "{shown}");
    }

    #[test]
    fn salts_differ_unless_given() {
        let of = |change: ScramChange| change.upsertion().unwrap().salt;
        let change = || ScramChange::upsert("alice", ScramMechanism::Sha512, "secret");
        assert_ne!(of(change()), of(change()));
        assert_eq!(of(change().salt(*b"salty")), &b"salty"[..]);
    }
}
