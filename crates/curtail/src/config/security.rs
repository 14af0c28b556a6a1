//! TLS and SASL: `security.protocol`, `ssl.*` and `sasl.*`.

use std::{fmt, path::PathBuf, pin::Pin, sync::Arc};

pub use curtail_net::HostCheck;
pub use curtail_proto::sasl::Secret;
use curtail_proto::sasl::{Credentials, Hash};
pub use curtail_wire::{Mechanism, SecurityProtocol};

use super::{
    CommonConfig,
    aws::{AwsConfig, AwsCredentials, AwsCredentialsSource},
    forms::security as forms,
    jaas::{Jaas, Module},
    oidc::{self, AssertionConfig, JwtRetriever, OidcConfig},
    table::{Property, group, property},
};
#[cfg(feature = "aws-msk-iam")]
use crate::config::AwsLogin;
use crate::{error::ConfigError, security::Cache};

/// Settings of TLS and SASL. `Debug` hides passwords and tokens.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SecurityConfig {
    /// `security.protocol`.
    pub protocol: SecurityProtocol,
    /// `ssl.*`.
    pub ssl: SslConfig,
    /// `sasl.*`.
    pub sasl: SaslConfig,
    /// Data read from files or derived, shared by all connections of clients with this configuration.
    pub(crate) cache: Arc<Cache>,
}

/// Format of a certificate or key file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreType {
    /// Text between BEGIN and END.
    Pem,
    /// The format that `keytool` writes.
    Pkcs12,
}

/// A file of certificates or keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Store {
    /// `ssl.truststore.type`, `ssl.keystore.type`; detected from the file if unset.
    pub kind: Option<StoreType>,
    /// `ssl.truststore.location`, `ssl.keystore.location`. A changed file is reloaded for new connections.
    pub location: Option<PathBuf>,
    /// `ssl.truststore.password`, `ssl.keystore.password`.
    pub password: Option<Secret>,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TlsVersion {
    /// TLSv1.2
    V12,
    /// TLSv1.3
    V13,
}

/// A cipher suite of TLS. Only suites that are considered safe exist.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CipherSuite(u16);

impl fmt::Debug for CipherSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl CipherSuite {
    /// All suites, by their names in Java and in the TLS registry, with their numbers there.
    const ALL: [(&'static str, u16); 9] = [
        ("TLS_AES_256_GCM_SHA384", 0x1302),
        ("TLS_AES_128_GCM_SHA256", 0x1301),
        ("TLS_CHACHA20_POLY1305_SHA256", 0x1303),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", 0xc02c),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", 0xc02b),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", 0xcca9),
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", 0xc030),
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", 0xc02f),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", 0xcca8),
    ];

    /// Returns the suite with a name such as `TLS_AES_256_GCM_SHA384`.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(n, _)| *n == name).map(|(_, suite)| Self(*suite))
    }

    /// Name of the suite.
    #[must_use]
    pub fn name(&self) -> &'static str {
        Self::ALL.iter().find(|(_, suite)| *suite == self.0).map_or("", |(name, _)| name)
    }

    /// TLS version of the suite.
    #[must_use]
    pub fn version(&self) -> TlsVersion {
        // The suites of TLS 1.3 leave the key exchange open.
        if self.name().contains("_WITH_") { TlsVersion::V12 } else { TlsVersion::V13 }
    }

    /// Number of the suite in the TLS registry.
    #[cfg(feature = "tls")]
    pub(crate) fn number(&self) -> u16 {
        self.0
    }
}

static PROTOCOL: &[Property<CommonConfig>] = &[property!(
    "security.protocol",
    "`security.protocol`: whether connections have TLS, SASL, both or neither.",
    security.protocol,
    forms::PROTOCOL
)];

