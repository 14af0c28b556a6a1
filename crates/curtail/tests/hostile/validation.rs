//! Leaders that are asked to validate positions (KIP-320) and do not respond, or respond late.

use bytes::Bytes;
use curtail::{ErrorCode, config::Codec, transaction::OffsetAndMetadata};
use curtail_wire::{
    ApiKey,
    cold::{self, messages},
};
use messages::offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult};

use crate::{
    broker::{Act, Broker, Call, EPOCH, SPOKEN, TOPIC, api_versions, batch},
    *,
};

const STORED: [&[u8]; 3] = [b"zero", b"one", b"two"];

/// A broker with two partitions of three records that handles validations with `validate`.
async fn validating(
    mut validate: impl FnMut(&Call) -> Act + Send + 'static,
) -> std::sync::Arc<Broker> {
    let broker = Broker::start(move |call, frame| match call.api {
        ApiKey::API_VERSIONS => {
            let known = (ApiKey::OFFSET_FOR_LEADER_EPOCH, 2, 4);
            Act::Send(api_versions(call, &[&SPOKEN[..], &[known]].concat()))
        }
        ApiKey::OFFSET_FOR_LEADER_EPOCH => validate(call),
        _ => Act::Send(frame),
    })
    .await;
    let mut model = broker.model.lock();
    model.partitions = 2;
    model.stored = Bytes::from(batch(0, Codec::None, &STORED));
    model.stored_later = model.stored.clone();
    drop(model);
    broker
}

/// Epoch `epoch` of partition 0 ends at `end`.
fn ends_at(call: &Call, epoch: i32, end: i64) -> Act {
    respond(call, EpochEndOffset::default().with_leader_epoch(epoch).with_end_offset(end))
}

fn refuses(call: &Call, error: ErrorCode) -> Act {
    respond(call, EpochEndOffset::default().with_error_code(error.0))
}

/// A response for partition 0.
fn respond(call: &Call, partition: EpochEndOffset) -> Act {
    let partition = partition.with_partition(0);
    let topic = OffsetForLeaderTopicResult::default()
        .with_topic(cold::StrBytes::from_static_str(TOPIC).into())
        .with_partitions(vec![partition]);
    let answer = messages::OffsetForLeaderEpochResponse::default().with_topics(vec![topic]);
    Act::Send(cold::encode_response(call.api, call.version, call.correlation_id, &answer).unwrap())
}

fn position(offset: i64) -> OffsetAndMetadata {
    OffsetAndMetadata { leader_epoch: Some(EPOCH), ..OffsetAndMetadata::new(offset) }
}

fn both(broker: &Broker) -> Consumer {
    let config = consumer_config(&broker.address.to_string());
    let mut consumer = Consumer::with_env(config, &broker.env()).unwrap();
    consumer.assign([partition(0), partition(1)]);
    consumer
}

/// Partitions and offsets of the next records.
async fn next(consumer: &mut Consumer, limit: Duration) -> Vec<(i32, i64)> {
    let records = ends("poll", consumer.poll(limit)).await.unwrap();
    records.iter().map(|record| (record.partition(), record.offset())).collect()
}

#[test]
fn validation_without_response_blocks_only_its_partition_until_a_seek() {
    run(async {
        let broker = validating(|_| Act::Mute).await;
        let mut consumer = both(&broker);
        consumer.seek_to(&partition(0), &position(1)).unwrap();
        consumer.seek(&partition(1), 0).unwrap();
        assert_eq!(next(&mut consumer, CALL).await, [(1, 0), (1, 1), (1, 2)]);
        while broker.calls(ApiKey::OFFSET_FOR_LEADER_EPOCH) < 2 {
            assert!(next(&mut consumer, Duration::from_millis(50)).await.is_empty());
        }
        consumer.seek(&partition(0), 2).unwrap();
        assert_eq!(next(&mut consumer, CALL).await, [(0, 2)]);
        ends("close", consumer.close()).await;
    });
}

/// Invalid responses are retried; a valid one resumes fetching.
#[test]
fn validation_is_retried_until_a_valid_response() {
    run(async {
        let mut calls = 0;
        let broker = validating(move |call| {
            calls += 1;
            match calls {
                1 => Act::Cut(vec![0, 0]),
                2 => Act::Send(crate::broker::frame(call, |w| w.raw(&[0xff; 40]))),
                _ => ends_at(call, EPOCH, 3),
            }
        })
        .await;
        let mut consumer = both(&broker);
        consumer.pause(&[partition(1)]);
        consumer.seek_to(&partition(0), &position(1)).unwrap();
        assert_eq!(next(&mut consumer, CALL).await, [(0, 1), (0, 2)]);
        assert_eq!(broker.calls(ApiKey::OFFSET_FOR_LEADER_EPOCH), 3);
        ends("close", consumer.close()).await;
    });
}

#[test]
fn truncated_position_moves_to_the_divergent_offset() {
    run(async {
        let broker = validating(|call| ends_at(call, EPOCH - 1, 2)).await;
        let mut consumer = both(&broker);
        consumer.pause(&[partition(1)]);
        consumer.seek_to(&partition(0), &position(40)).unwrap();
        assert_eq!(ends("position", consumer.position(&partition(0))).await.unwrap(), 2);
        assert_eq!(next(&mut consumer, CALL).await, [(0, 2)]);
        ends("close", consumer.close()).await;
    });
}

/// For example for an epoch that no leader ever had.
#[test]
fn validation_that_is_always_refused_is_reported() {
    run(async {
        let broker = validating(|call| refuses(call, ErrorCode::UNKNOWN_LEADER_EPOCH)).await;
        let mut consumer = both(&broker);
        consumer.pause(&[partition(1)]);
        consumer.seek_to(&partition(0), &position(1)).unwrap();
        for _ in 0..2 {
            let error = ends("poll", consumer.poll(CALL)).await.unwrap_err();
            check_error(&error);
            let message = error.report().to_string();
            assert!(matches!(error, Error::Timeout { .. }), "{message}");
            assert!(message.contains("t-0: UNKNOWN_LEADER_EPOCH"), "{message}");
        }
        consumer.seek(&partition(0), 1).unwrap();
        assert_eq!(next(&mut consumer, CALL).await, [(0, 1), (0, 2)]);
        ends("close", consumer.close()).await;
    });
}

#[test]
fn leader_without_validation_is_fetched_from() {
    run(async {
        let broker = Broker::honest().await;
        broker.model.lock().stored_later = batch(0, Codec::None, &STORED).into();
        let mut consumer = consumer(&broker);
        consumer.seek_to(&partition(0), &position(1)).unwrap();
        assert_eq!(next(&mut consumer, CALL).await, [(0, 1), (0, 2)]);
        assert_eq!(broker.calls(ApiKey::OFFSET_FOR_LEADER_EPOCH), 0);
        ends("close", consumer.close()).await;
    });
}
