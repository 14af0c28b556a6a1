//! TLS over any [`Socket`](crate::Socket), for clients and servers, and reading of certificates and
//! keys.
//!
//! [`TlsSocket::connect`] and [`TlsSocket::accept`] complete the handshake and return a socket with
//! the same interface as the one below it. TLS has no task: the writing task encrypts, the reading
//! task decrypts.

mod config;
mod material;
#[cfg_attr(not(feature = "pkcs12"), path = "no_pkcs12.rs")]
mod pkcs12;
mod signing;
mod socket;
#[cfg(test)]
mod tests;

use std::{io, time::Duration};

pub use config::{ClientAuth, Terms, client_config, server_config};
pub use material::{Identity, MaterialError, certificates_from_pem};
pub use pkcs12::certificates_from_pkcs12;
pub use rustls::{
    self, CipherSuite, ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName},
    version::{TLS12, TLS13},
};
pub use signing::SigningKey;
pub use socket::TlsSocket;

/// Why a TLS connection failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The handshake did not finish within its timeout.
    #[error("no TLS handshake within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// The peer closed the connection during the handshake.
    #[error("the connection was closed in the middle of the TLS handshake")]
    Closed,
    /// A TLS error, such as an unacceptable certificate; found by this side or reported by the
    /// peer.
    #[error(transparent)]
    Session(#[from] rustls::Error),
    /// The socket below failed.
    #[error(transparent)]
    Io(io::Error),
}

impl TlsError {
    /// Converts an error of an open session, which wraps the TLS error in an I/O error.
    fn of(error: io::Error) -> Self {
        match session_error(&error) {
            Some(session) => Self::Session(session.clone()),
            None => Self::Io(error),
        }
    }
}

/// Returns the TLS error inside an error of a [`TlsSocket`]; `None` if the socket below failed.
///
/// With TLS 1.3 a client learns only after the handshake that the server does not accept its certificate.
#[must_use]
pub fn session_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}
