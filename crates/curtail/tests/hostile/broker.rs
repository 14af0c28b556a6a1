//! A scripted broker. It keeps a small log and responds honestly, except where the script replaces a response.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use curtail::{Env, ErrorCode};
use curtail_net::{
    BoxFuture, Entropy, Listener, Net, ReadSide, RealNet, Socket, SocketExt as _, SocketOptions,
};
use curtail_wire::{
    ApiKey, Uuid, Writer,
    cold::{self, StrBytes, messages},
    compression::{Codec, Compression, DecompressLimit},
    fetch::{FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopicResponse},
    frame::FrameSplitter,
    header::{encode_response_header, split_request},
    metadata::{
        MetadataBroker, MetadataPartition, MetadataRequest, MetadataResponse, MetadataTopic,
    },
    produce::{ProducePartitionResponse, ProduceRequest, ProduceResponse, ProduceTopicResponse},
    records::{self, Batch, BatchBuilder, ProducerStamp, RecordData},
};
use parking_lot::Mutex;
use tokio::{io::AsyncReadExt as _, time::Instant};

pub(crate) const TOPIC: &str = "t";
pub(crate) const TOPIC_ID: Uuid = Uuid([7; 16]);
pub(crate) const EPOCH: i32 = 5;

/// A received request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) api: ApiKey,
    pub(crate) version: i16,
    pub(crate) correlation_id: i32,
    /// Number of earlier requests of this API, over all connections.
    pub(crate) nth: usize,
}

/// The script's decision on a response. Frames are complete, including their length.
pub(crate) enum Act {
    Send(Vec<u8>),
    /// The bytes after a delay; later requests of the connection wait for them.
    Later(Duration, Vec<u8>),
    /// The bytes, then a reset of the connection.
    Cut(Vec<u8>),
    /// The bytes; then the broker neither writes nor reads on this connection.
    Stall(Vec<u8>),
    /// No response; the broker reads the next request.
    Swallow,
    /// No response on this connection from now on.
    Mute,
}

type Script = Box<dyn FnMut(&Call, Vec<u8>) -> Act + Send>;

/// An appended batch.
struct Written {
    epoch: i16,
    first_sequence: i32,
    last_sequence: i32,
    offset: i64,
}

/// The broker's log and observations.
#[derive(Default)]
pub(crate) struct Model {
    /// Values by partition, in log order.
    pub(crate) log: BTreeMap<i32, Vec<Vec<u8>>>,
    /// Batches by producer id and partition.
    written: BTreeMap<(i64, i32), Vec<Written>>,
    /// Producer id and epoch of each batch.
    pub(crate) writers: Vec<(i64, i16)>,
    calls: BTreeMap<i16, usize>,
    /// Requests that commit a transaction.
    pub(crate) commits: usize,
    pub(crate) connections: usize,
    /// Numbers of the connections on which a Produce request arrived.
    pub(crate) produced_on: BTreeSet<usize>,
    /// The client's last SASL message.
    pub(crate) proof: Bytes,
    pub(crate) partitions: i32,
    pub(crate) topic_id: Uuid,
    /// Refusals of the next batches, by partition: these batches are not appended.
    pub(crate) refusals: BTreeMap<i32, VecDeque<ErrorCode>>,
    /// No batch is appended before this time: the script refuses.
    closed_until: Option<Instant>,
    /// Response to a fetch at offset 0, for every partition.
    pub(crate) stored: Bytes,
    /// Response to a fetch at any other offset.
    pub(crate) stored_later: Bytes,
}

pub(crate) struct Broker {
    pub(crate) address: SocketAddr,
    pub(crate) model: Mutex<Model>,
    script: Mutex<Script>,
}