group! {
    /// Settings of TLS.
    #[derive(Clone, Debug, PartialEq, Eq)]
    SslConfig, SSL in [security.ssl]: {
        /// `ssl.cipher.suites`: suites offered to brokers, the preferred one first; all suites if empty.
        cipher_suites: Vec<CipherSuite> = Vec::new() => "ssl.cipher.suites", forms::CIPHER_SUITES;
        /// `ssl.enabled.protocols`: the versions of TLS that may be used.
        enabled_protocols: Vec<TlsVersion> = vec![TlsVersion::V12, TlsVersion::V13]
            => "ssl.enabled.protocols", forms::TLS_VERSIONS;
        /// `ssl.endpoint.identification.algorithm`: whether the broker's certificate must have its name: `https`, or
        /// empty to disable the check.
        endpoint_identification: HostCheck = HostCheck::Https
            => "ssl.endpoint.identification.algorithm", forms::HOST_CHECK;
        /// `ssl.key.password`: the password of an encrypted private key (cargo feature `encrypted-keys`).
        key_password: Option<Secret> = None => "ssl.key.password", forms::SECRET;
        /// `ssl.keystore.certificate.chain`: the client's certificates as PEM text, in place of a file.
        keystore_certificate_chain: Option<String> = None
            => "ssl.keystore.certificate.chain", forms::CERTIFICATES;
        /// `ssl.keystore.key`: the client's private key as PEM text, in place of a file.
        keystore_key: Option<Secret> = None => "ssl.keystore.key", forms::SECRET;
        /// `ssl.protocol`: the newest version to use, even if `ssl.enabled.protocols` has newer ones.
        protocol: TlsVersion = TlsVersion::V13 => "ssl.protocol", forms::TLS_VERSION;
        /// `ssl.truststore.certificates`: the trusted certificates as PEM text, in place of a file.
        truststore_certificates: Option<String> = None => "ssl.truststore.certificates", forms::CERTIFICATES;
    }
    within {
        /// `ssl.keystore.location`: the file of the client's certificate and private key, if brokers request a
        /// certificate. A changed file is reloaded for new connections.
        keystore.location => "ssl.keystore.location", forms::FILE;
        /// `ssl.keystore.password`: the password that opens the keystore.
        keystore.password => "ssl.keystore.password", forms::SECRET;
        /// `ssl.keystore.type`: the keystore's format, detected from the file if unset.
        keystore.kind => "ssl.keystore.type", forms::STORE_TYPE;
        /// `ssl.truststore.location`: the file of the trusted certificates; the platform's if unset. A changed file is
        /// reloaded for new connections.
        truststore.location => "ssl.truststore.location", forms::FILE;
        /// `ssl.truststore.password`: the password that opens the truststore.
        truststore.password => "ssl.truststore.password", forms::SECRET;
        /// `ssl.truststore.type`: the truststore's format, detected from the file if unset.
        truststore.kind => "ssl.truststore.type", forms::STORE_TYPE;
    }
    without property {
        /// `ssl.keystore.*`: the client's certificate, if brokers request one.
        keystore: Store = Store::default();
        /// `ssl.truststore.*`: the trusted certificates; the platform's if unset.
        truststore: Store = Store::default();
    }
}

group! {
    /// Settings of SASL.
    #[derive(Clone, Debug)]
    SaslConfig, SASL in [security.sasl]: {
        /// `sasl.jaas.config`: Java's login module and its options, such as user name and password.
        jaas: Option<Secret> = None => "sasl.jaas.config", forms::SECRET;
        /// `sasl.mechanism`: how the client authenticates. Java's default GSSAPI is not supported, so SASL needs this
        /// setting.
        mechanism: Option<Mechanism> = None => "sasl.mechanism", forms::MECHANISM;
    }
    within {
        /// `sasl.login.callback.handler.class`: with Amazon's class, OAUTHBEARER has tokens of Amazon MSK.
        aws.oauth_bearer => "sasl.login.callback.handler.class", forms::BEARER_OF_AWS;
    }
    without property {
        /// User name and password, in place of `sasl.jaas.config`.
        login: Option<(String, Secret)> = None;
        /// The application's source of tokens, for OAUTHBEARER.
        token: Option<TokenSource> = None;
        /// Source of tokens if [`token`](Self::token) is unset: `sasl.oauthbearer.*`, `sasl.login.*`.
        oidc: OidcConfig = OidcConfig::default();
        /// Credentials of AWS, for AWS_MSK_IAM and for OAUTHBEARER with tokens of Amazon MSK.
        aws: AwsConfig = AwsConfig::default();
    }
}

/// The properties of TLS and SASL.
pub(super) fn table() -> impl Iterator<Item = &'static Property<CommonConfig>> {
    [PROTOCOL, SSL, SASL, oidc::OIDC, oidc::ASSERTION].into_iter().flatten()
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

/// The application's source of tokens.
#[derive(Clone)]
pub struct TokenSource(Arc<dyn Fn() -> Fetched + Send + Sync>);

