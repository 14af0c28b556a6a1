//! WriteTxnMarkers, key 27, version 1: a transaction's coordinator sends the outcome to the leaders
//! of its partitions.
//!
//! The response follows once all in-sync replicas have the markers. Kafka's version 2 reports
//! whether producers get a new epoch with every transaction; here a tagged field of version 1 does
//! ([`BUMPED_TAG`]).

use std::collections::BTreeMap;

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        WriteTxnMarkersRequest, WriteTxnMarkersResponse,
        write_txn_markers_request::WritableTxnMarker,
        write_txn_markers_response::{
            WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult,
        },
    },
    records::EndTxnMarker,
};

use super::{
    Answer, Call,
    produce::{Outcome, wait_for_acks},
};
use crate::{
    acl::{Operation, Resource},
    {coordinator::Kind, log::TxnMarker, replica::partition::NotServed},
};

/// Tag of a field that a marker has if its epoch is the transaction's plus one (KIP-890). Kafka's
/// markers have no tagged fields. The tag is small because the check in front of the decoder
/// requires it.
const BUMPED_TAG: i32 = 0;

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
    let appends = topics.map(|topic| topic.partition_indexes.len()).sum();
    call.broker.slow_disk_turn(appends).await;
    let mut outcomes: Vec<Vec<Outcome>> =
        request.markers.iter().map(|marker| append(call, marker)).collect();
    wait_for_acks(call, TIMEOUT_MS, &mut outcomes).await;
    let markers = request.markers.iter().zip(&outcomes).map(|(marker, outcomes)| {
        WritableTxnMarkerResult::default()
            .with_producer_id(marker.producer_id)
            .with_topics(results(marker, outcomes))
    });
    let response = WriteTxnMarkersResponse::default().with_markers(markers.collect());
    call.answer(&response, out)
}

/// Appends a marker and returns one outcome per partition, in the request's order.
fn append(call: &Call<'_>, asked: &WritableTxnMarker) -> Vec<Outcome> {
    let marker = TxnMarker {
        producer_id: asked.producer_id.0,
        producer_epoch: asked.producer_epoch,
        result: match asked.transaction_result {
            true => EndTxnMarker::Commit,
            false => EndTxnMarker::Abort,
        },
        coordinator_epoch: asked.coordinator_epoch,
        bumped: asked.unknown_tagged_fields.contains_key(&BUMPED_TAG),
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
    let partitions = asked.topics.iter().flat_map(|topic| {
        topic.partition_indexes.iter().map(move |index| one(&topic.name.0, *index))
    });
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
                .with_name(topic.name.clone())
                .with_partitions(topic.partition_indexes.iter().map(&mut one).collect())
        })
        .collect()
}

/// Returns the tagged fields of a marker.
pub(crate) fn bumped_tag(bumped: bool) -> BTreeMap<i32, Bytes> {
    bumped.then(|| (BUMPED_TAG, Bytes::new())).into_iter().collect()
}