impl Broker {
    /// A broker that passes every response through `script`.
    pub(crate) async fn start(
        script: impl FnMut(&Call, Vec<u8>) -> Act + Send + 'static,
    ) -> Arc<Self> {
        let listener = RealNet.listen((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
        let broker = Self::without_listener(listener.local_addr().unwrap(), script);
        let serving = broker.clone();
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                serving.accept(socket);
            }
        });
        broker
    }

    /// A broker for a network without addresses: it serves the sockets passed to [`Self::accept`].
    pub(crate) fn without_listener(
        address: SocketAddr,
        script: impl FnMut(&Call, Vec<u8>) -> Act + Send + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            address,
            model: Mutex::new(Model { partitions: 1, topic_id: TOPIC_ID, ..Model::default() }),
            script: Mutex::new(Box::new(script)),
        })
    }

    /// Serves a connection.
    pub(crate) fn accept(self: &Arc<Self>, socket: Box<dyn Socket>) {
        let number = {
            let mut model = self.model.lock();
            model.connections += 1;
            model.connections
        };
        let broker = self.clone();
        tokio::spawn(async move { drop(broker.serve(&*socket, number).await) });
    }

    pub(crate) async fn honest() -> Arc<Self> {
        Self::start(|_, frame| Act::Send(frame)).await
    }

    /// Replaces the script for later requests.
    pub(crate) fn script(&self, script: impl FnMut(&Call, Vec<u8>) -> Act + Send + 'static) {
        *self.script.lock() = Box::new(script);
    }

    pub(crate) fn calls(&self, api: ApiKey) -> usize {
        self.model.lock().calls.get(&api.0).copied().unwrap_or_default()
    }

    async fn serve(&self, socket: &dyn Socket, connection: usize) -> io::Result<()> {
        let mut splitter = FrameSplitter::default();
        loop {
            let Some(frame) = splitter.next_frame().map_err(io::Error::other)? else {
                if ReadSide(socket).read_buf(splitter.spare(4096)).await? == 0 {
                    return Ok(());
                }
                continue;
            };
            let (header, body) = split_request(&frame).map_err(io::Error::other)?;
            let nth = {
                let mut model = self.model.lock();
                if header.api == ApiKey::PRODUCE {
                    model.produced_on.insert(connection);
                }
                let count = model.calls.entry(header.api.0).or_default();
                *count += 1;
                *count - 1
            };
            let call = Call {
                api: header.api,
                version: header.version,
                correlation_id: header.correlation_id,
                nth,
            };
            let is_silent = call.api == ApiKey::PRODUCE
                && ProduceRequest::decode(call.version, &body).unwrap().acks == 0;
            let answer = self.answer(&call, body).await;
            let act = (self.script.lock())(&call, answer);
            match act {
                Act::Send(_) | Act::Later(..) if is_silent => {}
                Act::Send(bytes) => socket.write_all(&bytes).await?,
                Act::Later(pause, bytes) => {
                    tokio::time::sleep(pause).await;
                    socket.write_all(&bytes).await?;
                }
                Act::Cut(bytes) => {
                    socket.write_all(&bytes).await?;
                    return Ok(());
                }
                Act::Stall(bytes) => {
                    socket.write_all(&bytes).await?;
                    std::future::pending::<()>().await;
                }
                Act::Swallow => {}
                Act::Mute => std::future::pending().await,
            }
        }
    }

    async fn answer(&self, call: &Call, body: Bytes) -> Vec<u8> {
        match call.api {
            ApiKey::API_VERSIONS => api_versions(call, &SPOKEN),
            ApiKey::METADATA => metadata(call, &self.metadata(call, &body)),
            ApiKey::PRODUCE => produce(call, &self.produce(call, &body)),
            ApiKey::FETCH => {
                let request = FetchRequest::decode(call.version, &body).unwrap();
                assert_exact(&body, |w| request.encode(call.version, w));
                let answer = self.fetch(&request);
                let empty =
                    answer.topics.iter().flat_map(|t| &t.partitions).all(|p| p.records.is_empty());
                if empty && request.max_wait_ms > 0 {
                    // Delayed, as by a broker without records.
                    let limit = Duration::from_millis(request.max_wait_ms as u64);
                    let _ = tokio::time::timeout(limit, std::future::pending::<()>()).await;
                }
                fetch(call, &answer)
            }
            ApiKey::INIT_PRODUCER_ID => producer_id(call, 1000, 0),
            ApiKey::LIST_OFFSETS => list_offsets(call, body, |_| 0),
            ApiKey::SASL_HANDSHAKE => {
                let answer = messages::SaslHandshakeResponse::default();
                cold::encode_response(call.api, call.version, call.correlation_id, &answer).unwrap()
            }
            ApiKey::SASL_AUTHENTICATE => {
                let request: messages::SaslAuthenticateRequest =
                    cold::decode_request(call.version, body).unwrap();
                self.model.lock().proof = request.auth_bytes;
                authenticated(call, b"", 0)
            }
            // The test's script contains this response.
            ApiKey::OFFSET_FOR_LEADER_EPOCH => Vec::new(),
            ApiKey::ADD_PARTITIONS_TO_TXN | ApiKey::END_TXN => {
                crate::transactions::answer(self, call, body)
            }
            _ => crate::member::answer(self.address, call, body),
        }
    }

    pub(crate) fn metadata(&self, call: &Call, body: &Bytes) -> MetadataResponse {
        let request = MetadataRequest::decode(call.version, body).unwrap();
        assert_exact(body, |w| request.encode(call.version, w));
        self.picture()
    }

    /// The whole cluster, in a Metadata response.
    pub(crate) fn picture(&self) -> MetadataResponse {
        let (count, topic_id) = {
            let model = self.model.lock();
            (model.partitions, model.topic_id)
        };
        let partition = |index| MetadataPartition {
            index,
            leader_id: 1,
            leader_epoch: EPOCH,
            replicas: vec![1],
            isr: vec![1],
            ..MetadataPartition::default()
        };
        MetadataResponse {
            brokers: vec![MetadataBroker {
                node_id: 1,
                host: "127.0.0.1".into(),
                port: self.address.port().into(),
                rack: None,
            }],
            cluster_id: Some("hostile".into()),
            controller_id: 1,
            topics: vec![MetadataTopic {
                name: Some(TOPIC.into()),
                topic_id,
                partitions: (0..count).map(partition).collect(),
                ..MetadataTopic::default()
            }],
            ..MetadataResponse::default()
        }
    }

    fn produce(&self, call: &Call, body: &Bytes) -> ProduceResponse {
        let request = ProduceRequest::decode(call.version, body).unwrap();
        assert_exact(body, |w| request.encode(call.version, w));
        let mut model = self.model.lock();
        let topics = request.topics.into_iter().map(|topic| ProduceTopicResponse {
            partitions: topic
                .partitions
                .iter()
                .map(|p| model.produce(topic.topic_id, p.index, p.records.clone().unwrap()))
                .collect(),
            name: topic.name,
            topic_id: topic.topic_id,
        });
        ProduceResponse { topics: topics.collect(), ..ProduceResponse::default() }
    }

    fn fetch(&self, request: &FetchRequest) -> FetchResponse {
        let (stored, later) = {
            let model = self.model.lock();
            (model.stored.clone(), model.stored_later.clone())
        };
        let topics = request.topics.iter().map(|topic| FetchTopicResponse {
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            partitions: topic
                .partitions
                .iter()
                .map(|p| FetchPartitionResponse {
                    index: p.index,
                    high_watermark: 1000,
                    last_stable_offset: 1000,
                    log_start_offset: 0,
                    records: if p.fetch_offset == 0 { stored.clone() } else { later.clone() },
                    ..FetchPartitionResponse::default()
                })
                .collect(),
        });
        FetchResponse { topics: topics.collect(), ..FetchResponse::default() }
    }

    /// An environment whose network leads only to this broker, whatever the address.
    pub(crate) fn env(&self) -> Env {
        let net = Arc::new(OnlyTo(vec![self.address]));
        Env { net, entropy: Entropy::from_seed(1), ..Env::real() }
    }
}

