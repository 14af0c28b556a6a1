//! TLS and SASL: `security.protocol`, `ssl.*` and `sasl.*`.

use std::{fmt, path::PathBuf, pin::Pin, sync::Arc};

pub use curtail_net::tls::HostCheck;
pub use curtail_proto::sasl::Secret;
use curtail_proto::sasl::{Credentials, Hash};
pub use curtail_wire::{Mechanism, SecurityProtocol};

use super::jaas::{Jaas, Module};
use crate::{error::ConfigError, security::Cache};

/// Settings of TLS and SASL. Passwords and tokens are not shown by `Debug`.
#[derive(Clone, Debug, Default)]
pub struct SecurityConfig {
    /// `security.protocol`.
    pub protocol: SecurityProtocol,
    /// `ssl.*`.
    pub ssl: SslConfig,
    /// `sasl.*`.
    pub sasl: SaslConfig,
    /// What was read from files and worked out, for all connections of the clients made with this.
    pub(crate) cache: Arc<Cache>,
}

/// What a file of certificates or keys holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreType {
    /// Text between BEGIN and END.
    Pem,
    /// What `keytool` writes.
    Pkcs12,
}

/// A file of certificates or keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Store {
    /// `ssl.truststore.type`, `ssl.keystore.type`; as the file looks without it.
    pub kind: Option<StoreType>,
    /// `ssl.truststore.location`, `ssl.keystore.location`. Read again for new connections once it has changed.
    pub location: Option<PathBuf>,
    /// `ssl.truststore.password`, `ssl.keystore.password`.
    pub password: Option<Secret>,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// TLSv1.2
    V12,
    /// TLSv1.3
    V13,
}

/// Settings of TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SslConfig {
    /// `ssl.truststore.*`: whose certificates are trusted. The platform's without it.
    pub truststore: Store,
    /// `ssl.truststore.certificates`: PEM text, in place of a file.
    pub truststore_certificates: Option<String>,
    /// `ssl.keystore.*`: what the client proves itself with, if brokers ask.
    pub keystore: Store,
    /// `ssl.keystore.certificate.chain`: PEM text, in place of a file.
    pub keystore_certificate_chain: Option<String>,
    /// `ssl.keystore.key`: PEM text, in place of a file.
    pub keystore_key: Option<Secret>,
    /// `ssl.key.password`: of an encrypted private key.
    pub key_password: Option<Secret>,
    /// `ssl.endpoint.identification.algorithm`: `https`, or empty to switch it off.
    pub endpoint_identification: HostCheck,
    /// `ssl.enabled.protocols`.
    pub enabled_protocols: Vec<TlsVersion>,
}

impl Default for SslConfig {
    fn default() -> Self {
        Self {
            truststore: Store::default(),
            truststore_certificates: None,
            keystore: Store::default(),
            keystore_certificate_chain: None,
            keystore_key: None,
            key_password: None,
            endpoint_identification: HostCheck::Https,
            enabled_protocols: vec![TlsVersion::V12, TlsVersion::V13],
        }
    }
}

/// Settings of SASL.
#[derive(Clone, Debug, Default)]
pub struct SaslConfig {
    /// `sasl.mechanism`. Java's default is GSSAPI, which is not there: one has to be chosen.
    pub mechanism: Option<Mechanism>,
    /// `sasl.jaas.config`.
    pub jaas: Option<Secret>,
    /// User name and password, in place of `sasl.jaas.config`.
    pub login: Option<(String, Secret)>,
    /// Where tokens come from, for OAUTHBEARER.
    pub token: Option<TokenSource>,
}

/// A token for OAUTHBEARER.
#[derive(Clone, Debug)]
pub struct OAuthBearerToken {
    pub(crate) token: Secret,
    pub(crate) extensions: Vec<(String, String)>,
}

impl OAuthBearerToken {
    /// A token, usually a JWT in its compact form.
    pub fn new(token: impl Into<Secret>) -> Self {
        Self { token: token.into(), extensions: Vec::new() }
    }

    /// Adds an extension (KIP-342).
    #[must_use]
    pub fn extension(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.extensions.push((name.into(), value.into()));
        self
    }
}

type Fetched = Pin<Box<dyn Future<Output = Result<OAuthBearerToken, String>> + Send>>;

/// The application's way to get a token.
#[derive(Clone)]
pub struct TokenSource(Arc<dyn Fn() -> Fetched + Send + Sync>);

impl TokenSource {
    /// `fetch` is called for every connection and every renewal; whether it gives the same token again is its own choice.
    pub fn new<F, T>(fetch: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = Result<OAuthBearerToken, String>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(fetch())))
    }

    pub(crate) async fn fetch(&self) -> Result<OAuthBearerToken, String> {
        (self.0)().await
    }
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenSource")
    }
}

/// Where the credentials of a connection come from.
#[derive(Clone, Debug)]
pub(crate) enum Login {
    Fixed(Credentials),
    Token(TokenSource),
}

impl SecurityConfig {
    /// Settings for a protocol.
    #[must_use]
    pub fn new(protocol: SecurityProtocol) -> Self {
        Self { protocol, ..Self::default() }
    }

    /// TLS, with brokers whose certificates the platform trusts unless a truststore is given.
    #[must_use]
    pub fn ssl() -> Self {
        Self::new(SecurityProtocol::Ssl)
    }

    /// SASL over TLS with a user name and a password.
    #[must_use]
    pub fn sasl_ssl(
        mechanism: Mechanism,
        username: impl Into<String>,
        password: impl Into<Secret>,
    ) -> Self {
        let mut config = Self::new(SecurityProtocol::SaslSsl);
        config.sasl.mechanism = Some(mechanism);
        config.sasl.login = Some((username.into(), password.into()));
        config
    }

