//! Brokers that cannot serve this client until a setting or the broker changes: calls report it, without a storm.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll},
};

use curtail::{Env, ErrorCode, config::Codec, error::BatchProblem};
use curtail_net::{BoxFuture, Listener, Net, Socket, SocketOptions};
use curtail_wire::{ApiKey, fetch::FetchResponse};
use tokio::io::ReadBuf;

use crate::{
    broker::{Act, Broker, SPOKEN, api_versions, batch, body_of, fetch},
    *,
};

/// A broker without this API.
async fn without(api: ApiKey) -> Arc<Broker> {
    Broker::start(move |call, frame| match call.api {
        ApiKey::API_VERSIONS => {
            let spoken: Vec<_> = SPOKEN.into_iter().filter(|(key, ..)| *key != api).collect();
            Act::Send(api_versions(call, &spoken))
        }
        _ => Act::Send(frame),
    })
    .await
}

/// Returns the error of a poll, which the next poll must repeat.
async fn reported(consumer: &mut Consumer) -> Error {
    let mut last = None;
    for _ in 0..2 {
        let error = ends("poll", consumer.poll(CALL)).await.expect_err("a report");
        check_error(&error);
        last = Some(error);
    }
    last.unwrap()
}

#[test]
fn oversized_fetch_response_names_the_setting() {
    run(async {
        const BYTES: usize = 200 << 20;
        let broker = Broker::start(|call, frame| match call.api {
            ApiKey::FETCH => Act::Cut((BYTES as u32).to_be_bytes().to_vec()),
            _ => Act::Send(frame),
        })
        .await;
        let mut consumer = consumer(&broker);
        let error = reported(&mut consumer).await;
        let Error::ResponseTooLarge { bytes: BYTES, setting: "fetch.max.bytes", .. } = error else {
            panic!("{error}")
        };
        assert!(
            error.report().to_string().contains("set fetch.max.bytes to at least 209715200"),
            "{error}"
        );
        ends("close", consumer.close()).await;
    });
}

/// Usable and unusable responses alternate: each reconnection backs off.
#[test]
fn alternating_oversized_responses_are_not_a_storm() {
    run(async {
        let broker = Broker::start(|call, frame| match call.api {
            ApiKey::FETCH if call.nth % 2 == 1 => Act::Cut(vec![0x0f, 0, 0, 0]),
            ApiKey::FETCH => Act::Send(fetch(call, &FetchResponse::default())),
            _ => Act::Send(frame),
        })
        .await;
        let config = consumer_config(&broker.address.to_string())
            .reconnect_backoff(Duration::from_millis(300), Duration::from_millis(300));
        let mut consumer = Consumer::with_env(config, &broker.env()).unwrap();
        consumer.assign([partition(0)]);
        let end = tokio::time::Instant::now() + Duration::from_secs(1);
        while tokio::time::Instant::now() < end {
            let _ = consumer.poll(Duration::from_millis(50)).await;
        }
        let asked = broker.calls(ApiKey::FETCH);
        assert!((2..13).contains(&asked), "{asked} fetches in a second");
    });
}

#[test]
fn consumer_error_names_the_api_that_the_broker_lacks() {
    run(async {
        for api in [ApiKey::FETCH, ApiKey::LIST_OFFSETS] {
            let broker = without(api).await;
            let mut consumer = consumer(&broker);
            let error = reported(&mut consumer).await;
            assert!(matches!(error, Error::UnsupportedVersion(_)), "{error}");
            assert!(broker.model.lock().connections < 60);
            ends("close", consumer.close()).await;
        }
    });
}

