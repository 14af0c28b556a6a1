//! Coordinators of the consumer protocol that refuse, lack the protocol, or respond with nonsense.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use curtail::{ErrorCode, config::GroupProtocol};
use curtail_wire::{
    ApiKey,
    cold::{self, Encodable, Message, StrBytes, messages},
};
use messages::{
    consumer_group_heartbeat_response::{Assignment, TopicPartitions},
    find_coordinator_response::Coordinator,
    offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic},
    offset_fetch_response::{
        OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
    },
};

use crate::{
    broker::{Act, Broker, Call, SPOKEN, TOPIC_ID, api_versions},
    *,
};

type Heartbeat = messages::ConsumerGroupHeartbeatResponse;

fn encode<T: Encodable + Message>(call: &Call, answer: &T) -> Vec<u8> {
    cold::encode_response(call.api, call.version, call.correlation_id, answer).unwrap()
}

/// Responses of a coordinator with one member, which is assigned partition 0, and without committed offsets.
pub(crate) fn answer(address: SocketAddr, call: &Call, body: Bytes) -> Vec<u8> {
    match call.api {
        ApiKey::FIND_COORDINATOR => {
            let found = Coordinator::default()
                .with_key(StrBytes::from_static_str("g"))
                .with_node_id(1.into())
                .with_host(StrBytes::from_static_str("127.0.0.1"))
                .with_port(address.port().into());
            let answer = messages::FindCoordinatorResponse::default();
            encode(call, &answer.with_coordinators(vec![found]))
        }
        ApiKey::CONSUMER_GROUP_HEARTBEAT => {
            let request: messages::ConsumerGroupHeartbeatRequest =
                cold::decode_request(call.version, body).unwrap();
            let joins = request.member_epoch == 0;
            let epoch = if joins { 1 } else { request.member_epoch };
            let assignment = joins.then(|| assigned(TOPIC_ID.0, vec![0]));
            encode(call, &heartbeat(epoch).with_assignment(assignment))
        }
        ApiKey::OFFSET_COMMIT => {
            let request: messages::OffsetCommitRequest =
                cold::decode_request(call.version, body).unwrap();
            let topics = request.topics.into_iter().map(|topic| {
                let partitions = topic.partitions.iter().map(|partition| {
                    let index = partition.partition_index;
                    OffsetCommitResponsePartition::default().with_partition_index(index)
                });
                OffsetCommitResponseTopic::default()
                    .with_partitions(partitions.collect())
                    .with_name(topic.name)
            });
            let answer = messages::OffsetCommitResponse::default();
            encode(call, &answer.with_topics(topics.collect()))
        }
        ApiKey::OFFSET_FETCH => {
            let request: messages::OffsetFetchRequest =
                cold::decode_request(call.version, body).unwrap();
            let groups = request.groups.into_iter().map(|group| {
                let topics = group.topics.into_iter().flatten().map(|topic| {
                    let partitions = topic.partition_indexes.iter().map(|index| {
                        OffsetFetchResponsePartitions::default()
                            .with_partition_index(*index)
                            .with_committed_offset(-1)
                    });
                    OffsetFetchResponseTopics::default()
                        .with_partitions(partitions.collect())
                        .with_name(topic.name)
                });
                OffsetFetchResponseGroup::default()
                    .with_topics(topics.collect())
                    .with_group_id(group.group_id)
            });
            let answer = messages::OffsetFetchResponse::default();
            encode(call, &answer.with_groups(groups.collect()))
        }
        api => panic!("no response scripted for {api:?}"),
    }
}

fn heartbeat(epoch: i32) -> Heartbeat {
    Heartbeat::default().with_member_epoch(epoch).with_heartbeat_interval_ms(50)
}

fn assigned(id: [u8; 16], partitions: Vec<i32>) -> Assignment {
    let topic = TopicPartitions::default()
        .with_topic_id(uuid::Uuid::from_bytes(id))
        .with_partitions(partitions);
    Assignment::default().with_topic_partitions(vec![topic])
}

fn refusal(code: ErrorCode, words: &'static str) -> Heartbeat {
    let answer = Heartbeat::default().with_error_code(code.0);
    answer.with_error_message(Some(StrBytes::from_static_str(words)))
}

fn member(broker: &Broker) -> Consumer {
    let config = consumer_config(&broker.address.to_string())
        .group_id("g")
        .group_protocol(GroupProtocol::Consumer);
    Consumer::with_env(config, &broker.env()).unwrap()
}

/// Returns the error of the next poll.
async fn refused(consumer: &mut Consumer) -> Error {
    let error = ends("poll", consumer.poll(CALL)).await.expect_err("a refusal");
    check_error(&error);
    error
}

