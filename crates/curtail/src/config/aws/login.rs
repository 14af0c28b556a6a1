//! What a login at Amazon MSK needs, from settings and `sasl.jaas.config`.

use super::{AwsConfig, AwsCredentialsSource};
use crate::{
    config::{
        Mechanism, Secret,
        jaas::{Jaas, Module},
    },
    error::ConfigError,
    security::{AwsCredentials, OidcConfig},
};

/// Name of a role's session, unless it is set.
pub(crate) const SESSION_NAME: &str = "curtail";

/// Options of aws-msk-iam-auth that change which credentials are used, and are not supported.
const UNSUPPORTED: [&str; 2] = ["awsShouldUseFips", "awsMskRegionProvider"];

/// All that a login needs.
#[derive(Clone, Debug)]
pub(crate) struct AwsLogin {
    pub(crate) source: AwsSource,
    /// The cluster's region, if it is set.
    pub(crate) region: Option<String>,
    /// The profile, for its region.
    pub(crate) profile: Option<String>,
    /// Whether the client sends a token of OAUTHBEARER.
    pub(crate) is_bearer: bool,
    /// Timeouts and times of renewal.
    pub(crate) settings: OidcConfig,
}

/// Where credentials come from.
#[derive(Clone, Debug)]
pub(crate) enum AwsSource {
    Callback(AwsCredentialsSource),
    /// The files and services of AWS, and then possibly a role.
    Found {
        profile: Option<String>,
        role: Option<Role>,
    },
}

/// A role to assume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Role {
    pub(crate) arn: String,
    pub(crate) session_name: String,
    pub(crate) external_id: Option<String>,
    /// Credentials of the request, from `sasl.jaas.config`.
    pub(crate) with: Option<AwsCredentials>,
    pub(crate) sts_region: Option<String>,
}

impl AwsConfig {
    /// Combines the settings and the options; settings take precedence.
    pub(in crate::config) fn resolve(
        &self,
        mechanism: Mechanism,
        jaas: Option<&Jaas>,
        settings: &OidcConfig,
    ) -> Result<AwsLogin, ConfigError> {
        let contradiction = ConfigError::Contradiction;
        let module = match mechanism {
            Mechanism::OAuthBearer => Module::OAuthBearer,
            _ => Module::AwsMskIam,
        };
        if jaas.is_some_and(|jaas| jaas.module != module) {
            return Err(contradiction(format!(
                "sasl.jaas.config: its login module does not fit sasl.mechanism={mechanism}; use {}",
                module.class()
            )));
        }
        let secret = |name: &str| {
            jaas.and_then(|jaas| jaas.option(name)).filter(|v| !v.reveal().is_empty()).cloned()
        };
        let text = |name: &str| secret(name).map(|text| text.reveal().to_owned());
        for name in UNSUPPORTED {
            if text(name).is_some_and(|value| !value.eq_ignore_ascii_case("false")) {
                return Err(contradiction(format!(
                    "the option '{name}' in sasl.jaas.config is not supported; leave it out, or use SecurityConfig::aws_msk_iam_with"
                )));
            }
        }
        let profile = self.profile.clone().or_else(|| text("awsProfileName"));
        let arn = self.role_arn.clone().or_else(|| text("awsRoleArn"));
        let role = arn.map(|arn| Role {
            arn,
            session_name: self
                .role_session_name
                .clone()
                .or_else(|| text("awsRoleSessionName"))
                .unwrap_or_else(|| SESSION_NAME.into()),
            external_id: self.role_external_id.clone().or_else(|| text("awsRoleExternalId")),
            with: keys(text("awsRoleAccessKeyId"), secret),
            sts_region: self.sts_region.clone().or_else(|| text("awsStsRegion")),
        });
        // Java would ignore the role, and so authenticate under another identity than the settings ask for.
        if profile.is_some() && role.is_some() {
            return Err(contradiction(
                "awsProfileName and awsRoleArn cannot be set together; a profile may have a role_arn and a source_profile"
                    .into(),
            ));
        }
        Ok(AwsLogin {
            source: match &self.credentials {
                Some(source) => AwsSource::Callback(source.clone()),
                None => AwsSource::Found { profile: profile.clone(), role },
            },
            region: self.region.clone(),
            profile,
            is_bearer: mechanism == Mechanism::OAuthBearer,
            settings: settings.clone(),
        })
    }
}

fn keys(id: Option<String>, secret: impl Fn(&str) -> Option<Secret>) -> Option<AwsCredentials> {
    Some(AwsCredentials {
        access_key_id: id?,
        secret_access_key: secret("awsRoleSecretAccessKey")?,
        session_token: secret("awsRoleSessionToken"),
    })
}
