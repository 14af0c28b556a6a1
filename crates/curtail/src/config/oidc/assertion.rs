//! `sasl.oauthbearer.assertion.*`: the signed assertion with which a client logs in at a token endpoint (KIP-1139,
//! KIP-1258; RFC 7521, RFC 7523).

use std::{path::PathBuf, time::Duration};

pub use curtail_net::SigningAlgorithm;

use crate::config::{
    CommonConfig, Secret,
    forms::{BOOLEAN, OPTIONAL_TEXT, security as forms},
    table::{Property, group, property},
};

group! {
    /// The assertion of a login: a file that has one, or the key and the claims from which the client makes one for every
    /// login. `Debug` hides the passphrase.
    ///
    /// The files are read for every login, so changed files need no restart.
    #[derive(Clone, Debug, PartialEq)]
    AssertionConfig, ASSERTION in [security.sasl.oidc.assertion]: {
        /// `sasl.oauthbearer.assertion.algorithm`: the signature's algorithm.
        algorithm: SigningAlgorithm = SigningAlgorithm::Rs256
            => "sasl.oauthbearer.assertion.algorithm", forms::SIGNING_ALGORITHM;
        /// `sasl.oauthbearer.assertion.claim.aud`: the claim `aud`, usually the token endpoint.
        audience: Option<String> = None => "sasl.oauthbearer.assertion.claim.aud", OPTIONAL_TEXT;
        /// `sasl.oauthbearer.assertion.claim.exp.seconds`: time until the assertion expires, for the claim `exp`.
        lifetime: Duration = Duration::from_secs(300)
            => "sasl.oauthbearer.assertion.claim.exp.seconds", forms::ASSERTION_LIFETIME;
        /// `sasl.oauthbearer.assertion.claim.iss`: the claim `iss`. With client credentials the client makes an assertion
        /// only if this is set.
        issuer: Option<String> = None => "sasl.oauthbearer.assertion.claim.iss", OPTIONAL_TEXT;
        /// `sasl.oauthbearer.assertion.claim.jti.include`: whether the assertion has a unique id, the claim `jti`.
        include_jti: bool = false => "sasl.oauthbearer.assertion.claim.jti.include", BOOLEAN;
        /// `sasl.oauthbearer.assertion.claim.nbf.seconds`: time before the login from which the assertion is valid, for
        /// the claim `nbf`.
        backdated: Duration = Duration::from_secs(60)
            => "sasl.oauthbearer.assertion.claim.nbf.seconds", forms::ASSERTION_BACKDATED;
        /// `sasl.oauthbearer.assertion.claim.sub`: the claim `sub`.
        subject: Option<String> = None => "sasl.oauthbearer.assertion.claim.sub", OPTIONAL_TEXT;
        /// `sasl.oauthbearer.assertion.file`: a file with an assertion. If set, the other settings have no effect.
        file: Option<PathBuf> = None => "sasl.oauthbearer.assertion.file", forms::FILE;
        /// `sasl.oauthbearer.assertion.private.key.file`: the key that signs, in PEM (PKCS#8).
        private_key_file: Option<PathBuf> = None => "sasl.oauthbearer.assertion.private.key.file", forms::FILE;
        /// `sasl.oauthbearer.assertion.private.key.passphrase`: the passphrase of an encrypted key.
        private_key_passphrase: Option<Secret> = None
            => "sasl.oauthbearer.assertion.private.key.passphrase", forms::SECRET;
        /// `sasl.oauthbearer.assertion.template.file`: a JSON file with the objects `header` and `payload`. They are
        /// added to the assertion, and replace the claims `aud`, `iss` and `sub` of these settings.
        template_file: Option<PathBuf> = None => "sasl.oauthbearer.assertion.template.file", forms::FILE;
    }
    within {}
    without property {}
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
