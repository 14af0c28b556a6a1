//! PKCS#12 stores, as `keytool` and OpenSSL write them.

use p12_keystore::{KeyStore, KeyStoreEntry, Pkcs12ImportPolicy};
use pkcs8::{
    ObjectIdentifier, PrivateKeyInfoRef,
    der::{
        self, Decode as _, Encode as _, Reader as _, SliceReader, Tag, TagMode, TagNumber,
        Tagged as _,
        asn1::{AnyRef, BitStringRef, ContextSpecific, OctetStringRef},
    },
    spki::SubjectPublicKeyInfoRef,
};
use rustls::{
    pki_types::{CertificateDer, PrivatePkcs8KeyDer},
    server::ParsedCertificate,
};

use super::{Identity, MaterialError};

impl Identity {
    /// Reads an identity from a PKCS#12 store written by `keytool` or OpenSSL: its private key and
    /// the key's certificate chain.
    ///
    /// # Errors
    /// The store cannot be read with this password, or has no private key with a certificate.
    pub fn from_pkcs12(store: &[u8], password: &str) -> Result<Self, MaterialError> {
        let store = open(store, password)?;
        let identities = store.entries().filter_map(|(_, entry)| match entry {
            KeyStoreEntry::PrivateKeyChain(identity) => Some(identity),
            _ => None,
        });
        let none = || MaterialError::Store("no private key with a certificate in it".into());
        let identity = identities.into_iter().next().ok_or_else(none)?;
        let chain = identity.certs().iter().map(|c| CertificateDer::from(c.as_der().to_vec()));
        let chain: Vec<_> = chain.collect();
        let key = identity.key().as_der();
        let whole = chain.first().and_then(|own| with_public_half(key, own));
        let key = PrivatePkcs8KeyDer::from(whole.unwrap_or_else(|| key.to_vec()));
        Ok(Self { chain, key: key.into() })
    }
}

/// Returns all certificates that a PKCS#12 store marks as trusted, as `keytool -importcert` does.
///
/// # Errors
/// The store cannot be read with this password, or has no trusted certificate.
pub fn certificates_from_pkcs12(
    store: &[u8],
    password: &str,
) -> Result<Vec<CertificateDer<'static>>, MaterialError> {
    let store = open(store, password)?;
    let trusted = store.entries().filter_map(|(_, entry)| match entry {
        KeyStoreEntry::Certificate(certificate) => {
            Some(CertificateDer::from(certificate.as_der().to_vec()))
        }
        _ => None,
    });
    let trusted: Vec<_> = trusted.collect();
    if trusted.is_empty() {
        let reason = "no trusted certificate in it; add one with 'keytool -importcert'";
        return Err(MaterialError::Store(reason.into()));
    }
    Ok(trusted)
}

fn open(store: &[u8], password: &str) -> Result<KeyStore, MaterialError> {
    KeyStore::from_pkcs12(store, password, Pkcs12ImportPolicy::Strict).map_err(|error| {
        MaterialError::Store(format!("not a PKCS#12 store, or not with this password: {error}"))
    })
}

/// Adds the public half to an elliptic curve's private key; `None` for any other key.
///
/// Java omits the public half, and ring requires it. A certificate of another key is detected when
/// the two are used.
fn with_public_half(key: &[u8], certificate: &CertificateDer<'_>) -> Option<Vec<u8>> {
    const EC_PUBLIC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
    let info = PrivateKeyInfoRef::try_from(key).ok()?;
    if info.algorithm.oid != EC_PUBLIC_KEY {
        return None;
    }
    let certificate = ParsedCertificate::try_from(certificate).ok()?;
    let public = certificate.subject_public_key_info();
    let public = SubjectPublicKeyInfoRef::try_from(public.as_ref()).ok()?;
    let half = with_public_key(info.private_key.as_bytes(), public.subject_public_key).ok()??;
    PrivateKeyInfoRef::new(info.algorithm, OctetStringRef::new(&half).ok()?).to_der().ok()
}

/// Appends the public key, the last field of RFC 5915's ECPrivateKey; `None` if the key already has
/// it.
fn with_public_key(key: &[u8], public: BitStringRef<'_>) -> der::Result<Option<Vec<u8>>> {
    const PUBLIC_KEY: TagNumber = TagNumber(1);
    let fields = AnyRef::from_der(key)?;
    fields.tag().assert_eq(Tag::Sequence)?;
    let mut reader = SliceReader::new(fields.value())?;
    while !reader.is_finished() {
        let field: AnyRef<'_> = reader.decode()?;
        if field.tag() == (Tag::ContextSpecific { constructed: true, number: PUBLIC_KEY }) {
            return Ok(None);
        }
    }
    let last =
        ContextSpecific { tag_number: PUBLIC_KEY, tag_mode: TagMode::Explicit, value: public };
    let fields = [fields.value(), &last.to_der()?].concat();
    AnyRef::new(Tag::Sequence, &fields)?.to_der().map(Some)
}
