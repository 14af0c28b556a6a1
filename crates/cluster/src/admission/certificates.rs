//! Certificates: the brokers' own, created here or configured, and the names in those of clients.
//!
//! Certificates are created once per data directory. There is an authority, with its certificate in
//! `ca.pem`, and the brokers' key and certificate in `broker.pem`. The authority's key is
//! discarded, so that it can never sign again.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use curtail_net::tls::{
    self, Identity, MaterialError, RootCertStore, ServerConfig, TLS12, TLS13, certificates_from_pem,
};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use x509_parser::prelude::{FromDer, X509Certificate, X509Name};

use crate::{
    config::{ClientAuth, ClusterConfig, Endpoint, Password},
    error::ClusterError,
    private_file,
};

/// The certificate that clients must trust, if the cluster has created its certificates.
const CA_FILE: &str = "ca.pem";
/// The brokers' private key and certificate; the first line lists the names in the certificate.
const BROKER_FILE: &str = "broker.pem";

/// The brokers' TLS configuration.
pub(super) struct Material {
    pub(super) server: Arc<ServerConfig>,
    /// The file with the certificate to trust, if the cluster has created it.
    pub(super) ca_file: Option<PathBuf>,
}

impl Material {
    /// `dir` stores the cluster's own certificates; without it they exist in memory only.
    pub(super) fn new(config: &ClusterConfig, dir: Option<&Path>) -> Result<Self, ClusterError> {
        let security = &config.security;
        let (identity, ca_file) = match &security.key_store {
            Some(path) => (given(path, security.key_password.as_ref())?, None),
            None => {
                let made = own(&names(config)?, dir)?;
                (made, dir.map(|dir| dir.join(CA_FILE)))
            }
        };
        let trusted = || match &security.trust_store {
            Some(path) => roots(path),
            None => Ok(RootCertStore::empty()),
        };
        let clients = match security.client_auth {
            ClientAuth::None => tls::ClientAuth::None,
            ClientAuth::Requested => tls::ClientAuth::Requested(trusted()?),
            ClientAuth::Required => tls::ClientAuth::Required(trusted()?),
        };
        let server = tls::server_config(identity, clients, &[&TLS12, &TLS13]);
        let of = security.key_store.clone().or_else(|| dir.map(Path::to_owned));
        let server = server.map_err(|source| unusable(&of.unwrap_or_default(), &source))?;
        Ok(Self { server, ca_file })
    }
}

fn unusable(path: &Path, reason: &MaterialError) -> ClusterError {
    let reason = match reason {
        MaterialError::PasswordNeeded => {
            "the private key is encrypted; ssl.key.password opens it".to_owned()
        }
        other => other.to_string(),
    };
    ClusterError::Certificates { path: path.to_owned(), reason }
}

fn read(path: &Path) -> Result<Vec<u8>, ClusterError> {
    let failed = |error: io::Error| ClusterError::Certificates {
        path: path.to_owned(),
        reason: error.to_string(),
    };
    fs::read(path).map_err(failed)
}

fn given(path: &Path, password: Option<&Password>) -> Result<Identity, ClusterError> {
    let text = read(path)?;
    let password = password.map(Password::text);
    Identity::from_pem(&text, &text, password).map_err(|reason| unusable(path, &reason))
}

fn roots(path: &Path) -> Result<RootCertStore, ClusterError> {
    let certificates = certificates_from_pem(&read(path)?);
    let mut roots = RootCertStore::empty();
    for certificate in certificates.map_err(|reason| unusable(path, &reason))? {
        let added = roots.add(certificate);
        added.map_err(|error| unusable(path, &MaterialError::Unusable(error.to_string())))?;
    }
    Ok(roots)
}

/// Returns the hosts that clients may dial.
fn names(config: &ClusterConfig) -> Result<Vec<String>, ClusterError> {
    let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(str::to_owned).into();
    for id in config.broker_ids() {
        let listeners = config.listeners_of(id)?;
        let secured = listeners.iter().filter(|listener| listener.protocol.has_tls());
        for listener in secured {
            let listening = Endpoint::new(&listener.host, listener.port);
            for endpoint in [Some(&listener.advertised), listening.as_ref()].into_iter().flatten() {
                if !names.iter().any(|name| name == endpoint.host()) {
                    names.push(endpoint.host().to_owned());
                }
            }
        }
    }
    Ok(names)
}

