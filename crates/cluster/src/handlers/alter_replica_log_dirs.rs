//! AlterReplicaLogDirs, key 34, versions 1 and 2. A broker has one directory: its replicas are there
//! already, and any other directory is LOG_DIR_NOT_FOUND.

use std::collections::BTreeMap;

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse, TopicName,
        alter_replica_log_dirs_response::{
            AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult,
        },
    },
};

use super::{Answer, Call};
use crate::acl::{Operation, Resource};

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: AlterReplicaLogDirsRequest = call.decode(body)?;
    let allowed = call.require(Operation::Alter, Resource::Cluster);
    // Topics may be in several directories of the request; a response has each once.
    let mut results: BTreeMap<&TopicName, Vec<AlterReplicaLogDirPartitionResult>> = BTreeMap::new();
    for dir in &request.dirs {
        for topic in &dir.topics {
            let moved = topic.partitions.iter().map(|&index| {
                let moved = allowed.and_then(|()| find(call, &dir.path, &topic.name, index));
                AlterReplicaLogDirPartitionResult::default()
                    .with_partition_index(index)
                    .with_error_code(moved.err().unwrap_or(ErrorCode::NONE).0)
            });
            results.entry(&topic.name).or_default().extend(moved);
        }
    }
    let results = results.into_iter().map(|(name, partitions)| {
        AlterReplicaLogDirTopicResult::default()
            .with_topic_name(name.clone())
            .with_partitions(partitions)
    });
    call.answer(&AlterReplicaLogDirsResponse::default().with_results(results.collect()), out)
}

/// Fails unless the replica exists, and the directory is the broker's.
fn find(call: &Call<'_>, dir: &str, topic: &str, index: i32) -> Result<(), ErrorCode> {
    if dir != call.broker.dir().display().to_string() {
        return Err(ErrorCode::LOG_DIR_NOT_FOUND);
    }
    // The code that Kafka keeps for this API.
    call.replica_by_name(topic, index).map_err(|_| ErrorCode::REPLICA_NOT_AVAILABLE)?;
    Ok(())
}
