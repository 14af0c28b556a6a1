//! Transactions on a running cluster, one raw request at a time: visibility for readers, fencing,
//! and brokers that fail while a transaction ends.

mod state;

use std::time::Duration;

use crate::support::{Client, config, fetch_request, soon, start, values};
use bytes::Bytes;
use curtail_cluster::{Cluster, ClusterConfig};
use curtail_wire::{
    ErrorCode, Uuid,
    api::ApiKey,
    cold::{
        StrBytes,
        messages::{
            AddOffsetsToTxnRequest, AddPartitionsToTxnRequest, DescribeProducersRequest,
            DescribeTransactionsRequest, EndTxnRequest, FindCoordinatorRequest, GroupId,
            InitProducerIdRequest, ListTransactionsRequest, ProducerId, TopicName, TransactionalId,
            add_partitions_to_txn_request::AddPartitionsToTxnTopic,
            describe_producers_request::TopicRequest,
        },
    },
    fetch::{FetchPartitionResponse, IsolationLevel},
    produce::{ProducePartition, ProduceRequest, ProduceResponse, ProduceTopic},
    records::{BatchBuilder, Compression, ProducerStamp, RecordData, set_transactional, stamp},
};

const STATE: &str = "__transaction_state";

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

fn topic_name(value: &str) -> TopicName {
    TopicName(text(value))
}

/// Returns a transactional batch of one record.
fn batch(value: &str, (id, epoch): (i64, i16), sequence: i32) -> Bytes {
    let mut builder = BatchBuilder::new(Vec::new());
    builder.append(&RecordData {
        key: None,
        value: Some(value.as_bytes()),
        headers: &[],
        timestamp: 1_700_000_000_000,
    });
    let mut bytes = builder.seal(&Compression::default(), &mut Vec::new()).expect("it fits");
    set_transactional(&mut bytes);
    let stamped = ProducerStamp { producer_id: id, producer_epoch: epoch, base_sequence: sequence };
    stamp(&mut bytes, stamped);
    bytes.into()
}

/// Starts a cluster whose coordinators have their topics.
async fn prepared(config: ClusterConfig) -> Cluster {
    let cluster = start(config).await;
    with_coordinators(&cluster).await;
    cluster
}

async fn with_coordinators(cluster: &Cluster) {
    let brokers = cluster.broker_ids().len();
    let mut client = Client::connect(cluster, 1).await;
    for (key_type, topic) in [(0, "__consumer_offsets"), (1, STATE)] {
        let request = FindCoordinatorRequest::default()
            .with_key_type(key_type)
            .with_coordinator_keys(vec![text("any")]);
        client.cold(4, &request).await;
        let whole = |c: &curtail_cluster::ClusterHandle| {
            (0..4).all(|at| c.isr(topic, at).is_some_and(|isr| isr.len() == brokers.min(3)))
        };
        soon(cluster.wait_until(whole)).await;
    }
    cluster.settled().await;
}

/// Repeats a request while the coordinator reads its log or a transaction is ending.
async fn patiently<T>(mut ask: impl AsyncFnMut() -> Result<T, ErrorCode>) -> Result<T, ErrorCode> {
    let passing = [
        ErrorCode::COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode::COORDINATOR_NOT_AVAILABLE,
        ErrorCode::CONCURRENT_TRANSACTIONS,
        ErrorCode::NOT_COORDINATOR,
        // The form of these errors in a Produce response.
        ErrorCode::NOT_ENOUGH_REPLICAS,
    ];
    let asking = async {
        loop {
            match ask().await {
                Err(code) if passing.contains(&code) => {}
                answer => return answer,
            }
        }
    };
    soon(asking).await
}

fn checked(code: i16) -> Result<(), ErrorCode> {
    match ErrorCode(code) {
        ErrorCode::NONE => Ok(()),
        code => Err(code),
    }
}

/// Returns the broker that coordinates a transactional id.
async fn coordinator(cluster: &Cluster, through: i32, id: &str) -> i32 {
    let mut client = Client::connect(cluster, through).await;
    let request =
        FindCoordinatorRequest::default().with_key_type(1).with_coordinator_keys(vec![text(id)]);
    let found = patiently(async || {
        let response = client.cold(4, &request).await;
        let found = &response.coordinators[0];
        checked(found.error_code).map(|()| found.node_id.0)
    });
    found.await.expect("a coordinator")
}

