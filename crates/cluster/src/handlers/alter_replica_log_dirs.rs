//! AlterReplicaLogDirs, key 34, versions 1 and 2. A broker has one directory, which contains all its
//! replicas. Any other directory is LOG_DIR_NOT_FOUND.

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
    let own = call.broker.dir().display().to_string();
    // Of a partition that is named twice, the last directory counts.
    let mut paths: BTreeMap<&TopicName, BTreeMap<i32, &str>> = BTreeMap::new();
    for dir in &request.dirs {
        for topic in &dir.topics {
            let partitions = topic.partitions.iter().map(|index| (*index, dir.path.as_str()));
            paths.entry(&topic.name).or_default().extend(partitions);
        }
    }
    let results = paths.into_iter().map(|(name, partitions)| {
        let partitions = partitions.into_iter().map(|(index, path)| {
            let is_own = path == own;
            let moved = allowed.and_then(|()| find(call, is_own, name, index));
            AlterReplicaLogDirPartitionResult::default()
                .with_partition_index(index)
                .with_error_code(moved.err().unwrap_or(ErrorCode::NONE).0)
        });
        AlterReplicaLogDirTopicResult::default()
            .with_topic_name(name.clone())
            .with_partitions(partitions.collect())
    });
    call.answer(&AlterReplicaLogDirsResponse::default().with_results(results.collect()), out)
}

/// Fails unless the replica exists, and the directory is the broker's.
fn find(call: &Call<'_>, is_own: bool, topic: &str, index: i32) -> Result<(), ErrorCode> {
    if !is_own {
        return Err(ErrorCode::LOG_DIR_NOT_FOUND);
    }
    match call.replica_by_name(topic, index).map_err(|refused| refused.code) {
        Ok(_) => Ok(()),
        // Kafka keeps this code for this API.
        Err(ErrorCode::NOT_LEADER_OR_FOLLOWER) => Err(ErrorCode::REPLICA_NOT_AVAILABLE),
        Err(code) => Err(code),
    }
}