impl TokenSource {
    /// Creates a source. `fetch` is called for every connection and every renewal; it may return the same token
    /// again.
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

/// Source of a connection's credentials.
#[derive(Clone, Debug)]
pub(crate) enum Login {
    Fixed(Credentials),
    Token(TokenSource),
    #[cfg(feature = "oidc")]
    Oidc(Box<oidc::ProviderLogin>),
    #[cfg(feature = "aws-msk-iam")]
    Aws(Box<AwsLogin>),
}

impl SecurityConfig {
    /// Settings for a protocol.
    #[must_use]
    pub fn new(protocol: SecurityProtocol) -> Self {
        Self { protocol, ..Self::default() }
    }

    /// TLS. Trusts the platform's certificates unless a truststore is set.
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

    /// OAUTHBEARER over TLS, with the application's tokens. See [`TokenSource::new`].
    ///
    /// ```
    /// use curtail::ProducerConfig;
    /// use curtail::security::{OAuthBearerToken, SecurityConfig};
    ///
    /// let security = SecurityConfig::oauth_bearer(|| async {
    ///     let token = std::fs::read_to_string("/var/run/token");
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

    /// OAUTHBEARER over TLS, with tokens that an OAuth 2.0 or OpenID Connect provider issues for a client id and a
    /// secret (KIP-768). Sets `sasl.oauthbearer.token.endpoint.url` and
    /// `sasl.oauthbearer.client.credentials.client.id` and `.secret`. [`SaslConfig::oidc`] has further settings.
    /// Needs the cargo feature `oidc`.
    ///
    /// ```
    /// use curtail::{ProducerConfig, security::SecurityConfig};
    ///
    /// let secret = std::env::var("CLIENT_SECRET").unwrap_or_default();
    /// let mut security = SecurityConfig::client_credentials("https://login.example.com/token", "billing", secret);
    /// security.sasl.oidc.scope = Some("kafka".into());
    /// let config = ProducerConfig::new("broker:9093").security(security);
    /// ```
    #[must_use]
    pub fn client_credentials(
        token_endpoint_url: impl Into<String>,
        client_id: impl Into<String>,
        client_secret: impl Into<Secret>,
    ) -> Self {
        let mut config = Self::new(SecurityProtocol::SaslSsl);
        config.sasl.mechanism = Some(Mechanism::OAuthBearer);
        config.sasl.oidc.token_endpoint_url = Some(token_endpoint_url.into());
        config.sasl.oidc.client_id = Some(client_id.into());
        config.sasl.oidc.client_secret = Some(client_secret.into());
        config
    }

    /// OAUTHBEARER over TLS, with tokens that an OAuth 2.0 or OpenID Connect provider issues for a client id and a signed
    /// assertion in place of a secret (`private_key_jwt`; KIP-1258, RFC 7523). Needs the cargo feature `oidc`.
    ///
    /// ```
    /// use curtail::security::{AssertionConfig, SecurityConfig, SigningAlgorithm};
    ///
    /// let url = "https://login.example.com/token";
    /// let assertion = AssertionConfig::signed(SigningAlgorithm::Es256, "/etc/kafka/client.key");
    /// let security = SecurityConfig::client_assertion(url, "billing", assertion.client("billing").audience(url));
    /// ```
    #[must_use]
    pub fn client_assertion(
        token_endpoint_url: impl Into<String>,
        client_id: impl Into<String>,
        assertion: AssertionConfig,
    ) -> Self {
        let mut config = Self::jwt_bearer(token_endpoint_url, assertion);
        config.sasl.oidc.retriever = JwtRetriever::ClientCredentials;
        config.sasl.oidc.client_id = Some(client_id.into());
        config
    }

    /// OAUTHBEARER over TLS, with tokens that an OAuth 2.0 or OpenID Connect provider issues for a signed assertion (the
    /// grant `urn:ietf:params:oauth:grant-type:jwt-bearer`; KIP-1139, RFC 7523). Needs the cargo feature `oidc`.
    #[must_use]
    pub fn jwt_bearer(token_endpoint_url: impl Into<String>, assertion: AssertionConfig) -> Self {
        let mut config = Self::new(SecurityProtocol::SaslSsl);
        config.sasl.mechanism = Some(Mechanism::OAuthBearer);
        config.sasl.oidc.token_endpoint_url = Some(token_endpoint_url.into());
        config.sasl.oidc.retriever = JwtRetriever::JwtBearer;
        config.sasl.oidc.assertion = assertion;
        config
    }

