//! `security.protocol`, `ssl.*` and `sasl.*`. What is secret is set, and not shown.

use std::path::PathBuf;

use super::Property;
use crate::config::{
    CommonConfig, HostCheck, Mechanism, Secret, SecurityProtocol, Store, StoreType, TlsVersion,
};

const STORE_TYPE: &str = "PEM or PKCS12; a JKS file becomes one with 'keytool -importkeystore -srckeystore FILE -destkeystore FILE.p12 -deststoretype PKCS12'";

/// What Java shows of a password.
const HIDDEN: &str = "[hidden]";

macro_rules! secret {
    ($name:literal, $($field:ident).+) => {
        Property {
            name: $name,
            expected: "a text",
            set: |config, text| {
                config.security.$($field).+ = Some(Secret::new(text)).filter(|t| !t.reveal().is_empty());
                Some(())
            },
            get: |config| config.security.$($field).+.as_ref().map_or("", |_| HIDDEN).to_owned(),
        }
    };
}

macro_rules! store {
    ($type:literal, $location:literal, $password:literal, $field:ident) => {
        [
            Property {
                name: $type,
                expected: STORE_TYPE,
                set: |config, text| set_type(&mut config.security.ssl.$field, text),
                get: |config| show_type(&config.security.ssl.$field),
            },
            Property {
                name: $location,
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

static OTHERS: [Property<CommonConfig>; 9] = [
    Property {
        name: "security.protocol",
        expected: "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",
        set: |config, text| {
            config.security.protocol = SecurityProtocol::by_name(text)?;
            Some(())
        },
        get: |config| config.security.protocol.name().to_owned(),
    },
    Property {
        name: "ssl.truststore.certificates",
        expected: "certificates in PEM",
        set: |config, text| set_text(&mut config.security.ssl.truststore_certificates, text),
        get: |config| config.security.ssl.truststore_certificates.clone().unwrap_or_default(),
    },
    Property {
        name: "ssl.keystore.certificate.chain",
        expected: "certificates in PEM",
        set: |config, text| set_text(&mut config.security.ssl.keystore_certificate_chain, text),
        get: |config| config.security.ssl.keystore_certificate_chain.clone().unwrap_or_default(),
    },
    secret!("ssl.keystore.key", ssl.keystore_key),
    secret!("ssl.key.password", ssl.key_password),
    Property {
        name: "ssl.endpoint.identification.algorithm",
        expected: "https, or nothing to switch it off",
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
        name: "sasl.mechanism",
        expected: "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER",
        set: |config, text| {
            config.security.sasl.mechanism = Some(Mechanism::by_name(text)?);
            Some(())
        },
        get: |config| config.security.sasl.mechanism.map_or("", Mechanism::name).to_owned(),
    },
    secret!("sasl.jaas.config", sasl.jaas),
];

/// All of them.
pub(super) fn table() -> impl Iterator<Item = &'static Property<CommonConfig>> {
    OTHERS.iter().chain(&TRUSTSTORE).chain(&KEYSTORE)
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

fn versions(text: &str) -> Option<Vec<TlsVersion>> {
    let version = |name: &str| match name.trim() {
        "TLSv1.2" => Some(TlsVersion::V12),
        "TLSv1.3" => Some(TlsVersion::V13),
        _ => None,
    };
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
