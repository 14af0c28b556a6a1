//! Assertions are verified with public keys that OpenSSL wrote.

use std::{
    path::{MAIN_SEPARATOR, PathBuf},
    time::Duration,
};

use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};
use tempfile::TempDir;

use super::*;
use crate::security::SigningAlgorithm;

const RSA: &str = include_str!("../../../../../net/src/tls/signing/rsa.pem");
const RSA_PUBLIC: &[u8] = include_bytes!("../../../../../net/src/tls/signing/rsa-public.der");
const EC: &str = include_str!("../../../../../net/src/tls/signing/ec.pem");
const EC_ENCRYPTED: &str = include_str!("../../../../../net/src/tls/signing/ec-encrypted.pem");
const EC_PUBLIC: &[u8] = include_bytes!("../../../../../net/src/tls/signing/ec-public.bin");

const NOW: i64 = 1_700_000_000_999;

struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

/// Returns header and payload of an assertion whose signature is that of the key.
fn verified(
    assertion: &Secret,
    algorithm: &'static dyn VerificationAlgorithm,
    public: &[u8],
) -> (Value, Value) {
    let (signed, signature) = assertion.reveal().rsplit_once('.').unwrap();
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    UnparsedPublicKey::new(algorithm, public).verify(signed.as_bytes(), &signature).unwrap();
    let (header, payload) = signed.split_once('.').unwrap();
    let json = |part: &str| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap();
    (json(header), json(payload))
}

fn by_ec(assertion: &Secret) -> (Value, Value) {
    verified(assertion, &ECDSA_P256_SHA256_FIXED, EC_PUBLIC)
}

#[test]
fn claims_of_the_settings_are_signed() {
    let files = Files::new();
    let mut config = AssertionConfig::signed(SigningAlgorithm::Rs256, files.write("key", RSA));
    config = config.client("teller").audience("https://idp/token");
    let assertion = create(&config, NOW).unwrap();
    let (header, payload) = verified(&assertion, &RSA_PKCS1_2048_8192_SHA256, RSA_PUBLIC);
    assert_eq!(header, json!({ "alg": "RS256", "typ": "JWT" }));
    let expected = json!({
        "aud": "https://idp/token", "iss": "teller", "sub": "teller",
        "iat": 1_700_000_000, "exp": 1_700_000_300, "nbf": 1_699_999_940,
    });
    assert_eq!(payload, expected);
}

#[test]
fn template_replaces_claims_of_the_settings_but_not_the_times() {
    let files = Files::new();
    let text = json!({
        "header": { "kid": "k1", "alg": "none" },
        "payload": { "sub": "other", "tenant": ["a", 1], "exp": 5 },
    });
    let mut config = AssertionConfig::signed(SigningAlgorithm::Es256, files.write("key", EC));
    config = config.client("teller");
    (config.lifetime, config.backdated) = (Duration::from_secs(10), Duration::ZERO);
    config.template_file = Some(files.write("template", &text.to_string()));
    let (header, payload) = by_ec(&create(&config, NOW).unwrap());
    assert_eq!(header, json!({ "alg": "ES256", "kid": "k1", "typ": "JWT" }));
    let expected = json!({
        "iss": "teller", "sub": "other", "tenant": ["a", 1],
        "iat": 1_700_000_000, "exp": 1_700_000_010, "nbf": 1_700_000_000,
    });
    assert_eq!(payload, expected);
    config.template_file = Some(files.write("template", "{}"));
    assert_eq!(by_ec(&create(&config, NOW).unwrap()).1["sub"], "teller");
}

#[test]
fn every_assertion_has_its_own_jti() {
    let files = Files::new();
    let mut config = AssertionConfig::signed(SigningAlgorithm::Es256, files.write("key", EC));
    config.include_jti = true;
    let jti = || by_ec(&create(&config, NOW).unwrap()).1["jti"].as_str().unwrap().to_owned();
    let (first, second) = (jti(), jti());
    assert_ne!(first, second);
    assert_eq!((first.len(), first.as_bytes()[14]), (36, b'4'), "a random UUID: {first}");
}

#[test]
fn changed_files_are_read_again() {
    let files = Files::new();
    let key = files.write("key", "not a key");
    let mut config = AssertionConfig::signed(SigningAlgorithm::Es256, key);
    create(&config, NOW).unwrap_err();
    files.write("key", EC_ENCRYPTED);
    config.private_key_passphrase = Some("hush".into());
    by_ec(&create(&config, NOW).unwrap());
    files.write("key", EC);
    by_ec(&create(&config, NOW).unwrap());
    // A file with an assertion takes precedence.
    config.file = Some(files.write("assertion", " e30.e30.c2ln\n"));
    assert_eq!(create(&config, NOW).unwrap().reveal(), "e30.e30.c2ln");
    files.write("assertion", "e30.eyJhIjoxfQ.c2ln");
    assert_eq!(create(&config, NOW).unwrap().reveal(), "e30.eyJhIjoxfQ.c2ln");
    assert!(!format!("{config:?}").contains("hush"));
}

#[test]
fn unusable_files_are_named_in_one_line() {
    let files = Files::new();
    let signed = |text: &str| {
        AssertionConfig::signed(SigningAlgorithm::Rs256, files.write("key", text)).client("x")
    };
    let template = |text: &str| {
        let mut config = signed(RSA);
        config.template_file = Some(files.write("template", text));
        config
    };
    let ready = |text: &str| AssertionConfig::from_file(files.write("assertion", text));
    let wrong_password = || {
        let mut config = signed(EC_ENCRYPTED);
        config.private_key_passphrase = Some("hush-hush".into());
        config
    };
    let missing = AssertionConfig::signed(SigningAlgorithm::Rs256, "/missing/key.pem");
    let key = "sasl.oauthbearer.assertion.private.key.file=";
    let in_template = "sasl.oauthbearer.assertion.template.file=";
    let in_file = "sasl.oauthbearer.assertion.file=";
    // Windows words the error differently.
    let no_file = if cfg!(windows) { "(os error 3)" } else { "/missing/key.pem: No such file" };
    let in_folder = |part: &str| format!("{MAIN_SEPARATOR}{part}");
    for (make, setting, part) in [
        (&(|| missing.clone()) as &dyn Fn() -> AssertionConfig, key, no_file),
        (&|| signed(EC), key, &in_folder("key: RS256 needs an RSA key")),
        (&|| signed("hush"), key, &in_folder("key: no private key")),
        (&|| signed(EC_ENCRYPTED), key, "set sasl.oauthbearer.assertion.private.key.passphrase"),
        (&wrong_password, key, "the password is wrong"),
        (&|| template("hush"), in_template, &in_folder("template: line 1: not a JSON object")),
        (&|| template("{\"header\":\"hush\"}"), in_template, "'header' is not a JSON object"),
        (&|| ready("hush"), in_file, &in_folder("assertion: it has no JWT")),
        (&|| ready("e30.aHVzaA.c2ln"), in_file, "it has no JWT"),
        (&|| ready("e30.e30."), in_file, "it has no JWT"),
    ] {
        let reason = create(&make(), NOW).unwrap_err();
        assert!(reason.starts_with(setting) && reason.contains(part), "{reason}");
        assert!(!reason.contains("hush") && !reason.contains('\n'), "{reason}");
    }
}
