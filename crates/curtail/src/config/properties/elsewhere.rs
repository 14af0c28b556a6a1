//! Settings of the Java clients that do nothing here: the accepted values, and what to use in place of others.
//!
//! Java's default is always accepted, so a file with every default written out works.

use super::{Kind, supported};
use crate::{
    AdminConfig, ConsumerConfig, ProducerConfig,
    config::{HIDDEN, redact},
    error::ConfigError,
};

/// Values that are harmless.
enum Harmless {
    All,
    /// These values, in any case. Java's default comes first.
    Only(&'static [&'static str]),
    /// These values, or an empty one: Java's default is no value.
    OrEmpty(&'static [&'static str]),
}

impl Harmless {
    fn has(&self, value: &str) -> bool {
        let is = |values: &[&str]| values.iter().any(|v| v.eq_ignore_ascii_case(value));
        match self {
            Self::All => true,
            Self::Only(values) => is(values),
            Self::OrEmpty(values) => value.is_empty() || is(values),
        }
    }

    /// Returns the remedy that an error names.
    fn advice(&self) -> String {
        match self {
            Self::Only([default, ..]) => format!("leave it out or set it to {default}"),
            _ => "leave it out".to_owned(),
        }
    }
}

const NOTHING: Harmless = Harmless::OrEmpty(&[]);

const EVERY: &[Kind] = &[Kind::Producer, Kind::Consumer, Kind::Admin];
const MESSAGES: &[Kind] = &[Kind::Producer, Kind::Consumer];

const CLIENT_HANDLERS: &[&str] = &["software.amazon.msk.auth.iam.IAMClientCallbackHandler"];
const VALIDATORS: &[&str] = &[
    "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
    "org.apache.kafka.common.security.oauthbearer.ClientJwtValidator",
];

const CLASS: &str = "it names a Java class";
const BROKERS: &str = "brokers check tokens, clients do not";
const KERBEROS: &str = "it is for GSSAPI (Kerberos), which is not supported";
const SHARE: &str = "share groups are not supported yet";
const BYTES_ONLY: &str = "records are bytes in Curtail; only the ByteArray, ByteBuffer, Bytes and String classes are accepted";

/// Clients that have the setting in Java, its name, the accepted values, and why others are refused.
static NAMES: &[(&[Kind], &str, Harmless, &str)] = &[
    (
        &[Kind::Admin],
        "bootstrap.controllers",
        NOTHING,
        "connecting to controllers is not supported yet; use bootstrap.servers",
    ),
    (
        MESSAGES,
        "interceptor.classes",
        NOTHING,
        "it names a Java class; use ProducerConfig::interceptor or ConsumerConfig::interceptor",
    ),
    (
        &[Kind::Admin],
        "retries",
        Harmless::Only(&["2147483647"]),
        "calls of Admin are retried until default.api.timeout.ms",
    ),
    (EVERY, "sasl.client.callback.handler.class", Harmless::OrEmpty(CLIENT_HANDLERS), CLASS),
    (EVERY, "sasl.kerberos.kinit.cmd", Harmless::Only(&["/usr/bin/kinit"]), KERBEROS),
    (EVERY, "sasl.kerberos.min.time.before.relogin", Harmless::Only(&["60000"]), KERBEROS),
    (EVERY, "sasl.kerberos.service.name", NOTHING, KERBEROS),
    (EVERY, "sasl.kerberos.ticket.renew.jitter", Harmless::Only(&["0.05"]), KERBEROS),
    (EVERY, "sasl.kerberos.ticket.renew.window.factor", Harmless::Only(&["0.8"]), KERBEROS),
    (EVERY, "sasl.login.class", NOTHING, CLASS),
    (EVERY, "sasl.oauthbearer.clock.skew.seconds", Harmless::Only(&["30"]), BROKERS),
    (EVERY, "sasl.oauthbearer.expected.audience", NOTHING, BROKERS),
    (EVERY, "sasl.oauthbearer.expected.issuer", NOTHING, BROKERS),
    (EVERY, "sasl.oauthbearer.jwks.endpoint.refresh.ms", Harmless::Only(&["3600000"]), BROKERS),
    (
        EVERY,
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        Harmless::Only(&["10000"]),
        BROKERS,
    ),
    (EVERY, "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", Harmless::Only(&["100"]), BROKERS),
    (EVERY, "sasl.oauthbearer.jwt.validator.class", Harmless::OrEmpty(VALIDATORS), BROKERS),
    // Claims of a token concern the brokers only, whatever their names.
    (EVERY, "sasl.oauthbearer.scope.claim.name", Harmless::All, BROKERS),
    (EVERY, "sasl.oauthbearer.sub.claim.name", Harmless::All, BROKERS),
    (EVERY, "security.providers", NOTHING, CLASS),
    (&[Kind::Consumer], "share.acknowledgement.mode", Harmless::Only(&["implicit"]), SHARE),
    (&[Kind::Consumer], "share.acquire.mode", Harmless::Only(&["batch_optimized"]), SHARE),
    (
        EVERY,
        "socket.connection.setup.timeout.max.ms",
        Harmless::Only(&["30000"]),
        "every attempt has socket.connection.setup.timeout.ms",
    ),
    (
        EVERY,
        "ssl.engine.factory.class",
        Harmless::OrEmpty(&["org.apache.kafka.common.security.ssl.DefaultSslEngineFactory"]),
        CLASS,
    ),
    (
        EVERY,
        "ssl.keymanager.algorithm",
        Harmless::OrEmpty(&["SunX509", "PKIX"]),
        "it names a Java algorithm",
    ),
    (EVERY, "ssl.provider", NOTHING, "TLS uses rustls with ring, not Java's providers"),
    (
        EVERY,
        "ssl.secure.random.implementation",
        NOTHING,
        "randomness comes from the operating system",
    ),
    (
        EVERY,
        "ssl.trustmanager.algorithm",
        Harmless::OrEmpty(&["PKIX"]),
        "it names a Java algorithm",
    ),
    (
        &[Kind::Producer],
        "transaction.two.phase.commit.enable",
        Harmless::Only(&["false"]),
        "two-phase commit is not supported yet",
    ),
];

