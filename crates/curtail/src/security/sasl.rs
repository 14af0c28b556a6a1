//! SASL over a connection's first requests, and again before the session ends (KIP-368).

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use bytes::Bytes;
use curtail_net::{Entropy, Env, secret_bytes};
use curtail_proto::{
    later::Later,
    sasl::{Credentials, Derivation, Exchange, SaltedPassword, SaslError, Step},
};
use curtail_wire::{
    ApiKey, ApiVersions, ErrorCode,
    cold::{self, Decodable, Message, Request, StrBytes, messages},
    header,
};
use tokio::time::Instant;

#[cfg(feature = "aws-msk-iam")]
use super::aws::Aws;
#[cfg(feature = "oidc")]
use super::oidc;
use crate::{
    Error, Result,
    config::{CommonConfig, Login},
    conn::{authentication_error, problem_error, protocol_error},
    error::{ConnectionProblem, one_line},
    security::{Mechanism, OAuthBearerToken, SecurityConfig, TokenSource},
};

/// Versions of SaslHandshake.
pub(crate) const HANDSHAKE: RangeInclusive<i16> = 1..=1;
const AUTHENTICATE: RangeInclusive<i16> = 0..=2;

/// Part of a session after which it is renewed, plus a random part of the next tenth, as in Java.
const RENEW_AFTER: f64 = 0.85;
const RENEW_WITHIN: f64 = 0.1;

/// Earliest renewal after a login. Kafka's brokers refuse an earlier one, and sessions of a millisecond must not keep
/// the client busy. Shorter sessions end, and the connection with them.
const RENEW_AFTER_LEAST: Duration = Duration::from_secs(1);

/// The connection for SASL requests, exclusive during an exchange.
pub(crate) trait Carrier {
    /// Writes a frame and returns the response to the request with `correlation_id`.
    async fn exchange(&mut self, frame: &[u8], correlation_id: i32) -> Result<Bytes>;

    /// Correlation id for the next request.
    fn next_correlation_id(&mut self) -> i32;
}

/// Source of a connection's credentials.
#[derive(Debug)]
pub(crate) enum CredentialSource {
    Fixed(Credentials),
    /// Called for every login.
    Callback(TokenSource),
    /// Fetched in advance.
    #[cfg(feature = "oidc")]
    Oidc(oidc::User),
    /// Credentials found in advance, which sign the message of each login.
    #[cfg(feature = "aws-msk-iam")]
    Aws(Box<Aws>),
}

impl CredentialSource {
    /// Prepares the credentials of a connection to `peer` before it opens. `None` if the protocol has no SASL.
    #[cfg_attr(not(feature = "oidc"), expect(unused_variables))]
    pub(crate) async fn prepare(
        env: &Env,
        common: &CommonConfig,
        peer: &Arc<str>,
    ) -> Result<Option<Self>> {
        let security = &common.security;
        if !security.protocol.has_sasl() {
            return Ok(None);
        }
        Ok(Some(match security.sasl.login()? {
            Login::Fixed(credentials) => Self::Fixed(credentials),
            Login::Token(source) => Self::Callback(source),
            #[cfg(feature = "oidc")]
            Login::Oidc(credentials) => {
                let user = oidc::user(&security.cache, env, common, *credentials);
                user.value().await.map_err(|trouble| trouble.error(peer))?;
                Self::Oidc(user)
            }
            #[cfg(feature = "aws-msk-iam")]
            Login::Aws(login) => {
                let prepared = Aws::prepare(&security.cache, env, common, *login).await;
                Self::Aws(Box::new(prepared.map_err(|trouble| trouble.error(peer))?))
            }
        }))
    }
}

/// State for authentication and its renewal.
#[derive(Debug)]
pub(crate) struct Authenticator {
    security: SecurityConfig,
    mechanism: Mechanism,
    source: CredentialSource,
    peer: Arc<str>,
    client_id: Arc<str>,
    handshake: i16,
    authenticate: i16,
}

/// Time of the session's renewal; `None` if the broker has set no limit.
pub(crate) type RenewAt = Option<Instant>;

