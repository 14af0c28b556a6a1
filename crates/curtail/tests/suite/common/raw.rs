//! One request and its response on a plain connection, for requests that the client does not send.

use std::time::Duration;

use bytes::Bytes;
use curtail_wire::{
    ApiKey, ErrorCode,
    cold::{
        self, Request, StrBytes,
        messages::{
            MetadataRequest, OffsetFetchRequest, metadata_request::MetadataRequestTopic,
            offset_fetch_request::OffsetFetchRequestTopic,
        },
    },
    header,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use super::Backend;

const LIMIT: Duration = Duration::from_secs(60);
/// First version that can forbid the creation of topics.
const METADATA: i16 = 4;
/// Last version for a single group.
const OFFSET_FETCH: i16 = 7;

async fn ask<R: Request>(address: &str, version: i16, request: &R) -> R::Response {
    let frame = cold::encode_request(version, 1, Some("test"), request).expect("a request");
    let mut socket = TcpStream::connect(address).await.expect("the broker listens");
    socket.write_all(&frame).await.expect("the connection is open");
    let length = socket.read_u32().await.expect("a response");
    let mut answer = vec![0; length as usize];
    socket.read_exact(&mut answer).await.expect("a response");
    let body = header::response_body(&Bytes::from(answer), ApiKey(R::KEY), version);
    cold::decode_response(version, body.expect("a response")).expect("a response")
}

/// Returns once every broker names leaders for all partitions of a topic.
pub(crate) async fn until_known(backend: &Backend, topic: &str, partitions: i32) {
    for address in backend.bootstrap().split(',') {
        let known = async { while !names_leaders(address, topic, partitions).await {} };
        timeout(LIMIT, known).await.expect("the broker learns of the topic");
    }
}

async fn names_leaders(address: &str, topic: &str, partitions: i32) -> bool {
    let name = StrBytes::from_string(topic.to_owned()).into();
    let topic = MetadataRequestTopic::default().with_name(Some(name));
    let request = MetadataRequest::default()
        .with_topics(Some(vec![topic]))
        .with_allow_auto_topic_creation(false);
    let answer = ask(address, METADATA, &request).await;
    let led = answer.topics.iter().flat_map(|topic| &topic.partitions);
    led.filter(|partition| partition.leader_id.0 >= 0).count() == partitions as usize
}

/// Committed offsets of a group in the partitions of a topic, without partitions that have none. `None` if no broker
/// is the group's coordinator now.
pub(crate) async fn committed_offsets(
    backend: &Backend,
    group: &str,
    topic: &str,
    partitions: i32,
) -> Option<Vec<(i32, i64)>> {
    let text = |text: &str| StrBytes::from_string(text.to_owned());
    let topics = OffsetFetchRequestTopic::default()
        .with_name(text(topic).into())
        .with_partition_indexes((0..partitions).collect());
    let request = OffsetFetchRequest::default()
        .with_group_id(text(group).into())
        .with_topics(Some(vec![topics]));
    for address in backend.bootstrap().split(',') {
        let answer = ask(address, OFFSET_FETCH, &request).await;
        if ErrorCode(answer.error_code).is_error() {
            continue;
        }
        let partitions = answer.topics.into_iter().flat_map(|topic| topic.partitions);
        let offsets = partitions.inspect(|p| assert_eq!(p.error_code, 0, "{p:?}"));
        let mut offsets: Vec<(i32, i64)> = offsets
            .filter(|p| p.committed_offset >= 0)
            .map(|p| (p.partition_index, p.committed_offset))
            .collect();
        offsets.sort_unstable();
        return Some(offsets);
    }
    None
}
