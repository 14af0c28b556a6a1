//! TLS of a connection: builds configurations from files, and describes failures.

#[cfg(test)]
mod tests;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use curtail_net::{
    Socket,
    tls::{
        ClientConfig, Identity, MaterialError, RootCertStore, ServerName, SupportedProtocolVersion,
        TLS12, TLS13, Terms, TlsError, TlsSocket, certificates_from_pem, certificates_from_pkcs12,
        client_config,
        rustls::{self, AlertDescription, CertificateError, PeerIncompatible},
    },
};

use sha2::{Digest, Sha256};

use crate::{
    ConfigError, Error, Result,
    config::CommonConfig,
    conn::{authentication_error, connection_error, socket_error},
    security::{Secret, SslConfig, Store, StoreType, TlsVersion},
};

/// A configuration and its sources.
#[derive(Clone)]
pub(super) struct Loaded {
    settings: SslConfig,
    stamps: Vec<Stamp>,
    built: Built,
}

/// A TLS configuration with its certificates.
#[derive(Clone)]
pub(super) struct Built {
    pub(super) config: Arc<ClientConfig>,
    /// Number of trusted certificates, and the fingerprint of the client's own.
    in_use: Arc<str>,
}

/// Identifies a file's state, to detect changes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    length: Option<u64>,
}

/// Performs the TLS handshake with the broker over `socket`.
pub(crate) async fn secure(
    common: &CommonConfig,
    socket: Box<dyn Socket>,
    host: &str,
    peer: &Arc<str>,
) -> Result<Box<dyn Socket>> {
    let ssl = &common.security.ssl;
    let config = load(common).await.map_err(unusable)?;
    let name = ServerName::try_from(host.to_owned()).map_err(|_| {
        authentication_error(peer, format!("'{host}' is not a valid TLS server name"))
    })?;
    let limit = common.connection_setup_timeout;
    match TlsSocket::connect(socket, config, name, limit).await {
        Ok(secured) => Ok(Box::new(secured)),
        Err(TlsError::Session(error)) => {
            let problem = session_problem(Peer::Broker, host, ssl, &error);
            Err(authentication_error(peer, with_outdated(problem, common)))
        }
        Err(TlsError::Io(error)) => Err(socket_error(peer, error)),
        Err(other) => Err(connection_error(peer, other)),
    }
}

/// The error for certificates that cannot be used.
pub(super) fn unusable(reason: impl Into<Arc<str>>) -> Error {
    ConfigError::Certificates(reason.into()).into()
}

/// Translates a TLS error of a connection's socket; `None` for a network error.
pub(crate) fn session_error(peer: &Arc<str>, ssl: &SslConfig, error: &io::Error) -> Option<Error> {
    let error = curtail_net::tls::session_error(error)?;
    Some(refused(peer, "", ssl, error))
}

/// Adds to a handshake's failure that certificates could not be replaced, if that is so.
fn with_outdated(problem: String, common: &CommonConfig) -> String {
    match common.security.certificates_outdated() {
        None => problem,
        Some(reason) => {
            format!(
                "{problem}; the previous certificates are in use, because the changed ones cannot be used: {reason}"
            )
        }
    }
}

/// Returns the configuration from the current files. While they cannot be used, new connections use the previous one.
///
/// As in Java's brokers: an unreadable store breaks no connection that works with the previous one.
async fn load(common: &CommonConfig) -> Result<Arc<ClientConfig>, String> {
    let security = &common.security;
    let stamps = stamps(&security.ssl);
    let former = security.cache.tls.lock().clone().filter(|l| l.settings == security.ssl);
    if let Some(former) = &former
        && former.stamps == stamps
    {
        *security.cache.outdated.lock() = None;
        return Ok(former.built.config.clone());
    }
    let settings = security.ssl.clone();
    let built = tokio::task::spawn_blocking(move || build(&settings).map(|c| (settings, c))).await;
    match built.map_err(|error| error.to_string()).and_then(|built| built) {
        Ok((settings, built)) => {
            tracing::info!(in_use = &*built.in_use, "read the certificates for TLS");
            let config = built.config.clone();
            *security.cache.tls.lock() = Some(Loaded { settings, stamps, built });
            *security.cache.outdated.lock() = None;
            Ok(config)
        }
        Err(reason) => match former {
            Some(former) => {
                tracing::error!(
                    reason,
                    in_use = &*former.built.in_use,
                    "changed certificates cannot be used; the previous ones stay in use"
                );
                *security.cache.outdated.lock() = Some(reason.into());
                Ok(former.built.config)
            }
            None => Err(reason),
        },
    }
}

fn stamps(ssl: &SslConfig) -> Vec<Stamp> {
    let files = [&ssl.truststore.location, &ssl.keystore.location];
    let stamp = |path: &PathBuf| {
        let metadata = fs::metadata(path).ok();
        Stamp {
            modified: metadata.as_ref().and_then(|m| m.modified().ok()),
            length: metadata.as_ref().map(fs::Metadata::len),
        }
    };
    files.into_iter().flatten().map(stamp).collect()
}