/// A transactional producer, one raw request at a time.
struct Producer {
    id: &'static str,
    at: (i64, i16),
    client: Client,
}

impl Producer {
    async fn new(cluster: &Cluster, id: &'static str) -> Self {
        let broker = coordinator(cluster, 1, id).await;
        let client = Client::connect(cluster, broker).await;
        let mut producer = Self { id, at: (-1, -1), client };
        producer.init(60_000).await.expect("a producer id");
        producer
    }

    async fn try_init(&mut self, timeout_ms: i32) -> Result<(i64, i16), ErrorCode> {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(Some(TransactionalId(text(self.id))))
            .with_transaction_timeout_ms(timeout_ms)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1);
        let response = self.client.cold(5, &request).await;
        checked(response.error_code)?;
        Ok((response.producer_id.0, response.producer_epoch))
    }

    async fn init(&mut self, timeout_ms: i32) -> Result<(), ErrorCode> {
        self.at = patiently(async || self.try_init(timeout_ms).await).await?;
        Ok(())
    }

    /// Sends EndTxn once; from version 5 on the response contains the next epoch.
    async fn try_end(&mut self, version: i16, commit: bool) -> Result<(i64, i16), ErrorCode> {
        let request = EndTxnRequest::default()
            .with_transactional_id(TransactionalId(text(self.id)))
            .with_producer_id(ProducerId(self.at.0))
            .with_producer_epoch(self.at.1)
            .with_committed(commit);
        let response = self.client.cold(version, &request).await;
        checked(response.error_code)?;
        Ok((response.producer_id.0, response.producer_epoch))
    }

    async fn end(&mut self, commit: bool) {
        self.at = patiently(async || self.try_end(5, commit).await).await.expect("it ends");
    }

    async fn add(&mut self, topic: &str, partition: i32) -> Result<(), ErrorCode> {
        let asked = AddPartitionsToTxnTopic::default()
            .with_name(topic_name(topic))
            .with_partitions(vec![partition]);
        let request = AddPartitionsToTxnRequest::default()
            .with_v3_and_below_transactional_id(TransactionalId(text(self.id)))
            .with_v3_and_below_producer_id(ProducerId(self.at.0))
            .with_v3_and_below_producer_epoch(self.at.1)
            .with_v3_and_below_topics(vec![asked]);
        patiently(async || {
            let response = self.client.cold(3, &request).await;
            let result = &response.results_by_topic_v3_and_below[0].results_by_partition[0];
            checked(result.partition_error_code)
        })
        .await
    }
}

/// Produces one batch to the leader of a partition, without retries.
async fn try_produce(
    cluster: &Cluster,
    version: i16,
    id: Option<&str>,
    (topic, partition): (&str, i32),
    records: Bytes,
) -> Result<i64, ErrorCode> {
    let (leader, _) = cluster.leader(topic, partition).expect("a leader");
    let mut client = Client::connect(cluster, leader).await;
    let request = ProduceRequest {
        transactional_id: id.map(str::to_owned),
        acks: -1,
        timeout_ms: 20_000,
        topics: vec![ProduceTopic {
            name: topic.to_owned(),
            topic_id: Uuid::ZERO,
            partitions: vec![ProducePartition { index: partition, records: Some(records) }],
        }],
    };
    client.send_with(ApiKey::PRODUCE, version, |w| request.encode(version, w)).await;
    let body = client.body(ApiKey::PRODUCE, version).await;
    let response = ProduceResponse::decode(version, &body).expect("a response");
    let answer = &response.topics[0].partitions[0];
    checked(answer.error.0).map(|()| answer.base_offset)
}

/// Produces with transaction version 2, which adds the partition.
async fn produce(
    cluster: &Cluster,
    producer: &Producer,
    at: (&str, i32),
    records: Bytes,
) -> Result<i64, ErrorCode> {
    patiently(async || try_produce(cluster, 12, Some(producer.id), at, records.clone()).await).await
}

