//! DescribeLogDirs, key 35, versions 1 to 5: the broker's one directory and the space its replicas
//! use there. The disk's capacity is not reported (-1), and the directory is never cordoned.

use std::collections::BTreeMap;

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::newer::{
        DescribeLogDirsPartition, DescribeLogDirsRequest, DescribeLogDirsResponse,
        DescribeLogDirsResult, DescribeLogDirsTopic,
    },
};

use super::{Answer, Call};
use crate::acl::{Operation, Resource};

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: DescribeLogDirsRequest = call.decode(body)?;
    if let Err(refused) = call.require(Operation::Describe, Resource::Cluster) {
        // Versions before 3 can report a refusal only as an empty list.
        let error = if call.version() >= 3 { refused } else { ErrorCode::NONE };
        return call.answer(&DescribeLogDirsResponse { error, ..Default::default() }, out);
    }
    let wanted = |topic: &str, index: i32| {
        request.topics.as_ref().is_none_or(|topics| {
            topics.iter().any(|t| t.name == topic && t.partitions.contains(&index))
        })
    };
    let mut topics: BTreeMap<String, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
    for partition in call.broker.partitions() {
        let index = partition.key.index;
        if !wanted(&partition.topic, index) {
            continue;
        }
        let described = DescribeLogDirsPartition {
            index,
            size: i64::try_from(partition.size_bytes()).unwrap_or(i64::MAX),
            offset_lag: partition.offset_lag(),
            is_future: false,
        };
        topics.entry(partition.topic.to_string()).or_default().push(described);
    }
    let topics =
        topics.into_iter().map(|(name, partitions)| DescribeLogDirsTopic { name, partitions });
    let result = DescribeLogDirsResult {
        log_dir: call.broker.dir().display().to_string(),
        topics: topics.collect(),
        ..Default::default()
    };
    call.answer(&DescribeLogDirsResponse { results: vec![result], ..Default::default() }, out)
}
