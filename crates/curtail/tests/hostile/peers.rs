//! Peers that are no brokers, and brokers with invalid first responses.

use std::{net::SocketAddr, time::Instant};

use curtail::{Admin, Consumer, Error, Producer};
use curtail_wire::ApiKey;
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpListener, TcpStream},
};

use crate::{
    broker::{Act, Broker, Call, frame, metadata},
    *,
};

/// Behaviour of a peer after its first bytes.
#[derive(Clone, Copy)]
enum Then {
    Close,
    Stay,
}

/// A peer that sends the same bytes on every connection.
async fn peer(words: &'static [u8], then: Then) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut open: Vec<TcpStream> = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.write_all(words).await;
            if matches!(then, Then::Stay) {
                open.push(stream);
            }
        }
    });
    address
}

/// Time after which a send to this peer fails.
#[derive(Clone, Copy)]
enum Patience {
    /// After `max.block.ms`: the peer may become a broker.
    MaxBlock,
    /// Immediately: the settings do not fit the peer.
    None,
}

/// Checks that every client fails in time with a line that contains `expected`, or one of several texts separated by `|`.
async fn all_fail(address: &str, expected: &str, patience: Patience) {
    let told = |error: Error| {
        check_error(&error);
        let line = error.report().to_string();
        assert!(expected.split('|').any(|text| line.contains(text)), "{line} ({expected})");
    };
    let producer = Producer::new(producer_config(address).max_block(BLOCK)).unwrap();
    let begun = Instant::now();
    told(ends("send", producer.send(record("x"))).await.unwrap_err());
    let waited = begun.elapsed() >= BLOCK;
    match patience {
        Patience::MaxBlock => assert!(waited, "{:?}", begun.elapsed()),
        Patience::None => {}
    }
    // A peer with a valid handshake counts as reached.
    if let Err(error) = ends("connect", producer.connect()).await {
        told(error);
    }
    ends("close", producer.close()).await.unwrap();

    let admin = Admin::new(admin_config(address)).unwrap();
    told(ends("describe", admin.describe_cluster()).await.unwrap_err());

    let mut consumer = Consumer::new(consumer_config(address)).unwrap();
    consumer.assign([partition(0)]);
    let error = ends("position", consumer.position(&partition(0))).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    told(ends("end offsets", consumer.end_offsets(&[partition(0)])).await.unwrap_err());
    // The poll ends, with an error or without records.
    let _ = ends("poll", consumer.poll(Duration::from_millis(100))).await;
    ends("close", consumer.close()).await;
}

async fn all_fail_with(words: &'static [u8], then: Then, expected: &str) {
    all_fail(&peer(words, then).await.to_string(), expected, Patience::MaxBlock).await;
}

#[test]
fn a_web_server() {
    run(all_fail_with(b"HTTP/1.1 400 Bad Request\r\n\r\n", Then::Close, "it responds in HTTP"));
}

#[test]
fn a_tls_alert() {
    run(async {
        let address = peer(&[0x15, 3, 3, 0, 2, 2, 70], Then::Close).await.to_string();
        all_fail(&address, "security.protocol=PLAINTEXT", Patience::None).await;
    });
}

#[test]
fn a_peer_that_closes_at_once() {
    run(all_fail_with(b"", Then::Close, "127.0.0.1:"));
}

#[test]
fn a_peer_that_says_nothing() {
    run(all_fail_with(b"", Then::Stay, "within|took longer than"));
}

#[test]
fn a_frame_of_negative_length() {
    run(all_fail_with(&[0xff, 0xff, 0xff, 0xfe], Then::Stay, "negative length -2"));
}

#[test]
fn a_frame_of_two_gibibytes() {
    run(all_fail_with(&[0x7f, 0xff, 0xff, 0xff], Then::Stay, "larger than the limit"));
}

#[test]
fn a_frame_too_large_for_a_greeting() {
    // 1 MiB: a valid size for responses, but not for those to ApiVersions.
    run(all_fail_with(&[0, 0x10, 0, 0, 0, 0, 0, 0], Then::Stay, "larger than the limit"));
}

#[test]
fn an_unsolicited_frame() {
    run(all_fail_with(&[0, 0, 0, 4, 0, 0, 0, 77], Then::Stay, "correlation id 77"));
}

#[test]
fn a_frame_too_short_for_a_correlation_id() {
    run(all_fail_with(&[0, 0, 0, 2, 0, 0], Then::Stay, "correlation id"));
}

/// A response to ApiVersions with this body.
async fn greeting(body: Vec<u8>, expected: &str) {
    let broker = Broker::start(move |call, _| Act::Send(frame(call, |w| w.raw(&body)))).await;
    all_fail(&broker.address.to_string(), expected, Patience::MaxBlock).await;
}

#[test]
fn versions_that_cannot_be_read() {
    run(async {
        // In version 3: error, compact array (0 is null), throttle, tags.
        greeting(vec![0xaa; 40], "").await;
        greeting(Vec::new(), "broke the Kafka protocol").await;
        greeting(vec![0, 0, 0, 0, 0, 0, 0, 0], "").await;
        greeting([&[0, 0][..], &[0xff, 0xff, 0xff, 0xff, 0x07], &[0; 5]].concat(), "api_keys")
            .await;
        // Version 0 after UNSUPPORTED_VERSION, with -1 and i32::MAX for its array.
        greeting([&[0, 35][..], &(-1i32).to_be_bytes()].concat(), "").await;
        greeting([&[0, 35][..], &i32::MAX.to_be_bytes()].concat(), "api_keys").await;
    });
}

