//! Forms of the values of `security.protocol`, `ssl.*` and `sasl.*`. Secrets are never shown.

use std::{path::PathBuf, time::Duration};

use super::{Form, form, number, show_seconds, some_text};
use crate::config::{
    CipherSuite, HostCheck, Mechanism, Secret, SecurityProtocol, StoreType, TlsVersion,
    aws::BEARER_HANDLER,
    oidc::{JwtRetriever, SigningAlgorithm},
    redact,
};

form!(SECRET: Option<Secret> = "a text",
    |text| Some(some_text(text).map(Secret::from)),
    |secret| secret.as_ref().map_or("", |_| redact::HIDDEN).to_owned()
);
form!(FILE: Option<PathBuf> = "a file",
    |text| Some(some_text(text).map(PathBuf::from)),
    |path| path.as_ref().map_or_else(String::new, |path| path.display().to_string())
);
form!(CERTIFICATES: Option<String> = "certificates in PEM",
    |text| Some(some_text(text)),
    |text| text.clone().unwrap_or_default()
);

form!(PROTOCOL: SecurityProtocol = "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",
    SecurityProtocol::by_name,
    |protocol| protocol.name().to_owned()
);
form!(HOST_CHECK: HostCheck = "https, or empty to disable it", host_check, |check| match check {
    HostCheck::Https => "https".to_owned(),
    HostCheck::Off => String::new(),
});
form!(STORE_TYPE: Option<StoreType> = "PEM or PKCS12; a JKS file becomes one with 'keytool -importkeystore -srckeystore FILE -destkeystore FILE.p12 -deststoretype PKCS12'",
    store_type,
    |kind| match kind {
        None => "",
        Some(StoreType::Pem) => "PEM",
        Some(StoreType::Pkcs12) => "PKCS12",
    }
    .to_owned()
);
form!(TLS_VERSIONS: Vec<TlsVersion> = "TLSv1.2, TLSv1.3 or both, separated by commas",
    versions,
    |versions| versions.iter().map(version_name).collect::<Vec<_>>().join(",")
);
form!(TLS_VERSION: TlsVersion = "TLSv1.3 or TLSv1.2",
    |text| match text {
        // Java's name for the newest version.
        "TLS" => Some(TlsVersion::V13),
        text => version(text),
    },
    |version| version_name(version).to_owned()
);
form!(CIPHER_SUITES: Vec<CipherSuite> = "names such as TLS_AES_256_GCM_SHA384, TLS_CHACHA20_POLY1305_SHA256 or TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, separated by commas: AES-GCM and ChaCha20 with ECDHE are supported",
    cipher_suites,
    |suites| suites.iter().map(CipherSuite::name).collect::<Vec<_>>().join(",")
);

form!(MECHANISM: Option<Mechanism> = "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS_MSK_IAM; GSSAPI (Kerberos) is not supported",
    mechanism,
    |mechanism| mechanism.map_or("", Mechanism::name).to_owned()
);
form!(BEARER_OF_AWS: bool = "OAuthBearerLoginCallbackHandler of org.apache.kafka.common.security.oauthbearer, or software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler; in place of another class use SecurityConfig::oauth_bearer with a function that returns tokens",
    bearer_of_aws,
    |is_of_aws| if *is_of_aws { BEARER_HANDLER.to_owned() } else { String::new() }
);

