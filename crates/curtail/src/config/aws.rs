//! `AWS_MSK_IAM`: credentials of AWS for Amazon MSK, from settings of aws-msk-iam-auth's login module, or from the
//! application.

#[cfg(feature = "aws-msk-iam")]
mod login;

use std::{fmt, pin::Pin, sync::Arc};

#[cfg(feature = "aws-msk-iam")]
pub(crate) use self::login::{AwsLogin, AwsSource, Role, SESSION_NAME};
use super::Secret;

/// Java's callback handler for OAUTHBEARER with tokens of Amazon MSK.
pub(super) const BEARER_HANDLER: &str =
    "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler";

/// Settings of `AWS_MSK_IAM`, and of OAUTHBEARER with tokens of Amazon MSK. Needs the cargo feature `aws-msk-iam`.
///
/// Without settings the credentials come from the first of: the environment, a web identity, the profile `AWS_PROFILE`
/// or `default`, the container, the machine.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct AwsConfig {
    /// The option `awsProfileName` of `sasl.jaas.config`: the profile of AWS's files whose credentials are used.
    pub profile: Option<String>,
    /// The option `awsRoleArn`: a role to assume with the other credentials.
    pub role_arn: Option<String>,
    /// The option `awsRoleSessionName`: the name of the role's session, `curtail` if unset.
    pub role_session_name: Option<String>,
    /// The option `awsRoleExternalId`.
    pub role_external_id: Option<String>,
    /// The option `awsStsRegion`: the region in which the role is assumed; the global endpoint of AWS STS if unset.
    pub sts_region: Option<String>,
    /// The cluster's region. If unset, that in the broker's name, `AWS_REGION`, `AWS_DEFAULT_REGION`, or that of the
    /// profile.
    pub region: Option<String>,
    /// The application's source of credentials, in place of all others. Excludes a profile and a role.
    pub credentials: Option<AwsCredentialsSource>,
    /// Whether OAUTHBEARER has tokens of Amazon MSK: `sasl.login.callback.handler.class` is
    /// `software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler`.
    pub oauth_bearer: bool,
}

/// Credentials of AWS. `Debug` hides the secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwsCredentials {
    pub(crate) access_key_id: String,
    pub(crate) secret_access_key: Secret,
    pub(crate) session_token: Option<Secret>,
}

impl AwsCredentials {
    /// Credentials of a user, or with [`Self::session_token`] those of a session.
    pub fn new(access_key_id: impl Into<String>, secret_access_key: impl Into<Secret>) -> Self {
        Self {
            access_key_id: access_key_id.into(),
            secret_access_key: secret_access_key.into(),
            session_token: None,
        }
    }

    /// Sets the session's token.
    #[must_use]
    pub fn session_token(mut self, token: impl Into<Secret>) -> Self {
        self.session_token = Some(token.into());
        self
    }
}

type Fetched = Pin<Box<dyn Future<Output = Result<AwsCredentials, String>> + Send>>;

/// The application's source of AWS credentials.
#[derive(Clone)]
pub struct AwsCredentialsSource(
    #[cfg_attr(
        not(feature = "aws-msk-iam"),
        expect(dead_code, reason = "settings exist in every build")
    )]
    Arc<dyn Fn() -> Fetched + Send + Sync>,
);

impl AwsCredentialsSource {
    /// Creates a source. `fetch` is called for every connection and every renewal; it may return the same credentials
    /// again.
    pub fn new<F, T>(fetch: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = Result<AwsCredentials, String>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(fetch())))
    }

    #[cfg(feature = "aws-msk-iam")]
    pub(crate) async fn fetch(&self) -> Result<AwsCredentials, String> {
        (self.0)().await
    }
}

impl fmt::Debug for AwsCredentialsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AwsCredentialsSource")
    }
}
