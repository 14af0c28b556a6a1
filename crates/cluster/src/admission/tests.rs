use std::time::Duration;

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    api::ApiKey,
    cold::{
        self, Request, StrBytes,
        messages::{
            MetadataRequest, SaslAuthenticateRequest, SaslAuthenticateResponse,
            SaslHandshakeRequest, SaslHandshakeResponse,
        },
    },
    header::{response_body, split_request},
};
use proptest::prelude::*;
use tokio::time::Instant;

use super::*;
use crate::config::{Listeners, SecurityProtocol};

fn admission(lifetime: Duration) -> Arc<Admission> {
    let mut config = ClusterConfig {
        listeners: Listeners::local(SecurityProtocol::SaslPlaintext),
        ..ClusterConfig::default()
    };
    config.security.mechanisms = vec![Mechanism::Plain, Mechanism::ScramSha256];
    config.security.users = vec![User::new("alice", "secret"), User::new("bob", "secret")];
    config.security.max_reauth = lifetime;
    config.validate().unwrap();
    Admissions::new(&config, None).unwrap().clients.remove(0)
}

/// Returns a time whose wall clock is constant.
fn at(instant: Instant) -> Now {
    Now { instant, wall_ms: 1_000_000 }
}

fn arrived(admission: Arc<Admission>) -> Authentication {
    Authentication::new(admission, Principal::anonymous())
}

fn send<R: Request>(
    authentication: &mut Authentication,
    version: i16,
    request: &R,
    now: Instant,
) -> Verdict {
    let frame = cold::encode_request(version, 7, Some("test"), request).unwrap();
    let frame = Bytes::from(frame).slice(4..);
    let (header, body) = split_request(&frame).unwrap();
    authentication.receive(&header, &body, &Credentials::new(), at(now))
}

fn choose(authentication: &mut Authentication, mechanism: &str, now: Instant) -> Verdict {
    let mechanism = StrBytes::from_string(mechanism.to_owned());
    send(authentication, 1, &SaslHandshakeRequest::default().with_mechanism(mechanism), now)
}

fn prove(authentication: &mut Authentication, message: &'static [u8], now: Instant) -> Verdict {
    let message = Bytes::from_static(message);
    send(authentication, 2, &SaslAuthenticateRequest::default().with_auth_bytes(message), now)
}

fn answer<R: cold::Decodable + cold::Message>(api: ApiKey, version: i16, frame: &Bytes) -> R {
    let body = response_body(&frame.slice(4..), api, version).unwrap();
    cold::decode_response(version, body).unwrap()
}

fn authenticated(verdict: &Verdict) -> SaslAuthenticateResponse {
    let (Verdict::Answer(frame) | Verdict::Refuse { answer: frame, .. }) = verdict else {
        panic!("{verdict:?}")
    };
    answer(ApiKey::SASL_AUTHENTICATE, 2, frame)
}

fn enter(authentication: &mut Authentication, now: Instant) -> SaslAuthenticateResponse {
    assert!(matches!(choose(authentication, "PLAIN", now), Verdict::Answer(_)));
    let verdict = prove(authentication, b"\0alice\0secret", now);
    assert!(matches!(verdict, Verdict::Answer(_)));
    authenticated(&verdict)
}

#[test]
fn no_request_is_served_before_the_authentication() {
    let now = Instant::now();
    let mut alice = arrived(admission(Duration::ZERO));
    let metadata = MetadataRequest::default();
    assert_eq!(alice.frame_limit(1 << 20), 64 * 1024);
    assert!(matches!(
        send(&mut alice, 3, &cold::messages::ApiVersionsRequest::default(), now),
        Verdict::Serve
    ));
    assert!(matches!(send(&mut alice, 12, &metadata, now), Verdict::Close(_)));
    assert!(matches!(prove(&mut alice, b"\0alice\0secret", now), Verdict::Close(_)));

    let response = enter(&mut alice, now);
    assert_eq!((response.error_code, response.session_lifetime_ms), (0, 0));
    assert_eq!(alice.principal().to_string(), "User:alice");
    assert_eq!(alice.frame_limit(1 << 20), 1 << 20);
    assert!(matches!(send(&mut alice, 12, &metadata, now), Verdict::Serve));
    // Without a limited lifetime there is no re-authentication: the handlers respond to this.
    assert!(matches!(choose(&mut alice, "PLAIN", now), Verdict::Serve));
}

