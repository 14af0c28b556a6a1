//! Certificate files: accepted and refused ones, and changes.

use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};

use super::*;
use crate::security::SecurityConfig;

/// A certificate and its key.
fn pem() -> String {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["x".to_owned()]).unwrap().self_signed(&key).unwrap();
    format!("{}{}", key.serialize_pem(), certificate.pem())
}

fn common(truststore: &Path) -> CommonConfig {
    let security = SecurityConfig::ssl().truststore(truststore, None);
    CommonConfig { security, ..CommonConfig::default() }
}

/// Replaces a file and advances its modification time, however coarse the file system's clock is.
fn replace(path: &Path, text: &str) {
    let before = fs::metadata(path).unwrap().modified().unwrap();
    fs::write(path, text).unwrap();
    let file = fs::File::options().append(true).open(path).unwrap();
    file.set_modified(before + Duration::from_secs(1)).unwrap();
}

#[tokio::test]
async fn changed_certificates_are_reloaded_and_unusable_ones_ignored() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ca.pem");
    fs::write(&path, pem()).unwrap();
    let common = common(&path);
    let first = load(&common).await.unwrap();
    assert!(Arc::ptr_eq(&first, &load(&common).await.unwrap()));
    replace(&path, &pem());
    let second = load(&common).await.unwrap();
    assert!(!Arc::ptr_eq(&first, &second));
    assert_eq!(common.security.certificates_outdated(), None);
    replace(&path, "half a certif");
    assert!(Arc::ptr_eq(&second, &load(&common).await.unwrap()));
    let clone = common.security.clone();
    let outdated = clone.certificates_outdated().expect("the file cannot be used");
    assert!(outdated.starts_with("ssl.truststore.location="), "{outdated}");
    let failed = with_outdated("the handshake failed".into(), &common);
    assert!(
        failed.starts_with("the handshake failed; ") && failed.contains(&*outdated),
        "{failed}"
    );
    replace(&path, &pem());
    assert!(!Arc::ptr_eq(&second, &load(&common).await.unwrap()));
    assert_eq!(clone.certificates_outdated(), None);
    assert_eq!(with_outdated("the handshake failed".into(), &common), "the handshake failed");
    // Other settings load other certificates, even with the same cache.
    let mut others = common.clone();
    others.security.ssl.truststore.location = Some(directory.path().join("missing.pem"));
    let missing = load(&others).await.unwrap_err();
    assert!(missing.contains("ssl.truststore.location=") && missing.contains("missing.pem"));
}

#[tokio::test]
async fn the_client_certificate_in_use_is_named_by_its_fingerprint() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("both.pem");
    fs::write(&path, pem()).unwrap();
    let trusting = common(&path).security;
    let build = |security: &SecurityConfig| build(&security.ssl).unwrap().in_use;
    assert_eq!(&*build(&trusting), "1 trusted certificates");
    let in_use = build(&trusting.keystore(&path, None));
    let fingerprint = in_use.rsplit(' ').next().unwrap();
    assert_eq!((fingerprint.len(), fingerprint.matches(':').count()), (95, 31), "{in_use}");
}

#[tokio::test]
async fn error_for_an_unusable_file_names_its_setting() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let refused = async |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        load(&common(&path)).await.unwrap_err()
    };
    let jks = refused(&[0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2]).await;
    assert!(jks.contains("keytool -importkeystore") && jks.contains("PKCS12"), "{jks}");
    for bytes in [&b""[..], b"text", &[0x30, 0x82, 1, 2]] {
        let reason = refused(bytes).await;
        assert!(reason.starts_with("ssl.truststore.location="), "{reason}");
        assert!(!reason.contains('\n'), "{reason}");
    }

    fs::write(&path, pem()).unwrap();
    let mut common = common(&path);
    common.security = common.security.keystore(&path, None);
    load(&common).await.unwrap();
    common.security.ssl.keystore.location = None;
    common.security.ssl.keystore_certificate_chain = Some(pem());
    common.security.ssl.keystore_key = Some(pem().into());
    let mixed = load(&common).await.unwrap_err();
    assert!(mixed.contains("does not match the certificate"), "{mixed}");
}
