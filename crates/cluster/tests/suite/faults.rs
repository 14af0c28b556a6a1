//! Faults on request, as a client of raw frames sees them.

mod data;
mod disks;
mod errors;
mod network;

use std::time::Duration;

use crate::support::{
    Client, batch, config, fetch_partition, fetch_request, one_partition, soon, start, text,
};
use curtail_cluster::{
    Cluster, ClusterError, Cut, DelayMetadata, Disconnect, Fault, FaultError, HandledRequest,
    KafkaVersion, Observer, OnBroker, Requests, Sender, SessionMetrics, Time, When,
};
use curtail_wire::{
    ErrorCode,
    api::ApiKey,
    cold::messages::{
        ApiVersionsRequest, ApiVersionsResponse, HeartbeatRequest, ListOffsetsRequest,
    },
    fetch::FetchTopic,
    produce::{ProducePartition, ProduceRequest, ProduceResponse, ProduceTopic},
};
use tokio::time::Instant;

const REFUSED: ErrorCode = ErrorCode::NOT_ENOUGH_REPLICAS;

fn hits(cluster: &Cluster, name: &str) -> u64 {
    cluster.faults().into_iter().find(|fault| fault.name == name).expect("it is listed").hits
}

#[tokio::test]
async fn an_error_with_times_is_spent_and_stays_listed() {
    let (cluster, mut client) = one_partition().await;
    let fault = Fault::error(Requests::of(ApiKey::PRODUCE).times(2), REFUSED);
    let name = cluster.inject(fault.named("refuse").seed(7)).unwrap();
    let mut errors = Vec::new();
    for _ in 0..3 {
        errors.push(client.produce("t", 0, -1, batch(&["a"], None)).await.error);
    }
    assert_eq!(errors, [REFUSED, REFUSED, ErrorCode::NONE]);
    let listed = cluster.faults();
    assert_eq!((listed[0].name.as_str(), listed[0].seed, listed[0].hits), ("refuse", 7, 2));
    assert!(cluster.lift(&name) && !cluster.lift(&name));
    assert_eq!(cluster.faults(), []);
}

/// Of one request, the refused partition is not appended and the other is.
#[tokio::test]
async fn an_error_of_a_partition_leaves_the_others_of_its_request() {
    let cluster = start(config(1)).await;
    cluster.create_topic("t", 2, 1, &[]).unwrap();
    cluster.settled().await;
    let mut client = Client::connect(&cluster, 1).await;
    let produce = Requests::of(ApiKey::PRODUCE).on_partition("t", 1);
    let name = cluster.inject(Fault::error(produce, REFUSED)).unwrap();
    let partition = |index| ProducePartition { index, records: Some(batch(&["a"], None)) };
    let topic = ProduceTopic {
        name: "t".into(),
        topic_id: Default::default(),
        partitions: vec![partition(0), partition(1)],
    };
    let request = ProduceRequest {
        transactional_id: None,
        acks: -1,
        timeout_ms: 10_000,
        topics: vec![topic],
    };
    client.send_with(ApiKey::PRODUCE, 12, |w| request.encode(12, w)).await;
    let body = client.body(ApiKey::PRODUCE, 12).await;
    let response = ProduceResponse::decode(12, &body).unwrap();
    let errors: Vec<_> = response.topics[0].partitions.iter().map(|p| p.error).collect();
    assert_eq!(errors, [ErrorCode::NONE, REFUSED]);
    for (partition, end) in [(0, 1), (1, 0)] {
        assert_eq!(client.list_offset("t", partition, -1).await.1, end);
    }
    assert_eq!(hits(&cluster, &name), 1);
}

/// A session keeps its partitions while one of them is refused.
#[tokio::test]
async fn a_refused_partition_of_a_fetch_session_returns_when_the_fault_is_lifted() {
    let (cluster, mut client) = one_partition().await;
    client.produce("t", 0, -1, batch(&["a"], None)).await;
    let topic_id = client.metadata("t").await.1.topic_id;
    let mut request = fetch_request("t", 0, 0);
    let partitions = vec![fetch_partition(0, 1)];
    request.topics = vec![FetchTopic { name: "t".into(), topic_id, partitions }];
    (request.session_epoch, request.max_wait_ms) = (0, 1);
    let opened = client.fetch_raw(17, &request).await;
    assert!(opened.session_id > 0 && opened.error.is_none());
    (request.session_id, request.topics) = (opened.session_id, Vec::new());
    let mut next = async |client: &mut Client| {
        request.session_epoch += 1;
        let response = client.fetch_raw(17, &request).await;
        assert_eq!(response.error, ErrorCode::NONE);
        response.topics.first().map(|topic| topic.partitions[0].error)
    };
    assert_eq!(next(&mut client).await, None, "nothing is new");
    let fault = Fault::error(Requests::of(ApiKey::FETCH), ErrorCode::KAFKA_STORAGE_ERROR);
    let name = cluster.inject(fault).unwrap();
    assert_eq!(next(&mut client).await, Some(ErrorCode::KAFKA_STORAGE_ERROR));
    assert_eq!(next(&mut client).await, Some(ErrorCode::KAFKA_STORAGE_ERROR));
    cluster.lift(&name);
    assert_eq!(next(&mut client).await, Some(ErrorCode::NONE), "as after any error");
    assert_eq!(next(&mut client).await, None);
}

