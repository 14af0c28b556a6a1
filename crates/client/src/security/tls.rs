//! TLS of a connection: files to configurations, failures to words.

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
        TLS12, TLS13, TlsError, TlsSocket, certificates_from_pem, certificates_from_pkcs12,
        client_config,
        rustls::{self, AlertDescription, CertificateError, PeerIncompatible},
    },
};

use crate::{
    CommonConfig, Error, Result, Secret, SslConfig, Store, StoreType, TlsVersion,
    conn::{authentication_error, connection_error},
};

/// A configuration, and what it was made from.
#[derive(Clone)]
pub(super) struct Loaded {
    settings: SslConfig,
    stamps: Vec<Stamp>,
    config: Arc<ClientConfig>,
}

/// Whether a file is still the one that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    length: Option<u64>,
}

/// Shakes hands with the broker over `socket`.
pub(crate) async fn secure(
    common: &CommonConfig,
    socket: Box<dyn Socket>,
    host: &str,
    peer: &Arc<str>,
) -> Result<Box<dyn Socket>> {
    let ssl = &common.security.ssl;
    let config = load(common).await.map_err(|reason| authentication_error(peer, reason))?;
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| authentication_error(peer, format!("'{host}' is no name for a TLS server")))?;
    let limit = common.connection_setup_timeout;
    match TlsSocket::connect(socket, config, name, limit).await {
        Ok(secured) => Ok(Box::new(secured)),
        Err(TlsError::Session(error)) => Err(refused(peer, host, ssl, &error)),
        Err(other) => Err(connection_error(peer, other)),
    }
}

/// What an error of a connection's socket means; `None` if it is one of the network.
pub(crate) fn session_error(peer: &Arc<str>, ssl: &SslConfig, error: &io::Error) -> Option<Error> {
    let error = curtail_net::tls::session_error(error)?;
    Some(refused(peer, "", ssl, error))
}

/// The configuration as the files are. One that cannot be used any more is passed over in favour of the one before.
async fn load(common: &CommonConfig) -> Result<Arc<ClientConfig>, String> {
    let security = &common.security;
    let stamps = stamps(&security.ssl);
    let former = security.cache.tls.lock().clone().filter(|l| l.settings == security.ssl);
    if let Some(former) = &former
        && former.stamps == stamps
    {
        return Ok(former.config.clone());
    }
    let settings = security.ssl.clone();
    let built = tokio::task::spawn_blocking(move || build(&settings).map(|c| (settings, c))).await;
    match built.map_err(|error| error.to_string()).and_then(|built| built) {
        Ok((settings, config)) => {
            let loaded = Loaded { settings, stamps, config: config.clone() };
            *security.cache.tls.lock() = Some(loaded);
            Ok(config)
        }
        Err(reason) => match former {
            Some(former) => {
                tracing::warn!(
                    reason,
                    "certificates have changed and cannot be used; the former ones are"
                );
                Ok(former.config)
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

fn build(ssl: &SslConfig) -> Result<Arc<ClientConfig>, String> {
    let versions: Vec<&'static SupportedProtocolVersion> = ssl
        .enabled_protocols
        .iter()
        .map(|version| match version {
            TlsVersion::V12 => &TLS12,
            TlsVersion::V13 => &TLS13,
        })
        .collect();
    client_config(trusted(ssl)?, ssl.endpoint_identification, identity(ssl)?, &versions)
        .map_err(|error| format!("the certificates of ssl.keystore.* cannot be used: {error}"))
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

/// The file, and what it is if nobody says so.
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
    let trust = match (&ssl.truststore.location, &ssl.truststore_certificates) {
        (Some(path), _) => format!("ssl.truststore.location={}", path.display()),
        (None, Some(_)) => "ssl.truststore.certificates".into(),
        (None, None) => "the platform's certificates; set ssl.truststore.location".into(),
    };
    let reason = match error {
        rustls::Error::InvalidCertificate(problem) => certificate_problem(problem, host, &trust),
        rustls::Error::AlertReceived(alert) => alert_problem(*alert, ssl),
        rustls::Error::InvalidMessage(_) => {
            "what listens there does not speak TLS, and security.protocol asks for it; check the port, or set security.protocol to the listener's".into()
        }
        rustls::Error::PeerIncompatible(
            PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::ServerDoesNotSupportTls12Or13,
        ) => "the broker speaks no version of TLS that ssl.enabled.protocols has".into(),
        other => format!("TLS failed: {other}"),
    };
    authentication_error(peer, reason)
}

fn certificate_problem(problem: &CertificateError, host: &str, trust: &str) -> String {
    match problem {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the broker's certificate has expired; it has to be renewed there".into()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the broker's certificate is not valid yet; check the clocks".into()
        }
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            format!("the broker's certificate leads to none that is trusted ({trust})")
        }
        CertificateError::NotValidForName => wrong_host(host, &[]),
        CertificateError::NotValidForNameContext { presented, .. } => wrong_host(host, presented),
        other => format!("the broker's certificate is not accepted: {other}"),
    }
}

fn wrong_host(host: &str, names: &[String]) -> String {
    // They come as `DnsName("host")` and `IpAddress(127.0.0.1)`.
    let bare = |name: &String| {
        let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
        inner.unwrap_or(name).trim_matches('"').to_owned()
    };
    let names: Vec<String> = names.iter().map(bare).collect();
    let names = if names.is_empty() { "another host".into() } else { names.join(", ") };
    format!(
        "the broker's certificate is for {names} and not for '{host}'; dial a name that it has, or leave ssl.endpoint.identification.algorithm empty to accept any"
    )
}

fn alert_problem(alert: AlertDescription, ssl: &SslConfig) -> String {
    let has_identity = ssl.keystore.location.is_some() || ssl.keystore_key.is_some();
    match alert {
        AlertDescription::CertificateRequired => {
            "the broker asks for a client certificate; set ssl.keystore.location".into()
        }
        AlertDescription::BadCertificate | AlertDescription::HandshakeFailure if !has_identity => {
            "the broker refuses the TLS handshake; if it asks for a client certificate, set ssl.keystore.location".into()
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
            format!("the broker does not accept the certificate of ssl.keystore.* ({alert:?})")
        }
        AlertDescription::ProtocolVersion => {
            "the broker speaks no version of TLS that ssl.enabled.protocols has".into()
        }
        other => format!("the broker refuses the TLS handshake ({other:?})"),
    }
}
