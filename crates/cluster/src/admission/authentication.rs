//! SASL authentication (KIP-152) and re-authentication (KIP-368) of one connection.
//!
//! Before the authentication is complete, only ApiVersions, SaslHandshake and SaslAuthenticate are
//! accepted. A listener may limit the lifetime of an authentication. It sends the lifetime to the
//! client, and closes the connection at the first request after it, unless the client has
//! re-authenticated.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    api::ApiKey,
    cold::{
        self, Encodable, Message, StrBytes,
        messages::{
            SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest,
            SaslHandshakeResponse,
        },
    },
    frame::UNAUTHENTICATED_LIMIT,
    header::RequestHeader,
};
use tokio::time::Instant;

use super::{Admission, Principal, Sasl};
use crate::{
    config::Mechanism,
    sasl::{Credentials, Exchange, Known, Refused, Step},
};

/// Minimum interval between two re-authentications, as in Kafka.
const LEAST_INTERVAL: Duration = Duration::from_secs(1);
/// First version of SaslAuthenticate with the lifetime of the authentication.
const LIFETIME: i16 = 1;

/// The action for a request.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Pass the request to the handlers.
    Serve,
    /// The request was a step of the authentication; send this response.
    Answer(Bytes),
    /// The authentication has failed; send this response after the listener's delay and close.
    Refuse { answer: Bytes, reason: String },
    /// Close without a response.
    Close(&'static str),
}

/// The time of a request's arrival.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) instant: Instant,
    /// Milliseconds since the Unix epoch.
    pub(crate) wall_ms: i64,
}

/// The authentication state of a connection.
pub(crate) struct Authentication {
    admission: Arc<Admission>,
    state: State,
    principal: Arc<Principal>,
    /// The valid authentication.
    proved: Option<Proved>,
}

enum State {
    /// Complete: all requests are served.
    Over,
    /// The client must choose a mechanism.
    Choice,
    /// The client must continue with the chosen mechanism.
    Exchange(Mechanism, Exchange),
}

struct Proved {
    mechanism: Mechanism,
    /// When it was completed, if it was a re-authentication.
    renewed: Option<Instant>,
    expires: Option<Instant>,
}

impl Authentication {
    /// `principal` is the client's principal without SASL.
    pub(crate) fn new(admission: Arc<Admission>, principal: Principal) -> Self {
        let state = if admission.sasl.is_some() { State::Choice } else { State::Over };
        Self { admission, state, principal: Arc::new(principal), proved: None }
    }

    /// The client's principal, as far as it is authenticated.
    pub(crate) fn principal(&self) -> &Arc<Principal> {
        &self.principal
    }

    /// Returns whether requests are served.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// Returns the maximum size of the next frame; `limit` applies to all clients.
    pub(crate) fn frame_limit(&self, limit: usize) -> usize {
        match self.state {
            State::Over => limit,
            State::Choice | State::Exchange(..) => limit.min(UNAUTHENTICATED_LIMIT),
        }
    }

    /// Checks a request before it is handled.
    pub(crate) fn receive(
        &mut self,
        header: &RequestHeader<'_>,
        body: &Bytes,
        credentials: &Credentials,
        now: Now,
    ) -> Verdict {
        let admission = Arc::clone(&self.admission);
        let Some(sasl) = &admission.sasl else { return Verdict::Serve };
        if let State::Over = self.state {
            return self.after(sasl, header, body, now);
        }
        match (&self.state, header.api) {
            (State::Choice, ApiKey::API_VERSIONS) => Verdict::Serve,
            (State::Choice, ApiKey::SASL_HANDSHAKE) => self.choose(sasl, header, body),
            (State::Exchange(..), ApiKey::SASL_AUTHENTICATE) => {
                self.exchange(sasl, credentials, header, body, now)
            }
            _ => Verdict::Close("a request came before the authentication was over"),
        }
    }

    /// Checks a request of an authenticated client.
    fn after(
        &mut self,
        sasl: &Sasl,
        header: &RequestHeader<'_>,
        body: &Bytes,
        now: Now,
    ) -> Verdict {
        let Some(Proved { expires: Some(expires), renewed, .. }) = &self.proved else {
            return Verdict::Serve;
        };
        let too_soon =
            renewed.is_some_and(|at| now.instant.saturating_duration_since(at) < LEAST_INTERVAL);
        if header.api == ApiKey::SASL_HANDSHAKE && !too_soon {
            return self.choose(sasl, header, body);
        }
        if now.instant >= *expires {
            return Verdict::Close(
                "connections.max.reauth.ms has passed without another authentication",
            );
        }
        Verdict::Serve
    }

