//! DescribeLogDirs, key 35, versions 1 to 4: the broker's one directory and the space its replicas
//! use there. The disk's capacity is not reported (-1).

use std::collections::BTreeMap;

use bytes::Bytes;
use curtail_wire::cold::messages::{
    DescribeLogDirsRequest, DescribeLogDirsResponse, TopicName,
    describe_log_dirs_response::{
        DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
    },
};

use super::{Answer, Call, text};
use crate::acl::{Operation, Resource};

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: DescribeLogDirsRequest = call.decode(body)?;
    if let Err(refused) = call.require(Operation::Describe, Resource::Cluster) {
        // Versions before 3 can report a refusal only as an empty list.
        let code = if call.version() >= 3 { refused.0 } else { 0 };
        return call.answer(&DescribeLogDirsResponse::default().with_error_code(code), out);
    }
    let wanted = |topic: &str, index: i32| {
        request.topics.as_ref().is_none_or(|topics| {
            topics.iter().any(|t| t.topic.0.as_str() == topic && t.partitions.contains(&index))
        })
    };
    let mut topics: BTreeMap<String, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
    for partition in call.broker.partitions() {
        let index = partition.key.index;
        if !wanted(&partition.topic, index) {
            continue;
        }
        let described = DescribeLogDirsPartition::default()
            .with_partition_index(index)
            .with_partition_size(i64::try_from(partition.size_bytes()).unwrap_or(i64::MAX))
            .with_offset_lag(partition.offset_lag());
        topics.entry(partition.topic.to_string()).or_default().push(described);
    }
    let topics = topics.into_iter().map(|(name, partitions)| {
        DescribeLogDirsTopic::default()
            .with_name(TopicName(text(&name)))
            .with_partitions(partitions)
    });
    let result = DescribeLogDirsResult::default()
        .with_log_dir(text(&call.broker.dir().display().to_string()))
        .with_topics(topics.collect())
        .with_total_bytes(-1)
        .with_usable_bytes(-1);
    call.answer(&DescribeLogDirsResponse::default().with_results(vec![result]), out)
}
