//! Token endpoints that return no token, and one that does.

use std::time::Instant;

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use curtail::{
    ConfigError,
    security::{
        AssertionConfig, JwtRetriever, Mechanism, SecurityConfig, SecurityProtocol,
        SigningAlgorithm,
    },
};
use tokio::task::JoinSet;

use crate::{
    broker::Broker,
    certificates::{Authority, Signed},
    endpoint::{Endpoint, Say},
    *,
};

const SECRET: &str = "hush+hush";

struct Provider {
    authority: Authority,
}

impl Provider {
    fn new() -> Self {
        Self { authority: Authority::new("An identity provider") }
    }

    async fn endpoint(&self, say: impl FnMut() -> Say + Send + 'static) -> Endpoint {
        Endpoint::start(&self.authority.sign("127.0.0.1", Signed::FRESH), say).await
    }

    fn security(&self, endpoint: &Endpoint) -> SecurityConfig {
        let mut security = SecurityConfig::client_credentials(endpoint.url(), "teller", SECRET);
        security.protocol = SecurityProtocol::SaslPlaintext;
        assert_eq!(security.sasl.mechanism, Some(Mechanism::OAuthBearer));
        let oidc = &mut security.sasl.oidc;
        // Only the endpoint's behaviour may end an attempt, however busy the machine.
        (oidc.connect_timeout, oidc.read_timeout) = (Some(HANGS), Some(HANGS));
        let ssl = oidc.ssl.insert(curtail::security::SslConfig::default());
        ssl.truststore_certificates = Some(self.authority.pem());
        security
    }
}

fn secured(broker: &Broker, security: SecurityConfig, max_block: Duration) -> Producer {
    let config = producer_config(&broker.address.to_string())
        .security(security)
        .max_block(max_block)
        .delivery_timeout(HANGS)
        .connection_setup_timeout(HANGS)
        .request_timeout(HANGS);
    assert!(!format!("{config:?}").contains(SECRET));
    Producer::new(config).unwrap()
}

#[test]
fn one_token_serves_all_connections() {
    run(async {
        let provider = Provider::new();
        let endpoint = provider.endpoint(|| Say::token("a.b.c")).await;
        let mut security = provider.security(&endpoint);
        security.sasl.oidc.scope = Some("read write".into());
        security.sasl.oidc.header_urlencode = true;
        let broker = Broker::honest().await;
        let first = secured(&broker, security.clone(), HANGS);
        let second = secured(&broker, security, HANGS);
        for producer in [&first, &second] {
            producer.send(record("x")).await.unwrap().await.unwrap();
            assert_eq!(broker.model.lock().proof, b"n,,\x01auth=Bearer a.b.c\x01\x01"[..]);
        }
        assert!(broker.model.lock().connections >= 4);
        let requests = endpoint.requests();
        assert_eq!(requests.len(), 1);
        assert!(requests[0].starts_with("POST /token?hidden=part HTTP/1.1\r\n"), "{requests:?}");
        let basic = STANDARD.encode("teller:hush%2Bhush");
        assert!(requests[0].contains(&format!("authorization: Basic {basic}\r\n")), "{requests:?}");
        let form = "\r\n\r\ngrant_type=client_credentials&scope=read+write";
        assert!(requests[0].ends_with(form), "{requests:?}");
        ends("close", first.close()).await.unwrap();
        ends("close", second.close()).await.unwrap();
    });
}

const KEY: &str = "../net/src/tls/signing/ec.pem";

/// The value of a field of a form. The values here need no decoding.
fn field<'a>(form: &'a str, name: &str) -> &'a str {
    let field = form.split('&').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    field.unwrap_or_else(|| panic!("no {name} in {form}"))
}

