//! Keys and public keys were made with OpenSSL.

use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};

use super::*;

const RSA: &str = include_str!("rsa.pem");
const RSA_1024: &str = include_str!("rsa-1024.pem");
const RSA_PUBLIC: &[u8] = include_bytes!("rsa-public.der");
const EC: &str = include_str!("ec.pem");
const EC_PUBLIC: &[u8] = include_bytes!("ec-public.bin");
const EC_ENCRYPTED: &str = include_str!("ec-encrypted.pem");

/// The same key as `EC`, as Java's `KeyPairGenerator` writes it.
const EC_OF_JAVA: &str = "-----BEGIN PRIVATE KEY-----
MEECAQAwEwYHKoZIzj0CAQYIKoZIzj0DAQcEJzAlAgEBBCDQD8tPpQlWzofUcXL/
rc4EGlXWY/cXtz04NtWKBuJNWQ==
-----END PRIVATE KEY-----";
const EC_SEC1: &str = "-----BEGIN EC PRIVATE KEY-----
MHcCAQEEINAPy0+lCVbOh9Rxcv+tzgQaVdZj9xe3PTg21YoG4k1ZoAoGCCqGSM49
AwEHoUQDQgAEn9t2AFrBOT5cl4pKOFaJzmUL0MJ+DdQpbGGUVXnK8twiguzJOfYD
ihjYnaYW7oqhbtzTPXuxUaPVZVXNb8ZbGg==
-----END EC PRIVATE KEY-----";

const MESSAGE: &[u8] = b"header.payload";

fn verify(algorithm: &'static dyn VerificationAlgorithm, public: &[u8], key: &SigningKey) {
    let public = UnparsedPublicKey::new(algorithm, public);
    let mut signature = key.sign(MESSAGE).expect("a signature");
    public.verify(MESSAGE, &signature).expect("the signature of the key");
    signature[7] ^= 1;
    public.verify(MESSAGE, &signature).expect_err("a changed signature");
}

#[test]
fn signatures_verify_with_the_public_key() {
    let read = |text: &str, algorithm| {
        SigningKey::from_pem(text.as_bytes(), None, algorithm).expect("a usable key")
    };
    let rsa = read(RSA, SigningAlgorithm::Rs256);
    verify(&RSA_PKCS1_2048_8192_SHA256, RSA_PUBLIC, &rsa);
    let ec = read(EC, SigningAlgorithm::Es256);
    verify(&ECDSA_P256_SHA256_FIXED, EC_PUBLIC, &ec);
    assert_eq!(ec.sign(MESSAGE).expect("a signature").len(), 64);
    assert_eq!(format!("{rsa:?}"), "SigningKey");
}

#[cfg(feature = "encrypted-keys")]
#[test]
fn encrypted_key_needs_its_password() {
    let read =
        |password| SigningKey::from_pem(EC_ENCRYPTED.as_bytes(), password, SigningAlgorithm::Es256);
    verify(&ECDSA_P256_SHA256_FIXED, EC_PUBLIC, &read(Some("hush")).expect("the password"));
    assert_eq!(read(None).unwrap_err(), MaterialError::PasswordNeeded);
    assert_eq!(read(Some("wrong")).unwrap_err(), MaterialError::Decryption);
}

#[test]
fn unusable_key_is_refused_with_the_reason() {
    use SigningAlgorithm::{Es256, Rs256};
    for (text, algorithm, part) in [
        (EC, Rs256, "RS256 needs an RSA key of 2048 to 4096 bits; this key is of another type"),
        (RSA, Es256, "ES256 needs an EC key of the curve P-256; this key is of another type"),
        (EC_SEC1, Rs256, "of another type"),
        (RSA_1024, Rs256, "this key is too small"),
        (EC_OF_JAVA, Es256, "lacks its public key (InvalidEncoding); add it with 'openssl ec"),
        (EC_SEC1, Es256, "convert it with 'openssl pkcs8 -topk8"),
        ("", Rs256, "no private key"),
        ("-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----", Rs256, "not PEM"),
        ("-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----", Rs256, "damaged"),
    ] {
        let error = SigningKey::from_pem(text.as_bytes(), None, algorithm).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn algorithm_is_found_in_any_case() {
    assert_eq!(SigningAlgorithm::by_name("es256"), Some(SigningAlgorithm::Es256));
    assert_eq!(SigningAlgorithm::by_name("HS256"), None);
    assert_eq!(SigningAlgorithm::default().name(), "RS256");
}
