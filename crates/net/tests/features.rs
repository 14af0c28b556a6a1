//! Key formats as cargo features. Without them:
//! `cargo test -p curtail-net --no-default-features --features tls --test features`.

use curtail_net::tls::{Identity, MaterialError, certificates_from_pkcs12};

const PASSWORD: &str = "opensesame";

#[test]
fn a_pkcs12_store_is_read_or_its_feature_is_named() {
    let store = include_bytes!("../src/tls/tests/identity.p12");
    let trusted = include_bytes!("../src/tls/tests/trusted.p12");
    let identity = Identity::from_pkcs12(store, PASSWORD);
    let certificates = certificates_from_pkcs12(trusted, PASSWORD);
    if cfg!(feature = "pkcs12") {
        assert_eq!(identity.expect("an identity").chain().len(), 1);
        assert_eq!(certificates.expect("certificates").len(), 1);
        return;
    }
    let refused = MaterialError::NotBuilt("pkcs12");
    assert_eq!(identity.expect_err("no reader"), refused);
    assert_eq!(certificates.expect_err("no reader"), refused);
    let line = "this build cannot read it; add the cargo feature 'pkcs12'";
    assert_eq!(refused.to_string(), line);
}

#[test]
fn an_encrypted_key_is_decrypted_or_its_feature_is_named() {
    let pem = include_bytes!("encrypted.pem");
    let identity = Identity::from_pem(pem, pem, Some(PASSWORD));
    match cfg!(feature = "encrypted-keys") {
        true => assert_eq!(identity.expect("an identity").chain().len(), 1),
        false => {
            let refused = MaterialError::NotBuilt("encrypted-keys");
            assert_eq!(identity.expect_err("cannot decrypt"), refused);
        }
    }
}