/// Builds the configuration from the settings and the current files. Blocks.
pub(super) fn build(ssl: &SslConfig) -> Result<Built, String> {
    let versions = ssl.versions().map(|version| -> &'static SupportedProtocolVersion {
        match version {
            TlsVersion::V12 => &TLS12,
            TlsVersion::V13 => &TLS13,
        }
    });
    let suites = ssl.cipher_suites.iter().map(|suite| suite.number().into());
    let terms = Terms { versions: versions.collect(), suites: suites.collect() };
    let (trusted, identity) = (trusted(ssl)?, identity(ssl)?);
    let in_use = in_use(&trusted, identity.as_ref());
    let config = client_config(trusted, ssl.endpoint_identification, identity, terms)
        .map_err(|error| format!("the certificates of ssl.keystore.* cannot be used: {error}"))?;
    Ok(Built { config, in_use })
}

fn in_use(trusted: &RootCertStore, identity: Option<&Identity>) -> Arc<str> {
    let own = identity.and_then(Identity::certificate).map(|certificate| {
        let digest = Sha256::digest(certificate);
        let octets: Vec<String> = digest.iter().map(|octet| format!("{octet:02X}")).collect();
        format!(", own certificate with SHA-256 fingerprint {}", octets.join(":"))
    });
    format!("{} trusted certificates{}", trusted.len(), own.unwrap_or_default()).into()
}

fn trusted(ssl: &SslConfig) -> Result<RootCertStore, String> {
    let certificates = if let Some(text) = &ssl.truststore_certificates {
        let read = certificates_from_pem(text.as_bytes());
        read.map_err(|error| format!("ssl.truststore.certificates: {error}"))?
    } else if let Some(path) = &ssl.truststore.location {
        let (kind, bytes) = read("ssl.truststore", &ssl.truststore, path)?;
        let certificates = match kind {
            StoreType::Pem => certificates_from_pem(&bytes),
            StoreType::Pkcs12 => certificates_from_pkcs12(&bytes, password(&ssl.truststore)),
        };
        certificates.map_err(|error| about("ssl.truststore.location", path, &error))?
    } else {
        rustls_native_certs::load_native_certs().certs
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates);
    if roots.is_empty() {
        return Err(
            "no certificate is trusted: the platform has none that can be used; set ssl.truststore.location"
                .into(),
        );
    }
    Ok(roots)
}

fn identity(ssl: &SslConfig) -> Result<Option<Identity>, String> {
    let key_password = ssl.key_password.as_ref().map(Secret::reveal);
    if let (Some(chain), Some(key)) = (&ssl.keystore_certificate_chain, &ssl.keystore_key) {
        let identity = Identity::from_pem(chain.as_bytes(), key.reveal().as_bytes(), key_password);
        let identity = identity.map_err(|error| {
            format!(
                "ssl.keystore.certificate.chain, ssl.keystore.key and ssl.key.password: {error}"
            )
        });
        return identity.map(Some);
    }
    let Some(path) = &ssl.keystore.location else { return Ok(None) };
    let (kind, bytes) = read("ssl.keystore", &ssl.keystore, path)?;
    let identity = match kind {
        StoreType::Pem => Identity::from_pem(&bytes, &bytes, key_password),
        StoreType::Pkcs12 => Identity::from_pkcs12(&bytes, password(&ssl.keystore)),
    };
    identity.map(Some).map_err(|error| about("ssl.keystore.location", path, &error))
}

fn password(store: &Store) -> &str {
    store.password.as_ref().map_or("", Secret::reveal)
}

fn about(setting: &str, path: &Path, error: &MaterialError) -> String {
    format!("{setting}={}: {error}", path.display())
}

/// Reads a file, and detects its type if none is configured.
fn read(setting: &str, store: &Store, path: &Path) -> Result<(StoreType, Vec<u8>), String> {
    const JKS: [u8; 4] = [0xfe, 0xed, 0xfe, 0xed];
    let location = format!("{setting}.location={}", path.display());
    let bytes = fs::read(path).map_err(|error| format!("{location}: {error}"))?;
    if bytes.starts_with(&JKS) {
        return Err(format!(
            "{location} is a JKS file; convert it with 'keytool -importkeystore -srckeystore {} -destkeystore {0}.p12 -deststoretype PKCS12'",
            path.display()
        ));
    }
    let looks = if bytes.first() == Some(&0x30) { StoreType::Pkcs12 } else { StoreType::Pem };
    Ok((store.kind.unwrap_or(looks), bytes))
}

fn refused(peer: &Arc<str>, host: &str, ssl: &SslConfig, error: &rustls::Error) -> Error {
    authentication_error(peer, session_problem(Peer::Broker, host, ssl, error))
}

