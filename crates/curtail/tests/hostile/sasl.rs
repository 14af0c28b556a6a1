//! Brokers that violate SASL or TLS before authentication.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use curtail::{
    ConfigError, ErrorCode,
    security::{Mechanism, Secret, SecurityConfig, SecurityProtocol},
};
use curtail_wire::{
    ApiKey,
    cold::{self, StrBytes, messages},
};
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::{
    broker::{Act, Broker, Call, TOPIC, authenticated, frame},
    *,
};

fn security(protocol: SecurityProtocol, mechanism: Mechanism) -> SecurityConfig {
    let mut security = SecurityConfig::new(protocol);
    security.sasl.mechanism = Some(mechanism);
    security.sasl.login = Some(("alice".into(), Secret::new("hush")));
    security
}

fn secured(address: SocketAddr, security: SecurityConfig, max_block: Duration) -> Producer {
    let config = producer_config(&address.to_string())
        .security(security)
        // Much longer than the test: an earlier connection attempt has skipped the backoff.
        .reconnect_backoff(PAUSE, PAUSE)
        .retry_backoff(PAUSE, PAUSE)
        // Only the peer's behaviour may end an attempt, however busy the machine.
        .connection_setup_timeout(HANGS)
        .request_timeout(HANGS)
        .max_block(max_block)
        .delivery_timeout(HANGS);
    Producer::new(config).unwrap()
}

const PAUSE: Duration = Duration::from_millis(200);

/// Returns the error that sends receive. Checks that failing sends do not dial more often than the backoff allows.
async fn told(
    address: SocketAddr,
    security: SecurityConfig,
    part: &str,
    connections: impl Fn() -> usize,
) -> Error {
    let begun = Instant::now();
    let producer = secured(address, security, Duration::from_secs(1));
    let send = async || {
        let error = refusal_of_a_send(&producer).await;
        check_error(&error);
        assert!(error.report().to_string().contains(part), "{error} lacks '{part}'");
        assert!(!error.report().to_string().contains("hush"), "{error}");
        error
    };
    let error = send().await;
    if matches!(error, Error::Authentication { .. }) {
        for _ in 0..3 {
            send().await;
        }
    }
    // At most one connection in 160 ms, two if it takes too long, and one more for each to test the listener for
    // plaintext.
    let most = 4 * (1 + begun.elapsed().as_millis() / 160);
    assert!(connections() as u128 <= most, "{} in {:?}", connections(), begun.elapsed());
    ends("close", producer.close()).await.unwrap();
    error
}

/// Checks sends to a broker with these responses to an API.
async fn broken(
    api: ApiKey,
    part: &'static str,
    answer: impl Fn(&Call) -> Vec<u8> + Send + 'static,
) {
    let script =
        move |call: &Call, frame| Act::Send(if call.api == api { answer(call) } else { frame });
    let broker = Broker::start(script).await;
    let security = security(SecurityProtocol::SaslPlaintext, Mechanism::Plain);
    let error = told(broker.address, security, part, || broker.model.lock().connections).await;
    assert!(error.report().to_string().contains("broke the Kafka protocol"), "{error}");
    // The peer may become a broker: this is no authentication failure.
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
}

/// Runs the cases concurrently, because each of them waits.
async fn side_by_side(mut all: JoinSet<()>) {
    while let Some(done) = all.join_next().await {
        done.unwrap();
    }
}

#[test]
fn counts_and_lengths_before_the_login() {
    run(async {
        let mut all = JoinSet::new();
        for (count, code) in [(-1, 0), (-1, 33), (i32::MAX, 0), (i32::MAX, 33)] {
            all.spawn(broken(ApiKey::SASL_HANDSHAKE, "", move |call: &Call| {
                frame(call, |w| {
                    w.i16(code);
                    w.i32(count);
                })
            }));
        }
        // Error 0, no message, and a SASL message of 256 MiB that never follows.
        all.spawn(broken(ApiKey::SASL_AUTHENTICATE, "", |call: &Call| {
            frame(call, |w| w.raw(&[0, 0, 0, 0xff, 0xff, 0xff, 0x7f]))
        }));
        for api in [ApiKey::SASL_HANDSHAKE, ApiKey::SASL_AUTHENTICATE] {
            for length in [64 * 1024 + 1, i32::MAX] {
                let frame = move |_: &Call| length.to_be_bytes().to_vec();
                all.spawn(broken(api, "larger than the limit", frame));
            }
        }
        side_by_side(all).await;
    });
}