#[tokio::test]
async fn replication_continues_while_clients_are_refused() {
    let cluster = start(config(3)).await;
    cluster.create_topic("t", 1, 3, &[]).unwrap();
    cluster.settled().await;
    let leader = cluster.leader("t", 0).unwrap().0;
    let mut client = Client::connect(&cluster, leader).await;
    let refused = Fault::error(Requests::of(ApiKey::FETCH), REFUSED);
    cluster.inject(refused).unwrap();
    let produced = soon(client.produce("t", 0, -1, batch(&["a"], None))).await;
    assert_eq!(produced.error, ErrorCode::NONE);
    assert_eq!(client.fetch("t", 0, 0).await.0, REFUSED);
    // Only of brokers.
    let of_brokers = Requests::of(ApiKey::FETCH).from(Sender::Brokers);
    cluster.lift_all();
    cluster.inject(Fault::error(of_brokers, ErrorCode::KAFKA_STORAGE_ERROR)).unwrap();
    // A follower that lacks no record stays in sync.
    client.produce("t", 0, 1, batch(&["b"], None)).await;
    soon(cluster.wait_until(|cluster| cluster.isr("t", 0).unwrap().len() == 1)).await;
    assert_eq!(client.fetch("t", 0, 0).await.0, ErrorCode::NONE);
    cluster.lift_all();
    soon(cluster.wait_until(|cluster| cluster.isr("t", 0).unwrap().len() == 3)).await;
}

#[tokio::test]
async fn a_delay_is_of_its_api_and_client() {
    let (cluster, mut client) = one_partition().await;
    let slow = Duration::from_millis(300);
    let of = |client| Requests::of(ApiKey::LIST_OFFSETS).by_client(client);
    let endless = Time::Fixed(Duration::from_secs(3600));
    let name = cluster.inject(Fault::delay(of("te*"), endless)).unwrap();
    soon(client.produce("t", 0, -1, batch(&["a"], None))).await;
    cluster.lift(&name);
    cluster.inject(Fault::delay(of("te*"), Time::Uniform(slow, 2 * slow))).unwrap();
    cluster.inject(Fault::delay(of("other"), endless)).unwrap();
    let begun = Instant::now();
    soon(client.list_offset("t", 0, -1)).await;
    assert!(begun.elapsed() >= slow, "{:?}", begun.elapsed());
}

/// Also of a fetch session, whose requests do not name their partitions.
#[tokio::test]
async fn a_delay_of_a_partition_concerns_requests_with_it() {
    let cluster = start(config(1)).await;
    cluster.create_topic("t", 2, 1, &[]).unwrap();
    cluster.settled().await;
    let mut client = Client::connect(&cluster, 1).await;
    let (none, slow) = (Duration::ZERO, Duration::from_millis(300));
    // If the delay of partition 1 concerned partition 0, its requests would take an hour.
    for (partition, time, least) in [(0, Duration::from_secs(3600), none), (1, slow, slow)] {
        cluster.lift_all();
        for api in [ApiKey::PRODUCE, ApiKey::FETCH] {
            let of_partition = Requests::of(api).on_partition("t", 1);
            cluster.inject(Fault::delay(of_partition, Time::Fixed(time))).unwrap();
        }
        let begun = Instant::now();
        soon(client.produce("t", partition, -1, batch(&["a"], None))).await;
        assert!(begun.elapsed() >= least, "{:?}", begun.elapsed());
        let mut request = fetch_request("t", partition, 1);
        (request.session_epoch, request.max_wait_ms) = (0, 1);
        request.session_id = soon(client.fetch_raw(12, &request)).await.session_id;
        (request.session_epoch, request.topics) = (1, Vec::new());
        let begun = Instant::now();
        soon(client.fetch_raw(12, &request)).await;
        assert!(begun.elapsed() >= least, "{:?}", begun.elapsed());
    }
}

