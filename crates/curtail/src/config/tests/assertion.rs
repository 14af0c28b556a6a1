//! The grant that settings select.

use super::security::{BEARER, secured};
use crate::{
    ProducerConfig,
    config::{Grant, Login, Origin},
    security::{AssertionConfig, SecurityConfig, SigningAlgorithm},
};

/// The rules of Java's `DefaultJwtRetriever` and `ClientCredentialsRequestFormatterFactory`.
#[test]
fn class_and_assertion_select_the_grant() {
    let jaas = format!("{BEARER} required clientId=\"id\" clientSecret='hush' scope=\"a\";");
    let class = "sasl.oauthbearer.jwt.retriever.class";
    let of_java = |name: &str| format!("org.apache.kafka.common.security.oauthbearer.{name}");
    let [secret, bearer, file] =
        ["ClientCredentialsJwtRetriever", "JwtBearerJwtRetriever", "FileJwtRetriever"].map(of_java);
    let https = "https://x/y";
    let login = |url: &str, more: &[(&str, &str)]| {
        let always = [
            ("security.protocol", "SASL_SSL"),
            ("sasl.mechanism", "OAUTHBEARER"),
            ("sasl.jaas.config", &jaas),
            ("sasl.oauthbearer.token.endpoint.url", url),
        ];
        match secured(&[&always, more].concat()).unwrap().common.security.sasl.login().unwrap() {
            Login::Oidc(login) => *login,
            other => panic!("{other:?}"),
        }
    };
    let grant = |more: &[(&str, &str)]| match login(https, more).origin {
        Origin::Endpoint(_, grant) => grant,
        Origin::File(file) => panic!("{file:?}"),
    };
    let key = ("sasl.oauthbearer.assertion.private.key.file", "/key.pem");
    let ready = ("sasl.oauthbearer.assertion.file", "/assertion.jwt");
    let issuer = ("sasl.oauthbearer.assertion.claim.iss", "id");
    let by_secret = Grant::ClientSecret { id: "id".into(), secret: "hush".into() };
    let by_assertion = Grant::ClientAssertion { id: Some("id".into()) };
    assert_eq!(grant(&[key]), by_secret, "Java makes an assertion only for an issuer");
    assert_eq!(grant(&[key, issuer]), by_assertion);
    assert_eq!(grant(&[ready, (class, &secret)]), by_assertion);
    assert_eq!(grant(&[ready, (class, &bearer)]), Grant::JwtBearer);
    assert_eq!(grant(&[key, (class, &bearer)]), Grant::JwtBearer);
    assert_eq!(login(https, &[key, issuer]).scope.as_deref(), Some("a"));
    assert_eq!(login(https, &[key, (class, &bearer)]).scope, None, "as in Java");
    for (url, more) in [("file:///run/token", None), ("file:/run/token", Some((class, &*file)))] {
        let login = login(url, more.as_slice());
        assert_eq!(login.origin, Origin::File("/run/token".into()));
        assert_eq!(
            login.origin.to_string(),
            "sasl.oauthbearer.token.endpoint.url=file:///run/token"
        );
    }
}

#[test]
fn builders_of_assertions_set_what_properties_set() {
    let assertion = AssertionConfig::signed(SigningAlgorithm::Es256, "/key.pem").client("id");
    let config = |security| ProducerConfig::new("a:1").security(security);
    let by_builder =
        config(SecurityConfig::client_assertion("https://x", "id", assertion.audience("aud")));
    by_builder.validate().unwrap();
    let class = "org.apache.kafka.common.security.oauthbearer.";
    let by_name = secured(&[
        ("security.protocol", "SASL_SSL"),
        ("sasl.mechanism", "OAUTHBEARER"),
        ("sasl.oauthbearer.token.endpoint.url", "https://x"),
        ("sasl.oauthbearer.client.credentials.client.id", "id"),
        ("sasl.oauthbearer.jwt.retriever.class", &format!("{class}ClientCredentialsJwtRetriever")),
        ("sasl.oauthbearer.assertion.algorithm", "ES256"),
        ("sasl.oauthbearer.assertion.private.key.file", "/key.pem"),
        ("sasl.oauthbearer.assertion.claim.iss", "id"),
        ("sasl.oauthbearer.assertion.claim.sub", "id"),
        ("sasl.oauthbearer.assertion.claim.aud", "aud"),
    ]);
    assert_eq!(by_builder.properties(), by_name.unwrap().properties());
    let bearer = SecurityConfig::jwt_bearer("https://x", AssertionConfig::from_file("/a.jwt"));
    config(bearer).validate().unwrap();
}