/// A SCRAM server's first and last messages. `NONCE` stands for the client's nonce.
async fn scram((first, last, part): (&'static str, &'static str, &'static str)) {
    let broker = Broker::honest().await;
    let scripted = Arc::downgrade(&broker);
    broker.script(move |call, frame| {
        if call.api != ApiKey::SASL_AUTHENTICATE {
            return Act::Send(frame);
        }
        let broker = scripted.upgrade().unwrap();
        let said = String::from_utf8(broker.model.lock().proof.to_vec()).unwrap();
        let answer = match said.split_once(",r=").filter(|_| said.starts_with("n,,")) {
            Some((_, nonce)) => first.replace("NONCE", nonce),
            None => last.to_owned(),
        };
        Act::Send(authenticated(call, answer.as_bytes(), 0))
    });
    let security = security(SecurityProtocol::SaslPlaintext, Mechanism::ScramSha256);
    let connections = || broker.model.lock().connections;
    let error = told(broker.address, security, part, connections).await;
    assert!(matches!(error, Error::Authentication { .. }), "{error}");
}

#[test]
fn servers_that_break_scram() {
    run(async {
        let mut all = JoinSet::new();
        for case in [
            // CVE-2026-10143: the server could choose the client's amount of work.
            ("r=NONCEx,s=AAAA,i=1000001", "", "1000001 SCRAM iterations"),
            ("r=NONCEx,s=AAAA,i=4294967296", "", "4294967296 SCRAM iterations"),
            ("r=NONCEx,s=AAAA,i=4095", "", "4095 SCRAM iterations"),
            ("r=NONCEx,s=AAAA,i=-1", "", "violates SCRAM-SHA-256"),
            ("r=NONCE,s=AAAA,i=4096", "", "nonce"),
            ("r=another,s=AAAA,i=4096", "", "nonce"),
            ("r=NONCEx,s=AAAA,i=4096", "v=AAAA", "may be an impostor"),
            ("r=NONCEx,s=AAAA,i=4096", "", "violates SCRAM-SHA-256"),
            ("r=NONCEx,s=AAAA,i=4096", "e=other-error\nx", "refuses: other-error x"),
        ] {
            all.spawn(scram(case));
        }
        side_by_side(all).await;
    });
}

#[test]
fn sessions_of_odd_lengths() {
    run(async {
        for lifetime in [-1, i64::MIN, i64::MAX, 1] {
            let broker = Broker::start(move |call, frame| {
                Act::Send(match call.api {
                    ApiKey::SASL_AUTHENTICATE => authenticated(call, b"", lifetime),
                    _ => frame,
                })
            })
            .await;
            let security = security(SecurityProtocol::SaslPlaintext, Mechanism::Plain);
            let begun = Instant::now();
            let producer = secured(broker.address, security, HANGS);
            for n in 0..5 {
                let delivery = producer.send(record("x")).await.unwrap();
                assert_eq!(delivery.await.unwrap().offset, Some(n), "{lifetime}");
            }
            let connections = broker.model.lock().connections;
            // Renewals happen at most once a second.
            let most = connections * (1 + begun.elapsed().as_secs() as usize);
            let logins = broker.calls(ApiKey::SASL_AUTHENTICATE);
            assert!(logins <= most, "{lifetime}: {logins} by {connections}");
            ends("close", producer.close()).await.unwrap();
        }
    });
}

/// A peer that sends the same bytes on every connection and closes it, and the number of connections.
async fn peer(words: &'static [u8]) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _): (TcpStream, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::Relaxed);
            let _ = stream.write_all(words).await;
            // Unread bytes would reset the connection before the peer's bytes are read.
            tokio::spawn(async move {
                let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
            });
        }
    });
    (address, count)
}