impl Model {
    /// Deletes and recreates the topic, with empty logs.
    pub(crate) fn recreate(&mut self, partitions: i32) {
        self.topic_id.0[0] += 1;
        self.partitions = partitions;
        self.log.clear();
        self.written.clear();
    }

    /// Appends no batch before `at`, for scripts that refuse earlier ones.
    pub(crate) fn appends_only_after(&mut self, at: Instant) {
        self.closed_until = Some(at);
    }

    /// Appends the batch, unless the topic, the partition or the script forbids it. Versions before 13 have no topic
    /// id.
    fn produce(
        &mut self,
        topic_id: Uuid,
        partition: i32,
        bytes: Bytes,
    ) -> ProducePartitionResponse {
        let scripted = self.refusals.get_mut(&partition).and_then(VecDeque::pop_front);
        let error = match scripted {
            Some(error) => error,
            None if topic_id != Uuid::ZERO && topic_id != self.topic_id => {
                ErrorCode::UNKNOWN_TOPIC_ID
            }
            None if partition >= self.partitions => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
            None => return self.append(partition, bytes),
        };
        ProducePartitionResponse { index: partition, error, ..ProducePartitionResponse::default() }
    }

    /// Appends like a broker with an idempotent producer. A duplicate is not written again, and a batch after a gap
    /// is refused. A new epoch begins at sequence 0 and fences earlier ones. An unknown producer may begin at any
    /// sequence.
    fn append(&mut self, partition: i32, bytes: Bytes) -> ProducePartitionResponse {
        let batch = Batch::parse(bytes).unwrap();
        batch.verify_crc().unwrap();
        let header = batch.header;
        if self.closed_until.is_some_and(|until| Instant::now() < until) {
            return ProducePartitionResponse { index: partition, ..Default::default() };
        }
        let log = self.log.entry(partition).or_default();
        let written = self.written.entry((header.producer_id, partition)).or_default();
        let epoch = header.producer_epoch;
        let (first_sequence, last_sequence) = (header.base_sequence, header.last_sequence());
        let mut answer =
            ProducePartitionResponse { index: partition, ..ProducePartitionResponse::default() };
        if header.producer_id >= 0 {
            let same = |w: &&Written| {
                (w.epoch, w.first_sequence, w.last_sequence)
                    == (epoch, first_sequence, last_sequence)
            };
            if let Some(before) = written.iter().find(same) {
                answer.base_offset = before.offset;
                return answer;
            }
            let expected = match written.last() {
                Some(last) if epoch < last.epoch => {
                    answer.error = ErrorCode::INVALID_PRODUCER_EPOCH;
                    return answer;
                }
                Some(last) if epoch == last.epoch => last.last_sequence + 1,
                Some(_) => 0,
                None => first_sequence,
            };
            if first_sequence != expected {
                answer.error = ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER;
                return answer;
            }
        }
        answer.base_offset = log.len() as i64;
        written.push(Written { epoch, first_sequence, last_sequence, offset: answer.base_offset });
        self.writers.push((header.producer_id, header.producer_epoch));
        for record in batch.records(&DecompressLimit::default()).unwrap() {
            log.push(record.unwrap().value.unwrap().to_vec());
        }
        answer
    }
}

