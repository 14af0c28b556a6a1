//! A broker whose input decides its responses: honest, or with bytes changed, cut, late or missing.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use curtail_net::{Net, ReadSide, Socket, SocketExt as _};
use curtail_wire::{
    ApiKey, Uuid, Writer,
    cold::{self, StrBytes, messages},
    compression::{Codec, Compression},
    fetch::{FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopicResponse},
    frame::FrameSplitter,
    header::{encode_response_header, split_request},
    metadata::{MetadataBroker, MetadataPartition, MetadataResponse, MetadataTopic},
    produce::{ProducePartitionResponse, ProduceRequest, ProduceResponse, ProduceTopicResponse},
    records::{self, BatchBuilder, ProducerStamp, RecordData},
};
use messages::list_offsets_response::{
    ListOffsetsPartitionResponse as OffsetPartition, ListOffsetsTopicResponse as OffsetTopic,
};
use parking_lot::Mutex;
use tokio::{io::AsyncReadExt as _, task::AbortHandle};

use crate::{Input, network::Network};

pub(super) const TOPIC: &str = "t";
pub(super) const ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9092);

/// Stored in each partition, one record per batch.
pub(super) const VALUES: [&[u8]; 3] = [b"zero", b"one", b"two"];

const TOPIC_ID: Uuid = Uuid([7; 16]);
const EPOCH: i32 = 5;

const SPOKEN: [(ApiKey, i16, i16); 6] = [
    (ApiKey::PRODUCE, 3, 13),
    (ApiKey::FETCH, 4, 17),
    (ApiKey::LIST_OFFSETS, 1, 10),
    (ApiKey::METADATA, 0, 13),
    (ApiKey::API_VERSIONS, 0, 3),
    (ApiKey::INIT_PRODUCER_ID, 0, 4),
];

/// Its task ends with it.
pub(super) struct Broker(AbortHandle);

impl Drop for Broker {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// State shared by the connections.
struct Inner {
    /// Decides on each response, in the order in which they are sent.
    script: Mutex<Vec<u8>>,
    stored: Bytes,
}

/// The fate of a response.
enum Act {
    Send(Vec<u8>),
    Later(Duration, Vec<u8>),
    Cut(Vec<u8>),
    Swallow,
}

impl Broker {
    pub(super) async fn start(network: &mut Network, script: &[u8]) -> Self {
        Self::storing(network, script, stored()).await
    }

    /// A broker whose partitions hold these batches.
    pub(super) async fn storing(network: &mut Network, script: &[u8], stored: Bytes) -> Self {
        let listener = network.listen(ADDRESS).await.expect("the address is free");
        // Read from the end.
        let script = Mutex::new(script.iter().rev().copied().collect());
        let inner = Arc::new(Inner { script, stored });
        let task = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let inner = inner.clone();
                tokio::spawn(async move { drop(inner.serve(&*socket).await) });
            }
        });
        Self(task.abort_handle())
    }
}

/// A batch of each codec, so that changes reach the decoders.
fn stored() -> Bytes {
    let mut log = Vec::new();
    for ((offset, value), codec) in (0..).zip(VALUES).zip([Codec::None, Codec::Lz4, Codec::Zstd]) {
        log.extend(batch(offset, value, codec));
    }
    log.into()
}

/// A batch of one record.
pub(super) fn batch(offset: i64, value: &[u8], codec: Codec) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Vec::new());
    builder.append(&RecordData { key: None, value: Some(value), headers: &[], timestamp: 1 });
    let compression = Compression { codec, level: None };
    let mut batch = builder.seal(&compression, &mut Vec::new()).expect("a small batch");
    records::stamp(&mut batch, ProducerStamp::NONE);
    records::set_base_offset_and_epoch(&mut batch, offset, EPOCH);
    batch
}

impl Inner {
    async fn serve(&self, socket: &dyn Socket) -> io::Result<()> {
        let mut splitter = FrameSplitter::default();
        loop {
            let Some(frame) = splitter.next_frame().map_err(io::Error::other)? else {
                if ReadSide(socket).read_buf(splitter.spare(4096)).await? == 0 {
                    return Ok(());
                }
                continue;
            };
            let (header, body) = split_request(&frame).map_err(io::Error::other)?;
            let call = Call {
                api: header.api,
                version: header.version,
                correlation_id: header.correlation_id,
            };
            let Some(response) = self.respond(&call, body).await else { continue };
            match self.act(response) {
                Act::Send(bytes) => socket.write_all(&bytes).await?,
                Act::Later(pause, bytes) => {
                    tokio::time::sleep(pause).await;
                    socket.write_all(&bytes).await?;
                }
                Act::Cut(bytes) => {
                    socket.write_all(&bytes).await?;
                    return Ok(());
                }
                Act::Swallow => {}
            }
        }
    }

    /// Changes the response according to the next bytes of the script.
    fn act(&self, response: Vec<u8>) -> Act {
        let mut script = self.script.lock();
        let mut byte = || script.pop().unwrap_or(0);
        match byte() {
            0..=159 => Act::Send(response),
            change @ 160..=199 => {
                let head: Vec<u8> = vec![change, byte(), byte()];
                Act::Send(changed(response, &head, &mut byte))
            }
            200..=209 => Act::Swallow,
            210..=219 => {
                let length = usize::from(byte()) % response.len().max(1);
                Act::Cut(response.get(..length).unwrap_or_default().to_vec())
            }
            220..=239 => Act::Later(Duration::from_millis(20 * u64::from(byte())), response),
            _ => {
                // Bytes that are no response, with the frame's length among them.
                let count = usize::from(byte());
                Act::Send((0..count).map(|_| byte()).collect())
            }
        }
    }