#[test]
fn versions_of_nothing() {
    // No API at all.
    run(greeting(vec![0, 0, 1, 0, 0, 0, 0, 0], "Metadata"));
}

/// Sends each of these Metadata responses to a new client, which must recover with the honest response that follows.
/// All clients share one broker.
async fn survive_metadata(mut bad: impl FnMut(&Call, &[u8]) -> Vec<Act>) {
    let broker = Broker::honest().await;
    let call = Call { api: ApiKey::METADATA, version: 13, correlation_id: 1, nth: 0 };
    let good = metadata(&call, &broker.picture());
    for act in bad(&call, &good) {
        let first = broker.calls(ApiKey::METADATA);
        let mut act = Some(act);
        broker.script(move |call, frame| {
            if call.api != ApiKey::METADATA || call.nth != first {
                return Act::Send(frame);
            }
            match act.take() {
                Some(Act::Send(mut bytes)) => {
                    renumber(&mut bytes, call.correlation_id);
                    Act::Send(bytes)
                }
                Some(Act::Cut(mut bytes)) => {
                    renumber(&mut bytes, call.correlation_id);
                    Act::Cut(bytes)
                }
                Some(other) => other,
                None => Act::Mute,
            }
        });
        let producer = producer(&broker);
        if let Err(error) = deliver(&producer, "x").await {
            panic!("{error}");
        }
        ends("close", producer.close()).await.unwrap();
    }
}

fn renumber(frame: &mut [u8], correlation_id: i32) {
    if let Some(place) = frame.get_mut(4..8) {
        place.copy_from_slice(&correlation_id.to_be_bytes());
    }
}

/// A frame cut to `length`, with a matching length field.
fn shortened(frame: &[u8], length: usize) -> Vec<u8> {
    [&((length - 4) as i32).to_be_bytes(), &frame[4..length]].concat()
}

#[test]
fn metadata_reset_at_every_byte() {
    run(survive_metadata(|_, good| {
        (0..good.len()).map(|n| Act::Cut(good[..n].to_vec())).collect()
    }));
}

#[test]
fn metadata_shortened_at_every_byte() {
    run(survive_metadata(|_, good| {
        (8..good.len()).map(|n| Act::Send(shortened(good, n))).collect()
    }));
}

#[test]
fn metadata_with_hostile_counts() {
    run(survive_metadata(|_, good| {
        // Every position, not only those of counts: none may be trusted.
        let huge = [0xff, 0xff, 0xff, 0xff, 0x0f];
        (8..good.len())
            .map(|at| {
                let mut frame = [&good[..at], &huge, &good[at + 1..]].concat();
                let length = (frame.len() - 4) as i32;
                frame[..4].copy_from_slice(&length.to_be_bytes());
                Act::Send(frame)
            })
            // Responses that decode to a cluster with other topics or leaders are excluded.
            .filter(|act| match act {
                Act::Send(frame) => {
                    let body = frame[9..].to_vec().into();
                    curtail_wire::metadata::MetadataResponse::decode(13, &body).is_err()
                }
                _ => false,
            })
            .collect()
    }));
}

#[test]
fn metadata_with_a_wrong_correlation_id() {
    run(async {
        let broker = Broker::start(|call, mut frame| {
            if call.api == ApiKey::METADATA {
                renumber(&mut frame, 12_345);
            }
            Act::Send(frame)
        })
        .await;
        all_fail(&broker.address.to_string(), "correlation id 12345", Patience::MaxBlock).await;
    });
}

#[test]
fn a_topic_without_partitions() {
    run(async {
        let broker = Broker::honest().await;
        broker.model.lock().partitions = 0;
        let producer = producer(&broker);
        for record in [record("x"), Record::to("t").value("x"), Record::to("t").key("k").value("x")]
        {
            let error = ends("send", producer.send(record)).await.unwrap_err();
            assert!(matches!(error, Error::UnknownPartition { partitions: 0, .. }), "{error}");
        }
        let mut consumer = consumer(&broker);
        let error = ends("poll", consumer.poll(CALL)).await.unwrap_err();
        assert!(matches!(error, Error::UnknownPartition { partitions: 0, .. }), "{error}");
    });
}

#[test]
fn a_description_of_garbage_is_one_typed_error() {
    run(async {
        let broker = Broker::start(|call, frame| match call.api {
            ApiKey::METADATA => Act::Send(crate::broker::frame(call, |w| w.raw(&[0xff; 64]))),
            _ => Act::Send(frame),
        })
        .await;
        let admin = admin(&broker);
        for error in [
            ends("list", admin.list_topics()).await.unwrap_err(),
            ends("describe", admin.describe_topics(&["t"])).await.unwrap_err(),
            ends("describe", admin.describe_cluster()).await.unwrap_err(),
        ] {
            check_error(&error);
            assert!(matches!(error, Error::Protocol { .. }), "{error}");
        }
    });
}
