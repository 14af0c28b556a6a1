//! `security.protocol`, `ssl.*` and `sasl.*`. Secrets can be set, but are never shown.

use std::{path::PathBuf, time::Duration};

use crate::config::{
    CipherSuite, CommonConfig, HostCheck, Mechanism, Secret, SecurityProtocol, Store, StoreType,
    TlsVersion,
    aws::BEARER_HANDLER,
    forms::{
        BOOLEAN, Form, LONG_MILLIS, OPTIONAL_MILLIS, OPTIONAL_TEXT, form, number, show_seconds,
    },
    oidc::{JwtRetriever, SigningAlgorithm},
    redact,
    table::{Property, property},
};

const STORE_TYPE: &str = "PEM or PKCS12; a JKS file becomes one with 'keytool -importkeystore -srckeystore FILE -destkeystore FILE.p12 -deststoretype PKCS12'";

macro_rules! secret {
    ($name:literal, $($field:ident).+) => {
        Property {
            name: $name,
            about: "",
            expected: "a text",
            set: |config, text| {
                config.security.$($field).+ = Some(Secret::new(text)).filter(|t| !t.reveal().is_empty());
                Some(())
            },
            get: |config| config.security.$($field).+.as_ref().map_or("", |_| redact::HIDDEN).to_owned(),
        }
    };
}

macro_rules! store {
    ($type:literal, $location:literal, $password:literal, $field:ident) => {
        [
            Property {
                name: $type,
                about: "",
                expected: STORE_TYPE,
                set: |config, text| set_type(&mut config.security.ssl.$field, text),
                get: |config| show_type(&config.security.ssl.$field),
            },
            Property {
                name: $location,
                about: "",
                expected: "a file",
                set: |config, text| {
                    config.security.ssl.$field.location =
                        Some(PathBuf::from(text)).filter(|path| !path.as_os_str().is_empty());
                    Some(())
                },
                get: |config| show_location(&config.security.ssl.$field),
            },
            secret!($password, ssl.$field.password),
        ]
    };
}

static TRUSTSTORE: [Property<CommonConfig>; 3] =
    store!("ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password", truststore);

static KEYSTORE: [Property<CommonConfig>; 3] =
    store!("ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password", keystore);