/// Fetches with READ_COMMITTED from the leader behind the connection.
async fn read(client: &mut Client, (topic, partition): (&str, i32)) -> FetchPartitionResponse {
    let mut request = fetch_request(topic, partition, 0);
    request.isolation_level = IsolationLevel::ReadCommitted;
    request.min_bytes = 0;
    let response = client.fetch_raw(12, &request).await;
    let answer = response.topics[0].partitions[0].clone();
    assert_eq!(answer.error, ErrorCode::NONE);
    answer
}

/// Fetches with READ_COMMITTED until the last stable offset has reached `end`. Returns the values
/// that a consumer shows.
async fn committed(cluster: &Cluster, at: (&str, i32), end: i64) -> Vec<String> {
    let reading = async {
        let (leader, _) = cluster.leader(at.0, at.1).expect("a leader");
        let mut client = Client::connect(cluster, leader).await;
        loop {
            let answer = read(&mut client, at).await;
            assert!(answer.last_stable_offset <= answer.high_watermark);
            if answer.last_stable_offset < end {
                continue;
            }
            return shown(&answer);
        }
    };
    soon(reading).await
}

/// Returns the values without control records and aborted transactions.
fn shown(answer: &FetchPartitionResponse) -> Vec<String> {
    let mut aborted =
        answer.aborted_transactions.clone().expect("for a reader of committed records");
    aborted.sort_by_key(|txn| txn.first_offset);
    let mut open: Vec<i64> = Vec::new();
    let mut found = Vec::new();
    for batch in curtail_wire::records::batches(answer.records.clone()) {
        let batch = batch.expect("whole batches");
        let header = batch.header;
        while aborted.first().is_some_and(|txn| txn.first_offset <= header.base_offset) {
            open.push(aborted.remove(0).producer_id);
        }
        if header.is_control() {
            open.retain(|id| *id != header.producer_id);
        } else if !(header.is_transactional() && open.contains(&header.producer_id)) {
            found.extend(values(batch.raw()).into_iter().map(|(_, value)| value));
        }
    }
    found
}

#[tokio::test]
async fn read_committed_readers_see_only_committed_records() {
    let cluster = prepared(config(3)).await;
    cluster.create_topic("t", 2, 3, &[]).expect("the topic is new");
    cluster.settled().await;
    let mut producer = Producer::new(&cluster, "txn").await;
    let (id, epoch) = producer.at;
    assert_eq!(epoch, 0);
    assert_eq!(produce(&cluster, &producer, ("t", 0), batch("a", producer.at, 0)).await, Ok(0));
    assert_eq!(produce(&cluster, &producer, ("t", 0), batch("b", producer.at, 1)).await, Ok(1));
    assert_eq!(produce(&cluster, &producer, ("t", 1), batch("c", producer.at, 0)).await, Ok(0));

    let (leader, _) = cluster.leader("t", 0).expect("a leader");
    let mut client = Client::connect(&cluster, leader).await;
    let open = read(&mut client, ("t", 0)).await;
    assert_eq!((open.high_watermark, open.last_stable_offset), (2, 0));
    assert!(open.records.is_empty() && open.aborted_transactions == Some(vec![]));
    assert_eq!(client.fetch_all("t", 0, 2).await, ["a", "b"], "others see everything");
    let (error, latest, _) = client.list_offset_committed("t", 0, -1).await;
    assert_eq!((error, latest), (ErrorCode::NONE, 0));

    let described = DescribeTransactionsRequest::default()
        .with_transactional_ids(vec![TransactionalId(text("txn")), TransactionalId(text("no"))]);
    let described = producer.client.cold(0, &described).await.transaction_states;
    assert_eq!((&*described[0].transaction_state, described[0].producer_id.0), ("Ongoing", id));
    assert_eq!(described[0].topics[0].partitions, [0, 1]);
    let listed = ListTransactionsRequest::default()
        .with_state_filters(vec![text("Ongoing"), text("None")])
        .with_duration_filter(-1);
    let listed = producer.client.cold(1, &listed).await;
    assert_eq!(listed.transaction_states.len(), 1);
    assert_eq!(listed.unknown_state_filters, [text("None")]);
    let asked = TopicRequest::default().with_name(topic_name("t")).with_partition_indexes(vec![0]);
    let producers = DescribeProducersRequest::default().with_topics(vec![asked]);
    let producers = client.cold(0, &producers).await;
    let active = &producers.topics[0].partitions[0].active_producers[0];
    assert_eq!((active.producer_id.0, active.last_sequence), (id, 1));
    assert_eq!(active.current_txn_start_offset, 0);

    producer.end(true).await;
    assert_eq!(producer.at, (id, 1), "every transaction gives another epoch");
    assert_eq!(committed(&cluster, ("t", 0), 3).await, ["a", "b"]);
    assert_eq!(committed(&cluster, ("t", 1), 2).await, ["c"]);

    assert_eq!(produce(&cluster, &producer, ("t", 0), batch("x", producer.at, 0)).await, Ok(3));
    producer.end(false).await;
    assert_eq!(produce(&cluster, &producer, ("t", 0), batch("d", producer.at, 0)).await, Ok(5));
    producer.end(true).await;
    assert_eq!(committed(&cluster, ("t", 0), 7).await, ["a", "b", "d"]);
    let (error, latest, _) = client.list_offset_committed("t", 0, -1).await;
    assert_eq!((error, latest), (ErrorCode::NONE, 7));
    cluster.shutdown().await;
}