/// Checks that the request has no bytes after its last field: brokers ignore such bytes, so only this check detects
/// them.
fn assert_exact(body: &Bytes, encode: impl FnOnce(&mut Writer)) {
    let mut w = Writer::default();
    encode(&mut w);
    assert_eq!(w.into_bytes(), body);
}

pub(crate) fn frame(call: &Call, encode: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut w = Writer::with_capacity(256);
    w.i32(0);
    encode_response_header(call.api, call.version, call.correlation_id, &mut w);
    encode(&mut w);
    let length = w.len() - 4;
    w.patch_i32(0, length as i32);
    w.into_vec()
}

pub(crate) fn metadata(call: &Call, answer: &MetadataResponse) -> Vec<u8> {
    frame(call, |w| answer.encode(call.version, w))
}

pub(crate) fn produce(call: &Call, answer: &ProduceResponse) -> Vec<u8> {
    frame(call, |w| answer.encode(call.version, w))
}

pub(crate) fn fetch(call: &Call, answer: &FetchResponse) -> Vec<u8> {
    frame(call, |w| answer.encode(call.version, w))
}

/// The response in a Produce frame.
pub(crate) fn produce_of(call: &Call, frame: &[u8]) -> ProduceResponse {
    let body = body_of(call, frame);
    ProduceResponse::decode(call.version, &body).unwrap()
}

pub(crate) fn body_of(call: &Call, frame: &[u8]) -> Bytes {
    let frame = Bytes::copy_from_slice(&frame[4..]);
    curtail_wire::header::response_body(&frame, call.api, call.version).unwrap()
}

pub(crate) fn producer_id(call: &Call, id: i64, epoch: i16) -> Vec<u8> {
    let answer = messages::InitProducerIdResponse::default()
        .with_producer_id(id.into())
        .with_producer_epoch(epoch);
    cold::encode_response(call.api, call.version, call.correlation_id, &answer).unwrap()
}