#[test]
fn a_refused_authentication_reports_its_reason() {
    let now = Instant::now();
    let mut client = arrived(admission(Duration::ZERO));
    let verdict = choose(&mut client, "SCRAM-SHA-512", now);
    let Verdict::Refuse { answer: frame, .. } = &verdict else { panic!("{verdict:?}") };
    let response: SaslHandshakeResponse = answer(ApiKey::SASL_HANDSHAKE, 1, frame);
    assert_eq!(response.error_code, ErrorCode::UNSUPPORTED_SASL_MECHANISM.0);
    let offered: Vec<&str> = response.mechanisms.iter().map(StrBytes::as_str).collect();
    assert_eq!(offered, ["PLAIN", "SCRAM-SHA-256"]);

    for (mechanism, message, told) in [
        ("PLAIN", &b"\0alice\0wrong"[..], "Authentication failed: Invalid username or password"),
        (
            "SCRAM-SHA-256",
            b"n,,n=nobody,r=abc",
            "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256",
        ),
    ] {
        let mut client = arrived(admission(Duration::ZERO));
        assert!(matches!(choose(&mut client, mechanism, now), Verdict::Answer(_)));
        let verdict = prove(&mut client, message, now);
        assert!(matches!(verdict, Verdict::Refuse { .. }));
        let response = authenticated(&verdict);
        assert_eq!(response.error_code, ErrorCode::SASL_AUTHENTICATION_FAILED.0);
        assert_eq!(response.error_message.as_deref(), Some(told));
        assert_eq!(client.principal().to_string(), "User:ANONYMOUS");
    }
}

#[test]
fn a_connection_closes_unless_it_reauthenticates_in_time() {
    let lifetime = Duration::from_secs(60);
    let start = Instant::now();
    let metadata = MetadataRequest::default();
    let mut alice = arrived(admission(lifetime));
    assert_eq!(enter(&mut alice, start).session_lifetime_ms, 60_000);
    let late = start + lifetime;
    assert!(matches!(send(&mut alice, 12, &metadata, start + lifetime / 2), Verdict::Serve));
    assert!(matches!(send(&mut alice, 12, &metadata, late), Verdict::Close(_)));
    // Re-authentication is still possible.
    assert_eq!(enter(&mut alice, late).session_lifetime_ms, 60_000);
    assert!(matches!(send(&mut alice, 12, &metadata, late), Verdict::Serve));
    // Within a second the handlers respond to another attempt.
    assert!(matches!(choose(&mut alice, "PLAIN", late), Verdict::Serve));
    let later = late + Duration::from_secs(1);
    assert!(matches!(choose(&mut alice, "PLAIN", later), Verdict::Answer(_)));
    assert!(matches!(send(&mut alice, 12, &metadata, later), Verdict::Close(_)));
}

#[test]
fn a_reauthentication_must_keep_the_principal_and_the_mechanism() {
    let start = Instant::now();
    let refused = |mechanism: &str, message: &'static [u8]| {
        let mut alice = arrived(admission(Duration::from_secs(60)));
        enter(&mut alice, start);
        assert!(matches!(choose(&mut alice, mechanism, start), Verdict::Answer(_)));
        let verdict = prove(&mut alice, message, start);
        assert!(matches!(verdict, Verdict::Refuse { .. }));
        assert_eq!(alice.principal().to_string(), "User:alice");
        authenticated(&verdict).error_message.unwrap().to_string()
    };
    assert_eq!(
        refused("PLAIN", b"\0bob\0secret"),
        "Cannot change principals during re-authentication from User:alice to User:bob"
    );
    assert_eq!(
        refused("SCRAM-SHA-256", b"n,,n=alice,r=abc"),
        "Cannot change from SASL mechanism PLAIN during re-authentication"
    );
    assert_eq!(refused("PLAIN", b"\0alice\0"), "Authentication failed: password not specified");
}

