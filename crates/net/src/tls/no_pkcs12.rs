//! Replaces `pkcs12` in builds without the feature: every store is refused.

use rustls::pki_types::CertificateDer;

use super::{Identity, MaterialError};

const REFUSED: MaterialError = MaterialError::NotBuilt("pkcs12");

impl Identity {
    /// Refuses the store.
    ///
    /// # Errors
    /// [`MaterialError::NotBuilt`].
    pub fn from_pkcs12(_: &[u8], _: &str) -> Result<Self, MaterialError> {
        Err(REFUSED)
    }
}

/// Refuses the store.
///
/// # Errors
/// [`MaterialError::NotBuilt`].
pub fn certificates_from_pkcs12(
    _: &[u8],
    _: &str,
) -> Result<Vec<CertificateDer<'static>>, MaterialError> {
    Err(REFUSED)
}