pub(crate) fn list_offsets(call: &Call, body: Bytes, offset: impl Fn(i32) -> i64) -> Vec<u8> {
    use messages::list_offsets_response::{
        ListOffsetsPartitionResponse as Partition, ListOffsetsTopicResponse as Topic,
    };
    let request: messages::ListOffsetsRequest = cold::decode_request(call.version, body).unwrap();
    let topics = request.topics.iter().map(|topic| {
        let partition =
            |index| Partition::default().with_partition_index(index).with_offset(offset(index));
        let partitions = topic.partitions.iter().map(|p| partition(p.partition_index)).collect();
        Topic::default()
            .with_name(StrBytes::from_string(topic.name.to_string()).into())
            .with_partitions(partitions)
    });
    let answer = messages::ListOffsetsResponse::default().with_topics(topics.collect());
    cold::encode_response(call.api, call.version, call.correlation_id, &answer).unwrap()
}

/// A SASL response, with the session's lifetime.
pub(crate) fn authenticated(call: &Call, words: &[u8], lifetime_ms: i64) -> Vec<u8> {
    let answer = messages::SaslAuthenticateResponse::default()
        .with_auth_bytes(Bytes::copy_from_slice(words))
        .with_session_lifetime_ms(lifetime_ms);
    cold::encode_response(call.api, call.version, call.correlation_id, &answer).unwrap()
}

pub(crate) const SPOKEN: [(ApiKey, i16, i16); 12] = [
    (ApiKey::PRODUCE, 3, 13),
    (ApiKey::FETCH, 4, 17),
    (ApiKey::LIST_OFFSETS, 1, 10),
    (ApiKey::METADATA, 0, 13),
    (ApiKey::API_VERSIONS, 0, 3),
    (ApiKey::INIT_PRODUCER_ID, 0, 4),
    (ApiKey::FIND_COORDINATOR, 4, 4),
    (ApiKey::OFFSET_COMMIT, 9, 9),
    (ApiKey::OFFSET_FETCH, 9, 9),
    (ApiKey::CONSUMER_GROUP_HEARTBEAT, 0, 1),
    (ApiKey::SASL_HANDSHAKE, 1, 1),
    (ApiKey::SASL_AUTHENTICATE, 0, 2),
];

pub(crate) fn api_versions(call: &Call, spoken: &[(ApiKey, i16, i16)]) -> Vec<u8> {
    frame(call, |w| {
        w.i16(0);
        w.array(spoken.len());
        for &(api, min, max) in spoken {
            w.i16(api.0);
            w.i16(min);
            w.i16(max);
            w.no_tags();
        }
        if call.version >= 1 {
            w.i32(0);
        }
        w.no_tags();
    })
}

/// A batch of the values at an offset, in log format.
pub(crate) fn batch(base_offset: i64, codec: Codec, values: &[&[u8]]) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Vec::new());
    for &value in values {
        builder.append(&RecordData { key: None, value: Some(value), headers: &[], timestamp: 1 });
    }
    let mut batch = builder.seal(&Compression { codec, level: None }, &mut Vec::new()).unwrap();
    records::stamp(&mut batch, ProducerStamp::NONE);
    records::set_base_offset_and_epoch(&mut batch, base_offset, EPOCH);
    batch
}

/// A network of these addresses only, without name lookups.
pub(crate) struct OnlyTo(pub(crate) Vec<SocketAddr>);

impl Net for OnlyTo {
    fn connect(
        &self,
        addr: SocketAddr,
        options: SocketOptions,
    ) -> BoxFuture<'_, io::Result<Box<dyn Socket>>> {
        if self.0.contains(&addr) {
            return RealNet.connect(addr, options);
        }
        Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) })
    }

    fn listen(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        RealNet.listen(addr)
    }

    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move {
            let ip = host.parse().map_err(|_| io::Error::from(io::ErrorKind::NotFound))?;
            Ok(vec![SocketAddr::new(ip, port)])
        })
    }
}

/// A network in which every name has two addresses, and the first is unresponsive.
pub(crate) struct BlackHoleFirst(pub(crate) SocketAddr);

impl Net for BlackHoleFirst {
    fn connect(
        &self,
        addr: SocketAddr,
        options: SocketOptions,
    ) -> BoxFuture<'_, io::Result<Box<dyn Socket>>> {
        if addr == self.0 {
            return RealNet.connect(addr, options);
        }
        Box::pin(std::future::pending())
    }

    fn listen(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        RealNet.listen(addr)
    }

    fn resolve<'a>(
        &'a self,
        _host: &'a str,
        _port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        let nowhere = SocketAddr::from(([192, 0, 2, 1], self.0.port()));
        Box::pin(async move { Ok(vec![nowhere, self.0]) })
    }
}
