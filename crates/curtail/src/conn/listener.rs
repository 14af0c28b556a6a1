//! Probes of a listener whose security protocol may not be the client's.

use std::{net::SocketAddr, sync::Arc};

use curtail_net::{Env, SocketOptions};
use curtail_wire::{
    ApiKey, ErrorCode,
    cold::{self, StrBytes, messages},
    header,
};
use tokio::time::timeout;

use super::{
    Connection, authentication_error, dial_broker, happened, options, problem_error, protocol_error,
};
use crate::{
    Error, Result,
    config::CommonConfig,
    error::{ConnectionProblem, one_line},
    security::{Mechanism, SecurityProtocol, sasl::HANDSHAKE},
};

/// Whether a broker that failed the TLS handshake accepts plaintext.
pub(super) async fn speaks_clear_text(
    env: &Env,
    common: &CommonConfig,
    at: (&str, u16),
    address: Option<SocketAddr>,
) -> bool {
    let (options, peer) = (SocketOptions::default(), Arc::from(""));
    let socket = match address {
        Some(address) => env.net.connect(address, options).await.ok(),
        None => {
            let dialled = dial_broker(env, common, at, options, &peer).await;
            dialled.ok().map(|(socket, _)| socket)
        }
    };
    let Some(socket) = socket else { return false };
    Connection::unproven(common, socket, peer).shake_hands().await.is_ok()
}

/// Explains why a listener closes a connection without SASL at the first request after ApiVersions.
///
/// A listener with SASL does this, and so does a broker that is shutting down. Only the first one lists mechanisms in
/// response to SaslHandshake. A listener without SASL responds with ILLEGAL_SASL_STATE.
pub(super) struct Doubt {
    env: Env,
    common: CommonConfig,
    host: String,
    port: u16,
}

impl Doubt {
    /// `None` with SASL, and once a broker has served the client: then the protocol is that of the listeners.
    pub(super) fn of(env: &Env, common: &CommonConfig, host: &str, port: u16) -> Option<Box<Self>> {
        let security = &common.security;
        let doubtful = !security.protocol.has_sasl() && !security.cache.is_served(common);
        doubtful.then(|| {
            Box::new(Self { env: env.clone(), common: common.clone(), host: host.into(), port })
        })
    }

    /// Records that a broker has served the client.
    pub(super) fn end(&self) {
        self.common.security.cache.set_served(&self.common);
    }

    /// Returns the error for a connection that was closed with this one.
    pub(super) async fn explain(&self, peer: &Arc<str>, error: Error) -> Error {
        let Error::Connection { reason, source, .. } = &error else { return error };
        if self.common.security.cache.is_served(&self.common) {
            return error;
        }
        let protocol = self.common.security.protocol;
        let probe = timeout(self.common.connection_setup_timeout, self.mechanisms(peer));
        match probe.await {
            Ok(Ok(mechanisms)) if !mechanisms.is_empty() => authentication_error(
                peer,
                format!(
                    "this listener requires SASL, which security.protocol={} lacks; set it to {}, and sasl.mechanism to \
                     one of the listener's: {}",
                    protocol.name(),
                    with_sasl(protocol).name(),
                    one_line(&mechanisms.join(", "))
                ),
            ),
            _ => problem_error(
                peer,
                ConnectionProblem::Unserved,
                format!(
                    "{}, at the first request; is security.protocol={} that of the listener?",
                    happened(reason, source.as_deref()),
                    protocol.name()
                ),
            ),
        }
    }

    /// Requests the listener's SASL mechanisms, on a separate connection. None without SASL.
    async fn mechanisms(&self, peer: &Arc<str>) -> Result<Vec<String>> {
        let Self { env, common, host, port } = self;
        let at = (host.as_str(), *port);
        let (socket, address) = dial_broker(env, common, at, options(common), peer).await?;
        let socket = Connection::secured(env, common, socket, at, address, peer).await?;
        let mut connection = Connection::unproven(common, socket, peer.clone());
        connection.shake_hands().await?;
        // A mechanism that the listener has is no failed login in the broker's metrics and log.
        let mechanism = common.security.sasl.mechanism.unwrap_or(Mechanism::Plain);
        let request = messages::SaslHandshakeRequest::default()
            .with_mechanism(StrBytes::from_static_str(mechanism.name()));
        let version = connection.negotiate(ApiKey::SASL_HANDSHAKE, HANDSHAKE)?;
        let correlation_id = connection.next_correlation_id();
        let broken = |error: &dyn std::fmt::Display| protocol_error(peer, error);
        let frame =
            cold::encode_request(version, correlation_id, Some(&common.client_id), &request)
                .map_err(|error| broken(&error))?;
        connection.write_now(&frame).await?;
        let answer = connection.read_answer(correlation_id).await?;
        let body = header::response_body(&answer, ApiKey::SASL_HANDSHAKE, version)
            .map_err(|error| broken(&error))?;
        let answer: messages::SaslHandshakeResponse =
            cold::decode_response(version, body).map_err(|error| broken(&error))?;
        Ok(match ErrorCode(answer.error_code) {
            ErrorCode::NONE | ErrorCode::UNSUPPORTED_SASL_MECHANISM => {
                answer.mechanisms.iter().map(ToString::to_string).collect()
            }
            _ => Vec::new(),
        })
    }
}

/// The protocol with SASL, and TLS as before.
fn with_sasl(protocol: SecurityProtocol) -> SecurityProtocol {
    match protocol.has_tls() {
        true => SecurityProtocol::SaslSsl,
        false => SecurityProtocol::SaslPlaintext,
    }
}