    /// AWS_MSK_IAM over TLS, for Amazon MSK, with the credentials of AWS that the environment, its files or this machine
    /// have. [`SaslConfig::aws`] has further settings. Needs the cargo feature `aws-msk-iam`.
    ///
    /// ```
    /// use curtail::{ProducerConfig, security::SecurityConfig};
    ///
    /// let mut security = SecurityConfig::aws_msk_iam();
    /// security.sasl.aws.profile = Some("work".into());
    /// let config = ProducerConfig::new("b-1.x.kafka.us-east-1.amazonaws.com:9098").security(security);
    /// ```
    #[must_use]
    pub fn aws_msk_iam() -> Self {
        let mut config = Self::new(SecurityProtocol::SaslSsl);
        config.sasl.mechanism = Some(Mechanism::AwsMskIam);
        config
    }

    /// As [`Self::aws_msk_iam`], with the application's credentials. See [`AwsCredentialsSource::new`].
    ///
    /// ```
    /// use curtail::security::{AwsCredentials, SecurityConfig};
    ///
    /// let security = SecurityConfig::aws_msk_iam_with(|| async {
    ///     let (id, secret) = ("AKIA...", std::env::var("VAULT_SECRET").map_err(|e| e.to_string())?);
    ///     Ok(AwsCredentials::new(id, secret))
    /// });
    /// ```
    pub fn aws_msk_iam_with<F, T>(fetch: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = Result<AwsCredentials, String>> + Send + 'static,
    {
        let mut config = Self::aws_msk_iam();
        config.sasl.aws.credentials = Some(AwsCredentialsSource::new(fetch));
        config
    }

    /// Sets `ssl.truststore.location`: a file with the certificates to trust, PEM or PKCS#12.
    #[must_use]
    pub fn truststore(mut self, file: impl Into<PathBuf>, password: Option<&str>) -> Self {
        self.ssl.truststore.location = Some(file.into());
        self.ssl.truststore.password = password.map(Secret::from);
        self
    }

    /// Sets `ssl.keystore.location`: a file with the client's certificates and private key, PEM or PKCS#12.
    /// `password` opens the store (cargo feature `pkcs12`), or an encrypted PEM key (`encrypted-keys`).
    #[must_use]
    pub fn keystore(mut self, file: impl Into<PathBuf>, password: Option<&str>) -> Self {
        self.ssl.keystore.location = Some(file.into());
        self.ssl.keystore.password = password.map(Secret::from);
        self.ssl.key_password = password.map(Secret::from);
        self
    }

    /// Why previously read certificates are still in use although `ssl.truststore.location` or
    /// `ssl.keystore.location` has changed: the current file cannot be used. `None` while new connections use the
    /// current files.
    ///
    /// Describes the latest connection of any client with this configuration or a clone of it. The metric
    /// `certificates-outdated` of producers and consumers reports the same.
    #[must_use]
    pub fn certificates_outdated(&self) -> Option<Arc<str>> {
        self.cache.outdated()
    }

    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        if self.protocol.has_tls() {
            if !cfg!(feature = "tls") {
                return Err(left_out(
                    "security.protocol",
                    Some(self.protocol.name()),
                    "TLS",
                    "tls",
                ));
            }
            self.ssl.validate()?;
        }
        if self.protocol.has_sasl() {
            self.sasl.login()?;
        }
        Ok(())
    }
}

impl SslConfig {
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let contradiction = |text: &str| Err(ConfigError::Contradiction(text.into()));
        if self.truststore.location.is_some() && self.truststore_certificates.is_some() {
            return contradiction(
                "ssl.truststore.location and ssl.truststore.certificates cannot be set together",
            );
        }
        let texts = (self.keystore_certificate_chain.is_some(), self.keystore_key.is_some());
        if texts.0 != texts.1 {
            return contradiction(
                "ssl.keystore.certificate.chain and ssl.keystore.key must be set together",
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
        if self.versions().next().is_none() {
            return contradiction(
                "ssl.protocol=TLSv1.2 excludes every version in ssl.enabled.protocols",
            );
        }
        let mut versions = self.versions();
        let has_suite = |version| self.cipher_suites.iter().any(|s| s.version() == version);
        if !self.cipher_suites.is_empty() && !versions.any(has_suite) {
            return contradiction(
                "ssl.cipher.suites has no cipher suite for the versions of ssl.enabled.protocols and ssl.protocol",
            );
        }
        Ok(())
    }

    /// The enabled versions that `ssl.protocol` permits.
    pub(crate) fn versions(&self) -> impl Iterator<Item = TlsVersion> {
        self.enabled_protocols.iter().copied().filter(|version| *version <= self.protocol)
    }
}

impl SaslConfig {
    /// Returns the source of credentials.
    pub(crate) fn login(&self) -> Result<Login, ConfigError> {
        let Some(mechanism) = self.mechanism else {
            return Err(ConfigError::Contradiction(
                "sasl.mechanism is GSSAPI (Kerberos) by default, which is not supported; set it to PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS_MSK_IAM".into(),
            ));
        };
        let hash = match mechanism {
            Mechanism::OAuthBearer => return self.token_login(),
            Mechanism::AwsMskIam => return self.aws_login(mechanism),
            Mechanism::Plain => None,
            Mechanism::ScramSha256 => Some(Hash::Sha256),
            Mechanism::ScramSha512 => Some(Hash::Sha512),
        };
        if hash.is_some() && !cfg!(feature = "scram") {
            return Err(left_out("sasl.mechanism", Some(mechanism.name()), "SCRAM", "scram"));
        }
        let (username, password, is_token) = match &self.login {
            Some((username, password)) => (username.clone(), password.clone(), false),
            None => self.jaas_login(mechanism)?,
        };
        Ok(Login::Fixed(match hash {
            None => Credentials::Plain { username, password },
            Some(hash) => Credentials::Scram { hash, username, password, is_token },
        }))
    }

