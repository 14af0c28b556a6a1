//! What a login at a token provider needs, from properties and `sasl.jaas.config`.

use std::fmt;

use hyper::Uri;

use super::{OidcConfig, URL};
use crate::{
    config::{
        AdminConfig, Secret, SslConfig,
        jaas::{Jaas, Module},
    },
    error::ConfigError,
};

const CLIENT_ID: &str = "sasl.oauthbearer.client.credentials.client.id";
const CLIENT_SECRET: &str = "sasl.oauthbearer.client.credentials.client.secret";

/// Options of `sasl.jaas.config` with this prefix are extensions (KIP-342).
const EXTENSION: &str = "extension_";

/// The token endpoint's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenEndpoint {
    /// Without the brackets of an IPv6 address.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// For the Host header.
    pub(crate) authority: String,
    /// Target of the request.
    pub(crate) path_and_query: String,
}

/// All that a login needs, from properties and `sasl.jaas.config`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClientCredentials {
    pub(crate) endpoint: TokenEndpoint,
    pub(crate) client_id: String,
    pub(crate) client_secret: Secret,
    pub(crate) scope: Option<String>,
    pub(crate) extensions: Vec<(String, String)>,
    pub(crate) ssl: SslConfig,
    pub(crate) settings: OidcConfig,
}

impl fmt::Display for TokenEndpoint {
    /// Without the query, which may be meant for the endpoint only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path_and_query.split('?').next().unwrap_or_default();
        write!(f, "{URL}=https://{}{path}", self.authority)
    }
}

impl TokenEndpoint {
    fn parse(url: &str) -> Result<Self, String> {
        if url.starts_with("file:") {
            return Err("token files are not supported; use SecurityConfig::oauth_bearer with a function that returns tokens".into());
        }
        let uri: Uri = url.parse().map_err(|_| "it is not a URL".to_owned())?;
        if uri.scheme_str() != Some("https") {
            return Err(
                "it must begin with https://, because the client secret is sent to it".into()
            );
        }
        let authority = uri.authority().ok_or("it has no host")?;
        if authority.as_str().contains('@') {
            return Err("it must not contain a user name; set the client id and secret".into());
        }
        let host = authority.host();
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        if bare.is_empty() {
            return Err("it has no host".into());
        }
        let path_and_query = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self {
            host: bare.to_owned(),
            port: authority.port_u16().unwrap_or(443),
            authority: authority.as_str().to_owned(),
            path_and_query: path_and_query.to_owned(),
        })
    }
}

impl OidcConfig {
    /// Combines the settings and the options; settings take precedence, as in Java.
    pub(in crate::config) fn resolve(
        &self,
        url: &str,
        jaas: Option<&Jaas>,
    ) -> Result<ClientCredentials, ConfigError> {
        let contradiction = ConfigError::Contradiction;
        let endpoint = TokenEndpoint::parse(url)
            .map_err(|reason| contradiction(format!("{URL}: {reason}")))?;
        if jaas.is_some_and(|jaas| jaas.module != Module::OAuthBearer) {
            return Err(contradiction(
                "sasl.jaas.config: its login module does not fit sasl.mechanism=OAUTHBEARER".into(),
            ));
        }
        let option = |name: &str| {
            jaas.and_then(|jaas| jaas.option(name)).filter(|v| !v.reveal().is_empty()).cloned()
        };
        let missing = |setting: &str, name: &str| {
            contradiction(format!(
                "{URL} needs {setting}, or the option '{name}' in sasl.jaas.config"
            ))
        };
        let client_id = self.client_id.clone();
        let client_id = client_id.or_else(|| option("clientId").map(|id| id.reveal().to_owned()));
        let client_secret = self.client_secret.clone().filter(|secret| !secret.reveal().is_empty());
        let client_secret = client_secret.or_else(|| option("clientSecret"));
        let scope = self.scope.clone();
        let extensions = jaas.into_iter().flat_map(|jaas| jaas.options_after(EXTENSION));
        Ok(ClientCredentials {
            endpoint,
            client_id: client_id.ok_or_else(|| missing(CLIENT_ID, "clientId"))?,
            client_secret: client_secret.ok_or_else(|| missing(CLIENT_SECRET, "clientSecret"))?,
            scope: scope.or_else(|| option("scope").map(|scope| scope.reveal().to_owned())),
            extensions: extensions.map(|(n, v)| (n.to_owned(), v.reveal().to_owned())).collect(),
            ssl: match &self.ssl {
                Some(ssl) => ssl.clone(),
                None => ssl_options(jaas)?,
            },
            settings: self.clone(),
        })
    }
}

/// The `ssl.*` among the options. Names and values match the properties.
fn ssl_options(jaas: Option<&Jaas>) -> Result<SslConfig, ConfigError> {
    const PREFIX: &str = "ssl.";
    let mut read = AdminConfig::default();
    for (name, value) in jaas.into_iter().flat_map(|jaas| jaas.options_after(PREFIX)) {
        let name = format!("{PREFIX}{name}");
        // The error omits the value, which may be a secret.
        read.set(&name, value.reveal()).map_err(|error| {
            let reason = match error {
                ConfigError::Invalid { reason, .. } => reason,
                other => other.to_string(),
            };
            ConfigError::Contradiction(format!("the option '{name}' in sasl.jaas.config: {reason}"))
        })?;
    }
    let ssl = read.common.security.ssl;
    ssl.validate()?;
    Ok(ssl)
}
