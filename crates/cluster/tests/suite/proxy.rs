//! The proxy over its sockets: order, refusals, and peers that break the protocol.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use curtail_cluster::{
    ApiKey, Cluster, ErrorCode, Fault, FaultError, HandledRequest, Listeners, Observer, OnBroker,
    Requests, SecurityProtocol, Sender, Time, User, When,
    proxy::{Proxy, ProxyConfig, ProxyError},
};
use curtail_net::Env;
use curtail_wire::{
    cold::{
        self,
        messages::{
            ApiVersionsRequest, DescribeClusterRequest, FindCoordinatorRequest, HeartbeatRequest,
            SaslHandshakeRequest,
        },
    },
    header::correlation_id,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::{Instant, timeout},
};

use crate::support::{Client, batch, config, one_partition, soon, start, text};

async fn before(cluster: &Cluster) -> Proxy {
    let config = ProxyConfig::to(&cluster.bootstrap()).unwrap();
    soon(Proxy::start(config, Env::real())).await.unwrap()
}

/// The reasons of closed connections.
#[derive(Default)]
struct Closed(Mutex<Vec<String>>);

impl Observer for Closed {
    fn appended(&self, _: i32, _: &str, _: i32, _: i64, _: i64, _: Instant) {}

    fn committed(&self, _: i32, _: &str, _: i32, _: i64, _: Instant) {}

    fn disconnected(&self, _: i32, _: std::net::IpAddr, reason: &str) {
        self.0.lock().unwrap().push(reason.to_owned());
    }
}

fn observed(proxy: &Proxy) -> Arc<Closed> {
    let closed = Arc::new(Closed::default());
    proxy.observe(Arc::clone(&closed) as Arc<dyn Observer>);
    closed
}

#[tokio::test]
async fn responses_name_the_proxy_and_pass_to_the_right_broker() {
    let cluster = start(config(3)).await;
    cluster.create_topic("t", 3, 3, &[]).unwrap();
    cluster.settled().await;
    let proxy = before(&cluster).await;
    let mut client = Client::connect_to(proxy.addr()).await;
    let (metadata, _) = client.metadata("t").await;
    let described = client.cold(2, &DescribeClusterRequest::default().with_endpoint_type(1)).await;
    let brokers: Vec<_> = proxy.brokers();
    assert_eq!(brokers.len(), 3);
    for broker in &brokers {
        let of_metadata = metadata.brokers.iter().find(|b| b.node_id == broker.id).unwrap();
        assert_eq!(format!("{}:{}", of_metadata.host, of_metadata.port), broker.address);
        let described = described.brokers.iter().find(|b| b.broker_id.0 == broker.id).unwrap();
        assert_eq!(format!("{}:{}", &*described.host, described.port), broker.address);
        // The port leads to this broker: it leads the partition that the metadata say, and no other.
        let addr: SocketAddr = broker.address.parse().unwrap();
        let mut client = Client::connect_to(addr).await;
        for partition in 0..3 {
            let produced = client.produce("t", partition, -1, batch(&["a"], None)).await;
            let leads = cluster.leader("t", partition).unwrap().0 == broker.id;
            assert_eq!(produced.error.is_none(), leads, "{broker:?} {partition}");
        }
    }
    let mut found = FindCoordinatorRequest::default().with_coordinator_keys(vec![text("g")]);
    found.key_type = 0;
    let coordinator = loop {
        let response = client.cold(4, &found).await;
        let first = response.coordinators.into_iter().next().unwrap();
        if first.error_code == 0 {
            break first;
        }
    };
    let address = format!("{}:{}", &*coordinator.host, coordinator.port);
    assert!(brokers.iter().any(|b| b.id == coordinator.node_id.0 && b.address == address));
}

