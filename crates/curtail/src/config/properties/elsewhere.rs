//! `ssl.*` and `sasl.*` of the Java clients that have no meaning here, with their alternatives.

/// Values that are harmless.
pub(super) enum Harmless {
    None,
    All,
    /// These values, or an empty one.
    Only(&'static [&'static str]),
}

impl Harmless {
    pub(super) fn has(&self, value: &str) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Only(values) => value.is_empty() || values.contains(&value),
        }
    }
}

const HANDLERS: &[&str] = &[
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
];
const RETRIEVERS: &[&str] = &[
    "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
    "org.apache.kafka.common.security.oauthbearer.ClientCredentialsJwtRetriever",
];
const VALIDATORS: &[&str] = &[
    "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
    "org.apache.kafka.common.security.oauthbearer.ClientJwtValidator",
];

const CLASS: &str = "it names a Java class";
const OWN_TOKENS: &str =
    "it names a Java class; use SecurityConfig::oauth_bearer with a function that returns tokens";
const BROKERS: &str = "brokers check tokens, clients do not";

static NAMES: &[(&str, Harmless, &str)] = &[
    ("sasl.client.callback.handler.class", Harmless::Only(&[]), CLASS),
    ("sasl.login.callback.handler.class", Harmless::Only(HANDLERS), OWN_TOKENS),
    ("sasl.login.class", Harmless::Only(&[]), CLASS),
    ("sasl.oauthbearer.clock.skew.seconds", Harmless::None, BROKERS),
    ("sasl.oauthbearer.expected.audience", Harmless::None, BROKERS),
    ("sasl.oauthbearer.expected.issuer", Harmless::None, BROKERS),
    ("sasl.oauthbearer.jwt.retriever.class", Harmless::Only(RETRIEVERS), OWN_TOKENS),
    ("sasl.oauthbearer.jwt.validator.class", Harmless::Only(VALIDATORS), BROKERS),
    // Claims of a token concern the brokers only, whatever their names.
    ("sasl.oauthbearer.scope.claim.name", Harmless::All, BROKERS),
    ("sasl.oauthbearer.sub.claim.name", Harmless::All, BROKERS),
    (
        "ssl.engine.factory.class",
        Harmless::Only(&["org.apache.kafka.common.security.ssl.DefaultSslEngineFactory"]),
        CLASS,
    ),
    ("ssl.keymanager.algorithm", Harmless::Only(&["SunX509", "PKIX"]), "it names a Java algorithm"),
    ("ssl.provider", Harmless::Only(&[]), "TLS uses rustls with ring, not Java's providers"),
    (
        "ssl.secure.random.implementation",
        Harmless::Only(&[]),
        "randomness comes from the operating system",
    ),
    ("ssl.trustmanager.algorithm", Harmless::Only(&["PKIX"]), "it names a Java algorithm"),
];

/// Prefixes of unsupported names.
static FAMILIES: &[(&str, &str)] = &[
    ("sasl.kerberos.", "it is for GSSAPI (Kerberos), which is not supported"),
    (
        "sasl.oauthbearer.assertion.",
        "login with a signed assertion is not supported; use a client secret, or a function that returns tokens (SecurityConfig::oauth_bearer)",
    ),
    ("sasl.oauthbearer.jwks.", BROKERS),
];

/// Returns the harmless values of a property and why others are refused; `None` if it is not in these tables.
pub(super) fn find(name: &str) -> Option<(&'static Harmless, &'static str)> {
    let named = NAMES.iter().find(|(n, _, _)| *n == name).map(|(_, ok, why)| (ok, *why));
    let family = FAMILIES.iter().find(|(prefix, _)| name.starts_with(prefix));
    named.or_else(|| family.map(|(_, why)| (&Harmless::None, *why)))
}