/// Returns the brokers' certificate of an earlier run if it has the same names; otherwise creates
/// one.
fn own(names: &[String], dir: Option<&Path>) -> Result<Identity, ClusterError> {
    let head = format!("# {}\n", names.join(" "));
    let failed = |reason: String| ClusterError::Certificates {
        path: dir.unwrap_or(Path::new("memory")).to_owned(),
        reason,
    };
    if let Some(dir) = dir
        && dir.join(CA_FILE).exists()
        && let Ok(text) = fs::read(dir.join(BROKER_FILE))
        && text.starts_with(head.as_bytes())
    {
        return Identity::from_pem(&text, &text, None)
            .map_err(|reason| unusable(&dir.join(BROKER_FILE), &reason));
    }
    let made = make(names).map_err(|error| failed(error.to_string()))?;
    if let Some(dir) = dir {
        made.write(dir, &head).map_err(|error| failed(error.to_string()))?;
    }
    Identity::from_pem(made.chain.as_bytes(), made.key.as_bytes(), None)
        .map_err(|reason| failed(reason.to_string()))
}

/// Created certificates and key, as PEM texts.
struct Made {
    ca: String,
    chain: String,
    key: String,
}

fn make(names: &[String]) -> Result<Made, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, "Curtail embedded cluster CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate()?;
    let ca = params.self_signed(&key)?.pem();
    let issuer = Issuer::new(params, key);

    let mut params = CertificateParams::new(names.to_vec())?;
    params.distinguished_name.push(DnType::CommonName, "Curtail embedded cluster");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let chain = params.signed_by(&key, &issuer)?.pem();
    Ok(Made { ca, chain, key: key.serialize_pem() })
}

impl Made {
    /// Writes the authority's certificate last: if it is missing, the next run creates everything
    /// again.
    fn write(&self, dir: &Path, head: &str) -> io::Result<()> {
        fs::create_dir_all(dir)?;
        let ca = dir.join(CA_FILE);
        if ca.exists() {
            fs::remove_file(&ca)?;
        }
        let broker = dir.join(BROKER_FILE);
        private_file::write(&broker, &format!("{head}{}{}", self.key, self.chain))?;
        fs::write(ca, &self.ca)
    }
}

/// Returns the subject of a client's certificate in the notation of RFC 2253, last part first, as
/// Java does; `None` if it is unreadable.
pub(super) fn subject(certificate: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(rfc2253(certificate.subject()))
}

fn rfc2253(name: &X509Name<'_>) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in name.iter_rdn() {
        let attributes = part.iter().map(|attribute| {
            let oid = attribute.attr_type().to_id_string();
            let short = match oid.as_str() {
                "2.5.4.3" => "CN",
                "2.5.4.6" => "C",
                "2.5.4.7" => "L",
                "2.5.4.8" => "ST",
                "2.5.4.9" => "STREET",
                "2.5.4.10" => "O",
                "2.5.4.11" => "OU",
                "0.9.2342.19200300.100.1.1" => "UID",
                "0.9.2342.19200300.100.1.25" => "DC",
                _ => oid.as_str(),
            };
            match attribute.as_str() {
                Ok(value) if short != oid => format!("{short}={}", escaped(value)),
                _ => format!("{short}={}", hex(attribute.as_slice())),
            }
        });
        parts.push(attributes.collect::<Vec<_>>().join("+"));
    }
    parts.reverse();
    parts.join(",")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("#".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let last = value.chars().count().saturating_sub(1);
    for (at, c) in value.chars().enumerate() {
        let outer = (at == 0 && matches!(c, ' ' | '#')) || (at == last && c == ' ');
        if outer || matches!(c, ',' | '+' | '"' | '\\' | '<' | '>' | ';') {
            text.push('\\');
        }
        text.push(c);
    }
    text
}