/// The remote side of a TLS connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    Broker,
    #[cfg_attr(not(feature = "oidc"), expect(dead_code))]
    TokenEndpoint,
    #[cfg(feature = "aws-msk-iam")]
    Aws,
}

impl Peer {
    fn name(self) -> &'static str {
        match self {
            Self::Broker => "the broker",
            Self::TokenEndpoint => "the token endpoint",
            #[cfg(feature = "aws-msk-iam")]
            Self::Aws => "AWS",
        }
    }

    /// The setting that has the settings of TLS, for an error's begin.
    #[cfg(feature = "oidc")]
    pub(super) fn settings(self) -> &'static str {
        match self {
            Self::TokenEndpoint => "sasl.jaas.config: ",
            _ => "",
        }
    }

    /// The trusted certificates' source, and its setting.
    fn trusted(self, ssl: &SslConfig) -> String {
        match (&ssl.truststore.location, &ssl.truststore_certificates, self) {
            (Some(path), _, _) => format!("ssl.truststore.location={}", path.display()),
            (None, Some(_), _) => "ssl.truststore.certificates".into(),
            (None, None, Self::Broker) => {
                "the platform's certificates; set ssl.truststore.location".into()
            }
            (None, None, Self::TokenEndpoint) => {
                "the platform's certificates; set ssl.truststore.location among the options of sasl.jaas.config".into()
            }
            #[cfg(feature = "aws-msk-iam")]
            (None, None, Self::Aws) => "the platform's certificates".into(),
        }
    }
}

/// Explains a failed handshake, with the remedy.
pub(super) fn session_problem(
    peer: Peer,
    host: &str,
    ssl: &SslConfig,
    error: &rustls::Error,
) -> String {
    let who = peer.name();
    match error {
        rustls::Error::InvalidCertificate(problem) => {
            certificate_problem(who, problem, host, &peer.trusted(ssl))
        }
        rustls::Error::AlertReceived(alert) => alert_problem(who, *alert, ssl),
        rustls::Error::InvalidMessage(_) if peer == Peer::Broker => {
            "the server does not speak TLS, but security.protocol requires it; check the port, or set security.protocol to the listener's".into()
        }
        rustls::Error::InvalidMessage(_) => "the server does not speak TLS".into(),
        rustls::Error::PeerIncompatible(
            PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::ServerDoesNotSupportTls12Or13,
        ) => no_common_version(who),
        other => format!("TLS failed: {other}"),
    }
}

fn no_common_version(who: &str) -> String {
    format!("{who} supports no TLS version of ssl.enabled.protocols and ssl.protocol")
}

fn certificate_problem(who: &str, problem: &CertificateError, host: &str, trust: &str) -> String {
    match problem {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("{who}'s certificate has expired; it must be renewed there")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("{who}'s certificate is not valid yet; check the clocks")
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            format!("{who}'s certificate is not signed by a trusted authority ({trust})")
        }
        CertificateError::NotValidForName => wrong_host(who, host, &[]),
        CertificateError::NotValidForNameContext { presented, .. } => {
            wrong_host(who, host, presented)
        }
        other => format!("{who}'s certificate is not accepted: {other}"),
    }
}

fn wrong_host(who: &str, host: &str, names: &[String]) -> String {
    // Names arrive as `DnsName("host")` and `IpAddress(127.0.0.1)`.
    let bare = |name: &String| {
        let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
        inner.unwrap_or(name).trim_matches('"').to_owned()
    };
    let names: Vec<String> = names.iter().map(bare).collect();
    let names = if names.is_empty() { "another host".into() } else { names.join(", ") };
    format!(
        "{who}'s certificate is for {names} and not for '{host}'; connect by one of these names, or leave ssl.endpoint.identification.algorithm empty to accept any"
    )
}

fn alert_problem(who: &str, alert: AlertDescription, ssl: &SslConfig) -> String {
    let has_identity = ssl.keystore.location.is_some() || ssl.keystore_key.is_some();
    match alert {
        AlertDescription::CertificateRequired => {
            format!("{who} asks for a client certificate; set ssl.keystore.location")
        }
        // A server without a common cipher suite also sends this alert.
        AlertDescription::HandshakeFailure if !ssl.cipher_suites.is_empty() => format!(
            "{who} refuses the TLS handshake; it may have none of ssl.cipher.suites, or ask for a client certificate (ssl.keystore.location)"
        ),
        AlertDescription::BadCertificate | AlertDescription::HandshakeFailure if !has_identity => {
            format!(
                "{who} refuses the TLS handshake; if it asks for a client certificate, set ssl.keystore.location"
            )
        }
        AlertDescription::UnknownCA
        | AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateRevoked
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::AccessDenied
            if has_identity =>
        {
            format!("{who} does not accept the certificate of ssl.keystore.* ({alert:?})")
        }
        AlertDescription::ProtocolVersion => no_common_version(who),
        other => format!("{who} refuses the TLS handshake ({other:?})"),
    }
}
