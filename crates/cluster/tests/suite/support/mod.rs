//! A client of raw frames: without retries, without metadata, with every response visible.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

pub mod group;

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use curtail_cluster::{Cluster, ClusterConfig};
use curtail_net::{Env, Socket, SocketExt, SocketOptions};
use curtail_wire::{
    Encoding, ErrorCode, Uuid, Writer,
    api::ApiKey,
    cold::{
        self, Request, StrBytes,
        messages::{
            InitProducerIdRequest, ListOffsetsRequest, SaslAuthenticateRequest,
            SaslHandshakeRequest, TopicName,
            list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic},
        },
    },
    fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic},
    frame::FrameSplitter,
    header::{RequestHeader, response_body},
    metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataTopic},
    produce::{
        ProducePartition, ProducePartitionResponse, ProduceRequest, ProduceResponse, ProduceTopic,
    },
    records::{BatchBuilder, Compression, ProducerStamp, RecordData, batches, stamp},
};

/// Timeout of every wait: a test that waits longer has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Fails the test if the future takes too long.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it should have happened by now")
}

pub fn config(brokers: u32) -> ClusterConfig {
    ClusterConfig {
        brokers,
        broker_session_timeout: Duration::from_millis(600),
        broker_heartbeat_interval: Duration::from_millis(100),
        replica_lag_time_max: Duration::from_millis(800),
        replica_fetch_wait_max: Duration::from_millis(200),
        replica_fetch_backoff: Duration::from_millis(50),
        ..ClusterConfig::default()
    }
}

pub async fn start(config: ClusterConfig) -> Cluster {
    soon(Cluster::start(config, Env::real())).await.expect("the cluster starts")
}

/// Starts a broker with the topic `t` of one partition, and connects to it.
pub async fn one_partition() -> (Cluster, Client) {
    let cluster = start(config(1)).await;
    cluster.create_topic("t", 1, 1, &[]).expect("a topic");
    cluster.settled().await;
    let client = Client::connect(&cluster, 1).await;
    (cluster, client)
}

/// Returns a batch of records with these values.
pub fn batch(values: &[&str], producer: Option<(i64, i16, i32)>) -> Bytes {
    let mut builder = BatchBuilder::new(Vec::new());
    for value in values {
        builder.append(&RecordData {
            key: None,
            value: Some(value.as_bytes()),
            headers: &[],
            timestamp: 1_700_000_000_000,
        });
    }
    let mut bytes = builder.seal(&Compression::default(), &mut Vec::new()).expect("it fits");
    stamp(
        &mut bytes,
        producer.map_or(ProducerStamp::NONE, |(producer_id, producer_epoch, base_sequence)| {
            ProducerStamp { producer_id, producer_epoch, base_sequence }
        }),
    );
    bytes.into()
}

/// Returns the values in the records section of a fetch response, with their offsets.
pub fn values(records: &Bytes) -> Vec<(i64, String)> {
    let mut found = Vec::new();
    for batch in batches(records.clone()) {
        let batch = batch.expect("whole batches");
        batch.verify_crc().expect("a good checksum");
        for record in batch.records(&Default::default()).expect("records") {
            let record = record.expect("a record");
            let value = record.value.expect("a value");
            found.push((record.offset, String::from_utf8(value.to_vec()).expect("text")));
        }
    }
    found
}

pub struct Client {
    socket: Box<dyn Socket>,
    frames: FrameSplitter,
    correlation_id: i32,
    trailing: &'static [u8],
}

impl Client {
    pub async fn connect(cluster: &Cluster, broker: i32) -> Self {
        Self::connect_to(cluster.broker(broker).expect("a broker").addr()).await
    }

    pub async fn connect_to(addr: SocketAddr) -> Self {
        let socket = Env::real().net.connect(addr, SocketOptions::default()).await;
        Self::on(socket.expect("the broker listens"))
    }

    pub fn on(socket: Box<dyn Socket>) -> Self {
        Self { socket, frames: FrameSplitter::default(), correlation_id: 0, trailing: &[] }
    }

    /// Appends these bytes, which are not part of the request, to every further request.
    pub fn append_to_requests(&mut self, trailing: &'static [u8]) {
        self.trailing = trailing;
    }

    pub async fn send(&mut self, frame: &[u8]) {
        self.socket.write_all(frame).await.expect("the connection is open");
    }

    /// Like [`Client::send_produce`]; `None` if the connection has closed.
    pub async fn try_send_produce(
        &mut self,
        topic: &str,
        partition: i32,
        acks: i16,
        records: Bytes,
    ) -> Option<()> {
        let frame = self.produce_frame(topic, partition, acks, records);
        self.socket.write_all(&frame).await.ok()
    }