/// Prefixes of names that have no default, or that Java does not have.
static FAMILIES: &[(&str, &str)] =
    &[("sasl.kerberos.", KERBEROS), ("sasl.oauthbearer.jwks.", BROKERS)];

/// Serializer and deserializer properties.
const SERIALIZATION: [&str; 4] =
    ["key.serializer", "value.serializer", "key.deserializer", "value.deserializer"];

/// Names that [`set`] knows, for a similar one in an error.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().map(|(_, name, ..)| *name).chain(SERIALIZATION)
}

/// Accepts a harmless value of a setting without effect. `None` for another name.
pub(super) fn set(kind: Kind, name: &str, value: &str) -> Option<Result<(), ConfigError>> {
    let refused = |why: String| {
        let (name, value) = (redact::name(name), redact::value(name, value));
        Err(ConfigError::NotSupported { name, value: Some(value).filter(|v| v != HIDDEN), why })
    };
    if SERIALIZATION.contains(&name) {
        let fits = keeps_bytes(value);
        return Some(if fits { Ok(()) } else { refused(BYTES_ONLY.to_owned()) });
    }
    // A name may have a row for each of several clients.
    let rows = || NAMES.iter().filter(|(_, n, ..)| *n == name);
    if let Some((_, _, harmless, why)) = rows().find(|(kinds, ..)| kinds.contains(&kind)) {
        let fits = harmless.has(value);
        return Some(if fits { Ok(()) } else { refused(format!("{why}; {}", harmless.advice())) });
    }
    if let Some((kinds, ..)) = rows().next() {
        let clients = kinds.first().map_or("", |kind| kind.plural());
        return Some(Err(ConfigError::OfOtherClients { name: redact::name(name), clients }));
    }
    let (_, why) = FAMILIES.iter().find(|(prefix, _)| name.starts_with(prefix))?;
    Some(if value.is_empty() { Ok(()) } else { refused(format!("{why}; {}", NOTHING.advice())) })
}

/// Clients other than `kind` for which the setting has an effect.
pub(super) fn of_other_clients(kind: Kind, name: &str) -> Option<&'static str> {
    let others = [Kind::Producer, Kind::Consumer, Kind::Admin];
    let has = |other: &Kind| match other {
        Kind::Producer => supported::<ProducerConfig>().any(|n| n == name),
        Kind::Consumer => supported::<ConsumerConfig>().any(|n| n == name),
        Kind::Admin => supported::<AdminConfig>().any(|n| n == name),
    };
    others.into_iter().filter(|other| *other != kind).find(has).map(Kind::plural)
}

fn keeps_bytes(class: &str) -> bool {
    let Some(name) = class.strip_prefix("org.apache.kafka.common.serialization.") else {
        return false;
    };
    let name = name.strip_suffix("Deserializer").or(name.strip_suffix("Serializer"));
    matches!(name, Some("ByteArray" | "ByteBuffer" | "Bytes" | "String"))
}