#[test]
fn refused_fetch_version_is_reported() {
    run(async {
        let broker = Broker::start(|call, frame| match call.api {
            ApiKey::FETCH => {
                let error = ErrorCode::UNSUPPORTED_VERSION;
                Act::Send(fetch(call, &FetchResponse { error, ..FetchResponse::default() }))
            }
            _ => Act::Send(frame),
        })
        .await;
        let mut consumer = consumer(&broker);
        let error = reported(&mut consumer).await;
        let Error::Broker { code: ErrorCode::UNSUPPORTED_VERSION, what, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(&**what, "Fetch of broker 1");
        assert!(broker.calls(ApiKey::FETCH) < 60);
    });
}

/// The broker reports damage in its log instead of sending records. The error names the offset, so that a seek can
/// pass the damage.
#[test]
fn corrupt_message_of_a_broker_names_the_fetch_offset() {
    run(async {
        let broker = Broker::start(|call, frame| match call.api {
            ApiKey::FETCH => {
                let mut answer =
                    FetchResponse::decode(call.version, &body_of(call, &frame)).unwrap();
                let partitions = answer.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
                for partition in partitions.filter(|p| p.records.starts_with(&[0; 8])) {
                    partition.error = ErrorCode::CORRUPT_MESSAGE;
                    partition.records.clear();
                }
                Act::Send(fetch(call, &answer))
            }
            _ => Act::Send(frame),
        })
        .await;
        {
            let mut model = broker.model.lock();
            model.stored = batch(0, Codec::None, &[b"first", b"second"]).into();
            model.stored_later = batch(2, Codec::None, &[b"third"]).into();
        }
        let mut consumer = consumer(&broker);
        let error = reported(&mut consumer).await;
        let Error::Corrupt { topic, partition: 0, offset: 0, next_offset: None, problem, .. } =
            &error
        else {
            panic!("{error}")
        };
        assert_eq!((&**topic, *problem), (broker::TOPIC, BatchProblem::DamagedInLog));
        let text = error.report().to_string();
        assert!(text.contains("t-0 at offset 0") && text.contains("CORRUPT_MESSAGE"), "{text}");
        assert_eq!(ends("position", consumer.position(&partition(0))).await.unwrap(), 0);
        consumer.seek(&partition(0), 2).unwrap();
        let records = ends("poll", consumer.poll(CALL)).await.unwrap();
        let offsets: Vec<i64> = records.into_iter().map(|record| record.offset()).collect();
        assert_eq!(offsets, [2]);
    });
}

#[test]
fn group_error_reports_a_broker_without_coordinators() {
    run(async {
        let broker = without(ApiKey::FIND_COORDINATOR).await;
        let config = consumer_config(&broker.address.to_string()).group_id("g");
        let mut consumer = Consumer::with_env(config, &broker.env()).unwrap();
        consumer.subscribe([broker::TOPIC]).unwrap();
        let error = ends("poll", consumer.poll(CALL)).await.expect_err("a report");
        check_error(&error);
        assert!(matches!(error, Error::UnsupportedVersion(_)), "{error}");
        ends("close", consumer.close()).await;
    });
}

/// The error comes long before `delivery.timeout.ms`.
#[test]
fn producer_error_names_the_api_that_the_broker_lacks() {
    run(async {
        for api in [ApiKey::PRODUCE, ApiKey::INIT_PRODUCER_ID] {
            let broker = without(api).await;
            let config = producer_config(&broker.address.to_string()).delivery_timeout(HANGS);
            let producer = Producer::with_env(config, &broker.env()).unwrap();
            let error = deliver(&producer, "x").await.expect_err("a report");
            check_error(&error);
            let Error::NotAcknowledged { may_have_been_written: false, cause, .. } = &error else {
                panic!("{error}")
            };
            assert!(matches!(**cause, Error::UnsupportedVersion(_)), "{error}");
        }
    });
}

#[test]
fn admin_error_names_the_api_that_the_broker_lacks() {
    run(async {
        let broker = Broker::honest().await;
        let error = ends("delete", admin(&broker).delete_topics(&["t"])).await.unwrap_err();
        check_error(&error);
        assert!(matches!(error, Error::UnsupportedVersion(_)), "{error}");
    });
}

/// A network whose first sockets accept no more bytes once a Fetch is written.
struct StallsFetches {
    inner: Arc<dyn Net>,
    left: Arc<AtomicUsize>,
}

struct Stalling {
    inner: Box<dyn Socket>,
    left: Arc<AtomicUsize>,
    stalled: AtomicUsize,
}

impl Socket for Stalling {
    fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let head: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).take(6).collect();
        let is_fetch = head.len() == 6 && head[4..6] == ApiKey::FETCH.0.to_be_bytes();
        let takes = |left: usize| left.checked_sub(1);
        if is_fetch && self.left.fetch_update(SeqCst, SeqCst, takes).is_ok() {
            self.stalled.store(1, SeqCst);
        }
        match self.stalled.load(SeqCst) {
            0 => self.inner.try_write_vectored(bufs),
            _ => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.stalled.load(SeqCst) {
            0 => self.inner.poll_write_ready(cx),
            // The test's time limit ends the wait.
            _ => Poll::Pending,
        }
    }

    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.inner.poll_read(cx, buf)
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.inner.peer_addr()
    }
}

impl Net for StallsFetches {
    fn connect(
        &self,
        addr: SocketAddr,
        options: SocketOptions,
    ) -> BoxFuture<'_, io::Result<Box<dyn Socket>>> {
        Box::pin(async move {
            let inner = self.inner.connect(addr, options).await?;
            let (left, stalled) = (self.left.clone(), AtomicUsize::new(0));
            Ok(Box::new(Stalling { inner, left, stalled }) as Box<dyn Socket>)
        })
    }

    fn listen(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        self.inner.listen(addr)
    }

    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        self.inner.resolve(host, port)
    }
}

/// A peer that stops reading costs `request.timeout.ms`, from the start of the write.
#[test]
fn fetch_that_cannot_be_written_is_sent_over_another_connection() {
    run(async {
        let broker = Broker::honest().await;
        broker.model.lock().stored = batch(0, Codec::None, &[b"first"]).into();
        let env = broker.env();
        let left = Arc::new(AtomicUsize::new(1));
        let net = Arc::new(StallsFetches { inner: env.net.clone(), left: left.clone() });
        let config = consumer_config(&broker.address.to_string());
        let mut consumer = Consumer::with_env(config, &Env { net, ..env }).unwrap();
        consumer.assign([partition(0)]);
        let records = ends("poll", consumer.poll(CALL - Duration::from_secs(1))).await.unwrap();
        assert_eq!((records.len(), left.load(SeqCst)), (1, 0));
        ends("close", consumer.close()).await;
    });
}