/// A response of the proxy waits for those of the cluster before it.
#[tokio::test]
async fn pipelined_responses_have_the_order_of_their_requests() {
    let (cluster, _) = one_partition().await;
    let proxy = before(&cluster).await;
    let code = ErrorCode::REBALANCE_IN_PROGRESS;
    proxy.inject(Fault::error(Requests::of(ApiKey::HEARTBEAT), code)).unwrap();
    let time = Time::Fixed(Duration::from_millis(100));
    proxy.inject(Fault::delay(Requests::of(ApiKey::API_VERSIONS), time)).unwrap();
    let mut client = Client::connect_to(proxy.addr()).await;
    for _ in 0..5 {
        client.send_cold(0, &ApiVersionsRequest::default()).await;
        client.send_cold(4, &HeartbeatRequest::default()).await;
        client.send_cold(4, &HeartbeatRequest::default()).await;
    }
    for expected in 1..=15 {
        let frame = client.receive().await.unwrap();
        assert_eq!(correlation_id(&frame), Ok(expected));
    }
}

#[tokio::test]
async fn faults_inside_a_broker_are_refused() {
    let (cluster, _) = one_partition().await;
    let proxy = before(&cluster).await;
    let text = |fault: Fault| proxy.inject(fault).unwrap_err().to_string();
    let on = OnBroker { broker: 1 };
    for fault in
        [Fault::Freeze(on), Fault::FreezeMetadata(on), Fault::FullDisk(on), Fault::CutOff(on)]
    {
        let error = text(fault.clone());
        assert!(error.starts_with(fault.kind()) && error.contains("a proxy cannot"), "{error}");
    }
    let error = text(Fault::silence(Requests::all().from(Sender::All)));
    assert_eq!(error, "from: all: a proxy sees the requests of clients only");
    let error = text(Fault::silence(Requests::all().to_broker(9)));
    assert_eq!(error, "the cluster has named no broker 9 (known: 1)");
    let error = proxy.inject(Fault::silence(Requests::all()).named("a b")).unwrap_err();
    assert!(matches!(error, FaultError::BadName(_)), "{error}");
    assert!(proxy.faults().is_empty());
}

#[tokio::test]
async fn requests_without_a_response_pass() {
    let (cluster, mut direct) = one_partition().await;
    let proxy = before(&cluster).await;
    let mut client = Client::connect_to(proxy.addr()).await;
    client.send_produce("t", 0, 0, batch(&["a"], None)).await;
    // The next response is that of the next request.
    let produced = client.produce("t", 0, 1, batch(&["b"], None)).await;
    assert_eq!((produced.error, produced.base_offset), (ErrorCode::NONE, 1));
    assert_eq!(direct.fetch_all("t", 0, 2).await, ["a", "b"]);
    // A refused one closes the connection.
    let refused = Requests::of(ApiKey::PRODUCE).times(1);
    proxy.inject(Fault::error(refused, ErrorCode::NOT_LEADER_OR_FOLLOWER)).unwrap();
    client.send_produce("t", 0, 0, batch(&["c"], None)).await;
    assert_eq!(client.receive().await, None);
}