async fn until_assigned(consumer: &mut Consumer, index: i32) {
    let assigned = async {
        while !consumer.assignment().contains(&partition(index)) {
            let _ = consumer.poll(Duration::from_millis(10)).await;
        }
    };
    ends("assignment", assigned).await;
}

/// A broker whose heartbeats receive the response of `answer`, if that returns one.
async fn coordinator(answer: impl Fn(&Call) -> Option<Heartbeat> + Send + 'static) -> Arc<Broker> {
    Broker::start(move |call, frame| {
        let ours = (call.api == ApiKey::CONSUMER_GROUP_HEARTBEAT).then(|| answer(call)).flatten();
        Act::Send(ours.map_or(frame, |answer| encode(call, &answer)))
    })
    .await
}

#[test]
fn error_for_brokers_without_the_protocol_names_the_setting() {
    run(async {
        for last in [None, Some(0)] {
            let spoken = SPOKEN.iter().copied().filter_map(|(api, min, max)| match api {
                ApiKey::CONSUMER_GROUP_HEARTBEAT => last.map(|last| (api, min, last)),
                _ => Some((api, min, max)),
            });
            let spoken: Vec<_> = spoken.collect();
            let broker = Broker::start(move |call, frame| match call.api {
                ApiKey::API_VERSIONS => Act::Send(api_versions(call, &spoken)),
                _ => Act::Send(frame),
            });
            let broker = broker.await;
            let mut consumer = member(&broker);
            consumer.subscribe_pattern("t").unwrap();
            let hint = if last.is_some() { "subscribe_pattern" } else { "group.protocol=classic" };
            for _ in 0..2 {
                let error = refused(&mut consumer).await;
                assert!(matches!(error, Error::UnsupportedVersion(_)), "{error}");
                assert!(error.report().to_string().contains(hint), "{error}");
            }
            if last.is_some() {
                consumer.subscribe(["t"]).unwrap();
                until_assigned(&mut consumer, 0).await;
            }
            ends("close", consumer.close()).await;
        }
        let broker = coordinator(|_| Some(refusal(ErrorCode::UNSUPPORTED_VERSION, ""))).await;
        let mut consumer = member(&broker);
        consumer.subscribe(["t"]).unwrap();
        let error = refused(&mut consumer).await;
        assert!(error.report().to_string().contains("group.protocol=classic"), "{error}");
        ends("close", consumer.close()).await;
    });
}

#[test]
fn a_missing_permission_is_requested_again_by_every_poll() {
    run(async {
        let code = ErrorCode::GROUP_AUTHORIZATION_FAILED;
        let broker =
            coordinator(move |call| (call.nth < 3).then(|| refusal(code, "not\nyou"))).await;
        let mut consumer = member(&broker);
        consumer.subscribe(["t"]).unwrap();
        for asked in 1..4 {
            let error = refused(&mut consumer).await;
            assert!(matches!(error, Error::Broker { code: told, .. } if told == code), "{error}");
            assert!(error.report().to_string().contains("not you; the principal needs"), "{error}");
            assert_eq!(broker.calls(ApiKey::CONSUMER_GROUP_HEARTBEAT), asked);
        }
        until_assigned(&mut consumer, 0).await;
        ends("close", consumer.close()).await;
    });
}

#[test]
fn nonsensical_heartbeat_responses_are_survived() {
    run(async {
        let cases = [
            heartbeat(-1),
            heartbeat(0),
            heartbeat(i32::MIN),
            heartbeat(i32::MAX).with_heartbeat_interval_ms(i32::MIN),
            heartbeat(1).with_assignment(Some(assigned([9; 16], vec![0]))),
            heartbeat(1).with_assignment(Some(assigned([0; 16], vec![-1, i32::MIN]))),
            heartbeat(1).with_assignment(Some(assigned(TOPIC_ID.0, vec![-1, 0, 0, i32::MAX]))),
            refusal(ErrorCode(i16::MIN), "\r\n\0"),
            refusal(ErrorCode::REBALANCE_IN_PROGRESS, ""),
        ];
        for case in cases {
            let wrong = case.clone();
            // For the join only, or for as long as the broker likes.
            let broker = coordinator(move |call| (call.nth < 3).then(|| wrong.clone())).await;
            let mut consumer = member(&broker);
            consumer.subscribe(["t"]).unwrap();
            let seen = async {
                while broker.calls(ApiKey::CONSUMER_GROUP_HEARTBEAT) < 6
                    && consumer
                        .poll(Duration::from_millis(10))
                        .await
                        .map_err(|e| check_error(&e))
                        .is_ok()
                {}
            };
            ends("polls", seen).await;
            consumer.subscribe(["t", "u"]).unwrap();
            let _ = ends("poll", consumer.poll(Duration::from_millis(10))).await;
            ends("close", consumer.close()).await;
        }
    });
}
