//! OAUTHBEARER with tokens from an OAuth 2.0 or OpenID Connect provider (KIP-768, KIP-1139, KIP-1258), or from a file.

mod assertion;
#[cfg(feature = "oidc")]
mod login;

use std::time::Duration;

pub use self::assertion::{AssertionConfig, SigningAlgorithm};
#[cfg(feature = "oidc")]
pub(crate) use self::login::{
    ASSERTION_FILE, ASSERTION_KEY_FILE, ASSERTION_TEMPLATE_FILE, Grant, Origin, ProviderLogin,
    TokenEndpoint,
};
use super::{Secret, SslConfig};

pub(super) const URL: &str = "sasl.oauthbearer.token.endpoint.url";
#[cfg(feature = "oidc")]
const RETRIEVER: &str = "sasl.oauthbearer.jwt.retriever.class";

/// `sasl.oauthbearer.jwt.retriever.class`: the flow that obtains tokens, by Java's classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum JwtRetriever {
    /// `DefaultJwtRetriever`: a token from a file if `sasl.oauthbearer.token.endpoint.url` is a `file:` URL, otherwise
    /// client credentials.
    #[default]
    Default,
    /// `ClientCredentialsJwtRetriever`: the grant `client_credentials`, with an assertion or a client secret.
    ClientCredentials,
    /// `JwtBearerJwtRetriever`: the grant `urn:ietf:params:oauth:grant-type:jwt-bearer`, with an assertion.
    JwtBearer,
    /// `FileJwtRetriever`: a token from a file.
    File,
}

impl JwtRetriever {
    pub(super) const ALL: [(Self, &'static str); 4] = [
        (Self::Default, "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever"),
        (
            Self::ClientCredentials,
            "org.apache.kafka.common.security.oauthbearer.ClientCredentialsJwtRetriever",
        ),
        (Self::JwtBearer, "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever"),
        (Self::File, "org.apache.kafka.common.security.oauthbearer.FileJwtRetriever"),
    ];

    /// The Java class.
    #[must_use]
    pub fn class(self) -> &'static str {
        Self::ALL.iter().find(|(retriever, _)| *retriever == self).map_or("", |(_, class)| class)
    }
}

/// Source of tokens and times of their renewal. `Debug` hides secrets.
///
/// All connections of a client share one token. A separate task renews it before it expires, so an open connection
/// never waits for a token.
#[derive(Clone, Debug, PartialEq)]
pub struct OidcConfig {
    /// `sasl.oauthbearer.token.endpoint.url`: an https address from which OAUTHBEARER fetches its tokens, or
    /// `file:///path` of a file that has one.
    pub token_endpoint_url: Option<String>,
    /// `sasl.oauthbearer.jwt.retriever.class`: the flow.
    pub retriever: JwtRetriever,
    /// `sasl.oauthbearer.assertion.*`.
    pub assertion: AssertionConfig,
    /// `sasl.oauthbearer.client.credentials.client.id`, or the option `clientId` of `sasl.jaas.config`.
    pub client_id: Option<String>,
    /// `sasl.oauthbearer.client.credentials.client.secret`, or the option `clientSecret` of `sasl.jaas.config`.
    pub client_secret: Option<Secret>,
    /// `sasl.oauthbearer.scope`. With client credentials also the option `scope` of `sasl.jaas.config`.
    pub scope: Option<String>,
    /// `sasl.oauthbearer.header.urlencode`: whether the client id and secret are URL-encoded in the Authorization
    /// header. RFC 6749 requires that, but many providers do not follow it.
    pub header_urlencode: bool,
    /// `sasl.login.connect.timeout.ms`: limit until TLS is established; `socket.connection.setup.timeout.ms` if
    /// unset.
    pub connect_timeout: Option<Duration>,
    /// `sasl.login.read.timeout.ms`: limit for the whole response; `request.timeout.ms` if unset.
    pub read_timeout: Option<Duration>,
    /// `sasl.login.retry.backoff.ms`: backoff after the first failure; it doubles with each further failure.
    pub retry_backoff: Duration,
    /// `sasl.login.retry.backoff.max.ms`: longest backoff, also used after a failure that a retry cannot fix.
    pub retry_backoff_max: Duration,
    /// `sasl.login.refresh.window.factor`: part of a token's lifetime after which it is renewed, 0.5 to 1.
    pub refresh_window_factor: f64,
    /// `sasl.login.refresh.window.jitter`: largest random delay, as part of the lifetime, 0 to 0.25.
    pub refresh_window_jitter: f64,
    /// `sasl.login.refresh.min.period.seconds`: shortest time between renewals.
    pub refresh_min_period: Duration,
    /// `sasl.login.refresh.buffer.seconds`: a token is renewed at least this long before it expires.
    pub refresh_buffer: Duration,
    /// Trusted certificates for the token endpoint: the `ssl.*` options of `sasl.jaas.config`. Without them, the
    /// platform's certificates. As in Java, the client's own `ssl.*` apply to brokers only.
    pub ssl: Option<SslConfig>,
}

impl Default for OidcConfig {
    fn default() -> Self {
        Self {
            token_endpoint_url: None,
            retriever: JwtRetriever::Default,
            assertion: AssertionConfig::default(),
            client_id: None,
            client_secret: None,
            scope: None,
            header_urlencode: false,
            connect_timeout: None,
            read_timeout: None,
            retry_backoff: Duration::from_millis(100),
            retry_backoff_max: Duration::from_secs(10),
            refresh_window_factor: 0.8,
            refresh_window_jitter: 0.05,
            refresh_min_period: Duration::from_secs(60),
            refresh_buffer: Duration::from_secs(300),
            ssl: None,
        }
    }
}