    fn choose(&mut self, sasl: &Sasl, header: &RequestHeader<'_>, body: &Bytes) -> Verdict {
        // Version 0 continues without headers, which no client has needed since Kafka 1.0.
        if header.version != 1 {
            return Verdict::Close("SaslHandshake is served in version 1 only");
        }
        let Ok(request) =
            cold::decode_request::<SaslHandshakeRequest>(header.version, body.clone())
        else {
            return Verdict::Close("SaslHandshake is malformed");
        };
        let names = sasl.mechanisms.iter().map(|m| StrBytes::from_static_str(m.name()));
        let response = SaslHandshakeResponse::default().with_mechanisms(names.collect());
        let chosen = Mechanism::by_name(&request.mechanism);
        match chosen.filter(|mechanism| sasl.mechanisms.contains(mechanism)) {
            Some(mechanism) => {
                self.state = State::Exchange(mechanism, Exchange::begin(mechanism));
                respond(header, &response, Verdict::Answer)
            }
            None => {
                let code = ErrorCode::UNSUPPORTED_SASL_MECHANISM;
                let reason = "the client asked for a mechanism that is not offered".to_owned();
                let refuse = |answer| Verdict::Refuse { answer, reason };
                respond(header, &response.with_error_code(code.0), refuse)
            }
        }
    }

    fn exchange(
        &mut self,
        sasl: &Sasl,
        credentials: &Credentials,
        header: &RequestHeader<'_>,
        body: &Bytes,
        now: Now,
    ) -> Verdict {
        if !(0..=2).contains(&header.version) {
            return Verdict::Close("SaslAuthenticate is served in versions 0 to 2");
        }
        let Ok(request) =
            cold::decode_request::<SaslAuthenticateRequest>(header.version, body.clone())
        else {
            return Verdict::Close("SaslAuthenticate is malformed");
        };
        let State::Exchange(mechanism, exchange) = &mut self.state else {
            return Verdict::Close("SaslAuthenticate came before SaslHandshake");
        };
        let mechanism = *mechanism;
        let known = Known { users: &sasl.users, credentials };
        let stepped = exchange.step(known, &request.auth_bytes, now.wall_ms);
        let again = self.proved.as_ref();
        if let Some(other) = again.filter(|proved| proved.mechanism != mechanism) {
            let reason = format!(
                "Cannot change from SASL mechanism {} during re-authentication",
                other.mechanism
            );
            return refuse(header, reason);
        }
        let response = SaslAuthenticateResponse::default().with_error_message(None);
        match stepped {
            Ok(Step::Challenge(challenge)) => {
                respond(header, &response.with_auth_bytes(challenge.into()), Verdict::Answer)
            }
            Ok(Step::Proved { last, user, expires_ms }) => {
                let principal = self.admission.principal(user);
                if again.is_some() && principal != *self.principal {
                    let reason = format!(
                        "Cannot change principals during re-authentication from {} to {principal}",
                        self.principal
                    );
                    return refuse(header, reason);
                }
                let lifetime = lifetime(sasl, expires_ms, now);
                let expires = lifetime.map(|lifetime| now.instant + lifetime);
                let renewed = again.map(|_| now.instant);
                self.proved = Some(Proved { mechanism, renewed, expires });
                self.principal = Arc::new(principal);
                self.state = State::Over;
                let response = response.with_auth_bytes(last.into());
                let response = match header.version {
                    ..LIFETIME => response,
                    _ => response
                        .with_session_lifetime_ms(lifetime.unwrap_or_default().as_millis() as i64),
                };
                respond(header, &response, Verdict::Answer)
            }
            Err(refused) => {
                let stage = if again.is_some() { "re-authentication" } else { "authentication" };
                refuse(
                    header,
                    match refused {
                        Refused::Because(reason) => reason.to_owned(),
                        Refused::Invalid => format!(
                            "Authentication failed during {stage} due to invalid credentials with SASL mechanism {mechanism}"
                        ),
                    },
                )
            }
        }
    }
}

/// Returns the lifetime of an authentication, limited by the listener and by the validity of the
/// token.
fn lifetime(sasl: &Sasl, expires_ms: Option<i64>, now: Now) -> Option<Duration> {
    let left = |ms: i64| u64::try_from(ms.saturating_sub(now.wall_ms)).unwrap_or(0);
    // An upper bound, so that adding it to the time cannot overflow.
    let most = Duration::from_millis(i32::MAX as u64);
    let shown = expires_ms.map(|ms| Duration::from_millis(left(ms)).min(most));
    let listeners = Some(sasl.lifetime).filter(|lifetime| !lifetime.is_zero());
    [shown, listeners].into_iter().flatten().min()
}

fn refuse(header: &RequestHeader<'_>, reason: String) -> Verdict {
    let response = SaslAuthenticateResponse::default()
        .with_error_code(ErrorCode::SASL_AUTHENTICATION_FAILED.0)
        .with_error_message(Some(StrBytes::from_string(reason.clone())));
    respond(header, &response, |answer| Verdict::Refuse { answer, reason })
}

fn respond<T: Encodable + Message>(
    header: &RequestHeader<'_>,
    response: &T,
    verdict: impl FnOnce(Bytes) -> Verdict,
) -> Verdict {
    match cold::encode_response(header.api, header.version, header.correlation_id, response) {
        Ok(frame) => verdict(frame.into()),
        Err(_) => Verdict::Close("an answer of the authentication could not be encoded"),
    }
}