#[test]
fn a_token_authenticates_until_it_expires() {
    use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
    let mut config = ClusterConfig {
        listeners: Listeners::local(SecurityProtocol::SaslPlaintext),
        ..ClusterConfig::default()
    };
    assert!(!config.security.mechanisms.contains(&Mechanism::OAuthBearer), "only when asked for");
    config.set("sasl.enabled.mechanisms", "OAUTHBEARER").unwrap();
    config.set("connections.max.reauth.ms", "60000").unwrap();
    config.validate().unwrap();
    let admission = Admissions::new(&config, None).unwrap().clients.remove(0);
    let now = Instant::now();
    let token =
        |claims: &str| format!("{}.{}.", BASE64.encode(r#"{"alg":"none"}"#), BASE64.encode(claims));
    let show = |client: &mut Authentication, message: String| {
        let request = SaslAuthenticateRequest::default().with_auth_bytes(message.into());
        send(client, 2, &request, now)
    };
    let first = |token: &str| format!("n,,\x01auth=Bearer {token}\x01\x01");
    // The wall clock is at 1000 s.
    for (claims, lifetime) in [
        (r#"{"sub":"alice","exp":1030}"#, 30_000),
        (r#"{"sub":"alice","exp":1030.5,"iat":1000,"scope":["any"]}"#, 30_500),
        (r#"{"sub":"alice","exp":9000}"#, 60_000),
    ] {
        let mut client = arrived(Arc::clone(&admission));
        assert!(matches!(choose(&mut client, "OAUTHBEARER", now), Verdict::Answer(_)));
        let response = authenticated(&show(&mut client, first(&token(claims))));
        assert_eq!((response.error_code, response.session_lifetime_ms), (0, lifetime), "{claims}");
        assert_eq!(client.principal().to_string(), "User:alice");
    }
    let signed = token(r#"{"sub":"alice","exp":1030}"#) + "c2lnbmVk";
    for token in [
        token(r#"{"sub":"alice","exp":1000}"#),
        token(r#"{"sub":"alice","exp":1030,"iat":1001}"#),
        token(r#"{"sub":"alice"}"#),
        token(r#"{"sub":" ","exp":1030}"#),
        token(r#"{"exp":1030}"#),
        token("[1]"),
        signed,
        "a.b.".to_owned(),
    ] {
        let mut client = arrived(Arc::clone(&admission));
        assert!(matches!(choose(&mut client, "OAUTHBEARER", now), Verdict::Answer(_)));
        let told = authenticated(&show(&mut client, first(&token)));
        assert_eq!(&told.auth_bytes[..], br#"{"status":"invalid_token"}"#);
        let refused = authenticated(&show(&mut client, "\x01".into()));
        assert_eq!(refused.error_code, ErrorCode::SASL_AUTHENTICATION_FAILED.0);
        assert_eq!(refused.error_message.as_deref(), Some(r#"{"status":"invalid_token"}"#));
        assert_eq!(**client.principal(), Principal::anonymous());
    }
}

#[test]
fn brokers_authenticate_with_a_password_that_is_not_printed() {
    let config = ClusterConfig { security: Default::default(), ..ClusterConfig::default() };
    assert!(Admissions::new(&config, None).unwrap().brokers.separate().is_none());
    let mut config = config;
    config.security.authorizer = crate::config::Authorizer::Standard;
    let admissions = Admissions::new(&config, None).unwrap();
    let brokers = admissions.brokers.separate().unwrap();
    let credentials = brokers.credentials();
    assert!(!format!("{admissions:?}").contains(&brokers.password));
    let now = Instant::now();
    let mut broker = arrived(Arc::clone(&brokers.admission));
    assert!(matches!(choose(&mut broker, "PLAIN", now), Verdict::Answer(_)));
    let request = SaslAuthenticateRequest::default().with_auth_bytes(credentials.into());
    assert!(matches!(send(&mut broker, 2, &request, now), Verdict::Answer(_)));
    assert_eq!(**broker.principal(), Principal::Broker);
    assert_eq!(
        (broker.principal().to_string(), broker.principal().user()),
        ("Broker:".into(), None)
    );
    // No user name can look like a broker.
    for name in ["broker", "", "Broker:"] {
        assert_ne!(Principal::User(name.into()).to_string(), broker.principal().to_string());
    }
    // On the clients' listener the broker's name is an ordinary user name.
    let mut client = arrived(admission(Duration::ZERO));
    assert!(matches!(choose(&mut client, "PLAIN", now), Verdict::Answer(_)));
    assert!(matches!(send(&mut client, 2, &request, now), Verdict::Refuse { .. }));
}

fn frames() -> impl Strategy<Value = (i16, i16, Vec<u8>)> {
    let api = prop_oneof![Just(17i16), Just(18), Just(36), any::<i16>()];
    let message = prop::collection::vec(any::<u8>(), 0..100);
    // The bytes include sections with arbitrary claimed lengths.
    let section = (any::<i32>(), message.clone())
        .prop_map(|(length, bytes)| [&length.to_be_bytes()[..], &bytes].concat());
    let plain = Just([&[0, 5][..], b"PLAIN"].concat());
    (api, -1i16..5, prop_oneof![message, section, plain])
}

proptest! {
    #[test]
    fn arbitrary_requests_neither_authenticate_nor_panic(requests in prop::collection::vec(frames(), 1..6)) {
        let mut client = arrived(admission(Duration::from_secs(1)));
        for (api, version, body) in requests {
            let mut frame = [api.to_be_bytes(), version.to_be_bytes()].concat();
            frame.extend([0, 0, 0, 1, 255, 255]);
            frame.extend(body);
            let frame = Bytes::from(frame);
            let Ok((header, body)) = split_request(&frame) else { continue };
            match client.receive(&header, &body, &Credentials::new(), at(Instant::now())) {
                Verdict::Serve => prop_assert_eq!(header.api, ApiKey::API_VERSIONS),
                Verdict::Answer(answer) | Verdict::Refuse { answer, .. } => prop_assert!(answer.len() < 1000),
                Verdict::Close(_) => {}
            }
        }
        prop_assert_eq!(&**client.principal(), &Principal::anonymous());
    }
}