    /// OAUTHBEARER over TLS, with tokens of the application's own. See [`TokenSource::new`].
    ///
    /// ```
    /// use curtail::{OAuthBearerToken, ProducerConfig, SecurityConfig};
    ///
    /// let security = SecurityConfig::oauth_bearer(|| async {
    ///     let token = tokio::fs::read_to_string("/var/run/token").await;
    ///     token.map(|text| OAuthBearerToken::new(text.trim())).map_err(|error| error.to_string())
    /// });
    /// let config = ProducerConfig::new("broker:9093").security(security);
    /// ```
    pub fn oauth_bearer<F, T>(fetch: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = Result<OAuthBearerToken, String>> + Send + 'static,
    {
        let mut config = Self::new(SecurityProtocol::SaslSsl);
        config.sasl.mechanism = Some(Mechanism::OAuthBearer);
        config.sasl.token = Some(TokenSource::new(fetch));
        config
    }

    /// Sets `ssl.truststore.location`: a file with the certificates to trust, PEM or PKCS#12.
    #[must_use]
    pub fn truststore(mut self, file: impl Into<PathBuf>, password: Option<&str>) -> Self {
        self.ssl.truststore.location = Some(file.into());
        self.ssl.truststore.password = password.map(Secret::from);
        self
    }

    /// Sets `ssl.keystore.location`: a file with the client's certificates and private key, PEM or PKCS#12. `password` is
    /// that of the store, or of an encrypted key in PEM.
    #[must_use]
    pub fn keystore(mut self, file: impl Into<PathBuf>, password: Option<&str>) -> Self {
        self.ssl.keystore.location = Some(file.into());
        self.ssl.keystore.password = password.map(Secret::from);
        self.ssl.key_password = password.map(Secret::from);
        self
    }

    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        if self.protocol.has_tls() {
            self.ssl.validate()?;
        }
        if self.protocol.has_sasl() {
            self.sasl.login()?;
        }
        Ok(())
    }
}

impl SslConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        let contradiction = |text: &str| Err(ConfigError::Contradiction(text.into()));
        if self.truststore.location.is_some() && self.truststore_certificates.is_some() {
            return contradiction(
                "ssl.truststore.location and ssl.truststore.certificates cannot be set together",
            );
        }
        let texts = (self.keystore_certificate_chain.is_some(), self.keystore_key.is_some());
        if texts.0 != texts.1 {
            return contradiction(
                "ssl.keystore.certificate.chain and ssl.keystore.key belong together: one of them is missing",
            );
        }
        if self.keystore.location.is_some() && texts.0 {
            return contradiction(
                "ssl.keystore.location and ssl.keystore.certificate.chain cannot be set together",
            );
        }
        if self.enabled_protocols.is_empty() {
            return Err(ConfigError::Missing("ssl.enabled.protocols"));
        }
        Ok(())
    }
}

impl SaslConfig {
    /// Where credentials come from.
    pub(crate) fn login(&self) -> Result<Login, ConfigError> {
        let unusable = |reason: String| ConfigError::Contradiction(reason);
        let Some(mechanism) = self.mechanism else {
            return Err(unusable(
                "sasl.mechanism is GSSAPI unless it is set, which is not supported; set it to PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER".into(),
            ));
        };
        if let (Mechanism::OAuthBearer, Some(token)) = (mechanism, &self.token) {
            return Ok(Login::Token(token.clone()));
        }
        if let Some((username, password)) = &self.login {
            return credentials(mechanism, username, password, false).map_err(unusable);
        }
        let Some(jaas) = &self.jaas else {
            return Err(ConfigError::Missing("sasl.jaas.config"));
        };
        let invalid = |reason: String| unusable(format!("sasl.jaas.config: {reason}"));
        let jaas = Jaas::parse(jaas.reveal()).map_err(invalid)?;
        let fits = match mechanism {
            Mechanism::Plain => jaas.module == Module::Plain,
            Mechanism::OAuthBearer => jaas.module == Module::OAuthBearer,
            _ => jaas.module == Module::Scram,
        };
        if !fits {
            let name = mechanism.name();
            return Err(invalid(format!("its login module does not fit sasl.mechanism={name}")));
        }
        let username = jaas.required("username").map_err(unusable);
        let password = jaas.required("password").map_err(unusable);
        let is_token =
            jaas.option("tokenauth").is_some_and(|t| t.reveal().eq_ignore_ascii_case("true"));
        match mechanism {
            Mechanism::OAuthBearer => credentials(mechanism, "", &Secret::new(""), false),
            _ => credentials(mechanism, username?.reveal(), password?, is_token),
        }
        .map_err(unusable)
    }
}

fn credentials(
    mechanism: Mechanism,
    username: &str,
    password: &Secret,
    is_token: bool,
) -> Result<Login, String> {
    let (username, password) = (username.to_owned(), password.clone());
    let hash = match mechanism {
        Mechanism::Plain => return Ok(Login::Fixed(Credentials::Plain { username, password })),
        Mechanism::ScramSha256 => Hash::Sha256,
        Mechanism::ScramSha512 => Hash::Sha512,
        _ => {
            return Err(
                "sasl.mechanism=OAUTHBEARER takes its tokens from a callback: SecurityConfig::oauth_bearer".into(),
            );
        }
    };
    Ok(Login::Fixed(Credentials::Scram { hash, username, password, is_token }))
}
