//! Choices of TLS and of tokens that settings name, in builds without TLS as well.

/// Whether the client verifies a server certificate's host name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostCheck {
    /// The certificate must name the host that was dialled.
    #[default]
    Https,
    /// The certificate must chain to a trusted one; its host name is ignored.
    Off,
}

/// An algorithm of JSON Web Signatures (RFC 7518, 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SigningAlgorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    #[default]
    Rs256,
    /// ECDSA with the curve P-256 and SHA-256.
    Es256,
}

impl SigningAlgorithm {
    /// The name in a token's header, such as `RS256`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
        }
    }

    /// The algorithm of this name, in upper or lower case.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        [Self::Rs256, Self::Es256].into_iter().find(|a| a.name().eq_ignore_ascii_case(name))
    }
}
