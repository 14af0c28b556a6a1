//! Private keys that sign JSON Web Tokens (RFC 7515), with ring.

#[cfg(test)]
mod tests;

use std::fmt;

use ring::{
    error::KeyRejected,
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, RSA_PKCS1_SHA256, RsaKeyPair},
};
use rustls::pki_types::PrivateKeyDer;

use super::{MaterialError, material::key_from_pem};
use crate::SigningAlgorithm;

/// A private key for one algorithm.
pub struct SigningKey(Key);

enum Key {
    Rsa(RsaKeyPair),
    Ecdsa(EcdsaKeyPair),
}

impl SigningKey {
    /// Reads a key from a PEM text. `password` decrypts an encrypted key (PKCS#8 with PBES2).
    ///
    /// # Errors
    /// The text has no key that can be read, or the key is not one for `algorithm`.
    pub fn from_pem(
        text: &[u8],
        password: Option<&str>,
        algorithm: SigningAlgorithm,
    ) -> Result<Self, MaterialError> {
        let key = key_from_pem(text, password)?;
        let random = SystemRandom::new();
        let read = match (algorithm, &key) {
            (SigningAlgorithm::Rs256, PrivateKeyDer::Pkcs8(key)) => {
                RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).map(Key::Rsa)
            }
            (SigningAlgorithm::Rs256, PrivateKeyDer::Pkcs1(key)) => {
                RsaKeyPair::from_der(key.secret_pkcs1_der()).map(Key::Rsa)
            }
            (SigningAlgorithm::Es256, PrivateKeyDer::Pkcs8(key)) => {
                let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
                EcdsaKeyPair::from_pkcs8(algorithm, key.secret_pkcs8_der(), &random).map(Key::Ecdsa)
            }
            (SigningAlgorithm::Es256, PrivateKeyDer::Sec1(_)) => {
                return Err(MaterialError::Unusable(
                    "the key is in the format SEC1 (BEGIN EC PRIVATE KEY); convert it with 'openssl pkcs8 -topk8 -nocrypt'"
                        .into(),
                ));
            }
            _ => return Err(wrong(algorithm, "of another type")),
        };
        read.map(Self).map_err(|error| rejected(algorithm, &error))
    }

    /// Signs a message. An ECDSA signature is the concatenation of its two numbers, as RFC 7518 requires.
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, MaterialError> {
        let random = SystemRandom::new();
        let signed = match &self.0 {
            Key::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).map(|()| signature)
            }
            Key::Ecdsa(key) => key.sign(&random, message).map(|signed| signed.as_ref().to_vec()),
        };
        signed.map_err(|_| MaterialError::Unusable("the key cannot sign".into()))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey")
    }
}

fn wrong(algorithm: SigningAlgorithm, found: &str) -> MaterialError {
    let (name, key) = (algorithm.name(), key_of(algorithm));
    MaterialError::Unusable(format!("{name} needs {key}; this key is {found}"))
}

/// ring names a reason by a word such as `WrongAlgorithm`.
fn rejected(algorithm: SigningAlgorithm, error: &KeyRejected) -> MaterialError {
    let found = match error.to_string().as_str() {
        "WrongAlgorithm" => "of another type".to_owned(),
        "TooSmall" => "too small".to_owned(),
        "TooLarge" => "too large".to_owned(),
        // Java writes EC keys without the public key.
        word if algorithm == SigningAlgorithm::Es256 => format!(
            "damaged or lacks its public key ({word}); add it with 'openssl ec -in FILE | openssl pkcs8 -topk8 -nocrypt'"
        ),
        word => format!("damaged or of another type ({word})"),
    };
    wrong(algorithm, &found)
}

/// The kind of key that the algorithm needs.
fn key_of(algorithm: SigningAlgorithm) -> &'static str {
    match algorithm {
        SigningAlgorithm::Rs256 => "an RSA key of 2048 to 4096 bits",
        SigningAlgorithm::Es256 => "an EC key of the curve P-256",
    }
}
