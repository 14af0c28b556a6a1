//! DescribeQuorum, key 55, versions 0 to 2. The cluster has one controller, which is the only voter; the
//! offsets of its log are the versions of the metadata. The brokers are observers.

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        BrokerId, DescribeQuorumRequest, DescribeQuorumResponse, TopicName,
        describe_quorum_response::{Listener, Node, PartitionData, ReplicaState, TopicData},
    },
};

use super::{Answer, Call, text};
use crate::{
    acl::{Operation, Resource},
    controller::CONTROLLER_ID,
};

const METADATA_TOPIC: &str = "__cluster_metadata";

/// First version with the voters' endpoints.
const WITH_NODES: i16 = 2;

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: DescribeQuorumRequest = call.decode(body)?;
    let mut response = DescribeQuorumResponse::default();
    if let Err(code) = call.require(Operation::Describe, Resource::Cluster) {
        response.error_code = code.0;
        return call.answer(&response, out);
    }
    let is_valid = names_the_quorum(&request);
    let one = |index: i32| match is_valid {
        true => quorum(call),
        false => PartitionData::default()
            .with_partition_index(index)
            .with_error_code(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0),
    };
    let topics = request.topics.iter().map(|topic| {
        let name = topic.topic_name.as_str();
        let partitions = topic.partitions.iter().map(|p| one(p.partition_index));
        TopicData::default()
            .with_topic_name(TopicName(text(name)))
            .with_partitions(partitions.collect())
    });
    response.topics = topics.collect();
    if call.version() >= WITH_NODES {
        response.nodes = controller(call).into_iter().collect();
    }
    call.answer(&response, out)
}

/// Whether the request names the only partition of the metadata, and nothing else. Others are refused as a whole.
fn names_the_quorum(request: &DescribeQuorumRequest) -> bool {
    let [topic] = &request.topics[..] else { return false };
    let [partition] = &topic.partitions[..] else { return false };
    topic.topic_name.as_str() == METADATA_TOPIC && partition.partition_index == 0
}

fn quorum(call: &Call<'_>) -> PartitionData {
    let controller = &call.broker.controller;
    let image = controller.image();
    let newest = i64::try_from(image.version).unwrap_or(i64::MAX);
    let now = call.broker.env.wall.now_ms();
    let replica = |id: i32, offset: i64| {
        ReplicaState::default()
            .with_replica_id(BrokerId(id))
            .with_log_end_offset(offset)
            .with_last_fetch_timestamp(now)
            .with_last_caught_up_timestamp(if offset == newest { now } else { -1 })
    };
    let live = image.brokers.values().filter(|broker| !broker.fenced && broker.id != CONTROLLER_ID);
    let observers = live.filter_map(|broker| {
        let taken = controller.mailbox(broker.id)?.taken();
        // It may have taken a newer version than the one read above.
        Some(replica(broker.id, i64::try_from(taken).unwrap_or(i64::MAX).min(newest)))
    });
    PartitionData::default()
        .with_leader_id(BrokerId(CONTROLLER_ID))
        .with_leader_epoch(controller.epoch())
        .with_high_watermark(newest)
        .with_current_voters(vec![replica(CONTROLLER_ID, newest)])
        .with_observers(observers.collect())
}

/// The controller has no listener. The client's listener of the first broker stands for it.
fn controller(call: &Call<'_>) -> Option<Node> {
    let image = call.broker.image();
    let broker = image.brokers.get(&CONTROLLER_ID)?;
    let endpoint = broker.endpoint(call.listener)?;
    let listener = Listener::default()
        .with_name(text("CONTROLLER"))
        .with_host(text(endpoint.host()))
        .with_port(endpoint.port());
    Some(Node::default().with_node_id(BrokerId(broker.id)).with_listeners(vec![listener]))
}