/// The request is applied, and the connection never sends another byte.
#[tokio::test]
async fn a_silenced_connection_stays_open_and_another_one_responds() {
    let (cluster, mut client) = one_partition().await;
    let name = cluster.inject(Fault::silence(Requests::of(ApiKey::PRODUCE).times(1))).unwrap();
    client.send_produce("t", 0, -1, batch(&["a"], None)).await;
    client.send_produce("t", 0, -1, batch(&["b"], None)).await;
    let mut other = Client::connect(&cluster, 1).await;
    assert_eq!(soon(other.fetch_all("t", 0, 2)).await, ["a", "b"]);
    assert_eq!(hits(&cluster, &name), 1);
    cluster.lift_all();
    client.send_produce("t", 0, -1, batch(&["c"], None)).await;
    assert_eq!(soon(other.fetch_all("t", 0, 3)).await, ["a", "b", "c"], "it still reads");
    tokio::select! {
        biased;
        open = client.receive_raw() => panic!("it sent something, or closed: {open}"),
        _ = other.list_offset("t", 0, -1) => {}
    }
}

#[tokio::test]
async fn a_connection_closes_before_a_request_or_within_its_response() {
    let (cluster, mut client) = one_partition().await;
    let produce = || Requests::of(ApiKey::PRODUCE).times(1);
    cluster.inject(Fault::disconnect(produce(), When::Request)).unwrap();
    client.send_produce("t", 0, -1, batch(&["lost"], None)).await;
    assert_eq!(client.receive().await, None);
    let mut client = Client::connect(&cluster, 1).await;
    assert_eq!(client.list_offset("t", 0, -1).await.1, 0, "it was not applied");
    let disconnect = Disconnect { requests: produce(), when: When::Response, after_bytes: 6 };
    cluster.inject(Fault::Disconnect(disconnect)).unwrap();
    client.send_produce("t", 0, -1, batch(&["kept"], None)).await;
    assert!(client.receive_raw().await, "the first bytes");
    assert!(!client.receive_raw().await, "the end");
    let mut client = Client::connect(&cluster, 1).await;
    assert_eq!(client.fetch_all("t", 0, 1).await, ["kept"]);
}

async fn offered(client: &mut Client) -> ApiVersionsResponse {
    let request = ApiVersionsRequest::default()
        .with_client_software_name(text("test"))
        .with_client_software_version(text("1"));
    client.cold(3, &request).await
}

fn newest(response: &ApiVersionsResponse, api: ApiKey) -> Option<i16> {
    let found = response.api_keys.iter().find(|offered| offered.api_key == api.0)?;
    Some(found.max_version)
}

#[tokio::test]
async fn clients_are_offered_the_versions_of_an_earlier_kafka() {
    let (cluster, mut client) = one_partition().await;
    let now = offered(&mut client).await;
    assert_eq!(newest(&now, ApiKey::PRODUCE), Some(13));
    let name = cluster.inject(Fault::kafka_version("2.8".parse().unwrap())).unwrap();
    let old = offered(&mut client).await;
    assert_eq!(newest(&old, ApiKey::PRODUCE), Some(9));
    assert_eq!(newest(&old, ApiKey::DESCRIBE_CLUSTER), Some(0));
    assert_eq!(newest(&old, ApiKey::CONSUMER_GROUP_HEARTBEAT), None);
    assert!(old.supported_features.is_empty() && old.finalized_features.is_empty());
    // A version that is not offered closes the connection, as in Kafka.
    client.send_produce("t", 0, -1, batch(&["a"], None)).await;
    assert_eq!(client.receive().await, None);
    cluster.lift(&name);
    let mut client = Client::connect(&cluster, 1).await;
    assert_eq!(offered(&mut client).await, now);
    // Version 3 of ApiVersions is of Kafka 2.4; an older broker refuses it without naming its own.
    for (release, named) in [("2.3", false), ("2.4", true)] {
        let of_test = KafkaVersion {
            release: release.parse().unwrap(),
            broker: Some(1),
            client_id: Some("test".into()),
        };
        let name = cluster.inject(Fault::KafkaVersion(of_test)).unwrap();
        let mut client = Client::connect(&cluster, 1).await;
        let request = ApiVersionsRequest::default()
            .with_client_software_name(text("test"))
            .with_client_software_version(text("1"));
        let id = 1;
        let frame = curtail_wire::cold::encode_request(4, id, Some("test"), &request).unwrap();
        client.send(&frame).await;
        let frame = client.receive().await.unwrap();
        let body = curtail_wire::header::response_body(&frame, ApiKey::API_VERSIONS, 0).unwrap();
        let refused: ApiVersionsResponse = curtail_wire::cold::decode_response(0, body).unwrap();
        assert_eq!(refused.error_code, ErrorCode::UNSUPPORTED_VERSION.0);
        assert_eq!(newest(&refused, ApiKey::API_VERSIONS), named.then_some(3));
        cluster.lift(&name);
    }
}

