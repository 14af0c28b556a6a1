//! TLS over any [`Socket`](crate::Socket), for either side, and what certificates and keys it needs.
//!
//! [`TlsSocket::connect`] and [`TlsSocket::accept`] shake hands and give a socket that is used like the one below it.
//! There is no task of its own: whoever writes encrypts, whoever reads decrypts.

mod config;
mod material;
mod socket;
#[cfg(test)]
mod tests;

use std::{io, time::Duration};

pub use config::{ClientAuth, HostCheck, Terms, client_config, server_config};
pub use material::{Identity, MaterialError, certificates_from_pem, certificates_from_pkcs12};
pub use rustls::{
    self, CipherSuite, ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName},
    version::{TLS12, TLS13},
};
pub use socket::TlsSocket;

/// Why there is no TLS connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The handshake was not over in the time given.
    #[error("no TLS handshake within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The peer closed the connection instead of shaking hands.
    #[error("the connection was closed in the middle of the TLS handshake")]
    Closed,
    /// What the peer sent cannot be accepted, its certificate included; or it says so of what it was sent.
    #[error("{0}")]
    Session(#[from] rustls::Error),
    /// The socket below failed.
    #[error("{0}")]
    Io(io::Error),
}

impl TlsError {
    /// Failures of an open session come as input and output errors with the session's own inside.
    fn of(error: io::Error) -> Self {
        match session_error(&error) {
            Some(session) => Self::Session(session.clone()),
            None => Self::Io(error),
        }
    }
}

/// What the TLS session has to say for an error of a [`TlsSocket`]; `None` if the socket below failed.
///
/// With TLS 1.3 a client learns only after the handshake that the server does not accept its certificate.
#[must_use]
pub fn session_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}