    /// Receives the next frame; `None` if the broker has closed the connection.
    pub async fn receive(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.frames.next_frame().expect("frames") {
                return Some(frame);
            }
            let mut chunk = vec![0; 64 * 1024];
            match soon(self.socket.read(&mut chunk)).await {
                Ok(0) | Err(_) => return None,
                Ok(n) => self.frames.spare(n).extend_from_slice(&chunk[..n]),
            }
        }
    }

    /// Reads once. Returns false if the connection has closed.
    pub async fn receive_raw(&mut self) -> bool {
        let mut chunk = vec![0; 1024];
        matches!(self.socket.read(&mut chunk).await, Ok(1..))
    }

    fn next_id(&mut self) -> i32 {
        self.correlation_id += 1;
        self.correlation_id
    }

    /// Sends a request in one of Curtail's own codecs.
    pub async fn send_with(&mut self, api: ApiKey, version: i16, encode: impl FnOnce(&mut Writer)) {
        let frame = self.frame(api, version, encode);
        self.send(&frame).await;
    }

    fn frame(&mut self, api: ApiKey, version: i16, encode: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let correlation_id = self.next_id();
        let mut w = Writer::with_capacity(256);
        w.set_encoding(Encoding::Classic);
        w.i32(0);
        RequestHeader { api, version, correlation_id, client_id: Some("test") }.encode(&mut w);
        encode(&mut w);
        self.finish(w.into_vec())
    }

    /// Appends the trailing bytes and writes the frame's length.
    fn finish(&self, mut frame: Vec<u8>) -> Vec<u8> {
        frame.extend_from_slice(self.trailing);
        let length = (frame.len() - 4) as u32;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        frame
    }

    pub async fn body(&mut self, api: ApiKey, version: i16) -> Bytes {
        let frame = self.receive().await.expect("a response");
        let id = curtail_wire::header::correlation_id(&frame).expect("a correlation id");
        assert_eq!(id, self.correlation_id, "answers come in order");
        response_body(&frame, api, version).expect("a response")
    }

    /// Sends a request in one of the generated codecs.
    pub async fn send_cold<R: Request>(&mut self, version: i16, request: &R) {
        let id = self.next_id();
        let frame = cold::encode_request(version, id, Some("test"), request).expect("a request");
        let frame = self.finish(frame);
        self.send(&frame).await;
    }

    pub async fn cold<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        self.send_cold(version, request).await;
        let body = self.body(ApiKey(R::KEY), version).await;
        let layout = cold::layout::<R::Response>(ApiKey(R::KEY), version);
        cold::decode_response(layout, body).expect("a response")
    }

    pub async fn metadata(&mut self, topic: &str) -> (MetadataResponse, MetadataTopic) {
        self.metadata_of(Uuid::ZERO, Some(topic)).await
    }

    /// Requests metadata of a topic by its id, or by its name if the id is zero.
    pub async fn metadata_of(
        &mut self,
        topic_id: Uuid,
        name: Option<&str>,
    ) -> (MetadataResponse, MetadataTopic) {
        const VERSION: i16 = 12;
        let name = name.map(str::to_owned);
        let request = MetadataRequest {
            topics: Some(vec![MetadataRequestTopic { topic_id, name }]),
            allow_auto_topic_creation: true,
            ..MetadataRequest::default()
        };
        self.send_with(ApiKey::METADATA, VERSION, |w| request.encode(VERSION, w)).await;
        let body = self.body(ApiKey::METADATA, VERSION).await;
        let response = MetadataResponse::decode(VERSION, &body).expect("a response");
        let topic = response.topics[0].clone();
        (response, topic)
    }

    pub async fn send_produce(&mut self, topic: &str, partition: i32, acks: i16, records: Bytes) {
        let frame = self.produce_frame(topic, partition, acks, records);
        self.send(&frame).await;
    }

    fn produce_frame(&mut self, topic: &str, partition: i32, acks: i16, records: Bytes) -> Vec<u8> {
        const VERSION: i16 = 12;
        let request = ProduceRequest {
            transactional_id: None,
            acks,
            timeout_ms: 20_000,
            topics: vec![ProduceTopic {
                name: topic.to_owned(),
                topic_id: Uuid::ZERO,
                partitions: vec![ProducePartition { index: partition, records: Some(records) }],
            }],
        };
        self.frame(ApiKey::PRODUCE, VERSION, |w| request.encode(VERSION, w))
    }

    pub async fn produce_answer(&mut self) -> (ProduceResponse, ProducePartitionResponse) {
        const VERSION: i16 = 12;
        let body = self.body(ApiKey::PRODUCE, VERSION).await;
        let response = ProduceResponse::decode(VERSION, &body).expect("a response");
        let partition = response.topics[0].partitions[0].clone();
        (response, partition)
    }

    /// Receives the error of the only partition; `None` if the connection has closed.
    pub async fn try_produce_answer(&mut self) -> Option<ErrorCode> {
        const VERSION: i16 = 12;
        let frame = self.receive().await?;
        let body = response_body(&frame, ApiKey::PRODUCE, VERSION).expect("a response");
        let response = ProduceResponse::decode(VERSION, &body).expect("a response");
        Some(response.topics[0].partitions[0].error)
    }

    /// Produces one batch to one partition.
    pub async fn produce(
        &mut self,
        topic: &str,
        partition: i32,
        acks: i16,
        records: Bytes,
    ) -> ProducePartitionResponse {
        self.send_produce(topic, partition, acks, records).await;
        self.produce_answer().await.1
    }

    pub async fn fetch_raw(&mut self, version: i16, request: &FetchRequest) -> FetchResponse {
        self.send_with(ApiKey::FETCH, version, |w| request.encode(version, w)).await;
        let body = self.body(ApiKey::FETCH, version).await;
        FetchResponse::decode(version, &body).expect("a response")
    }

    /// Fetches committed records of one partition. Returns the error, the high watermark, and the
    /// values.
    pub async fn fetch(
        &mut self,
        topic: &str,
        partition: i32,
        offset: i64,
    ) -> (ErrorCode, i64, Vec<(i64, String)>) {
        let response = self.fetch_raw(12, &fetch_request(topic, partition, offset)).await;
        assert_eq!(response.error, ErrorCode::NONE);
        let answer = &response.topics[0].partitions[0];
        (answer.error, answer.high_watermark, values(&answer.records))
    }

    /// Fetches from `offset` until there are `count` records.
    pub async fn fetch_all(&mut self, topic: &str, partition: i32, count: usize) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        while found.len() < count {
            let (error, _, values) = self.fetch(topic, partition, found.len() as i64).await;
            assert_eq!(error, ErrorCode::NONE);
            found.extend(values.into_iter().map(|(_, value)| value));
        }
        found
    }

    pub async fn producer_id(&mut self) -> i64 {
        let response =
            self.cold(4, &InitProducerIdRequest::default().with_transactional_id(None)).await;
        assert_eq!(response.error_code, 0);
        response.producer_id.0
    }

    /// Sends ListOffsets for one partition. Returns error, offset and timestamp.
    pub async fn list_offset(
        &mut self,
        topic: &str,
        partition: i32,
        timestamp: i64,
    ) -> (ErrorCode, i64, i64) {
        self.list_offset_as(topic, partition, timestamp, 0).await
    }

    /// Like [`Client::list_offset`], with READ_COMMITTED.
    pub async fn list_offset_committed(
        &mut self,
        topic: &str,
        partition: i32,
        timestamp: i64,
    ) -> (ErrorCode, i64, i64) {
        self.list_offset_as(topic, partition, timestamp, 1).await
    }

    async fn list_offset_as(
        &mut self,
        topic: &str,
        partition: i32,
        timestamp: i64,
        isolation_level: i8,
    ) -> (ErrorCode, i64, i64) {
        let asked = ListOffsetsPartition::default()
            .with_partition_index(partition)
            .with_current_leader_epoch(-1)
            .with_timestamp(timestamp);
        let topic = ListOffsetsTopic::default()
            .with_name(TopicName(StrBytes::from_string(topic.to_owned())))
            .with_partitions(vec![asked]);
        let request = ListOffsetsRequest::default()
            .with_replica_id((-1).into())
            .with_isolation_level(isolation_level)
            .with_topics(vec![topic]);
        let response = self.cold(7, &request).await;
        let found = &response.topics[0].partitions[0];
        (ErrorCode(found.error_code), found.offset, found.timestamp)
    }
}

