//! What a login at a token provider needs, from properties and `sasl.jaas.config`.

use std::{fmt, path::PathBuf};

use hyper::Uri;

use super::{JwtRetriever, OidcConfig, RETRIEVER, URL};
use crate::{
    config::{
        AdminConfig, Secret, SslConfig,
        jaas::{Jaas, Module},
    },
    error::ConfigError,
};

const CLIENT_ID: &str = "sasl.oauthbearer.client.credentials.client.id";
const CLIENT_SECRET: &str = "sasl.oauthbearer.client.credentials.client.secret";

const ISSUER: &str = "sasl.oauthbearer.assertion.claim.iss";
pub(crate) const ASSERTION_FILE: &str = "sasl.oauthbearer.assertion.file";
pub(crate) const ASSERTION_KEY_FILE: &str = "sasl.oauthbearer.assertion.private.key.file";
pub(crate) const ASSERTION_TEMPLATE_FILE: &str = "sasl.oauthbearer.assertion.template.file";

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

/// Where tokens come from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Origin {
    File(PathBuf),
    Endpoint(TokenEndpoint, Grant),
}

/// What the client shows to the endpoint.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Grant {
    /// RFC 6749, 4.4.
    ClientSecret { id: String, secret: Secret },
    /// RFC 7523, 2.2. The assertion may name the client.
    ClientAssertion { id: Option<String> },
    /// RFC 7523, 2.1.
    JwtBearer,
}

/// All that a login needs, from properties and `sasl.jaas.config`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProviderLogin {
    pub(crate) origin: Origin,
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

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => write!(f, "{URL}=file://{}", file.display()),
            Self::Endpoint(endpoint, _) => endpoint.fmt(f),
        }
    }
}

impl TokenEndpoint {
    fn parse(url: &str) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|_| "it is not a URL".to_owned())?;
        if uri.scheme_str() != Some("https") {
            return Err(
                "it must begin with https://, because the client secret or the assertion is sent to it"
                    .into()
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

/// Returns the file of a `file:` URL, as Java does: without a host, and without percent-encoding.
fn token_file(rest: &str) -> Result<PathBuf, String> {
    let path = rest.strip_prefix("//").unwrap_or(rest);
    match path.starts_with('/') {
        true => Ok(path.into()),
        false => Err("a token file has the form file:///path".into()),
    }
}

/// Options of `sasl.jaas.config`, without empty ones.
#[derive(Clone, Copy)]
struct Options<'a>(Option<&'a Jaas>);

impl Options<'_> {
    fn secret(self, name: &str) -> Option<Secret> {
        self.0.and_then(|jaas| jaas.option(name)).filter(|v| !v.reveal().is_empty()).cloned()
    }

    fn text(self, name: &str) -> Option<String> {
        self.secret(name).map(|text| text.reveal().to_owned())
    }
}

impl OidcConfig {
    /// Combines the settings and the options; settings take precedence, as in Java.
    pub(in crate::config) fn resolve(
        &self,
        url: &str,
        jaas: Option<&Jaas>,
    ) -> Result<ProviderLogin, ConfigError> {
        if jaas.is_some_and(|jaas| jaas.module != Module::OAuthBearer) {
            return Err(ConfigError::Contradiction(
                "sasl.jaas.config: its login module does not fit sasl.mechanism=OAUTHBEARER".into(),
            ));
        }
        let options = Options(jaas);
        let extensions = jaas.into_iter().flat_map(|jaas| jaas.options_after(EXTENSION));
        let scope = match self.retriever {
            // Java reads the option in the other flows only.
            JwtRetriever::JwtBearer => self.scope.clone(),
            _ => self.scope.clone().or_else(|| options.text("scope")),
        };
        Ok(ProviderLogin {
            origin: self.origin(url, options)?,
            scope,
            extensions: extensions.map(|(n, v)| (n.to_owned(), v.reveal().to_owned())).collect(),
            ssl: match &self.ssl {
                Some(ssl) => ssl.clone(),
                None => ssl_options(jaas)?,
            },
            settings: self.clone(),
        })
    }

    fn origin(&self, url: &str, options: Options<'_>) -> Result<Origin, ConfigError> {
        let about_url = |reason| ConfigError::Contradiction(format!("{URL}: {reason}"));
        let file = url.strip_prefix("file:").map(token_file).transpose().map_err(about_url)?;
        let retriever = match (self.retriever, &file) {
            (JwtRetriever::Default, Some(_)) => JwtRetriever::File,
            (JwtRetriever::Default, None) => JwtRetriever::ClientCredentials,
            (retriever, _) => retriever,
        };
        match (retriever, file) {
            (JwtRetriever::File, Some(file)) => return Ok(Origin::File(file)),
            (JwtRetriever::File, None) => return Err(unfit(retriever, "file:///path of a token")),
            (_, Some(_)) => return Err(unfit(retriever, "an https address")),
            (_, None) => {}
        }
        let endpoint = TokenEndpoint::parse(url).map_err(about_url)?;
        let grant = match retriever {
            JwtRetriever::JwtBearer => {
                self.check_assertion(&format!("{RETRIEVER}={}", retriever.class()))?;
                Grant::JwtBearer
            }
            _ => self.client(options)?,
        };
        Ok(Origin::Endpoint(endpoint, grant))
    }

    /// The client's proof with client credentials. As in Java, an assertion takes precedence over a secret, and is made
    /// only for an issuer.
    fn client(&self, options: Options<'_>) -> Result<Grant, ConfigError> {
        let id = self.client_id.clone().or_else(|| options.text("clientId"));
        let assertion = &self.assertion;
        if assertion.file.is_some() || assertion.issuer.is_some() {
            self.check_assertion(ISSUER)?;
            return Ok(Grant::ClientAssertion { id });
        }
        let missing = |setting: &str, name: &str| {
            let hint = match assertion.private_key_file {
                Some(_) => format!("; to log in with an assertion, set {ISSUER}"),
                None => String::new(),
            };
            ConfigError::Contradiction(format!(
                "{URL} needs {setting}, or the option '{name}' in sasl.jaas.config{hint}"
            ))
        };
        let secret = self.client_secret.clone().filter(|secret| !secret.reveal().is_empty());
        let secret = secret.or_else(|| options.secret("clientSecret"));
        Ok(Grant::ClientSecret {
            id: id.ok_or_else(|| missing(CLIENT_ID, "clientId"))?,
            secret: secret.ok_or_else(|| missing(CLIENT_SECRET, "clientSecret"))?,
        })
    }

    /// Checks that there is an assertion, which the setting or class `needs`.
    fn check_assertion(&self, needs: &str) -> Result<(), ConfigError> {
        if self.assertion.file.is_some() || self.assertion.private_key_file.is_some() {
            return Ok(());
        }
        Err(ConfigError::Contradiction(format!(
            "{needs} needs {ASSERTION_KEY_FILE}, or {ASSERTION_FILE}"
        )))
    }
}

fn unfit(retriever: JwtRetriever, form: &str) -> ConfigError {
    let class = retriever.class();
    ConfigError::Contradiction(format!("{RETRIEVER}={class} needs {form} in {URL}"))
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
