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
        let setting = |own: &Option<String>, name: &str| own.clone().or_else(|| text(name));
        let profile = setting(&self.profile, "awsProfileName");
        let arn = setting(&self.role_arn, "awsRoleArn");
        let session_name = setting(&self.role_session_name, "awsRoleSessionName");
        let external_id = setting(&self.role_external_id, "awsRoleExternalId");
        let with = keys(secret)?;
        // Each would be ignored, and the client authenticate under another identity than the settings ask for.
        let ignored = [
            ("awsProfileName", profile.is_some()),
            ("awsRoleArn", arn.is_some()),
            ("awsRoleSessionName", session_name.is_some()),
            ("awsRoleExternalId", external_id.is_some()),
            ("awsRoleAccessKeyId", with.is_some()),
        ];
        if let Some((name, _)) =
            ignored.iter().find(|(_, is_set)| *is_set && self.credentials.is_some())
        {
            return Err(contradiction(format!(
                "{name} and SecurityConfig::aws_msk_iam_with cannot be set together; the function is the only source of credentials"
            )));
        }
        if with.is_some() && arn.is_none() {
            return Err(contradiction("awsRoleAccessKeyId needs awsRoleArn".into()));
        }
        // Java ignores the role.
        if profile.is_some() && arn.is_some() {
            return Err(contradiction(
                "awsProfileName and awsRoleArn cannot be set together; a profile may have a role_arn and a source_profile"
                    .into(),
            ));
        }
        let role = arn.map(|arn| Role {
            arn,
            session_name: session_name.unwrap_or_else(|| SESSION_NAME.into()),
            external_id,
            with,
            sts_region: setting(&self.sts_region, "awsStsRegion"),
        });
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

/// Returns the credentials of a role's request. A part of them is an error: Java ignores it, and uses credentials from
/// elsewhere.
fn keys(option: impl Fn(&str) -> Option<Secret>) -> Result<Option<AwsCredentials>, ConfigError> {
    const NAMES: [&str; 2] = ["awsRoleAccessKeyId", "awsRoleSecretAccessKey"];
    let session_token = option("awsRoleSessionToken");
    let missing = match NAMES.map(&option) {
        [Some(id), Some(secret_access_key)] => {
            let access_key_id = id.reveal().to_owned();
            return Ok(Some(AwsCredentials { access_key_id, secret_access_key, session_token }));
        }
        [None, None] if session_token.is_none() => return Ok(None),
        [None, _] => NAMES[0],
        [_, None] => NAMES[1],
    };
    Err(ConfigError::Contradiction(format!(
        "the keys of awsRoleArn in sasl.jaas.config are incomplete: {missing} is missing"
    )))
}