    async fn respond(&self, call: &Call, body: Bytes) -> Option<Vec<u8>> {
        let version = call.version;
        Some(match call.api {
            ApiKey::API_VERSIONS => call.frame(|w| {
                w.i16(0);
                if version >= 3 {
                    w.array(SPOKEN.len());
                } else {
                    w.i32(SPOKEN.len() as i32);
                }
                for (api, min, max) in SPOKEN {
                    w.i16(api.0);
                    w.i16(min);
                    w.i16(max);
                    if version >= 3 {
                        w.no_tags();
                    }
                }
                if version >= 1 {
                    w.i32(0);
                }
                if version >= 3 {
                    w.no_tags();
                }
            }),
            ApiKey::METADATA => call.frame(|w| picture().encode(version, w)),
            ApiKey::PRODUCE => {
                let request = ProduceRequest::decode(version, &body).ok()?;
                let response = produced(request);
                call.frame(|w| response.encode(version, w))
            }
            ApiKey::FETCH => {
                let request = FetchRequest::decode(version, &body).ok()?;
                let (response, is_empty) = self.fetched(&request);
                if is_empty {
                    let wait = Duration::from_millis(request.max_wait_ms.max(1) as u64);
                    tokio::time::sleep(wait).await;
                }
                call.frame(|w| response.encode(version, w))
            }
            ApiKey::LIST_OFFSETS => call.cold(&listed(version, body)?),
            ApiKey::INIT_PRODUCER_ID => call
                .cold(&messages::InitProducerIdResponse::default().with_producer_id(1000.into())),
            _ => return None,
        })
    }

    fn fetched(&self, request: &FetchRequest) -> (FetchResponse, bool) {
        let mut is_empty = true;
        let topics = request.topics.iter().map(|topic| FetchTopicResponse {
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            partitions: topic
                .partitions
                .iter()
                .map(|p| {
                    let is_stored = (0..VALUES.len() as i64).contains(&p.fetch_offset);
                    is_empty &= !is_stored;
                    FetchPartitionResponse {
                        index: p.index,
                        high_watermark: VALUES.len() as i64,
                        last_stable_offset: VALUES.len() as i64,
                        log_start_offset: 0,
                        records: if is_stored { self.stored.clone() } else { Bytes::new() },
                        ..FetchPartitionResponse::default()
                    }
                })
                .collect(),
        });
        (FetchResponse { topics: topics.collect(), ..FetchResponse::default() }, is_empty)
    }
}

/// Changes one place of a response after its length and correlation id, and corrects the length.
fn changed(mut response: Vec<u8>, head: &[u8], byte: &mut impl FnMut() -> u8) -> Vec<u8> {
    let mut input = Input::new(head);
    let kind = input.byte() % 5;
    let at = usize::from(input.u16());
    let room = response.len().saturating_sub(8);
    let at = 8 + at.checked_rem(room).unwrap_or(0);
    let number = [i32::MAX, -1, 0x0010_0000, i32::MIN][usize::from(byte()) % 4].to_be_bytes();
    match kind {
        _ if room == 0 => {}
        0 => response[at] = byte(),
        1 => response[at] ^= 1 << (byte() % 8),
        2 => response.insert(at, byte()),
        3 => {
            response.remove(at);
        }
        _ => {
            let end = response.len().min(at + 4);
            response.splice(at..end, number);
        }
    }
    let length = (response.len() - 4) as i32;
    response[..4].copy_from_slice(&length.to_be_bytes());
    response
}

/// A request.
struct Call {
    api: ApiKey,
    version: i16,
    correlation_id: i32,
}

impl Call {
    fn frame(&self, encode: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut w = Writer::with_capacity(256);
        w.i32(0);
        encode_response_header(self.api, self.version, self.correlation_id, &mut w);
        encode(&mut w);
        let length = w.len() - 4;
        w.patch_i32(0, length as i32);
        w.into_vec()
    }

    fn cold<T: cold::Encodable + cold::Message>(&self, response: &T) -> Vec<u8> {
        cold::encode_response(self.api, self.version, self.correlation_id, response)
            .expect("a valid response")
    }
}

fn picture() -> MetadataResponse {
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
            host: ADDRESS.ip().to_string(),
            port: ADDRESS.port().into(),
            rack: None,
        }],
        cluster_id: Some("fuzz".into()),
        controller_id: 1,
        topics: vec![MetadataTopic {
            name: Some(TOPIC.into()),
            topic_id: TOPIC_ID,
            partitions: (0..2).map(partition).collect(),
            ..MetadataTopic::default()
        }],
        ..MetadataResponse::default()
    }
}

/// Acknowledges everything.
fn produced(request: ProduceRequest) -> ProduceResponse {
    let topics = request.topics.into_iter().map(|topic| ProduceTopicResponse {
        partitions: topic
            .partitions
            .iter()
            .map(|p| ProducePartitionResponse { index: p.index, ..Default::default() })
            .collect(),
        name: topic.name,
        topic_id: topic.topic_id,
    });
    ProduceResponse { topics: topics.collect(), ..ProduceResponse::default() }
}

fn listed(version: i16, body: Bytes) -> Option<messages::ListOffsetsResponse> {
    let request: messages::ListOffsetsRequest = cold::decode_request(version, body).ok()?;
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|p| {
            let offset = if p.timestamp == -2 { 0 } else { VALUES.len() as i64 };
            OffsetPartition::default().with_partition_index(p.partition_index).with_offset(offset)
        });
        OffsetTopic::default()
            .with_name(StrBytes::from_string(topic.name.to_string()).into())
            .with_partitions(partitions.collect())
    });
    Some(messages::ListOffsetsResponse::default().with_topics(topics.collect()))
}