#[test]
fn assertions_replace_the_client_secret() {
    run(async {
        let provider = Provider::new();
        let assertion = || AssertionConfig::signed(SigningAlgorithm::Es256, KEY).client("teller");
        let client_type = "urn%3Aietf%3Aparams%3Aoauth%3Aclient-assertion-type%3Ajwt-bearer";
        let bearer = "urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer";
        for is_bearer in [false, true] {
            let endpoint = provider.endpoint(|| Say::token("a.b.c")).await;
            let mut security = provider.security(&endpoint);
            security.sasl.oidc.scope = Some("read write".into());
            security.sasl.oidc.assertion = assertion();
            if is_bearer {
                security.sasl.oidc.retriever = JwtRetriever::JwtBearer;
            }
            let broker = Broker::honest().await;
            let producer = secured(&broker, security, HANGS);
            producer.send(record("x")).await.unwrap().await.unwrap();
            assert_eq!(broker.model.lock().proof, b"n,,\x01auth=Bearer a.b.c\x01\x01"[..]);
            let requests = endpoint.requests();
            assert!(!requests[0].contains("authorization:"), "{requests:?}");
            let form = requests[0].split_once("\r\n\r\n").unwrap().1;
            let signed = if is_bearer {
                assert_eq!(field(form, "grant_type"), bearer);
                field(form, "assertion")
            } else {
                assert_eq!(field(form, "grant_type"), "client_credentials");
                assert_eq!(field(form, "client_assertion_type"), client_type);
                assert_eq!(field(form, "client_id"), "teller");
                field(form, "client_assertion")
            };
            assert_eq!(field(form, "scope"), "read+write");
            let claims = URL_SAFE_NO_PAD.decode(signed.split('.').nth(1).unwrap()).unwrap();
            let claims = String::from_utf8(claims).unwrap();
            assert!(claims.contains("\"iss\":\"teller\",\"nbf\":"), "{claims}");
            assert_eq!(signed.split('.').count(), 3, "{signed}");
            ends("close", producer.close()).await.unwrap();
        }
    });
}

#[test]
fn refused_and_unusable_assertions_are_reported_without_secrets() {
    run(async {
        let provider = Provider::new();
        let endpoint = provider.endpoint(|| Say::token("a.b.c")).await;
        let mut security = provider.security(&endpoint);
        security.sasl.oidc.assertion = AssertionConfig::signed(SigningAlgorithm::Es256, KEY);
        security.sasl.oidc.assertion.issuer = Some("teller".into());
        security.sasl.oidc.assertion.private_key_file = Some("/missing/key.pem".into());
        let part = "sasl.oauthbearer.assertion.private.key.file=/missing/key.pem: No such file";
        let error = no_token(security.clone(), &endpoint, part).await;
        assert!(matches!(error, Error::Authentication { .. }), "{error}");
        assert_eq!(endpoint.requests().len(), 0);
        let file = tempfile::NamedTempFile::new().unwrap();
        // {"hush":1}, {} and a signature.
        let assertion = "eyJodXNoIjoxfQ.e30.c2ln";
        std::fs::write(file.path(), assertion).unwrap();
        // The endpoint repeats the assertion.
        let says = format!("{{\"error\":\"bad {assertion}\"}}");
        let endpoint = provider.endpoint(move || Say::answer("401 Unauthorized", "", &says)).await;
        let mut security = provider.security(&endpoint);
        security.sasl.oidc.assertion = AssertionConfig::from_file(file.path());
        let part = "bad [hidden]); check sasl.oauthbearer.assertion.*, the client id and the scope";
        let error = no_token(security, &endpoint, part).await;
        assert!(matches!(error, Error::Authentication { .. }), "{error}");
    });
}

#[test]
fn a_token_file_is_read_for_every_login() {
    run(async {
        let file = tempfile::NamedTempFile::new().unwrap();
        let token = |name: &str| {
            let claims =
                URL_SAFE_NO_PAD.encode(format!("{{\"exp\":4000000000,\"sub\":\"{name}\"}}"));
            let token = format!("e30.{claims}.");
            std::fs::write(file.path(), format!("{token}\n")).unwrap();
            format!("n,,\x01auth=Bearer {token}\x01\x01")
        };
        let broker = Broker::honest().await;
        for name in ["one", "two"] {
            let proof = token(name);
            let url = format!("file://{}", file.path().display());
            let mut security = SecurityConfig::client_credentials(url, "", SECRET);
            security.protocol = SecurityProtocol::SaslPlaintext;
            let producer = secured(&broker, security, HANGS);
            producer.send(record("x")).await.unwrap().await.unwrap();
            assert_eq!(broker.model.lock().proof, proof.as_bytes());
            ends("close", producer.close()).await.unwrap();
        }
    });
}