/// Every part of a request that a fault does not concern is applied.
#[tokio::test]
async fn one_of_two_partitions_is_refused() {
    let cluster = start(config(1)).await;
    cluster.create_topic("t", 2, 1, &[]).unwrap();
    cluster.settled().await;
    let proxy = before(&cluster).await;
    let requests = Requests::of(ApiKey::PRODUCE).on_partition("t", 1).times(1);
    let name = proxy.inject(Fault::error(requests, ErrorCode::NOT_LEADER_OR_FOLLOWER)).unwrap();
    let mut client = Client::connect_to(proxy.addr()).await;
    assert_eq!(client.produce("t", 0, 1, batch(&["a"], None)).await.error, ErrorCode::NONE);
    let refused = client.produce("t", 1, 1, batch(&["b"], None)).await;
    assert_eq!(refused.error, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    assert_eq!(client.produce("t", 1, 1, batch(&["c"], None)).await.base_offset, 0);
    assert_eq!(proxy.faults().iter().find(|fault| fault.name == name).unwrap().hits, 1);
    // Fetch is refused in its response.
    let requests = Requests::of(ApiKey::FETCH).on_partition("t", 1).times(1);
    proxy.inject(Fault::error(requests, ErrorCode::UNKNOWN_LEADER_EPOCH)).unwrap();
    assert_eq!(client.fetch("t", 0, 0).await.0, ErrorCode::NONE);
    assert_eq!(client.fetch("t", 1, 0).await.0, ErrorCode::UNKNOWN_LEADER_EPOCH);
    assert_eq!(client.fetch("t", 1, 0).await.2, [(0, "c".to_owned())]);
}

/// An error without a topic meets one response, and the client sees it.
#[tokio::test]
async fn errors_of_fetch_and_metadata_without_a_topic_reach_the_client() {
    let (cluster, mut direct) = one_partition().await;
    direct.produce("t", 0, 1, batch(&["a"], None)).await;
    let proxy = before(&cluster).await;
    let mut client = Client::connect_to(proxy.addr()).await;
    let inject = |api, code| {
        proxy.inject(Fault::error(Requests::of(api).times(1), code)).unwrap();
    };
    inject(ApiKey::METADATA, ErrorCode::LEADER_NOT_AVAILABLE);
    inject(ApiKey::FETCH, ErrorCode::UNKNOWN_LEADER_EPOCH);
    let mut seen = Vec::new();
    for _ in 0..2 {
        seen.push((client.metadata("t").await.0.topics[0].error, client.fetch("t", 0, 0).await.0));
    }
    let refused = (ErrorCode::LEADER_NOT_AVAILABLE, ErrorCode::UNKNOWN_LEADER_EPOCH);
    assert_eq!(seen, [refused, (ErrorCode::NONE, ErrorCode::NONE)]);
    assert!(proxy.faults().iter().all(|fault| fault.hits == 1), "{:?}", proxy.faults());
}

/// A broker handles one request at a time: the responses before a close are written.
#[tokio::test]
async fn a_close_comes_after_the_responses_to_earlier_requests() {
    let (cluster, _) = one_partition().await;
    let proxy = before(&cluster).await;
    let time = Time::Fixed(Duration::from_millis(200));
    proxy.inject(Fault::delay(Requests::of(ApiKey::API_VERSIONS), time)).unwrap();
    proxy.inject(Fault::disconnect(Requests::of(ApiKey::HEARTBEAT), When::Request)).unwrap();
    let mut client = Client::connect_to(proxy.addr()).await;
    client.send_cold(0, &ApiVersionsRequest::default()).await;
    client.send_cold(0, &ApiVersionsRequest::default()).await;
    client.send_cold(4, &HeartbeatRequest::default()).await;
    for expected in 1..=2 {
        let frame = client.receive().await.expect("a response before the close");
        assert_eq!(correlation_id(&frame), Ok(expected));
    }
    assert_eq!(client.receive().await, None);
    // A client that has closed its side, and one whose next request is malformed.
    let request = cold::encode_request(0, 1, None, &ApiVersionsRequest::default()).unwrap();
    let malformed = [&request[..], &[0, 0, 0, 3, 0, 3, 0]].concat();
    for (bytes, closes) in [(request, true), (malformed, false)] {
        let mut socket = TcpStream::connect(proxy.addr()).await.unwrap();
        socket.write_all(&bytes).await.unwrap();
        if closes {
            socket.shutdown().await.unwrap();
        }
        let mut response = Vec::new();
        soon(socket.read_to_end(&mut response)).await.unwrap();
        assert!(response.len() > 100, "{response:?}");
    }
}

/// A broker that accepts again is reachable without a client that connects to it.
#[tokio::test]
async fn a_probe_finds_a_broker_that_is_back() {
    let cluster = start(config(2)).await;
    cluster.create_topic("t", 1, 2, &[]).unwrap();
    cluster.settled().await;
    let proxy = before(&cluster).await;
    let of_two = |proxy: &Proxy| proxy.brokers().into_iter().find(|broker| broker.id == 2);
    let address: SocketAddr = of_two(&proxy).unwrap().address.parse().unwrap();
    cluster.kill(2);
    assert!(exchange(address, &[]).await.is_empty());
    assert!(!of_two(&proxy).unwrap().reachable);
    soon(proxy.probe()).await;
    assert!(!of_two(&proxy).unwrap().reachable);
    // The cluster names it no longer, but a fault may.
    let mut client = Client::connect_to(proxy.brokers()[0].address.parse().unwrap()).await;
    let begun = Instant::now();
    while of_two(&proxy).is_some() {
        client.metadata("t").await;
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
    proxy.inject(Fault::silence(Requests::all().to_broker(2).by_client("none"))).unwrap();
    cluster.restart(2).await.unwrap();
    while of_two(&proxy).is_none() {
        client.metadata("t").await;
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
    soon(proxy.probe()).await;
    assert_eq!(of_two(&proxy).map(|broker| broker.reachable), Some(true));
}

/// The bootstrap server has another name than the broker.
#[tokio::test]
async fn a_bootstrap_server_is_a_broker_also_by_another_name() {
    struct Brokers(Mutex<Vec<i32>>);
    impl Observer for Brokers {
        fn appended(&self, _: i32, _: &str, _: i32, _: i64, _: i64, _: Instant) {}

        fn committed(&self, _: i32, _: &str, _: i32, _: i64, _: Instant) {}

        fn handled(&self, request: &HandledRequest<'_>) {
            self.0.lock().unwrap().push(request.broker);
        }
    }
    let mut config = config(1);
    config.set("advertised.listeners", "PLAINTEXT://localhost:0").unwrap();
    let cluster = start(config).await;
    let port = cluster.broker(1).unwrap().endpoint().to_string();
    let port = port.rsplit_once(':').unwrap().1;
    let config = ProxyConfig::to(&format!("127.0.0.1:{port}")).unwrap();
    let proxy = soon(Proxy::start(config, Env::real())).await.unwrap();
    let brokers = Arc::new(Brokers(Mutex::default()));
    proxy.observe(Arc::clone(&brokers) as Arc<dyn Observer>);
    Client::connect_to(proxy.addr()).await.metadata("t").await;
    assert_eq!(*brokers.0.lock().unwrap(), [1]);
}

/// The end of a client is not noticed while its request cannot be written.
#[tokio::test]
async fn a_cluster_that_takes_no_request_loses_the_connection() {
    let proxy = server(|socket| async move {
        std::future::pending::<()>().await;
        drop(socket);
    })
    .await;
    let closed = observed(&proxy);
    let mut socket = TcpStream::connect(proxy.addr()).await.unwrap();
    // DescribeConfigs 1 with a body of 1 MiB.
    let mut frame = vec![0, 16, 0, 10, 0, 32, 0, 1, 0, 0, 0, 1, 0xff, 0xff];
    frame.resize(4 + (1 << 20) + 10, 0);
    while timeout(Duration::from_secs(1), socket.write_all(&frame)).await.is_ok() {}
    // The next timer is the proxy's.
    tokio::time::pause();
    assert!(!matches!(socket.read(&mut [0]).await, Ok(1..)));
    assert_eq!(*closed.0.lock().unwrap(), ["the cluster takes no request"]);
}

/// Sends bytes and returns what comes before the close.
async fn exchange(addr: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(addr).await.unwrap();
    // The proxy may close before it has read everything.
    let _ = socket.write_all(bytes).await;
    let mut read = Vec::new();
    let _ = soon(socket.read_to_end(&mut read)).await;
    read
}

#[tokio::test]
async fn a_client_that_breaks_the_protocol_loses_its_connection_only() {
    let (cluster, _) = one_partition().await;
    let proxy = before(&cluster).await;
    let closed = observed(&proxy);
    let mut healthy = Client::connect_to(proxy.addr()).await;
    healthy.metadata("t").await;
    let raw_tokens = {
        let handshake = SaslHandshakeRequest::default().with_mechanism(text("PLAIN"));
        cold::encode_request(0, 1, Some("c"), &handshake).unwrap()
    };
    let cases: [(&[u8], &str); 7] = [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP"),
        (b"\x16\x03\x01\x00\x05hello", "TLS"),
        (&[0xff; 64], "negative length"),
        (&[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0], "larger than the limit"),
        (&[0, 0, 0, 3, 0, 3, 0], "malformed request header"),
        // Metadata 99.
        (&[0, 0, 0, 11, 0, 3, 0, 99, 0, 0, 0, 1, 0xff, 0xff, 0], "does not offer this version"),
        (&raw_tokens, "does not offer this version"),
    ];
    for (bytes, expected) in cases {
        assert!(exchange(proxy.addr(), bytes).await.is_empty(), "{expected}");
        let reason = closed.0.lock().unwrap().pop();
        let reason = reason.unwrap_or_else(|| panic!("no reason: {expected}"));
        assert!(reason.contains(expected), "{reason}");
    }
    healthy.metadata("t").await;
}

/// Connections that have begun a request, or have sent none, do not disturb the others.
#[tokio::test]
async fn half_open_connections_do_not_disturb_others() {
    let (cluster, _) = one_partition().await;
    let proxy = before(&cluster).await;
    let mut open = Vec::new();
    for n in 0..50_usize {
        let mut socket = TcpStream::connect(proxy.addr()).await.unwrap();
        // A part of a frame of 1 MB.
        socket.write_all(&[0, 15, 0, 0, 0, 0][..n % 7]).await.unwrap();
        open.push(socket);
    }
    let mut client = Client::connect_to(proxy.addr()).await;
    assert_eq!(client.produce("t", 0, 1, batch(&["a"], None)).await.error, ErrorCode::NONE);
    drop(open);
    assert_eq!(client.produce("t", 0, 1, batch(&["b"], None)).await.base_offset, 1);
}

/// A server that is asked for its brokers once, and then serves each connection with `serve`.
async fn server<F: Future<Output = ()> + Send + 'static>(
    serve: impl Fn(TcpStream) -> F + Send + 'static,
) -> Proxy {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        // As one that needs a login does.
        drop(listener.accept().await.unwrap());
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(socket));
        }
    });
    soon(Proxy::start(ProxyConfig::to(&to).unwrap(), Env::real())).await.unwrap()
}

