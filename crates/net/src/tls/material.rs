//! Certificates and private keys in PEM, with plaintext or encrypted keys. `pkcs12` reads stores.

use std::fmt;

#[cfg(feature = "encrypted-keys")]
use pkcs8::EncryptedPrivateKeyInfoRef;
#[cfg(feature = "encrypted-keys")]
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{self, PemObject as _},
};

/// Why certificates or a key cannot be used. Contains no part of the key or the password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MaterialError {
    /// The text is not PEM.
    #[error("not PEM: {0}")]
    Pem(String),
    /// The text contains no certificate.
    #[error("no certificate (BEGIN CERTIFICATE) in it")]
    NoCertificate,
    /// The text contains no private key.
    #[error("no private key (BEGIN PRIVATE KEY or BEGIN ENCRYPTED PRIVATE KEY) in it")]
    NoKey,
    /// The key is encrypted, and no password was given.
    #[error("the private key is encrypted; its password is needed")]
    PasswordNeeded,
    /// The key is encrypted in the format of old OpenSSL versions.
    #[error(
        "the private key is encrypted in OpenSSL's old format; convert it with 'openssl pkcs8 -topk8 -v2 aes256'"
    )]
    OldEncryption,
    /// The password is wrong, or the key's encryption is unsupported.
    #[error(
        "the private key cannot be decrypted: the password is wrong, or the encryption is not PBES2"
    )]
    Decryption,
    /// The certificate or key store cannot be read.
    #[error("{0}")]
    Store(String),
    /// This build cannot read the format; the name is that of the missing cargo feature.
    #[error("this build cannot read it; add the cargo feature '{0}'")]
    NotBuilt(&'static str),
    /// Key and certificates do not match, or their type is unsupported.
    #[error("{0}")]
    Unusable(String),
}

/// An identity for one side of TLS: its certificate, the chain to a trusted one, and its private
/// key.
pub struct Identity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

impl Identity {
    /// Creates an identity from a certificate with its chain, and its private key.
    #[must_use]
    pub fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Self {
        Self { chain, key }
    }

    /// The identity's own certificate, without its chain.
    #[must_use]
    pub fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.chain.first()
    }

    /// Reads an identity from PEM texts; both may be the same text. `password` decrypts an
    /// encrypted key (PKCS#8 with PBES2).
    ///
    /// # Errors
    /// See [`MaterialError`].
    pub fn from_pem(
        chain: &[u8],
        key: &[u8],
        password: Option<&str>,
    ) -> Result<Self, MaterialError> {
        Ok(Self { chain: certificates_from_pem(chain)?, key: key_from_pem(key, password)? })
    }

    /// The certificate and its chain.
    #[must_use]
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }
}

impl Clone for Identity {
    fn clone(&self) -> Self {
        Self { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("certificates", &self.chain.len()).finish_non_exhaustive()
    }
}

/// Returns all certificates of a PEM text, at least one.
///
/// # Errors
/// The text is not PEM, or has no certificate.
pub fn certificates_from_pem(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, MaterialError> {
    let text = on_lines(text);
    let certificates = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|error| MaterialError::Pem(error.to_string()))?;
    if certificates.is_empty() {
        return Err(MaterialError::NoCertificate);
    }
    Ok(certificates)
}

/// Decrypts a PEM key.
#[cfg(not(feature = "encrypted-keys"))]
fn decrypted(_: &[u8], _: &str) -> Result<PrivateKeyDer<'static>, MaterialError> {
    Err(MaterialError::NotBuilt("encrypted-keys"))
}

/// Decrypts a PEM key.
#[cfg(feature = "encrypted-keys")]
fn decrypted(text: &[u8], password: &str) -> Result<PrivateKeyDer<'static>, MaterialError> {
    let text = std::str::from_utf8(text).map_err(|error| MaterialError::Pem(error.to_string()))?;
    // The PEM parser does not know this section's label, so the label is replaced.
    let relabelled = text.replace("ENCRYPTED PRIVATE KEY", "PRIVATE KEY");
    let document = PrivatePkcs8KeyDer::from_pem_slice(relabelled.as_bytes())
        .map_err(|error| MaterialError::Pem(error.to_string()))?;
    let info = EncryptedPrivateKeyInfoRef::try_from(document.secret_pkcs8_der())
        .map_err(|_| MaterialError::Decryption)?;
    let clear = info.decrypt(password).map_err(|_| MaterialError::Decryption)?;
    Ok(PrivatePkcs8KeyDer::from(clear.as_bytes().to_vec()).into())
}

pub(super) fn key_from_pem(
    text: &[u8],
    password: Option<&str>,
) -> Result<PrivateKeyDer<'static>, MaterialError> {
    const ENCRYPTED: &[u8] = b"-----BEGIN ENCRYPTED PRIVATE KEY-----";
    let text = on_lines(text);
    if contains(&text, b"Proc-Type: 4,ENCRYPTED") {
        return Err(MaterialError::OldEncryption);
    }
    if contains(&text, ENCRYPTED) {
        return decrypted(&text, password.ok_or(MaterialError::PasswordNeeded)?);
    }
    match PrivateKeyDer::from_pem_slice(&text) {
        Ok(key) => Ok(key),
        Err(pem::Error::NoItemsFound) => Err(MaterialError::NoKey),
        Err(error) => Err(MaterialError::Pem(error.to_string())),
    }
}

/// Puts section markers on separate lines. Kafka accepts a property with the whole text on one line
/// and spaces as line breaks.
fn on_lines(text: &[u8]) -> Vec<u8> {
    const DASHES: &[u8] = b"-----";
    let mut lines = Vec::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(&first) = rest.first() {
        let begins = rest.starts_with(b"-----BEGIN ") || rest.starts_with(b"-----END ");
        let length = rest[DASHES.len().min(rest.len())..]
            .windows(DASHES.len())
            .position(|window| window == DASHES)
            .filter(|_| begins);
        match length {
            Some(length) => {
                let (marker, after) = rest.split_at(length + 2 * DASHES.len());
                lines.push(b'\n');
                lines.extend_from_slice(marker);
                lines.push(b'\n');
                rest = after;
            }
            None => {
                lines.push(first);
                rest = &rest[1..];
            }
        }
    }
    lines
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