pub fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

/// Authenticates with a name and a password, separated by NUL. Returns the broker's error, its
/// message and the lifetime.
pub async fn authenticate(client: &mut Client, login: &str) -> (ErrorCode, Option<String>, i64) {
    let handshake = SaslHandshakeRequest::default().with_mechanism(text("PLAIN"));
    let response = client.cold(1, &handshake).await;
    assert_eq!(response.error_code, 0);
    let message = format!("\0{login}").into_bytes();
    let request = SaslAuthenticateRequest::default().with_auth_bytes(message.into());
    let response = client.cold(2, &request).await;
    let told = response.error_message.map(|message| message.to_string());
    (ErrorCode(response.error_code), told, response.session_lifetime_ms)
}

/// Connects as an authenticated user.
pub async fn enter(cluster: &Cluster, broker: i32, login: &str) -> Client {
    let mut client = Client::connect(cluster, broker).await;
    let (code, ..) = authenticate(&mut client, login).await;
    assert_eq!(code, ErrorCode::NONE);
    client
}

pub fn fetch_request(topic: &str, partition: i32, offset: i64) -> FetchRequest {
    FetchRequest {
        max_wait_ms: 5000,
        min_bytes: 1,
        max_bytes: 1 << 20,
        session_epoch: -1,
        topics: vec![FetchTopic {
            name: topic.to_owned(),
            topic_id: Uuid::ZERO,
            partitions: vec![fetch_partition(partition, offset)],
        }],
        ..FetchRequest::default()
    }
}

pub fn fetch_partition(index: i32, offset: i64) -> FetchPartition {
    FetchPartition {
        index,
        current_leader_epoch: -1,
        fetch_offset: offset,
        last_fetched_epoch: -1,
        log_start_offset: -1,
        max_bytes: 1 << 20,
    }
}