static OTHERS: [Property<CommonConfig>; 12] = [
    Property {
        name: "security.protocol",
        about: "",
        expected: "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",
        set: |config, text| {
            config.security.protocol = SecurityProtocol::by_name(text)?;
            Some(())
        },
        get: |config| config.security.protocol.name().to_owned(),
    },
    Property {
        name: "ssl.truststore.certificates",
        about: "",
        expected: "certificates in PEM",
        set: |config, text| set_text(&mut config.security.ssl.truststore_certificates, text),
        get: |config| config.security.ssl.truststore_certificates.clone().unwrap_or_default(),
    },
    Property {
        name: "ssl.keystore.certificate.chain",
        about: "",
        expected: "certificates in PEM",
        set: |config, text| set_text(&mut config.security.ssl.keystore_certificate_chain, text),
        get: |config| config.security.ssl.keystore_certificate_chain.clone().unwrap_or_default(),
    },
    secret!("ssl.keystore.key", ssl.keystore_key),
    secret!("ssl.key.password", ssl.key_password),
    Property {
        name: "ssl.endpoint.identification.algorithm",
        about: "",
        expected: "https, or empty to disable it",
        set: |config, text| {
            config.security.ssl.endpoint_identification = match text.to_ascii_lowercase().as_str() {
                "https" => HostCheck::Https,
                "" => HostCheck::Off,
                _ => return None,
            };
            Some(())
        },
        get: |config| match config.security.ssl.endpoint_identification {
            HostCheck::Https => "https".to_owned(),
            HostCheck::Off => String::new(),
        },
    },
    Property {
        name: "ssl.enabled.protocols",
        about: "",
        expected: "TLSv1.2, TLSv1.3 or both, separated by commas",
        set: |config, text| {
            config.security.ssl.enabled_protocols = versions(text)?;
            Some(())
        },
        get: |config| {
            let versions = &config.security.ssl.enabled_protocols;
            versions.iter().map(|version| version_name(*version)).collect::<Vec<_>>().join(",")
        },
    },
    Property {
        name: "ssl.protocol",
        about: "",
        expected: "TLSv1.3 or TLSv1.2",
        set: |config, text| {
            config.security.ssl.protocol = match text {
                // Java's name for the newest version.
                "TLS" => TlsVersion::V13,
                text => version(text)?,
            };
            Some(())
        },
        get: |config| version_name(config.security.ssl.protocol).to_owned(),
    },
    Property {
        name: "ssl.cipher.suites",
        about: "",
        expected: "names such as TLS_AES_256_GCM_SHA384, TLS_CHACHA20_POLY1305_SHA256 or TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, separated by commas: AES-GCM and ChaCha20 with ECDHE are supported",
        set: |config, text| {
            let names = text.split(',').map(str::trim).filter(|_| !text.is_empty());
            config.security.ssl.cipher_suites =
                names.map(CipherSuite::by_name).collect::<Option<Vec<_>>>()?;
            Some(())
        },
        get: |config| {
            let suites = &config.security.ssl.cipher_suites;
            suites.iter().map(CipherSuite::name).collect::<Vec<_>>().join(",")
        },
    },
    Property {
        name: "sasl.mechanism",
        about: "",
        expected: "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or AWS_MSK_IAM; GSSAPI (Kerberos) is not supported",
        set: |config, text| {
            config.security.sasl.mechanism = match text {
                // Java's default, which matters with SASL only: `SaslConfig::login` refuses it.
                "GSSAPI" => None,
                "AWS_MSK_IAM" => Some(Mechanism::AwsMskIam),
                text => Some(Mechanism::by_name(text)?),
            };
            Some(())
        },
        get: |config| config.security.sasl.mechanism.map_or("", Mechanism::name).to_owned(),
    },
    secret!("sasl.jaas.config", sasl.jaas),
    Property {
        name: "sasl.login.callback.handler.class",
        about: "",
        expected: "OAuthBearerLoginCallbackHandler of org.apache.kafka.common.security.oauthbearer, or software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler; in place of another class use SecurityConfig::oauth_bearer with a function that returns tokens",
        set: |config, text| {
            config.security.sasl.aws.oauth_bearer = match text {
                BEARER_HANDLER => true,
                text if is_default_handler(text) => false,
                _ => return None,
            };
            Some(())
        },
        get: |config| match config.security.sasl.aws.oauth_bearer {
            true => BEARER_HANDLER.to_owned(),
            false => String::new(),
        },
    },
];

/// Java's own handlers, by their present and their earlier name.
fn is_default_handler(class: &str) -> bool {
    const PACKAGE: &str = "org.apache.kafka.common.security.oauthbearer.";
    const HANDLERS: [&str; 2] =
        ["OAuthBearerLoginCallbackHandler", "secured.OAuthBearerLoginCallbackHandler"];
    class.is_empty()
        || HANDLERS.iter().any(|name| class.eq_ignore_ascii_case(&format!("{PACKAGE}{name}")))
}

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