/// Returns the error of a send. Checks that no broker is dialled, and that the backoff limits the requests to the
/// endpoint.
async fn no_token(security: SecurityConfig, endpoint: &Endpoint, part: &str) -> Error {
    let broker = Broker::honest().await;
    let pause = security.sasl.oidc.retry_backoff_max;
    let begun = Instant::now();
    let producer = secured(&broker, security, Duration::from_secs(1));
    let send = async || {
        let error = refusal_of_a_send(&producer).await;
        check_error(&error);
        let text = error.report().to_string();
        assert!(text.contains(part) && text.contains(&endpoint.shown()), "{text} lacks '{part}'");
        assert!(!text.contains("hush") && !text.contains("hidden=part"), "{text}");
        error
    };
    let error = send().await;
    if matches!(error, Error::Authentication { .. }) {
        for _ in 0..3 {
            send().await;
        }
    }
    let most = 1 + (begun.elapsed().as_millis() / (pause.as_millis() / 2)) as usize;
    let asked = endpoint.requests().len();
    assert!(asked <= most, "asked {asked} times in {:?}", begun.elapsed());
    assert_eq!(broker.model.lock().connections, 0);
    ends("close", producer.close()).await.unwrap();
    error
}

#[test]
fn permanent_endpoint_errors_fail_sends_at_once() {
    run(async {
        let provider = Provider::new();
        let expired = "{\"access_token\":\"e30.eyJleHAiOjE3MDAwMDAwMDB9.\"}";
        let refusal =
            format!("{{\"error\":\"invalid_client\",\"error_description\":\"{SECRET}?\"}}");
        let elsewhere = "location: https://127.0.0.1:1/hush\r\n";
        let large = " ".repeat(2 << 20);
        let cases = [
            ("302 Found", elsewhere, "", "redirect"),
            ("401 Unauthorized", "", &refusal, "status 401: invalid_client"),
            ("200 OK", "", &large, "larger than 1048576 bytes"),
            ("200 OK", "", "<p>hush</p>", "not a token in JSON"),
            ("200 OK", "", "{\"token\":\"hush\"}", "no access_token"),
            ("200 OK", "", expired, "expired"),
        ];
        for (status, header, body, part) in cases {
            let (header, body) = (header.to_owned(), body.to_owned());
            let endpoint = provider.endpoint(move || Say::answer(status, &header, &body)).await;
            let error = no_token(provider.security(&endpoint), &endpoint, part).await;
            assert!(matches!(error, Error::Authentication { .. }), "{error}");
        }
        let endpoint = provider.endpoint(|| Say::token("a.b.c")).await;
        let mut stranger = provider.security(&endpoint);
        let ssl = stranger.sasl.oidc.ssl.as_mut().unwrap();
        ssl.truststore_certificates = Some(Authority::new("Another authority").pem());
        let error = no_token(stranger, &endpoint, "the token endpoint's certificate").await;
        assert!(matches!(error, Error::Authentication { .. }), "{error}");
        let mut unreadable = provider.security(&endpoint);
        let ssl = unreadable.sasl.oidc.ssl.insert(curtail::security::SslConfig::default());
        ssl.truststore.location = Some("/missing/ca.pem".into());
        let part = "sasl.jaas.config: ssl.truststore.location=/missing/ca.pem: No such file";
        let error = no_token(unreadable, &endpoint, part).await;
        assert!(matches!(error, Error::Config(ConfigError::Certificates(_))), "{error}");
    });
}

#[test]
fn transient_endpoint_errors_are_reported_as_unreachable() {
    run(async {
        let provider = Provider::new();
        type Script = fn() -> Say;
        let cases: [(Script, &str); 5] = [
            (|| Say::Nothing, "no response within 300 ms"),
            (|| Say::Bytes(Vec::new()), "is incomplete"),
            (
                || Say::Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}".into()),
                "is incomplete",
            ),
            (|| Say::Bytes(b"220 mail.example.com ESMTP\r\n".into()), "does not respond in HTTP"),
            (|| Say::answer("503 Service Unavailable", "", ""), "status 503"),
        ];
        let mut all = JoinSet::new();
        for (script, part) in cases {
            let endpoint = provider.endpoint(script).await;
            let mut security = provider.security(&endpoint);
            security.sasl.oidc.retry_backoff = Duration::from_secs(60);
            if part.contains("300 ms") {
                security.sasl.oidc.read_timeout = Some(Duration::from_millis(300));
            }
            all.spawn(async move {
                let error = no_token(security, &endpoint, part).await;
                assert!(matches!(error, Error::Unreachable { .. }), "{error}");
            });
        }
        while let Some(done) = all.join_next().await {
            done.unwrap();
        }
    });
}