#[test]
fn peers_that_speak_something_else() {
    const HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\n\r\n";
    const ALERT: &[u8] = &[0x15, 3, 3, 0, 2, 2, 70];
    run(async {
        use SecurityProtocol::{SaslPlaintext, SaslSsl, Ssl};
        let trusting = |protocol| {
            let mut security = security(protocol, Mechanism::Plain);
            security.ssl.truststore_certificates = Some(certificates::Authority::new("x").pem());
            security
        };
        let mut all = JoinSet::new();
        for (protocol, words, part) in [
            (SaslPlaintext, HTTP, "it responds in HTTP"),
            (SaslPlaintext, ALERT, "security.protocol=SASL_PLAINTEXT"),
            (Ssl, HTTP, "does not speak TLS"),
            (SaslSsl, HTTP, "does not speak TLS"),
            // The length of a frame, as a plaintext broker would begin.
            (Ssl, &[0, 0, 0, 9, 0, 0, 0, 0], "does not speak TLS"),
        ] {
            let (address, count) = peer(words).await;
            let security = trusting(protocol);
            all.spawn(async move {
                told(address, security, part, || count.load(Ordering::Relaxed)).await;
            });
        }
        side_by_side(all).await;
        let broker = Broker::honest().await;
        let connections = || broker.model.lock().connections;
        let error = told(broker.address, trusting(Ssl), "does not speak TLS", connections).await;
        assert!(matches!(error, Error::Authentication { .. }), "{error}");
    });
}

/// Java's clients fail with a ConfigException when they are made. No broker has refused anything.
#[test]
fn unusable_certificates_are_a_configuration_error_of_every_client() {
    run(async {
        let broker = Broker::honest().await;
        let trust = SecurityConfig::ssl().truststore("/missing/ca.pem", None);
        let pem = certificates::Authority::new("x").pem();
        let mut own = SecurityConfig::ssl().keystore("/missing/own.pem", None);
        own.ssl.truststore_certificates = Some(pem);
        for (security, setting) in [
            (trust, "ssl.truststore.location=/missing/ca.pem: "),
            (own, "ssl.keystore.location=/missing/own.pem: "),
        ] {
            let check = |error: Error| {
                check_error(&error);
                assert!(matches!(error, Error::Config(ConfigError::Certificates(_))), "{error:?}");
                let text = error.report().to_string();
                assert!(text.starts_with(setting) && text.contains("No such file"), "{text}");
            };
            let producer = secured(broker.address, security.clone(), HANGS);
            check(ends("send", producer.send(record("x"))).await.unwrap_err());
            ends("close", producer.close()).await.unwrap();

            let mut config = consumer_config(&broker.address.to_string())
                .security(security.clone())
                .default_api_timeout(HANGS);
            let mut reader = Consumer::new(config.clone()).unwrap();
            check(ends("connect", reader.connect()).await.unwrap_err());
            reader.assign([partition(0)]);
            check(ends("poll", reader.poll(HANGS)).await.unwrap_err());
            config = config.group_id("group");
            let mut member = Consumer::new(config).unwrap();
            member.subscribe([TOPIC]).unwrap();
            check(ends("poll", member.poll(HANGS)).await.unwrap_err());

            let config = AdminConfig::new(broker.address.to_string()).security(security);
            let admin = Admin::new(config).unwrap();
            check(ends("describe", admin.describe_cluster()).await.unwrap_err());
        }
    });
}

/// A listener that serves no request before SaslHandshake, to which it responds with this error and these mechanisms.
async fn unserving(code: ErrorCode, mechanisms: &'static [&'static str]) -> Arc<Broker> {
    Broker::start(move |call, frame| match call.api {
        ApiKey::API_VERSIONS => Act::Send(frame),
        ApiKey::SASL_HANDSHAKE => {
            let names = mechanisms.iter().map(|name| StrBytes::from_static_str(name)).collect();
            let answer = messages::SaslHandshakeResponse::default()
                .with_error_code(code.0)
                .with_mechanisms(names);
            let encoded =
                cold::encode_response(call.api, call.version, call.correlation_id, &answer);
            Act::Send(encoded.unwrap())
        }
        _ => Act::Cut(Vec::new()),
    })
    .await
}