form!(FILE: Option<PathBuf> = "a file",
    |text| Some(Some(PathBuf::from(text)).filter(|path| !path.as_os_str().is_empty())),
    |path| path.as_ref().map_or_else(String::new, |path| path.display().to_string())
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
form!(RETRIEVER: JwtRetriever = RETRIEVERS, retriever, |retriever| retriever.class().to_owned());

const RETRIEVERS: &str = "DefaultJwtRetriever, ClientCredentialsJwtRetriever, JwtBearerJwtRetriever or FileJwtRetriever of org.apache.kafka.common.security.oauthbearer; in place of another class use SecurityConfig::oauth_bearer with a function that returns tokens";

fn retriever(class: &str) -> Option<JwtRetriever> {
    if class.is_empty() {
        return Some(JwtRetriever::Default);
    }
    let known = |(_, name): &&(JwtRetriever, &str)| name.eq_ignore_ascii_case(class);
    JwtRetriever::ALL.iter().find(known).map(|(retriever, _)| *retriever)
}

macro_rules! oidc {
    ($name:literal, $($field:ident).+, $form:expr) => {
        property!($name, "", security.sasl.oidc.$($field).+, $form)
    };
}

static ASSERTION: [Property<CommonConfig>; 11] = [
    oidc!("sasl.oauthbearer.assertion.algorithm", assertion.algorithm, SIGNING_ALGORITHM),
    oidc!("sasl.oauthbearer.assertion.claim.aud", assertion.audience, OPTIONAL_TEXT),
    oidc!("sasl.oauthbearer.assertion.claim.exp.seconds", assertion.lifetime, ASSERTION_LIFETIME),
    oidc!("sasl.oauthbearer.assertion.claim.iss", assertion.issuer, OPTIONAL_TEXT),
    oidc!("sasl.oauthbearer.assertion.claim.jti.include", assertion.include_jti, BOOLEAN),
    oidc!("sasl.oauthbearer.assertion.claim.nbf.seconds", assertion.backdated, ASSERTION_BACKDATED),
    oidc!("sasl.oauthbearer.assertion.claim.sub", assertion.subject, OPTIONAL_TEXT),
    oidc!("sasl.oauthbearer.assertion.file", assertion.file, FILE),
    oidc!("sasl.oauthbearer.assertion.private.key.file", assertion.private_key_file, FILE),
    secret!(
        "sasl.oauthbearer.assertion.private.key.passphrase",
        sasl.oidc.assertion.private_key_passphrase
    ),
    oidc!("sasl.oauthbearer.assertion.template.file", assertion.template_file, FILE),
];

static OIDC: [Property<CommonConfig>; 14] = [
    oidc!("sasl.oauthbearer.jwt.retriever.class", retriever, RETRIEVER),
    oidc!("sasl.oauthbearer.token.endpoint.url", token_endpoint_url, OPTIONAL_TEXT),
    oidc!("sasl.oauthbearer.client.credentials.client.id", client_id, OPTIONAL_TEXT),
    secret!("sasl.oauthbearer.client.credentials.client.secret", sasl.oidc.client_secret),
    oidc!("sasl.oauthbearer.scope", scope, OPTIONAL_TEXT),
    oidc!("sasl.oauthbearer.header.urlencode", header_urlencode, BOOLEAN),
    oidc!("sasl.login.connect.timeout.ms", connect_timeout, OPTIONAL_MILLIS),
    oidc!("sasl.login.read.timeout.ms", read_timeout, OPTIONAL_MILLIS),
    oidc!("sasl.login.retry.backoff.ms", retry_backoff, LONG_MILLIS),
    oidc!("sasl.login.retry.backoff.max.ms", retry_backoff_max, LONG_MILLIS),
    oidc!("sasl.login.refresh.window.factor", refresh_window_factor, LIFETIME_FACTOR),
    oidc!("sasl.login.refresh.window.jitter", refresh_window_jitter, LIFETIME_JITTER),
    oidc!("sasl.login.refresh.min.period.seconds", refresh_min_period, REFRESH_PERIOD),
    oidc!("sasl.login.refresh.buffer.seconds", refresh_buffer, REFRESH_BUFFER),
];

/// Returns all of them.
pub(super) fn table() -> impl Iterator<Item = &'static Property<CommonConfig>> {
    OTHERS.iter().chain(&TRUSTSTORE).chain(&KEYSTORE).chain(&ASSERTION).chain(&OIDC)
}

#[expect(clippy::unnecessary_wraps, reason = "one signature for the setters of the table")]
fn set_text(field: &mut Option<String>, text: &str) -> Option<()> {
    *field = Some(text.to_owned()).filter(|text| !text.is_empty());
    Some(())
}

fn set_type(store: &mut Store, text: &str) -> Option<()> {
    store.kind = Some(match text.to_ascii_uppercase().as_str() {
        "PEM" => StoreType::Pem,
        "PKCS12" => StoreType::Pkcs12,
        // Java's default. Java reads a PKCS#12 store with it, too, so the file's first bytes decide.
        "JKS" => {
            store.kind = None;
            return Some(());
        }
        _ => return None,
    });
    Some(())
}

fn show_type(store: &Store) -> String {
    match store.kind {
        None => "",
        Some(StoreType::Pem) => "PEM",
        Some(StoreType::Pkcs12) => "PKCS12",
    }
    .to_owned()
}

fn show_location(store: &Store) -> String {
    store.location.as_ref().map_or_else(String::new, |path| path.display().to_string())
}

fn version(name: &str) -> Option<TlsVersion> {
    [TlsVersion::V12, TlsVersion::V13].into_iter().find(|v| version_name(*v) == name.trim())
}

fn versions(text: &str) -> Option<Vec<TlsVersion>> {
    let mut versions = text.split(',').map(version).collect::<Option<Vec<_>>>()?;
    versions.sort_unstable();
    versions.dedup();
    Some(versions)
}

fn version_name(version: TlsVersion) -> &'static str {
    match version {
        TlsVersion::V12 => "TLSv1.2",
        TlsVersion::V13 => "TLSv1.3",
    }
}