#[tokio::test]
async fn a_cluster_that_breaks_the_protocol_loses_the_connection_only() {
    let answers: [(&[u8], &str); 5] = [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP"),
        (&[0xff; 64], "negative length"),
        (&[0, 0, 0, 4, 0, 0, 0, 99], "another correlation id"),
        // Metadata without its brokers.
        (&[0, 0, 0, 5, 0, 0, 0, 1, 0], "Metadata 12"),
        // Metadata with 2 million brokers in ten bytes.
        (&[0, 0, 0, 14, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0xff, 0xff, 0x7f, 0, 0], "Metadata 12"),
    ];
    for (answer, expected) in answers {
        let answer = answer.to_vec();
        let proxy = server(move |mut socket| {
            let answer = answer.clone();
            async move {
                let mut request = [0; 512];
                let _ = socket.read(&mut request).await;
                let _ = socket.write_all(&answer).await;
                let _ = socket.read(&mut request).await;
            }
        })
        .await;
        let closed = observed(&proxy);
        let mut client = Client::connect_to(proxy.addr()).await;
        client.send_with(ApiKey::METADATA, 12, |w| w.raw(&[1, 1, 0, 0, 0])).await;
        assert_eq!(client.receive().await, None, "{expected}");
        let reason = closed.0.lock().unwrap().pop().unwrap();
        assert!(reason.contains(expected), "{reason}");
    }
}

