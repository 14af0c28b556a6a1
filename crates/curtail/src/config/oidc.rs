//! OAUTHBEARER with tokens from an OAuth 2.0 or OpenID Connect provider (KIP-768, KIP-1139, KIP-1258), or from a file.

mod assertion;
#[cfg(feature = "oidc")]
mod login;

use std::time::Duration;

pub(super) use self::assertion::ASSERTION;
pub use self::assertion::{AssertionConfig, SigningAlgorithm};
#[cfg(feature = "oidc")]
pub(crate) use self::login::{
    ASSERTION_FILE, ASSERTION_KEY_FILE, ASSERTION_TEMPLATE_FILE, Grant, Origin, ProviderLogin,
    TokenEndpoint,
};
use super::{
    CommonConfig, Secret, SslConfig,
    forms::{BOOLEAN, LONG_MILLIS, OPTIONAL_MILLIS, OPTIONAL_TEXT, security as forms},
    table::{Property, group, property},
};

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

group! {
    /// Source of tokens (cargo feature `oidc`) and times of their renewal. `Debug` hides secrets.
    ///
    /// All connections of a client share one token. A separate task renews it before it expires, so an open connection
    /// never waits for a token.
    #[derive(Clone, Debug, PartialEq)]
    OidcConfig, OIDC in [security.sasl.oidc]: {
        /// `sasl.login.connect.timeout.ms`: limit until TLS to the token endpoint is established;
        /// `socket.connection.setup.timeout.ms` if unset.
        connect_timeout: Option<Duration> = None => "sasl.login.connect.timeout.ms", OPTIONAL_MILLIS;
        /// `sasl.login.read.timeout.ms`: limit for the token endpoint's whole response; `request.timeout.ms` if unset.
        read_timeout: Option<Duration> = None => "sasl.login.read.timeout.ms", OPTIONAL_MILLIS;
        /// `sasl.login.refresh.buffer.seconds`: a token is renewed at least this long before it expires.
        refresh_buffer: Duration = Duration::from_secs(300)
            => "sasl.login.refresh.buffer.seconds", forms::REFRESH_BUFFER;
        /// `sasl.login.refresh.min.period.seconds`: shortest time between renewals.
        refresh_min_period: Duration = Duration::from_secs(60)
            => "sasl.login.refresh.min.period.seconds", forms::REFRESH_PERIOD;
        /// `sasl.login.refresh.window.factor`: part of a token's lifetime after which it is renewed, 0.5 to 1.
        refresh_window_factor: f64 = 0.8 => "sasl.login.refresh.window.factor", forms::LIFETIME_FACTOR;
        /// `sasl.login.refresh.window.jitter`: largest random delay of a renewal, as part of the lifetime, 0 to 0.25.
        refresh_window_jitter: f64 = 0.05 => "sasl.login.refresh.window.jitter", forms::LIFETIME_JITTER;
        /// `sasl.login.retry.backoff.max.ms`: longest backoff between logins, also used after a failure that a retry
        /// cannot fix.
        retry_backoff_max: Duration = Duration::from_secs(10) => "sasl.login.retry.backoff.max.ms", LONG_MILLIS;
        /// `sasl.login.retry.backoff.ms`: backoff after a login's first failure; it doubles with each further failure.
        retry_backoff: Duration = Duration::from_millis(100) => "sasl.login.retry.backoff.ms", LONG_MILLIS;
        /// `sasl.oauthbearer.client.credentials.client.id`: the client id, or else the option `clientId` of
        /// `sasl.jaas.config`.
        client_id: Option<String> = None => "sasl.oauthbearer.client.credentials.client.id", OPTIONAL_TEXT;
        /// `sasl.oauthbearer.client.credentials.client.secret`: the client secret, or else the option `clientSecret` of
        /// `sasl.jaas.config`.
        client_secret: Option<Secret> = None
            => "sasl.oauthbearer.client.credentials.client.secret", forms::SECRET;
        /// `sasl.oauthbearer.header.urlencode`: whether the client id and secret are URL-encoded in the Authorization
        /// header. RFC 6749 requires that, but many providers do not follow it.
        header_urlencode: bool = false => "sasl.oauthbearer.header.urlencode", BOOLEAN;
        /// `sasl.oauthbearer.jwt.retriever.class`: the flow that obtains tokens, by Java's classes.
        retriever: JwtRetriever = JwtRetriever::Default => "sasl.oauthbearer.jwt.retriever.class", forms::RETRIEVER;
        /// `sasl.oauthbearer.scope`: the requested scope. With client credentials also the option `scope` of
        /// `sasl.jaas.config`.
        scope: Option<String> = None => "sasl.oauthbearer.scope", OPTIONAL_TEXT;
        /// `sasl.oauthbearer.token.endpoint.url`: an https address from which OAUTHBEARER fetches its tokens, or
        /// `file:///path` of a file that has one.
        token_endpoint_url: Option<String> = None => "sasl.oauthbearer.token.endpoint.url", OPTIONAL_TEXT;
    }
    within {}
    without property {
        /// `sasl.oauthbearer.assertion.*`.
        assertion: AssertionConfig = AssertionConfig::default();
        /// Trusted certificates for the token endpoint: the `ssl.*` options of `sasl.jaas.config`. Without them, the
        /// platform's certificates. As in Java, the client's own `ssl.*` apply to brokers only.
        ssl: Option<SslConfig> = None;
    }
}
