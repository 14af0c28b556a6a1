//! WriteTxnMarkers, key 27, versions 1 and 2: a transaction's coordinator sends the outcome to the
//! leaders of its partitions. Version 2 has the version of the transaction (KIP-1228).
//!
//! The response follows once all in-sync replicas have the markers.

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::{
        messages::{
            TopicName, WriteTxnMarkersResponse,
            write_txn_markers_response::{
                WritableTxnMarkerPartitionResult, WritableTxnMarkerResult,
                WritableTxnMarkerTopicResult,
            },
        },
        newer::{WritableTxnMarker, WriteTxnMarkersRequest},
    },
    records::EndTxnMarker,
};

use super::{
    Answer, Call,
    produce::{Outcome, wait_for_acks},
    text,
};
use crate::{
    acl::{Operation, Resource},
    {coordinator::Kind, log::TxnMarker, replica::partition::NotServed},
};

/// First version of transactions whose marker has the transaction's epoch plus one (KIP-890).
const BUMPED: i8 = 2;

/// Timeout of the followers' acknowledgement (`request.timeout.ms` of brokers).
const TIMEOUT_MS: i32 = 30_000;

pub(super) async fn handle(
    call: &Call<'_>,
    body: Bytes,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let request: WriteTxnMarkersRequest = call.decode(body)?;
    call.concerns(request.markers.len());
    let topics = request.markers.iter().flat_map(|marker| &marker.topics);
    let appends = topics.map(|topic| topic.partitions.len()).sum();
    call.broker.slow_disk_turn(appends).await;
    let mut outcomes: Vec<Vec<Outcome>> =
        request.markers.iter().map(|marker| append(call, marker)).collect();
    wait_for_acks(call, TIMEOUT_MS, &mut outcomes).await;
    let markers = request.markers.iter().zip(&outcomes).map(|(marker, outcomes)| {
        WritableTxnMarkerResult::default()
            .with_producer_id(marker.producer_id.into())
            .with_topics(results(marker, outcomes))
    });
    let response = WriteTxnMarkersResponse::default().with_markers(markers.collect());
    call.answer(&response, out)
}

/// Appends a marker and returns one outcome per partition, in the request's order.
fn append(call: &Call<'_>, asked: &WritableTxnMarker) -> Vec<Outcome> {
    let marker = TxnMarker {
        producer_id: asked.producer_id,
        producer_epoch: asked.producer_epoch,
        result: match asked.transaction_result {
            true => EndTxnMarker::Commit,
            false => EndTxnMarker::Abort,
        },
        coordinator_epoch: asked.coordinator_epoch,
        bumped: asked.transaction_version >= BUMPED,
    };
    let now_ms = call.broker.env.wall.now_ms();
    let allowed = match call.may(Operation::Alter, Resource::Cluster) {
        true => Ok(()),
        false => call.require(Operation::ClusterAction, Resource::Cluster),
    };
    let one = |topic: &str, index: i32| -> Result<Outcome, NotServed> {
        allowed?;
        let partition = call.replica_by_name(topic, index)?;
        // Offsets prepared there take effect with the marker, so the coordinator writes it.
        let taken = match Kind::of_topic(topic) {
            Some(Kind::Group) => {
                let shard = call.broker.groups.shard_at(index);
                let shard = shard.ok_or(NotServed::code(ErrorCode::NOT_LEADER_OR_FOLLOWER))?;
                let written = shard.run(call.broker, |groups, cx| groups.write_marker(&marker, cx));
                written.map_err(NotServed::code)??
            }
            _ => partition.append_marker(&marker, None, now_ms)?,
        };
        Ok(Outcome::Taken { taken, partition })
    };
    let partitions = asked
        .topics
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(move |index| one(&topic.name, *index)));
    partitions.map(|outcome| outcome.unwrap_or_else(Outcome::Refused)).collect()
}

fn results(marker: &WritableTxnMarker, outcomes: &[Outcome]) -> Vec<WritableTxnMarkerTopicResult> {
    let mut outcomes = outcomes.iter();
    let mut one = |index: &i32| {
        let code = match outcomes.next() {
            Some(Outcome::Taken { .. }) => ErrorCode::NONE,
            Some(Outcome::Refused(why) | Outcome::NotAcknowledged { why, .. }) => why.code,
            None => ErrorCode::UNKNOWN_SERVER_ERROR,
        };
        WritableTxnMarkerPartitionResult::default()
            .with_partition_index(*index)
            .with_error_code(code.0)
    };
    marker
        .topics
        .iter()
        .map(|topic| {
            WritableTxnMarkerTopicResult::default()
                .with_name(TopicName(text(&topic.name)))
                .with_partitions(topic.partitions.iter().map(&mut one).collect())
        })
        .collect()
}