impl Authenticator {
    /// Creates the state for a broker with these `versions`.
    pub(crate) fn new(
        security: &SecurityConfig,
        source: CredentialSource,
        peer: &Arc<str>,
        client_id: &Arc<str>,
        versions: &ApiVersions,
    ) -> Result<Arc<Self>> {
        let mechanism = match &source {
            CredentialSource::Fixed(Credentials::Plain { .. }) => Mechanism::Plain,
            CredentialSource::Fixed(Credentials::Scram { hash, .. }) => hash.mechanism(),
            CredentialSource::Fixed(Credentials::OAuthBearer { .. })
            | CredentialSource::Callback(_) => Mechanism::OAuthBearer,
            #[cfg(feature = "oidc")]
            CredentialSource::Oidc(_) => Mechanism::OAuthBearer,
            CredentialSource::Fixed(Credentials::AwsMskIam { .. }) => Mechanism::AwsMskIam,
            #[cfg(feature = "aws-msk-iam")]
            CredentialSource::Aws(aws) if aws.is_bearer() => Mechanism::OAuthBearer,
            #[cfg(feature = "aws-msk-iam")]
            CredentialSource::Aws(_) => Mechanism::AwsMskIam,
        };
        let version = |api, ours| {
            versions.negotiate(api, ours).map_err(|error| {
                authentication_error(peer, format!("the broker does not support SASL: {error}"))
            })
        };
        Ok(Arc::new(Self {
            mechanism,
            source,
            peer: peer.clone(),
            client_id: client_id.clone(),
            handshake: version(ApiKey::SASL_HANDSHAKE, HANDSHAKE)?,
            authenticate: version(ApiKey::SASL_AUTHENTICATE, AUTHENTICATE)?,
            security: security.clone(),
        }))
    }

    /// Authenticates the client, initially or again.
    pub(crate) async fn run(&self, carrier: &mut impl Carrier) -> Result<RenewAt> {
        let credentials = self.credentials().await?;
        self.run_with(carrier, &credentials).await
    }

    /// As [`Self::run`], with the result of [`Self::credentials`].
    pub(crate) async fn run_with(
        &self,
        carrier: &mut impl Carrier,
        credentials: &Credentials,
    ) -> Result<RenewAt> {
        self.choose_mechanism(carrier).await?;
        let nonce = format!("{:032x}", u128::from_ne_bytes(secret_bytes()));
        let begun = Exchange::begin(credentials, &nonce).map_err(|error| self.failed(error))?;
        let (mut exchange, mut message) = begun;
        loop {
            let began = Instant::now();
            let answer = self.send(carrier, &message).await?;
            let mut step =
                exchange.answered(&answer.auth_bytes).map_err(|error| self.failed(error))?;
            if let Step::Derive(derivation) = step {
                let salted = self.salted(derivation).await?;
                step = exchange.derived(&salted).map_err(|error| self.failed(error))?;
            }
            match step {
                Step::Send(next) => message = next,
                Step::Derive(_) => {
                    return Err(protocol_error(
                        &self.peer,
                        "SCRAM restarts in the middle of an exchange",
                    ));
                }
                Step::Done => return Ok(renew_at(began, answer.session_lifetime_ms)),
            }
        }
    }

    async fn choose_mechanism(&self, carrier: &mut impl Carrier) -> Result<()> {
        let name = self.mechanism.name();
        let request = messages::SaslHandshakeRequest::default()
            .with_mechanism(StrBytes::from_static_str(name));
        let answer = self.ask(carrier, self.handshake, &request).await?;
        match ErrorCode(answer.error_code) {
            ErrorCode::NONE => Ok(()),
            ErrorCode::UNSUPPORTED_SASL_MECHANISM => {
                let enabled: Vec<&str> = answer.mechanisms.iter().map(StrBytes::as_str).collect();
                let enabled = one_line(&enabled.join(", "));
                let enabled = if enabled.is_empty() { "none".into() } else { enabled };
                Err(self.refused(format!(
                    "sasl.mechanism={name} is not enabled on the broker; enabled are: {enabled}"
                )))
            }
            ErrorCode::ILLEGAL_SASL_STATE => Err(self.refused(format!(
                "this listener does not support SASL, but security.protocol={} requires it; check the port, or set security.protocol to the listener's",
                self.security.protocol.name()
            ))),
            code => Err(self.refused(format!("SaslHandshake: {code}"))),
        }
    }

