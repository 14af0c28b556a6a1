//! `sasl.oauthbearer.assertion.*`: the signed assertion with which a client logs in at a token endpoint (KIP-1139,
//! KIP-1258; RFC 7521, RFC 7523).

use std::{path::PathBuf, time::Duration};

pub use curtail_net::tls::SigningAlgorithm;

use crate::config::Secret;

/// The assertion of a login: a file that has one, or the key and the claims from which the client makes one for every
/// login. `Debug` hides the passphrase.
///
/// The files are read for every login, so changed files need no restart.
#[derive(Clone, Debug, PartialEq)]
pub struct AssertionConfig {
    /// `sasl.oauthbearer.assertion.file`: a file with an assertion. If set, the other settings have no effect.
    pub file: Option<PathBuf>,
    /// `sasl.oauthbearer.assertion.algorithm`: the signature's algorithm.
    pub algorithm: SigningAlgorithm,
    /// `sasl.oauthbearer.assertion.private.key.file`: the key that signs, in PEM (PKCS#8).
    pub private_key_file: Option<PathBuf>,
    /// `sasl.oauthbearer.assertion.private.key.passphrase`: for an encrypted key.
    pub private_key_passphrase: Option<Secret>,
    /// `sasl.oauthbearer.assertion.claim.aud`: the claim `aud`, usually the token endpoint.
    pub audience: Option<String>,
    /// `sasl.oauthbearer.assertion.claim.iss`: the claim `iss`. With client credentials the client makes an assertion
    /// only if this is set.
    pub issuer: Option<String>,
    /// `sasl.oauthbearer.assertion.claim.sub`: the claim `sub`.
    pub subject: Option<String>,
    /// `sasl.oauthbearer.assertion.claim.exp.seconds`: time until the assertion expires, for the claim `exp`.
    pub lifetime: Duration,
    /// `sasl.oauthbearer.assertion.claim.nbf.seconds`: time before the login from which the assertion is valid, for the
    /// claim `nbf`.
    pub backdated: Duration,
    /// `sasl.oauthbearer.assertion.claim.jti.include`: whether the assertion has a unique id, the claim `jti`.
    pub include_jti: bool,
    /// `sasl.oauthbearer.assertion.template.file`: a JSON file with the objects `header` and `payload`. They are added
    /// to the assertion, and replace the claims `aud`, `iss` and `sub` of these settings.
    pub template_file: Option<PathBuf>,
}

impl Default for AssertionConfig {
    fn default() -> Self {
        Self {
            file: None,
            algorithm: SigningAlgorithm::Rs256,
            private_key_file: None,
            private_key_passphrase: None,
            audience: None,
            issuer: None,
            subject: None,
            lifetime: Duration::from_secs(300),
            backdated: Duration::from_secs(60),
            include_jti: false,
            template_file: None,
        }
    }
}

impl AssertionConfig {
    /// The assertion in a file, which another program renews.
    #[must_use]
    pub fn from_file(file: impl Into<PathBuf>) -> Self {
        Self { file: Some(file.into()), ..Self::default() }
    }

    /// An assertion that the client signs with a private key in PEM.
    #[must_use]
    pub fn signed(algorithm: SigningAlgorithm, private_key_file: impl Into<PathBuf>) -> Self {
        Self { algorithm, private_key_file: Some(private_key_file.into()), ..Self::default() }
    }

    /// Sets the claims `iss` and `sub`, which are the client id in a login with client credentials (RFC 7523, 3).
    #[must_use]
    pub fn client(mut self, client_id: impl Into<String>) -> Self {
        let client_id = client_id.into();
        self.issuer = Some(client_id.clone());
        self.subject = Some(client_id);
        self
    }

    /// Sets the claim `aud`.
    #[must_use]
    pub fn audience(mut self, audience: impl Into<String>) -> Self {
        self.audience = Some(audience.into());
        self
    }
}
