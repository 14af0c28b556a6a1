//! TLS and SASL.

use crate::{
    config::{Grant, Login, Origin, ProducerConfig},
    error::ConfigError,
    security::JwtRetriever,
};

const PLAIN: &str = "org.apache.kafka.common.security.plain.PlainLoginModule";
pub(super) const BEARER: &str =
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule";
const HANDLER: &str =
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler";

pub(super) const CLIENT_HANDLER: &str = "software.amazon.msk.auth.iam.IAMClientCallbackHandler";

pub(super) fn secured(properties: &[(&str, &str)]) -> Result<ProducerConfig, ConfigError> {
    let always = [("bootstrap.servers", "a:1")];
    ProducerConfig::from_properties(always.iter().chain(properties).copied())
}

#[test]
fn secrets_are_set_and_never_shown() {
    let jaas = format!("{PLAIN} required username=\"u\" password=\"hush\";");
    let config = secured(&[
        ("security.protocol", "sasl_ssl"),
        ("ssl.truststore.type", "PKCS12"),
        ("ssl.truststore.location", "/trusted.p12"),
        ("ssl.truststore.password", "hush"),
        ("ssl.keystore.certificate.chain", "chain"),
        ("ssl.keystore.key", "hush"),
        ("ssl.key.password", "hush"),
        ("ssl.endpoint.identification.algorithm", ""),
        ("ssl.enabled.protocols", "TLSv1.3, TLSv1.2"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.jaas.config", &jaas),
    ])
    .unwrap();
    assert!(!format!("{config:?}").contains("hush"));
    let shown = config.properties();
    let value = |name| shown.iter().find(|(n, _)| *n == name).map(|(_, value)| value.as_str());
    assert_eq!(value("security.protocol"), Some("SASL_SSL"));
    assert_eq!(value("ssl.truststore.type"), Some("PKCS12"));
    assert_eq!(value("ssl.enabled.protocols"), Some("TLSv1.2,TLSv1.3"));
    assert_eq!(value("ssl.endpoint.identification.algorithm"), Some(""));
    for name in
        ["ssl.truststore.password", "ssl.keystore.key", "ssl.key.password", "sasl.jaas.config"]
    {
        assert_eq!(value(name), Some("[hidden]"), "{name}");
    }
    assert_eq!(value("ssl.keystore.password"), Some(""));
}

#[test]
fn a_login_takes_settings_before_options() {
    let jaas = format!(
        "{BEARER} required clientId=\"id\" clientSecret='hush' scope=\"a b\" extension_logicalCluster=lkc \
         ssl.truststore.location=\"/idp.pem\";"
    );
    let always = [
        ("security.protocol", "SASL_SSL"),
        ("ssl.truststore.location", "/brokers.pem"),
        ("sasl.mechanism", "OAUTHBEARER"),
        ("sasl.login.callback.handler.class", HANDLER),
        ("sasl.oauthbearer.token.endpoint.url", "https://[::1]:8443/token?realm=x"),
        ("sasl.jaas.config", &jaas),
    ];
    let login = |more: &[(&str, &str)]| {
        let config = secured(&[&always, more].concat()).unwrap();
        assert!(!format!("{config:?}").contains("hush"));
        match config.common.security.sasl.login().unwrap() {
            Login::Oidc(credentials) => credentials,
            other => panic!("{other:?}"),
        }
    };
    let by_options = login(&[]);
    let secret =
        |id: &str, secret: &str| Grant::ClientSecret { id: id.into(), secret: secret.into() };
    let Origin::Endpoint(endpoint, grant) = &by_options.origin else { panic!("{by_options:?}") };
    assert_eq!(*grant, secret("id", "hush"));
    assert_eq!(by_options.scope.as_deref(), Some("a b"));
    assert_eq!(by_options.extensions, [("logicalCluster".to_owned(), "lkc".to_owned())]);
    assert_eq!(by_options.ssl.truststore.location, Some("/idp.pem".into()));
    assert_eq!((endpoint.host.as_str(), endpoint.port), ("::1", 8443));
    assert_eq!(endpoint.path_and_query, "/token?realm=x");
    let shown = endpoint.to_string();
    assert_eq!(shown, "sasl.oauthbearer.token.endpoint.url=https://[::1]:8443/token");
    let by_settings = login(&[
        ("sasl.oauthbearer.client.credentials.client.id", "other"),
        ("sasl.oauthbearer.client.credentials.client.secret", "hush2"),
        ("sasl.oauthbearer.scope", "c"),
    ]);
    assert!(
        matches!(&by_settings.origin, Origin::Endpoint(_, g) if *g == secret("other", "hush2"))
    );
    assert_eq!(by_settings.scope.as_deref(), Some("c"));
}

#[test]
fn security_settings_that_cannot_work_are_refused_by_name() {
    let scram = "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"u\" password=\"hush\";";
    let sasl = ("security.protocol", "SASL_SSL");
    let plain = ("sasl.mechanism", "PLAIN");
    let tls = ("security.protocol", "SSL");
    let bearer = ("sasl.mechanism", "OAUTHBEARER");
    let url = |url| ("sasl.oauthbearer.token.endpoint.url", url);
    let id = ("sasl.oauthbearer.client.credentials.client.id", "x");
    let retriever = |name| match name {
        "File" => ("sasl.oauthbearer.jwt.retriever.class", JwtRetriever::File.class()),
        _ => ("sasl.oauthbearer.jwt.retriever.class", JwtRetriever::JwtBearer.class()),
    };
    let odd_option =
        format!("{BEARER} required clientId=a clientSecret=hush ssl.truststore.type=hush;");
    let cases: &[(&[(&str, &str)], &str)] = &[
        (&[("security.protocol", "TLS")], "SASL_PLAINTEXT"),
        (&[("ssl.truststore.type", "BKS")], "keytool -importkeystore"),
        (&[("ssl.enabled.protocols", "TLSv1.1")], "TLSv1.2"),
        (&[("sasl.mechanism", "SCRAM")], "SCRAM-SHA-512"),
        (&[sasl], "sasl.mechanism is GSSAPI (Kerberos) by default"),
        (&[sasl, ("sasl.mechanism", "GSSAPI")], "SCRAM-SHA-512"),
        (&[sasl, plain], "sasl.jaas.config is required"),
        (&[sasl, plain, ("sasl.jaas.config", scram)], "does not fit sasl.mechanism=PLAIN"),
        (&[sasl, plain, ("sasl.jaas.config", "x.Krb5LoginModule required;")], "x.Krb5LoginModule"),
        (&[sasl, bearer], "needs sasl.oauthbearer.token.endpoint.url"),
        (&[sasl, bearer, url("https://x"), ("sasl.jaas.config", scram)], "does not fit"),
        (&[sasl, bearer, url("https://x")], "the option 'clientId' in sasl.jaas.config"),
        (&[sasl, bearer, url("https://x"), id], "the option 'clientSecret' in sasl.jaas.config"),
        (&[sasl, bearer, url("http://127.0.0.1/hush"), id], "must begin with https://"),
        (&[sasl, bearer, url("file://x/hush"), id], "has the form file:///path"),
        (
            &[sasl, bearer, url("file:///x"), retriever("JwtBearer")],
            "JwtBearerJwtRetriever needs an https address in sasl.oauthbearer.token.endpoint.url",
        ),
        (
            &[sasl, bearer, url("https://x"), retriever("File")],
            "FileJwtRetriever needs file:///path of a token in sasl.oauthbearer.token.endpoint.url",
        ),
        (
            &[sasl, bearer, url("https://x"), retriever("JwtBearer"), id],
            "JwtBearerJwtRetriever needs sasl.oauthbearer.assertion.private.key.file, or sasl.oauthbearer.assertion.file",
        ),
        (
            &[sasl, bearer, url("https://x"), id, ("sasl.oauthbearer.assertion.claim.iss", "x")],
            "sasl.oauthbearer.assertion.claim.iss needs sasl.oauthbearer.assertion.private.key.file",
        ),
        (
            &[
                sasl,
                bearer,
                url("https://x"),
                id,
                ("sasl.oauthbearer.assertion.private.key.file", "x"),
            ],
            "to log in with an assertion, set sasl.oauthbearer.assertion.claim.iss",
        ),
        (
            &[("sasl.login.callback.handler.class", "org.example.Hush")],
            "use SecurityConfig::oauth_bearer with a function",
        ),
        (
            &[sasl, ("sasl.mechanism", "AWS_MSK_IAM"), ("sasl.jaas.config", scram)],
            "does not fit sasl.mechanism=AWS_MSK_IAM; use software.amazon.msk.auth.iam.IAMLoginModule",
        ),
        (
            &[("sasl.oauthbearer.jwt.retriever.class", "org.example.Hush")],
            "use SecurityConfig::oauth_bearer with a function",
        ),
        (&[sasl, bearer, url("https://a:hush@x"), id], "must not contain a user name"),
        (
            &[sasl, bearer, url("https://"), id],
            "sasl.oauthbearer.token.endpoint.url: it is not a URL",
        ),
        (
            &[sasl, bearer, url("https://x"), ("sasl.jaas.config", &odd_option)],
            "the option 'ssl.truststore.type' in sasl.jaas.config: expected PEM",
        ),
        (&[("security.protocol", "SSL"), ("ssl.keystore.key", "hush")], "certificate.chain"),
        (&[("ssl.cipher.suites", "TLS_AES_128_GCM_SHA256,x,TLS_Y")], "'x', 'TLS_Y' cannot be used"),
        (
            &[tls, ("ssl.protocol", "TLSv1.2"), ("ssl.enabled.protocols", "TLSv1.3")],
            "ssl.protocol=TLSv1.2",
        ),
        (
            &[tls, ("ssl.protocol", "TLSv1.2"), ("ssl.cipher.suites", "TLS_AES_128_GCM_SHA256")],
            "ssl.cipher.suites has no cipher suite",
        ),
    ];
    for (properties, part) in cases {
        let error = secured(properties).unwrap_err().to_string();
        assert!(error.contains(part) && !error.contains("hush"), "{properties:?}: {error}");
    }
    // Java validates unused settings, too.
    secured(&[("sasl.jaas.config", "nonsense")]).unwrap();
}