    /// Returns the credentials. Waits only for the application's callback.
    pub(crate) async fn credentials(&self) -> Result<Credentials> {
        let OAuthBearerToken { token, extensions } = match &self.source {
            CredentialSource::Fixed(credentials) => return Ok(credentials.clone()),
            // The application's token source may be temporarily unreachable.
            CredentialSource::Callback(source) => source.fetch().await.map_err(|reason| {
                let reason = format!("no OAUTHBEARER token: {}", one_line(&reason));
                problem_error(&self.peer, ConnectionProblem::NoToken, reason)
            })?,
            #[cfg(feature = "oidc")]
            CredentialSource::Oidc(user) => {
                user.current().map_err(|trouble| trouble.error(&self.peer))?
            }
            #[cfg(feature = "aws-msk-iam")]
            CredentialSource::Aws(aws) => return aws.credentials(&self.peer).await,
        };
        Ok(Credentials::OAuthBearer { token, extensions })
    }

    async fn salted(&self, derivation: Derivation) -> Result<SaltedPassword> {
        let cache = &self.security.cache.salted;
        if let Some((of, salted)) = &*cache.lock()
            && *of == derivation
        {
            return Ok(salted.clone());
        }
        let work = derivation.clone();
        let salted = tokio::task::spawn_blocking(move || work.run()).await;
        let salted = salted.map_err(|error| self.refused(error.to_string()))?;
        *cache.lock() = Some((derivation, salted.clone()));
        Ok(salted)
    }

    async fn send(
        &self,
        carrier: &mut impl Carrier,
        message: &[u8],
    ) -> Result<messages::SaslAuthenticateResponse> {
        let request = messages::SaslAuthenticateRequest::default()
            .with_auth_bytes(Bytes::copy_from_slice(message));
        let answer = self.ask(carrier, self.authenticate, &request).await?;
        match ErrorCode(answer.error_code) {
            ErrorCode::NONE => Ok(answer),
            ErrorCode::SASL_AUTHENTICATION_FAILED => {
                let said = answer.error_message.as_ref().map_or("", StrBytes::as_str);
                Err(self.refused(format!("the broker refuses {}: {}", self.who(), one_line(said))))
            }
            code => Err(self.refused(format!("SaslAuthenticate: {code}"))),
        }
    }

    /// Describes the refused identity and the setting that holds it.
    fn who(&self) -> String {
        let mechanism = self.mechanism.name();
        match &self.source {
            CredentialSource::Fixed(
                Credentials::Plain { username, .. } | Credentials::Scram { username, .. },
            ) => {
                format!(
                    "user '{}' or the password of sasl.jaas.config ({mechanism})",
                    one_line(username)
                )
            }
            #[cfg(feature = "aws-msk-iam")]
            CredentialSource::Aws(_) => format!("the AWS credentials ({mechanism})"),
            _ => format!("the token ({mechanism})"),
        }
    }

    async fn ask<Q>(
        &self,
        carrier: &mut impl Carrier,
        version: i16,
        request: &Q,
    ) -> Result<Q::Response>
    where
        Q: Request,
        Q::Response: Decodable + Message,
    {
        let broken = |error: &dyn std::fmt::Display| protocol_error(&self.peer, error);
        let correlation_id = carrier.next_correlation_id();
        let frame = cold::encode_request(version, correlation_id, Some(&self.client_id), request)
            .map_err(|error| broken(&error))?;
        let answer = carrier.exchange(&frame, correlation_id).await?;
        let body = header::response_body(&answer, ApiKey(Q::KEY), version)
            .map_err(|error| broken(&error))?;
        cold::decode_response(version, body).map_err(|error| broken(&error))
    }

    fn refused(&self, reason: impl Into<String>) -> Error {
        authentication_error(&self.peer, reason.into())
    }

    #[allow(clippy::needless_pass_by_value, reason = "for map_err")]
    fn failed(&self, error: SaslError) -> Error {
        self.refused(error.to_string())
    }
}

fn renew_at(began: Instant, lifetime_ms: i64) -> RenewAt {
    let lifetime = u64::try_from(lifetime_ms).ok().filter(|ms| *ms > 0)?;
    let part = RENEW_AFTER + RENEW_WITHIN * Entropy::from_os().unit();
    let at = began.checked_add(Duration::from_millis(lifetime).mul_f64(part))?;
    Some(at.max(Instant::now().later(RENEW_AFTER_LEAST)))
}