#[tokio::test]
async fn brokers_that_are_cut_from_each_other_still_serve_clients() {
    let cluster = start(config(2)).await;
    cluster.create_topic("t", 1, 2, &[]).unwrap();
    cluster.settled().await;
    let leader = cluster.leader("t", 0).unwrap().0;
    let mut client = Client::connect(&cluster, leader).await;
    assert_eq!(client.produce("t", 0, -1, batch(&["a"], None)).await.error, ErrorCode::NONE);
    let name = cluster.inject(Fault::Cut(Cut { between: [2, 1] })).unwrap();
    assert_eq!(client.produce("t", 0, 1, batch(&["b"], None)).await.error, ErrorCode::NONE);
    soon(cluster.wait_until(|cluster| cluster.isr("t", 0).unwrap() == [leader])).await;
    assert_eq!(cluster.live_brokers(), [1, 2], "the controller reaches both");
    assert_eq!(client.produce("t", 0, -1, batch(&["c"], None)).await.error, ErrorCode::NONE);
    cluster.lift(&name);
    soon(cluster.wait_until(|cluster| cluster.isr("t", 0).unwrap().len() == 2)).await;
}

#[tokio::test]
async fn forgotten_fetch_sessions_are_opened_again() {
    let cluster = start(config(2)).await;
    cluster.create_topic("t", 1, 2, &[]).unwrap();
    cluster.settled().await;
    let leader = cluster.leader("t", 0).unwrap().0;
    let mut client = Client::connect(&cluster, leader).await;
    client.produce("t", 0, -1, batch(&["a"], None)).await;
    let mut request = fetch_request("t", 0, 1);
    (request.session_epoch, request.max_wait_ms) = (0, 1);
    let opened = client.fetch_raw(12, &request).await;
    // The follower has one, too.
    assert_eq!(cluster.expire_fetch_sessions(leader), Some(2));
    (request.session_id, request.session_epoch) = (opened.session_id, 1);
    let refused = client.fetch_raw(12, &request).await.error;
    assert_eq!(refused, ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
    let produced = soon(client.produce("t", 0, -1, batch(&["b"], None))).await;
    assert_eq!(produced.error, ErrorCode::NONE, "the follower continues");
    assert_eq!(cluster.isr("t", 0).unwrap().len(), 2);
    let follower = 3 - leader;
    assert_eq!(cluster.fetch_sessions(follower), Some(SessionMetrics::default()));
    assert_eq!(cluster.expire_fetch_sessions(9), None);
}

/// The methods and the faults are the same thing.
#[tokio::test]
async fn methods_inject_and_lift_named_faults() {
    let cluster = start(config(2)).await;
    let names = || cluster.faults().into_iter().map(|fault| fault.name).collect::<Vec<_>>();
    cluster.freeze(1);
    cluster.freeze(1);
    cluster.freeze(9);
    cluster.cut_off(2, true);
    cluster.freeze_metadata(2, true);
    cluster.set_metadata_delay(1, Duration::from_millis(5));
    cluster.delay(None, Some(0), Duration::from_millis(1));
    cluster.delay(Some(2), Some(0), Duration::ZERO);
    assert_eq!(
        names(),
        [
            "freeze-of-1",
            "cut-off-of-2",
            "metadata-freeze-of-2",
            "metadata-delay-of-1",
            "delay-of-1-0"
        ]
    );
    cluster.clear_delays();
    cluster.cut_off(2, false);
    cluster.freeze_metadata(2, false);
    cluster.thaw(1);
    assert_eq!(names(), ["metadata-delay-of-1"]);
    assert_eq!(cluster.lift_all(), 1);
    // A freeze ends with its process.
    cluster.inject(Fault::Freeze(OnBroker { broker: 1 })).unwrap();
    cluster.kill(1);
    assert_eq!(names(), [""; 0]);
    soon(cluster.restart(1)).await.unwrap();
    soon(cluster.wait_until(|cluster| cluster.live_brokers() == [1, 2])).await;
    let unknown = Fault::DelayMetadata(DelayMetadata { broker: 3, time: Duration::ZERO });
    assert_eq!(cluster.inject(unknown), Err(FaultError::NoSuchBroker(3)));
}

#[tokio::test]
async fn a_frozen_broker_continues_when_its_fault_is_lifted() {
    let (cluster, mut client) = one_partition().await;
    let name = cluster.inject(Fault::Freeze(OnBroker { broker: 1 }).named("gc")).unwrap();
    soon(cluster.wait_until(|cluster| cluster.live_brokers().is_empty())).await;
    client.send_produce("t", 0, -1, batch(&["a"], None)).await;
    cluster.lift(&name);
    assert_eq!(client.produce_answer().await.1.error, ErrorCode::NONE);
}

/// A rule that concerns other requests costs them nothing but its lookup.
#[tokio::test]
async fn a_fault_of_one_api_leaves_the_others() {
    let (cluster, mut client) = one_partition().await;
    let requests = Requests::of(ApiKey::HEARTBEAT).to_broker(1);
    let error = Fault::error(requests, ErrorCode::REBALANCE_IN_PROGRESS);
    let name = cluster.inject(error).unwrap();
    assert_eq!(client.produce("t", 0, -1, batch(&["a"], None)).await.error, ErrorCode::NONE);
    let request = HeartbeatRequest::default().with_group_id(text("g").into());
    let beat = client.cold(4, &request).await;
    assert_eq!(beat.error_code, ErrorCode::REBALANCE_IN_PROGRESS.0);
    assert_eq!(hits(&cluster, &name), 1);
}

/// Client id, API, version, whether bytes arrived, bytes sent, whether the connection closed.
type Seen = (String, ApiKey, i16, bool, usize, bool);

#[derive(Default)]
struct Handled(std::sync::Mutex<Vec<Seen>>);

impl Observer for Handled {
    fn appended(&self, _: i32, _: &str, _: i32, _: i64, _: i64, _: Instant) {}

    fn committed(&self, _: i32, _: &str, _: i32, _: i64, _: Instant) {}

    fn handled(&self, request: &HandledRequest<'_>) {
        assert_eq!((request.broker, request.peer), (1, std::net::Ipv4Addr::LOCALHOST.into()));
        let HandledRequest { client_id, api, version, received, sent, closes, .. } = *request;
        let client = client_id.to_owned();
        self.0.lock().unwrap().push((client, api, version, received > 0, sent, closes));
    }
}

#[tokio::test]
async fn an_observer_sees_every_request_with_the_bytes_of_its_response() {
    let (cluster, mut client) = one_partition().await;
    client.list_offset("t", 0, -1).await;
    let handled = std::sync::Arc::new(Handled::default());
    cluster.observe(handled.clone());
    client.send_produce("t", 0, -1, batch(&["a"], None)).await;
    let response = client.receive().await.unwrap();
    let closing = Disconnect {
        requests: Requests::of(ApiKey::LIST_OFFSETS),
        when: When::Response,
        after_bytes: 5,
    };
    cluster.inject(Fault::Disconnect(closing)).unwrap();
    let request = ListOffsetsRequest::default().with_replica_id((-1).into());
    let frame = curtail_wire::cold::encode_request(7, 9, Some("test"), &request).unwrap();
    client.send(&frame).await;
    assert_eq!(client.receive().await, None);
    let seen = handled.0.lock().unwrap().clone();
    let test = || "test".to_owned();
    assert_eq!(
        seen,
        [
            (test(), ApiKey::PRODUCE, 12, true, response.len() + 4, false),
            (test(), ApiKey::LIST_OFFSETS, 7, true, 5, true),
        ]
    );
}

/// Two incarnations of a broker would write to the same logs.
#[tokio::test]
async fn of_concurrent_restarts_one_starts_the_broker() {
    let cluster = start(config(1)).await;
    cluster.kill(1);
    let (one, other) = soon(async { tokio::join!(cluster.restart(1), cluster.restart(1)) }).await;
    one.unwrap();
    assert!(matches!(other, Err(ClusterError::AlreadyRunning(1))), "{other:?}");
    cluster.kill(1);
    soon(cluster.restart(1)).await.unwrap();
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn clear_delays_leaves_other_faults_with_a_similar_name() {
    let cluster = start(config(1)).await;
    let refuse = Fault::error(Requests::of(ApiKey::PRODUCE), REFUSED);
    cluster.inject(refuse.named("delay-of-mine")).unwrap();
    cluster.delay(Some(1), None, Duration::from_millis(1));
    cluster.clear_delays();
    let names: Vec<_> = cluster.faults().into_iter().map(|fault| fault.name).collect();
    assert_eq!(names, ["delay-of-mine"]);
}
