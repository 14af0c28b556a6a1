//! Certificates and tokens, created for the test.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};

/// A certificate authority of the tests.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate signed by an authority, and its key.
pub(crate) struct Signed {
    chain: String,
    key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// Signs a certificate for a host, valid until this year.
    pub(crate) fn sign(&self, host: &str, until: i32) -> Signed {
        let mut params = CertificateParams::new([host.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, host);
        params.not_after = date_time_ymd(until, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Signed { chain: certificate.pem(), key: key.serialize_pem() }
    }
}

impl Signed {
    pub(crate) const FRESH: i32 = 4000;
    pub(crate) const EXPIRED: i32 = 2001;

    /// Certificate and key.
    pub(crate) fn parts(&self) -> (&str, &str) {
        (&self.chain, &self.key)
    }

    /// Key and certificate, in the format of `ssl.keystore.location`.
    pub(crate) fn in_one_file(&self) -> String {
        format!("{}{}", self.key, self.chain)
    }
}

/// An unsigned token, valid for the next hour.
pub(crate) fn unsecured_token() -> String {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let (from, until) = (now.as_secs(), now.as_secs() + 3600);
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
    let claims = format!(r#"{{"sub":"carol","iat":{from},"exp":{until}}}"#);
    format!("{header}.{}.", URL_SAFE_NO_PAD.encode(claims))
}
