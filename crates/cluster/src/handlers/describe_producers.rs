//! DescribeProducers, key 61, version 0: the producers known to a partition's leader (KIP-664).

use bytes::Bytes;
use curtail_wire::cold::messages::{
    DescribeProducersRequest, DescribeProducersResponse,
    describe_producers_response::{PartitionResponse, ProducerState, TopicResponse},
};

use super::{Answer, Call, text};
use crate::{
    acl::{Operation, Resource},
    log::ActiveProducer,
};

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: DescribeProducersRequest = call.decode(body)?;
    call.concerns(request.topics.iter().map(|topic| topic.partition_indexes.len()).sum());
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partition_indexes.iter().map(|index| {
            let allowed = call.require(Operation::Read, Resource::Topic(&topic.name.0));
            let known = allowed
                .map_err(Into::into)
                .and_then(|()| call.replica_by_name(&topic.name.0, *index))
                .and_then(|partition| partition.active_producers());
            let response = PartitionResponse::default().with_partition_index(*index);
            match known {
                Ok(known) => response.with_active_producers(known.iter().map(state).collect()),
                Err(refused) => response
                    .with_error_code(refused.code.0)
                    .with_error_message(refused.message.as_deref().map(text)),
            }
        });
        TopicResponse::default().with_name(topic.name.clone()).with_partitions(partitions.collect())
    });
    let response = DescribeProducersResponse::default().with_topics(topics.collect());
    call.answer(&response, out)
}

fn state(producer: &ActiveProducer) -> ProducerState {
    ProducerState::default()
        .with_producer_id(producer.id.into())
        .with_producer_epoch(i32::from(producer.epoch))
        .with_last_sequence(producer.last_sequence)
        .with_last_timestamp(producer.last_timestamp)
        .with_coordinator_epoch(producer.coordinator_epoch)
        .with_current_txn_start_offset(producer.open_since)
}