/// Apache's brokers close the connection without a word. Java's clients retry until their timeouts.
#[test]
fn plaintext_client_of_a_sasl_listener_fails_at_once_and_names_the_mechanisms() {
    run(async {
        let enabled: &[&str] = &["SCRAM-SHA-256", "PLAIN"];
        for code in [ErrorCode::UNSUPPORTED_SASL_MECHANISM, ErrorCode::NONE] {
            let broker = unserving(code, enabled).await;
            let address = broker.address.to_string();
            let check = |error: Error| {
                check_error(&error);
                assert!(matches!(error, Error::Authentication { .. }), "{error:?}");
                let text = error.report().to_string();
                assert!(text.contains("security.protocol=PLAINTEXT lacks"), "{text}");
                assert!(text.contains("set it to SASL_PLAINTEXT"), "{text}");
                assert!(text.ends_with("SCRAM-SHA-256, PLAIN"), "{text}");
            };
            let patient = AdminConfig::new(&*address)
                .default_api_timeout(HANGS)
                .request_timeout(HANGS)
                .connection_setup_timeout(HANGS);
            let config =
                producer_config(&address).common(patient.get_common()).delivery_timeout(HANGS);
            let producer = Producer::new(config).unwrap();
            check(ends("send", producer.send(record("x"))).await.unwrap_err());
            ends("close", producer.close()).await.unwrap();

            let mut config = consumer_config(&address).common(patient.get_common());
            let mut reader = Consumer::new(config.clone()).unwrap();
            reader.assign([partition(0)]);
            check(ends("poll", reader.poll(HANGS)).await.unwrap_err());
            let topic = ends("partitions", reader.partitions_for(TOPIC)).await;
            check(topic.unwrap_err());
            config = config.group_id("group");
            let mut member = Consumer::new(config).unwrap();
            member.subscribe([TOPIC]).unwrap();
            check(ends("poll", member.poll(HANGS)).await.unwrap_err());

            let admin = Admin::new(patient).unwrap();
            check(ends("describe", admin.describe_cluster()).await.unwrap_err());
            check(ends("groups", admin.list_groups()).await.unwrap_err());
        }
    });
}

/// A broker that is shutting down or starting closes connections, too. Only a list of mechanisms proves a listener with
/// SASL.
#[test]
fn connections_closed_at_the_first_request_are_retried_without_a_sign_of_sasl() {
    run(async {
        for code in [ErrorCode::ILLEGAL_SASL_STATE, ErrorCode::NONE] {
            let broker = unserving(code, &[]).await;
            let address = broker.address.to_string();
            let admin = Admin::new(admin_config(&address)).unwrap();
            let error = ends("describe", admin.describe_cluster()).await.unwrap_err();
            check_error(&error);
            let hint = "at the first request; is security.protocol=PLAINTEXT that of the listener?";
            assert!(error.report().to_string().contains(hint), "{error}");
            assert!(!matches!(error, Error::Authentication { .. }), "{error:?}");

            let config = producer_config(&address).delivery_timeout(HANGS);
            let producer = Producer::new(config).unwrap();
            let sent = producer.send(record("x"));
            let serve = async {
                // Some attempts have failed.
                while broker.calls(ApiKey::METADATA) < 5 {
                    tokio::task::yield_now().await;
                }
                broker.script(|_, frame| Act::Send(frame));
            };
            let (sent, ()) = ends("send", async { tokio::join!(sent, serve) }).await;
            ends("delivery", sent.unwrap()).await.unwrap();

            // From now on a closed connection says nothing about the listener.
            let before = (broker.calls(ApiKey::METADATA), broker.calls(ApiKey::SASL_HANDSHAKE));
            broker.script(|call, frame| match call.api {
                ApiKey::API_VERSIONS => Act::Send(frame),
                _ => Act::Cut(Vec::new()),
            });
            let _delivery = ends("send", producer.send(record("y"))).await.unwrap();
            let closed = async {
                while broker.calls(ApiKey::METADATA) < before.0 + 3 {
                    tokio::task::yield_now().await;
                }
            };
            ends("metadata", closed).await;
            assert_eq!(broker.calls(ApiKey::SASL_HANDSHAKE), before.1);
            drop(producer);
        }
    });
}