#[tokio::test]
async fn a_response_without_a_request_closes_the_connection() {
    let proxy = server(|mut socket| async move {
        let _ = socket.write_all(&[0, 0, 0, 4, 0, 0, 0, 1]).await;
        let _ = socket.read(&mut [0]).await;
    })
    .await;
    let closed = observed(&proxy);
    let mut client = Client::connect_to(proxy.addr()).await;
    assert_eq!(client.receive().await, None);
    assert_eq!(*closed.0.lock().unwrap(), ["the cluster responds without a request"]);
}

/// The proxy reads no further while the client does not take: the cluster's writes stall.
#[tokio::test]
async fn a_client_that_does_not_read_stalls_the_cluster() {
    const RESPONSE: usize = 4 << 20;
    const REQUESTS: usize = 60;
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let proxy = server(move |mut socket| {
        let sent = Arc::clone(&counted);
        async move {
            for id in 1..=REQUESTS as u32 {
                let Ok(length) = socket.read_u32().await else { return };
                let mut request = vec![0; length as usize];
                let _ = socket.read_exact(&mut request).await;
                let length = (RESPONSE as u32).to_be_bytes();
                let mut response = [length, id.to_be_bytes()].concat();
                response.resize(4 + RESPONSE, 0);
                for chunk in response.chunks(64 * 1024) {
                    if socket.write_all(chunk).await.is_err() {
                        return;
                    }
                    sent.fetch_add(chunk.len(), Ordering::SeqCst);
                }
            }
            let _ = socket.read(&mut [0]).await;
        }
    })
    .await;
    let mut client = Client::connect_to(proxy.addr()).await;
    for _ in 0..REQUESTS {
        // Of an API whose responses name no address.
        client.send_cold(4, &HeartbeatRequest::default()).await;
    }
    // Until nothing has moved for a second.
    let mut before = usize::MAX;
    while sent.load(Ordering::SeqCst) != before {
        before = sent.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(before > RESPONSE && before < REQUESTS * RESPONSE / 2, "{before} bytes were taken");
    for id in 1..=REQUESTS as i32 {
        let frame: Bytes = client.receive().await.unwrap();
        assert_eq!((correlation_id(&frame), frame.len()), (Ok(id), RESPONSE));
    }
}

#[tokio::test]
async fn a_proxy_without_a_cluster_does_not_start() {
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = ProxyConfig::to(&unused.to_string()).unwrap();
    let error = soon(Proxy::start(config, Env::real())).await.unwrap_err();
    assert_eq!(error.to_string(), format!("cannot reach {unused}"));
    let web = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = web.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (mut socket, _) = web.accept().await.unwrap();
        let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        let _ = socket.read(&mut [0; 512]).await;
    });
    let config = ProxyConfig::to(&to).unwrap();
    let error = soon(Proxy::start(config, Env::real())).await.unwrap_err();
    assert!(matches!(error, ProxyError::NotKafka { .. }), "{error}");
    for text in ["", "kafka", "kafka:", "kafka:0", "kafka:x", "http://kafka:9092", "a:1,", "::1:9"]
    {
        assert!(ProxyConfig::to(text).is_err(), "{text}");
    }
    assert!(ProxyConfig::to("a:1, [::1]:9092").is_ok());
}

