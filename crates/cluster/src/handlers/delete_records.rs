//! DeleteRecords, key 21, versions 0 to 2 (KIP-107): moves the log starts of partitions. The
//! response follows once all in-sync replicas have done so. REQUEST_TIMED_OUT means that some have
//! not, though they will.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        DeleteRecordsRequest, DeleteRecordsResponse,
        delete_records_response::{DeleteRecordsPartitionResult, DeleteRecordsTopicResult},
    },
};
use tokio::time::{Instant, timeout_at};

use super::{Answer, Call, Item};
use crate::{
    acl::{Operation, Resource},
    coordinator::Kind,
    replica::{
        partition::{Deletion, NotServed, Partition},
        purgatory::Wait,
    },
};

type Begun = Result<(Arc<Partition>, Deletion), NotServed>;

pub(super) async fn handle(
    call: &Call<'_>,
    body: Bytes,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let request: DeleteRecordsRequest = call.decode(body)?;
    let asked = request.topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(move |p| (topic.name.0.as_str(), p.partition_index, p.offset))
    });
    let begun: Vec<Begun> =
        asked.map(|(topic, index, offset)| begin(call, topic, index, offset)).collect();
    call.concerns(begun.len());
    let mut results = finish(call, request.timeout_ms, &begun).await.into_iter();
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().zip(&mut results).map(|(asked, result)| {
            let answer =
                DeleteRecordsPartitionResult::default().with_partition_index(asked.partition_index);
            match result {
                Ok(low_watermark) => answer.with_low_watermark(low_watermark),
                Err(code) => answer.with_low_watermark(-1).with_error_code(code.0),
            }
        });
        DeleteRecordsTopicResult::default()
            .with_name(topic.name.clone())
            .with_partitions(partitions.collect())
    });
    let topics = topics.collect();
    call.answer(&DeleteRecordsResponse::default().with_topics(topics), out)
}

fn begin(call: &Call<'_>, topic: &str, index: i32, offset: i64) -> Begun {
    call.require(Operation::Delete, Resource::Topic(topic))?;
    call.injected(Item::Partition(topic, index))?;
    if Kind::of_topic(topic).is_some() {
        return Err(NotServed::code(ErrorCode::INVALID_TOPIC_EXCEPTION));
    }
    let defaults = &call.broker.settings().config.topic_defaults;
    let image = call.broker.image();
    let kept = image.topic(topic).is_some_and(|topic| !topic.config.deletes(defaults));
    if kept {
        return Err(NotServed::code(ErrorCode::POLICY_VIOLATION));
    }
    let partition = call.replica_by_name(topic, index)?;
    let deletion = partition.delete_records(offset)?;
    Ok((partition, deletion))
}

/// Waits for the followers, up to the request's timeout.
async fn finish(call: &Call<'_>, timeout_ms: i32, begun: &[Begun]) -> Vec<Result<i64, ErrorCode>> {
    let id = call.broker.wait_ids.next();
    // One condition more than there are deletions, so that none completes the wait during its
    // setup.
    let wait = Wait::for_all(begun.iter().flatten().count() + 1);
    for (partition, deletion) in begun.iter().flatten() {
        if partition.wait_for_deletion(*deletion, id, &wait).is_some() {
            wait.one_came_true();
        }
    }
    wait.one_came_true();
    let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
    // The partitions, not this result, show the outcome: some may have completed in time.
    let _ = timeout_at(Instant::now() + timeout, wait.done()).await;
    let result = |begun: &Begun| match begun {
        Err(refused) => Err(refused.code),
        Ok((partition, deletion)) => match partition.deletion(*deletion, id) {
            Some(Ok(low_watermark)) => Ok(low_watermark),
            Some(Err(refused)) => Err(refused.code),
            None => Err(ErrorCode::REQUEST_TIMED_OUT),
        },
    };
    begun.iter().map(result).collect()
}
