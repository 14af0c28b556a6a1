//! TLS configurations of clients and servers.

use std::sync::Arc;

use rustls::{
    CertificateError, CipherSuite, ClientConfig, DigitallySignedStruct, Error, RootCertStore,
    ServerConfig, SignatureScheme, SupportedProtocolVersion,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::WebPkiClientVerifier,
};

use super::{Identity, MaterialError};
use crate::HostCheck;

/// The client certificate policy of a server.
#[derive(Clone, Debug)]
pub enum ClientAuth {
    /// Requests no certificate.
    None,
    /// Requests a certificate but accepts a client without one. An untrusted certificate is refused.
    Requested(RootCertStore),
    /// Requires a certificate that chains to a trusted one.
    Required(RootCertStore),
}

/// TLS versions and cipher suites that a client offers.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Versions of TLS.
    pub versions: Vec<&'static SupportedProtocolVersion>,
    /// Cipher suites, the preferred one first. Empty means all supported ones.
    pub suites: Vec<CipherSuite>,
}

impl From<&[&'static SupportedProtocolVersion]> for Terms {
    /// All cipher suites.
    fn from(versions: &[&'static SupportedProtocolVersion]) -> Self {
        Self { versions: versions.to_vec(), suites: Vec::new() }
    }
}

impl<const N: usize> From<&[&'static SupportedProtocolVersion; N]> for Terms {
    fn from(versions: &[&'static SupportedProtocolVersion; N]) -> Self {
        versions.as_slice().into()
    }
}

impl Terms {
    fn provider(&self) -> CryptoProvider {
        let mut provider = ring::default_provider();
        if !self.suites.is_empty() {
            let known = std::mem::take(&mut provider.cipher_suites);
            let find = |suite: &CipherSuite| known.iter().find(|k| k.suite() == *suite).copied();
            provider.cipher_suites = self.suites.iter().filter_map(find).collect();
        }
        provider
    }
}

/// Creates a client's configuration: its trusted certificates, and its identity for servers that
/// request one.
///
/// # Errors
/// The key's type is unknown, the key does not match the certificate, no certificate is trusted, or
/// no version with a cipher suite remains.
pub fn client_config(
    trusted: RootCertStore,
    check: HostCheck,
    identity: Option<Identity>,
    terms: impl Into<Terms>,
) -> Result<Arc<ClientConfig>, MaterialError> {
    let terms = terms.into();
    let provider = Arc::new(terms.provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(trusted), provider.clone())
        .build()
        .map_err(|error| MaterialError::Unusable(error.to_string()))?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&terms.versions)
        .map_err(unusable)?;
    let builder = match check {
        HostCheck::Https => builder.with_webpki_verifier(verifier),
        HostCheck::Off => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyHost(verifier)))
        }
    };
    let config = match identity {
        Some(Identity { chain, key }) => {
            builder.with_client_auth_cert(chain, key).map_err(unusable)?
        }
        None => builder.with_no_client_auth(),
    };
    Ok(Arc::new(config))
}

/// Creates a server's configuration: its identity and its client certificate policy.
///
/// # Errors
/// As [`client_config`].
pub fn server_config(
    identity: Identity,
    clients: ClientAuth,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<Arc<ServerConfig>, MaterialError> {
    let provider = Arc::new(ring::default_provider());
    let verifier = |trusted: RootCertStore| {
        WebPkiClientVerifier::builder_with_provider(Arc::new(trusted), provider.clone())
    };
    let verifier = match clients {
        ClientAuth::None => Ok(WebPkiClientVerifier::no_client_auth()),
        ClientAuth::Requested(trusted) => verifier(trusted).allow_unauthenticated().build(),
        ClientAuth::Required(trusted) => verifier(trusted).build(),
    };
    let verifier = verifier.map_err(|error| MaterialError::Unusable(error.to_string()))?;
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(unusable)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(identity.chain, identity.key)
        .map_err(unusable)?;
    Ok(Arc::new(config))
}

#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn unusable(error: Error) -> MaterialError {
    MaterialError::Unusable(match error {
        Error::InconsistentKeys(_) => "the private key does not match the certificate".to_owned(),
        other => other.to_string(),
    })
}

/// Checks everything but the host name. The inner verifier checks the name last, after the
/// certificate chain.
#[derive(Debug)]
struct AnyHost(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyHost {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified =
            self.0.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        match verified {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