/// A login passes as it is. The brokers become known with the first metadata.
#[tokio::test]
async fn logins_pass_through_a_proxy() {
    use crate::support::authenticate;
    let mut config = config(1);
    config.listeners = Listeners::local(SecurityProtocol::SaslPlaintext);
    config.security.users = vec![User::new("alice", "secret")];
    let cluster = start(config).await;
    let proxy = before(&cluster).await;
    assert!(proxy.brokers().is_empty());
    let mut client = Client::connect_to(proxy.addr()).await;
    assert_eq!(authenticate(&mut client, "alice\0secret").await.0, ErrorCode::NONE);
    client.metadata("t").await;
    assert_eq!(proxy.brokers().len(), 1);
    let mut client = Client::connect_to(proxy.brokers()[0].address.parse().unwrap()).await;
    let refused = authenticate(&mut client, "alice\0wrong").await.0;
    assert_eq!(refused, ErrorCode::SASL_AUTHENTICATION_FAILED);
    assert_eq!(client.receive().await, None);
}

/// The observer sees responses with their bytes.
#[tokio::test]
async fn responses_are_observed() {
    struct Sizes(Mutex<Vec<(ApiKey, bool)>>);
    impl Observer for Sizes {
        fn appended(&self, _: i32, _: &str, _: i32, _: i64, _: i64, _: Instant) {}

        fn committed(&self, _: i32, _: &str, _: i32, _: i64, _: Instant) {}

        fn handled(&self, request: &HandledRequest<'_>) {
            let complete = request.sent > 8 && request.received > 8 && request.client_id == "test";
            self.0.lock().unwrap().push((request.api, complete && request.broker == 1));
        }
    }
    let (cluster, _) = one_partition().await;
    let proxy = before(&cluster).await;
    let sizes = Arc::new(Sizes(Mutex::default()));
    proxy.observe(Arc::clone(&sizes) as Arc<dyn Observer>);
    let mut client = Client::connect_to(proxy.addr()).await;
    client.metadata("t").await;
    client.produce("t", 0, 1, batch(&["a"], None)).await;
    assert_eq!(*sizes.0.lock().unwrap(), [(ApiKey::METADATA, true), (ApiKey::PRODUCE, true)]);
}