    /// Returns user name and password of `sasl.jaas.config`, and whether they belong to a delegation token.
    fn jaas_login(&self, mechanism: Mechanism) -> Result<(String, Secret, bool), ConfigError> {
        let jaas = self.read_jaas()?.ok_or(ConfigError::Missing("sasl.jaas.config"))?;
        let module = if mechanism == Mechanism::Plain { Module::Plain } else { Module::Scram };
        if jaas.module != module {
            return Err(ConfigError::Contradiction(format!(
                "sasl.jaas.config: its login module does not fit sasl.mechanism={mechanism}; use {}",
                module.class()
            )));
        }
        let required = |name| jaas.required(name).map_err(ConfigError::Contradiction);
        let is_token =
            jaas.option("tokenauth").is_some_and(|t| t.reveal().eq_ignore_ascii_case("true"));
        Ok((required("username")?.reveal().to_owned(), required("password")?.clone(), is_token))
    }

    fn token_login(&self) -> Result<Login, ConfigError> {
        if let Some(token) = &self.token {
            return Ok(Login::Token(token.clone()));
        }
        if self.aws.oauth_bearer {
            return self.aws_login(Mechanism::OAuthBearer);
        }
        #[cfg_attr(not(feature = "oidc"), expect(unused_variables))]
        let jaas = self.read_jaas()?;
        match &self.oidc.token_endpoint_url {
            #[cfg(feature = "oidc")]
            Some(url) => Ok(Login::Oidc(Box::new(self.oidc.resolve(url, jaas.as_ref())?))),
            #[cfg(not(feature = "oidc"))]
            Some(_) => Err(left_out(oidc::URL, None, "provider of tokens", "oidc")),
            None => Err(ConfigError::Contradiction(format!(
                "sasl.mechanism=OAUTHBEARER needs {}, or a function that returns tokens (SecurityConfig::oauth_bearer)",
                oidc::URL
            ))),
        }
    }

    #[cfg(feature = "aws-msk-iam")]
    fn aws_login(&self, mechanism: Mechanism) -> Result<Login, ConfigError> {
        let login = self.aws.resolve(mechanism, self.read_jaas()?.as_ref(), &self.oidc)?;
        Ok(Login::Aws(Box::new(login)))
    }

    #[cfg(not(feature = "aws-msk-iam"))]
    #[expect(clippy::unused_self, reason = "one signature for every build")]
    fn aws_login(&self, mechanism: Mechanism) -> Result<Login, ConfigError> {
        Err(left_out(
            "sasl.mechanism",
            Some(mechanism.name()),
            "logins at Amazon MSK",
            "aws-msk-iam",
        ))
    }

    fn read_jaas(&self) -> Result<Option<Jaas>, ConfigError> {
        let read = self.jaas.as_ref().map(|jaas| Jaas::parse(jaas.reveal())).transpose();
        read.map_err(|reason| ConfigError::Contradiction(format!("sasl.jaas.config: {reason}")))
    }
}

/// The error of a value that needs a cargo feature which this build lacks.
fn left_out(name: &str, value: Option<&str>, what: &str, feature: &str) -> ConfigError {
    ConfigError::NotSupported {
        name: name.into(),
        value: value.map(Into::into),
        why: format!("this build has no {what}; add the cargo feature '{feature}'"),
    }
}