form!(LIFETIME_FACTOR: f64 = "a fraction of the token's lifetime, 0.5 to 1",
    |text| number(text, 0.5, 1.0),
    f64::to_string
);
form!(LIFETIME_JITTER: f64 = "a fraction of the token's lifetime, 0 to 0.25",
    |text| number(text, 0.0, 0.25),
    f64::to_string
);
form!(REFRESH_PERIOD: Duration = "seconds, 0 to 900",
    |text| number(text, 0, 900).map(Duration::from_secs),
    show_seconds
);
form!(REFRESH_BUFFER: Duration = "seconds, 0 to 3600",
    |text| number(text, 0, 3600).map(Duration::from_secs),
    show_seconds
);
form!(SIGNING_ALGORITHM: SigningAlgorithm = "RS256 or ES256",
    SigningAlgorithm::by_name,
    |algorithm| algorithm.name().to_owned()
);
form!(ASSERTION_LIFETIME: Duration = "seconds, 0 to 86400",
    |text| number(text, 0, 86_400).map(Duration::from_secs),
    show_seconds
);
form!(ASSERTION_BACKDATED: Duration = "seconds, 0 to 3600",
    |text| number(text, 0, 3600).map(Duration::from_secs),
    show_seconds
);
form!(RETRIEVER: JwtRetriever = "DefaultJwtRetriever, ClientCredentialsJwtRetriever, JwtBearerJwtRetriever or FileJwtRetriever of org.apache.kafka.common.security.oauthbearer; in place of another class use SecurityConfig::oauth_bearer with a function that returns tokens",
    retriever,
    |retriever| retriever.class().to_owned()
);

fn host_check(text: &str) -> Option<HostCheck> {
    match text.to_ascii_lowercase().as_str() {
        "https" => Some(HostCheck::Https),
        "" => Some(HostCheck::Off),
        _ => None,
    }
}

fn store_type(text: &str) -> Option<Option<StoreType>> {
    match text.to_ascii_uppercase().as_str() {
        "PEM" => Some(Some(StoreType::Pem)),
        "PKCS12" => Some(Some(StoreType::Pkcs12)),
        // Java's default. Java reads a PKCS#12 store with it, too, so the file's first bytes decide.
        "JKS" => Some(None),
        _ => None,
    }
}

fn version(name: &str) -> Option<TlsVersion> {
    [TlsVersion::V12, TlsVersion::V13].into_iter().find(|v| version_name(v) == name.trim())
}

fn versions(text: &str) -> Option<Vec<TlsVersion>> {
    let mut versions = text.split(',').map(version).collect::<Option<Vec<_>>>()?;
    versions.sort_unstable();
    versions.dedup();
    Some(versions)
}

fn version_name(version: &TlsVersion) -> &'static str {
    match version {
        TlsVersion::V12 => "TLSv1.2",
        TlsVersion::V13 => "TLSv1.3",
    }
}

fn cipher_suites(text: &str) -> Option<Vec<CipherSuite>> {
    let names = text.split(',').map(str::trim).filter(|_| !text.is_empty());
    names.map(CipherSuite::by_name).collect()
}

fn mechanism(text: &str) -> Option<Option<Mechanism>> {
    match text {
        // Java's default, which matters with SASL only: `SaslConfig::login` refuses it.
        "GSSAPI" => Some(None),
        "AWS_MSK_IAM" => Some(Some(Mechanism::AwsMskIam)),
        text => Mechanism::by_name(text).map(Some),
    }
}

fn bearer_of_aws(class: &str) -> Option<bool> {
    match class {
        BEARER_HANDLER => Some(true),
        class => is_default_handler(class).then_some(false),
    }
}

/// Java's own handlers, by their present and their earlier name.
fn is_default_handler(class: &str) -> bool {
    const PACKAGE: &str = "org.apache.kafka.common.security.oauthbearer.";
    const HANDLERS: [&str; 2] =
        ["OAuthBearerLoginCallbackHandler", "secured.OAuthBearerLoginCallbackHandler"];
    class.is_empty()
        || HANDLERS.iter().any(|name| class.eq_ignore_ascii_case(&format!("{PACKAGE}{name}")))
}

fn retriever(class: &str) -> Option<JwtRetriever> {
    if class.is_empty() {
        return Some(JwtRetriever::Default);
    }
    let known = |(_, name): &&(JwtRetriever, &str)| name.eq_ignore_ascii_case(class);
    JwtRetriever::ALL.iter().find(known).map(|(retriever, _)| *retriever)
}