#[tokio::test]
async fn version_one_producers_add_their_partitions_themselves() {
    let cluster = prepared(ClusterConfig { transaction_version: 1, ..config(3) }).await;
    cluster.create_topic("t", 1, 3, &[]).expect("the topic is new");
    cluster.settled().await;
    let mut producer = Producer::new(&cluster, "old").await;
    let at = ("t", 0);
    let records = batch("a", producer.at, 0);
    let send = async |version, id| try_produce(&cluster, version, id, at, records.clone()).await;
    assert_eq!(send(9, Some("old")).await, Err(ErrorCode::INVALID_TXN_STATE), "not added");
    assert_eq!(send(12, Some("old")).await, Err(ErrorCode::TRANSACTION_ABORTABLE));
    let unauthorized = Err(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
    assert_eq!(send(9, None).await, unauthorized);
    assert_eq!(producer.add("missing", 0).await, Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
    producer.add("t", 0).await.expect("the partition exists");
    assert_eq!(send(9, Some("old")).await, Ok(0));
    let offsets = AddOffsetsToTxnRequest::default()
        .with_transactional_id(TransactionalId(text("old")))
        .with_producer_id(ProducerId(producer.at.0))
        .with_producer_epoch(producer.at.1)
        .with_group_id(GroupId(text("g")));
    assert_eq!(producer.client.cold(3, &offsets).await.error_code, 0);
    producer.try_end(3, true).await.expect("committed");
    assert_eq!(committed(&cluster, at, 2).await, ["a"]);
    // A repeated EndTxn gets the same response once the transaction is complete, and the epoch
    // continues.
    patiently(async || producer.try_end(3, true).await).await.expect("committed before");
    assert_eq!(producer.try_end(3, false).await, Err(ErrorCode::INVALID_TXN_STATE));
    producer.add("t", 0).await.expect("the next transaction");
    let next = batch("b", producer.at, 1);
    assert_eq!(try_produce(&cluster, 9, Some("old"), at, next).await, Ok(2));
    producer.try_end(3, true).await.expect("committed");
    assert_eq!(committed(&cluster, at, 4).await, ["a", "b"]);
    cluster.shutdown().await;
}

/// The leader of a partition verifies with the coordinator it knows, and that broker may not know
/// yet that another one has become the coordinator. With version 1 all transactions have the same
/// epoch, so an older transaction looks like the current one.
#[tokio::test]
async fn a_previous_coordinator_refuses_no_batch() {
    let cluster = prepared(ClusterConfig { transaction_version: 1, ..config(3) }).await;
    let home = coordinator(&cluster, 1, "stale").await;
    let topic = led_by(&cluster, home).await;
    let at = (&*topic, 0);
    let mut producer = Producer::new(&cluster, "stale").await;
    producer.add(&topic, 0).await.expect("added");
    let sent = try_produce(&cluster, 12, Some("stale"), at, batch("a", producer.at, 0)).await;
    assert_eq!(sent, Ok(0));
    producer.try_end(3, true).await.expect("committed");
    assert_eq!(committed(&cluster, at, 2).await, ["a"]);

    cluster.freeze_metadata(home, true);
    let next = (1..=3).find(|id| *id != home).expect("another broker");
    let led: Vec<i32> =
        (0..4).filter(|index| cluster.leader(STATE, *index).is_some_and(|l| l.0 == home)).collect();
    for index in led {
        cluster.move_leader(STATE, index, next).expect("it is in sync");
    }
    producer.client = Client::connect(&cluster, next).await;
    producer.add(&topic, 0).await.expect("added where the transaction is coordinated now");
    let next = batch("b", producer.at, 1);
    let send = async || try_produce(&cluster, 12, Some("stale"), at, next.clone()).await;
    assert_eq!(send().await, Err(ErrorCode::NOT_ENOUGH_REPLICAS), "to be sent again");
    cluster.freeze_metadata(home, false);
    assert_eq!(patiently(send).await, Ok(2));
    patiently(async || producer.try_end(3, true).await).await.expect("committed");
    assert_eq!(committed(&cluster, at, 4).await, ["a", "b"]);
    cluster.shutdown().await;
}

/// Creates a topic with one partition on three brokers, led by this broker.
async fn led_by(cluster: &Cluster, broker: i32) -> String {
    for number in 0.. {
        let topic = format!("t{number}");
        cluster.create_topic(&topic, 1, 3, &[]).expect("the topic is new");
        cluster.settled().await;
        if cluster.leader(&topic, 0).is_some_and(|(leader, _)| leader == broker) {
            return topic;
        }
    }
    unreachable!("every broker leads a topic")
}

#[tokio::test]
async fn a_new_producer_fences_the_previous_one() {
    let cluster = prepared(config(3)).await;
    cluster.create_topic("t", 1, 3, &[]).expect("the topic is new");
    cluster.settled().await;
    let at = ("t", 0);
    let mut zombie = Producer::new(&cluster, "same").await;
    assert_eq!(produce(&cluster, &zombie, at, batch("lost", zombie.at, 0)).await, Ok(0));
    let mut next = Producer::new(&cluster, "same").await;
    assert_eq!(next.at.0, zombie.at.0);
    assert!(next.at.1 > zombie.at.1);
    let late = produce(&cluster, &zombie, at, batch("late", zombie.at, 1)).await;
    assert_eq!(late, Err(ErrorCode::INVALID_PRODUCER_EPOCH));
    assert_eq!(zombie.try_end(5, true).await, Err(ErrorCode::PRODUCER_FENCED));
    assert_eq!(produce(&cluster, &next, at, batch("kept", next.at, 0)).await, Ok(2));
    let late = produce(&cluster, &zombie, at, batch("late", zombie.at, 1)).await;
    assert_eq!(late, Err(ErrorCode::INVALID_PRODUCER_EPOCH), "also while the other's is open");
    next.end(true).await;
    assert_eq!(committed(&cluster, at, 4).await, ["kept"]);
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_timed_out_transaction_is_aborted() {
    let quick = Duration::from_millis(50);
    let cluster = prepared(ClusterConfig { transaction_abort_interval: quick, ..config(3) }).await;
    cluster.create_topic("t", 1, 3, &[]).expect("the topic is new");
    cluster.settled().await;
    let at = ("t", 0);
    let mut producer = Producer::new(&cluster, "slow").await;
    let too_long = producer.try_init(900_001).await;
    assert_eq!(too_long, Err(ErrorCode::INVALID_TRANSACTION_TIMEOUT));
    producer.init(200).await.expect("a producer id");
    assert_eq!(produce(&cluster, &producer, at, batch("late", producer.at, 0)).await, Ok(0));
    assert_eq!(committed(&cluster, at, 2).await, [""; 0]);
    assert_eq!(producer.try_end(5, true).await, Err(ErrorCode::PRODUCER_FENCED));
    cluster.shutdown().await;
}

#[tokio::test]
async fn the_next_coordinator_completes_a_decided_transaction() {
    let cluster = prepared(ClusterConfig { transaction_log_min_isr: 1, ..config(4) }).await;
    let mut producer = Producer::new(&cluster, "moved").await;
    let home = coordinator(&cluster, 1, "moved").await;
    // One topic per broker, so that one leader is neither the coordinator nor the requested broker.
    let data = ["a", "b", "c", "d"].map(|name| {
        cluster.create_topic(name, 1, 1, &[]).expect("the topic is new");
        name
    });
    cluster.settled().await;
    let led = |topic: &str| cluster.leader(topic, 0).expect("a leader").0;
    let topic = data.into_iter().find(|topic| led(topic) != home).expect("another broker leads");
    let leader = led(topic);
    assert_eq!(produce(&cluster, &producer, (topic, 0), batch("v", producer.at, 0)).await, Ok(0));
    // The leader cannot receive the marker, so only the decision exists when the coordinator dies.
    cluster.freeze(leader);
    producer.end(true).await;
    cluster.kill(home);
    soon(cluster.wait_until(|c| {
        let led = (0..4).filter_map(|at| c.leader(STATE, at)).filter(|(at, _)| *at != home);
        led.count() == 4
    }))
    .await;
    cluster.thaw(leader);
    soon(cluster.wait_until(|c| c.leader(topic, 0).is_some())).await;
    assert_eq!(committed(&cluster, (topic, 0), 2).await, ["v"]);
    cluster.restart(home).await.expect("it starts again");
    cluster.shutdown().await;
}

#[tokio::test]
async fn markers_follow_a_leader_that_moves() {
    let cluster = prepared(config(3)).await;
    cluster.create_topic("t", 1, 3, &[]).expect("the topic is new");
    cluster.settled().await;
    let at = ("t", 0);
    let mut producer = Producer::new(&cluster, "follows").await;
    let home = coordinator(&cluster, 1, "follows").await;
    assert_eq!(produce(&cluster, &producer, at, batch("v", producer.at, 0)).await, Ok(0));
    // The coordinator does not learn of the move, and sends the marker to the previous leader.
    cluster.freeze_metadata(home, true);
    let (leader, _) = cluster.leader("t", 0).expect("a leader");
    let to = (1..=3).find(|id| *id != leader && *id != home).or((1..=3).find(|id| *id != leader));
    let whole =
        |c: &curtail_cluster::ClusterHandle| c.isr("t", 0).is_some_and(|isr| isr.len() == 3);
    soon(cluster.wait_until(whole)).await;
    cluster.move_leader("t", 0, to.expect("another broker")).expect("it is in sync");
    for broker in (1..=3).filter(|id| *id != home) {
        let mut client = Client::connect(&cluster, broker).await;
        let moved =
            async { while Some(client.metadata("t").await.1.partitions[0].leader_id) != to {} };
        soon(moved).await;
    }
    producer.end(true).await;
    let mut client = Client::connect(&cluster, home).await;
    let described = DescribeTransactionsRequest::default()
        .with_transactional_ids(vec![TransactionalId(text("follows"))]);
    let state = client.cold(0, &described).await.transaction_states.remove(0);
    assert_eq!(&*state.transaction_state, "PrepareCommit", "the marker is not in place");
    cluster.freeze_metadata(home, false);
    assert_eq!(committed(&cluster, at, 2).await, ["v"]);
    cluster.shutdown().await;
}

/// From version 2 on a regular expression filters the ids, which it must match as a whole (KIP-1152).
#[tokio::test]
async fn transactions_are_listed_by_a_pattern_of_their_ids() {
    let cluster = prepared(config(1)).await;
    let mut client = Client::connect(&cluster, 1).await;
    for id in ["orders-1", "orders-2", "returns"] {
        Producer::new(&cluster, id).await;
    }
    let mut list = async |pattern: Option<&str>| {
        let request =
            ListTransactionsRequest::default().with_transactional_id_pattern(pattern.map(text));
        let response = client.cold(2, &request).await;
        let ids =
            response.transaction_states.iter().map(|state| state.transactional_id.to_string());
        let mut ids: Vec<_> = ids.collect();
        ids.sort_unstable();
        (ErrorCode(response.error_code), ids.join(" "))
    };
    let found = |ids: &str| (ErrorCode::NONE, ids.to_owned());
    assert_eq!(list(None).await, found("orders-1 orders-2 returns"));
    assert_eq!(list(Some("")).await, found("orders-1 orders-2 returns"));
    assert_eq!(list(Some("orders-.*")).await, found("orders-1 orders-2"));
    assert_eq!(list(Some("orders")).await, found(""));
    let invalid = ErrorCode::INVALID_REGULAR_EXPRESSION;
    assert_eq!(list(Some("(")).await, (invalid, String::new()));
    soon(cluster.shutdown()).await;
}
