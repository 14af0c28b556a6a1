//! AWS_MSK_IAM against a broker that verifies the signature, by the steps in aws-msk-iam-auth's README.

use curtail::{
    ErrorCode,
    security::{AwsCredentials, Mechanism, SecurityConfig, SecurityProtocol},
};
use curtail_wire::{ApiKey, cold, cold::StrBytes, cold::messages};
use ring::{digest, hmac};
use serde_json::Value;

use crate::{
    broker::{Act, Broker, authenticated},
    *,
};

const SECRET: &str = "hush/secret";
const ACCEPTED: &[u8] = b"{\"version\":\"2020_10_22\",\"request-id\":\"r\"}";

fn security() -> SecurityConfig {
    let mut security = SecurityConfig::aws_msk_iam_with(|| async {
        Ok(AwsCredentials::new("AKID", SECRET).session_token("session+/="))
    });
    assert_eq!(security.sasl.mechanism, Some(Mechanism::AwsMskIam));
    security.protocol = SecurityProtocol::SaslPlaintext;
    security.sasl.aws.region = Some("us-east-1".into());
    security
}

fn secured(broker: &Broker) -> Producer {
    let config = producer_config(&broker.address.to_string())
        .security(security())
        .delivery_timeout(HANGS)
        .connection_setup_timeout(HANGS)
        .request_timeout(HANGS);
    assert!(!format!("{config:?}").contains(SECRET));
    Producer::new(config).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn encoded(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    let encode = |b: u8| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") };
    text.bytes().map(encode).collect()
}

/// The signature that belongs to a message.
fn signature(fields: &Value, secret: &str) -> String {
    let field = |name: &str| fields[name].as_str().unwrap();
    let query = [
        ("Action", "action"),
        ("X-Amz-Algorithm", "x-amz-algorithm"),
        ("X-Amz-Credential", "x-amz-credential"),
        ("X-Amz-Date", "x-amz-date"),
        ("X-Amz-Expires", "x-amz-expires"),
        ("X-Amz-Security-Token", "x-amz-security-token"),
        ("X-Amz-SignedHeaders", "x-amz-signedheaders"),
    ]
    .map(|(name, key)| format!("{name}={}", encoded(field(key))))
    .join("&");
    let sha256 = |text: &[u8]| hex(digest::digest(&digest::SHA256, text).as_ref());
    let request = format!("GET\n/\n{query}\nhost:{}\n\nhost\n{}", field("host"), sha256(b""));
    let scope = field("x-amz-credential").split_once('/').unwrap().1;
    let date = field("x-amz-date");
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", sha256(request.as_bytes()));
    let mut key = format!("AWS4{secret}").into_bytes();
    for part in scope.split('/').chain([text.as_str()]) {
        let with = hmac::Key::new(hmac::HMAC_SHA256, &key);
        key = hmac::sign(&with, part.as_bytes()).as_ref().to_vec();
    }
    hex(&key)
}

#[test]
fn broker_that_verifies_the_signature_serves_the_client() {
    run(async {
        let broker = Broker::start(|call, frame| {
            Act::Send(match call.api {
                // A session of a few seconds: it is renewed in place.
                ApiKey::SASL_AUTHENTICATE => authenticated(call, ACCEPTED, 2_000),
                _ => frame,
            })
        })
        .await;
        let producer = secured(&broker);
        let (mut logins, mut offset) = (0, 0);
        let connections = |broker: &Broker| broker.model.lock().connections;
        while logins <= connections(&broker) {
            producer.send(record("x")).await.unwrap().await.unwrap();
            offset += 1;
            logins = broker.calls(ApiKey::SASL_AUTHENTICATE);
        }
        assert!(offset > 1, "the session was renewed while it was in use");
        let fields: Value = serde_json::from_slice(&broker.model.lock().proof).unwrap();
        assert_eq!(fields["version"], "2020_10_22");
        assert_eq!(fields["host"], "127.0.0.1");
        assert_eq!(fields["action"], "kafka-cluster:Connect");
        assert_eq!(fields["x-amz-security-token"], "session+/=");
        assert_eq!(fields["x-amz-signature"], signature(&fields, SECRET));
        assert_ne!(fields["x-amz-signature"], signature(&fields, "another"));
        ends("close", producer.close()).await.unwrap();
    });
}

#[test]
fn refusals_of_the_broker_name_the_mechanism() {
    run(async {
        for (words, code, part) in [
            (&b""[..], ErrorCode::NONE, "violates AWS_MSK_IAM: it is empty"),
            (
                ACCEPTED,
                ErrorCode::SASL_AUTHENTICATION_FAILED,
                "the broker refuses the AWS credentials (AWS_MSK_IAM): Access denied",
            ),
        ] {
            let broker = Broker::start(move |call, frame| {
                if call.api != ApiKey::SASL_AUTHENTICATE {
                    return Act::Send(frame);
                }
                if code == ErrorCode::NONE {
                    return Act::Send(authenticated(call, words, 0));
                }
                let answer = messages::SaslAuthenticateResponse::default()
                    .with_error_code(code.0)
                    .with_error_message(Some(StrBytes::from_static_str("Access denied")));
                let (api, version) = (call.api, call.version);
                let frame = cold::encode_response(api, version, call.correlation_id, &answer);
                Act::Send(frame.unwrap())
            })
            .await;
            let producer = secured(&broker);
            let error = refusal_of_a_send(&producer).await;
            check_error(&error);
            let text = error.report().to_string();
            assert!(text.contains(part) && !text.contains("hush"), "{text}");
            assert!(matches!(error, Error::Authentication { .. }), "{error:?}");
            ends("close", producer.close()).await.unwrap();
        }
    });
}
