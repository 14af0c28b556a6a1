use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::ErrorCode;
use crate::cold::{self, Decodable, Encodable, Message};
use crate::test_support::*;

fn tasks() -> impl Strategy<Value = Vec<TaskIds>> {
    some(
        (name(), some(any::<i32>()))
            .prop_map(|(subtopology_id, partitions)| TaskIds { subtopology_id, partitions }),
    )
}

fn pairs() -> impl Strategy<Value = Vec<KeyValue>> {
    some((name(), name()).prop_map(|(key, value)| KeyValue { key, value }))
}

fn endpoint() -> impl Strategy<Value = Endpoint> {
    (name(), any::<u16>()).prop_map(|(host, port)| Endpoint { host, port })
}

fn topics() -> impl Strategy<Value = Vec<TopicInfo>> {
    some((name(), any::<(i32, i16)>(), pairs()).prop_map(
        |(name, (partitions, replication_factor), topic_configs)| TopicInfo {
            name,
            partitions,
            replication_factor,
            topic_configs,
        },
    ))
}

fn offsets() -> impl Strategy<Value = Vec<TaskOffset>> {
    some((name(), any::<(i32, i64)>()).prop_map(|(subtopology_id, (partition, offset))| {
        TaskOffset { subtopology_id, partition, offset }
    }))
}

fn topology() -> impl Strategy<Value = Topology> {
    let indexes = || some(any::<i16>());
    let group = (indexes(), indexes(), indexes()).prop_map(
        |(source_topics, source_topic_regex, repartition_source_topics)| CopartitionGroup {
            source_topics,
            source_topic_regex,
            repartition_source_topics,
        },
    );
    let subtopology =
        (name(), some(name()), some(name()), topics(), some(name()), topics(), some(group));
    let subtopology = subtopology.prop_map(|of| Subtopology {
        subtopology_id: of.0,
        source_topics: of.1,
        source_topic_regex: of.2,
        state_changelog_topics: of.3,
        repartition_sink_topics: of.4,
        repartition_source_topics: of.5,
        copartition_groups: of.6,
    });
    (any::<i32>(), some(subtopology))
        .prop_map(|(epoch, subtopologies)| Topology { epoch, subtopologies })
}

fn heartbeats() -> impl Strategy<Value = StreamsGroupHeartbeatRequest> {
    let maybe = prop::option::of::<BoxedStrategy<Vec<TaskIds>>>;
    let ids = (name(), name(), nullable_name(), nullable_name(), nullable_name());
    let owned = (maybe(tasks().boxed()), maybe(tasks().boxed()), maybe(tasks().boxed()));
    let client = (prop::option::of(topology()), prop::option::of(endpoint()));
    let more =
        (prop::option::of(pairs()), prop::option::of(offsets()), prop::option::of(offsets()));
    (ids, any::<(i32, i32, i32, bool)>(), owned, client, more).prop_map(
        |(ids, fixed, owned, client, more)| StreamsGroupHeartbeatRequest {
            group_id: ids.0,
            member_id: ids.1,
            member_epoch: fixed.0,
            endpoint_information_epoch: fixed.1,
            instance_id: ids.2,
            rack_id: ids.3,
            rebalance_timeout_ms: fixed.2,
            topology: client.0,
            active_tasks: owned.0,
            standby_tasks: owned.1,
            warmup_tasks: owned.2,
            process_id: ids.4,
            user_endpoint: client.1,
            client_tags: more.0,
            task_offsets: more.1,
            task_end_offsets: more.2,
            shutdown_application: fixed.3,
        },
    )
}

fn beats() -> impl Strategy<Value = StreamsGroupHeartbeatResponse> {
    let status = (any::<i8>(), name()).prop_map(|(code, detail)| GroupStatus { code, detail });
    let partitions = || {
        some(
            (name(), some(any::<i32>()))
                .prop_map(|(topic, partitions)| SourcePartitions { topic, partitions }),
        )
    };
    let behind = (endpoint(), partitions(), partitions()).prop_map(
        |(user_endpoint, active_partitions, standby_partitions)| EndpointPartitions {
            user_endpoint,
            active_partitions,
            standby_partitions,
        },
    );
    let maybe = || prop::option::of(tasks());
    let told = (prop::option::of(some(status)), maybe(), maybe(), maybe());
    let names = (error_code(), nullable_name(), name());
    let fixed = any::<[i32; 6]>();
    (names, fixed, told, prop::option::of(some(behind))).prop_map(
        |(names, fixed, told, partitions_by_user_endpoint)| StreamsGroupHeartbeatResponse {
            throttle_time_ms: fixed[0],
            error: names.0,
            error_message: names.1,
            member_id: names.2,
            member_epoch: fixed[1],
            heartbeat_interval_ms: fixed[2],
            acceptable_recovery_lag: fixed[3],
            task_offset_interval_ms: fixed[4],
            status: told.0,
            active_tasks: told.1,
            standby_tasks: told.2,
            warmup_tasks: told.3,
            endpoint_information_epoch: fixed[5],
            partitions_by_user_endpoint,
        },
    )
}

fn descriptions() -> impl Strategy<Value = StreamsGroupDescribeResponse> {
    let by_role = || {
        (tasks(), tasks(), tasks()).prop_map(|(active_tasks, standby_tasks, warmup_tasks)| {
            TasksByRole { active_tasks, standby_tasks, warmup_tasks }
        })
    };
    let subtopology = (name(), some(name()), some(name()), topics(), topics()).prop_map(|of| {
        DescribedSubtopology {
            subtopology_id: of.0,
            source_topics: of.1,
            repartition_sink_topics: of.2,
            state_changelog_topics: of.3,
            repartition_source_topics: of.4,
        }
    });
    let topology = (any::<i32>(), prop::option::of(some(subtopology)))
        .prop_map(|(epoch, subtopologies)| DescribedTopology { epoch, subtopologies });
    let ids = (name(), nullable_name(), nullable_name(), name(), name(), name());
    let more = (prop::option::of(endpoint()), pairs(), offsets(), offsets());
    let member = (ids, any::<(i32, i32, bool)>(), more, by_role(), by_role()).prop_map(
        |(ids, fixed, more, assignment, target_assignment)| DescribedStreamsMember {
            member_id: ids.0,
            member_epoch: fixed.0,
            instance_id: ids.1,
            rack_id: ids.2,
            client_id: ids.3,
            client_host: ids.4,
            topology_epoch: fixed.1,
            process_id: ids.5,
            user_endpoint: more.0,
            client_tags: more.1,
            task_offsets: more.2,
            task_end_offsets: more.3,
            assignment,
            target_assignment,
            is_classic: fixed.2,
        },
    );
    let names = (error_code(), nullable_name(), name(), name());
    let group = (names, any::<(i32, i32, i32)>(), prop::option::of(topology), some(member))
        .prop_map(|(names, fixed, topology, members)| DescribedStreamsGroup {
            error: names.0,
            error_message: names.1,
            group_id: names.2,
            group_state: names.3,
            group_epoch: fixed.0,
            assignment_epoch: fixed.1,
            topology,
            members,
            authorized_operations: fixed.2,
        });
    (any::<i32>(), some(group)).prop_map(|(throttle_time_ms, groups)| {
        StreamsGroupDescribeResponse { throttle_time_ms, groups }
    })
}

/// The message is read as it was written, and no part of it decodes.
fn round_trip<T: Message + Encodable + Decodable + PartialEq + std::fmt::Debug>(message: &T) {
    let bytes = cold::encode(0, message).unwrap();
    assert_eq!(message.compute_size(0).unwrap(), bytes.len());
    assert_eq!(cold::decode::<T>(0, bytes.clone()).unwrap(), *message);
    for end in 0..bytes.len() {
        assert!(cold::decode::<T>(0, bytes.slice(..end)).is_err(), "cut at {end}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn heartbeats_are_read_as_written(request in heartbeats()) {
        round_trip(&request);
    }

    #[test]
    fn heartbeat_responses_are_read_as_written(response in beats()) {
        round_trip(&response);
    }

    #[test]
    fn descriptions_are_read_as_written(response in descriptions()) {
        round_trip(&response);
    }
}

#[test]
fn extreme_lengths_are_refused() {
    let topology = Topology { epoch: 1, subtopologies: vec![Subtopology::default()] };
    let request = StreamsGroupHeartbeatRequest {
        topology: Some(topology),
        active_tasks: Some(vec![TaskIds::default()]),
        ..StreamsGroupHeartbeatRequest::default()
    };
    let bytes = cold::encode(0, &request).unwrap();
    survive_extreme_lengths(&bytes, |damaged| {
        drop(cold::decode::<StreamsGroupHeartbeatRequest>(0, damaged.clone()));
    });
}

/// A heartbeat as Kafka 4.3 writes it: the generated class of its message definition, printed by its own serializer.
#[test]
fn heartbeats_have_kafkas_layout() {
    let request = StreamsGroupHeartbeatRequest {
        group_id: "g".to_owned(),
        member_id: "m".to_owned(),
        rebalance_timeout_ms: 5,
        topology: Some(Topology {
            epoch: 2,
            subtopologies: vec![Subtopology {
                subtopology_id: "0".to_owned(),
                source_topics: vec!["t".to_owned()],
                copartition_groups: vec![CopartitionGroup {
                    source_topics: vec![0],
                    ..CopartitionGroup::default()
                }],
                ..Subtopology::default()
            }],
        }),
        user_endpoint: Some(Endpoint { host: "h".to_owned(), port: 65535 }),
        ..StreamsGroupHeartbeatRequest::default()
    };
    assert_eq!(hex_of(&cold::encode(0, &request).unwrap()), KAFKAS_HEARTBEAT);
}

fn hex_of(bytes: &Bytes) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const KAFKAS_HEARTBEAT: &str = "0267026d000000000000000000000000000501000000020202300202740101010102020000010100000000000000010268ffff000000000000";

#[test]
fn errors_are_read_from_responses() {
    let refused = StreamsGroupHeartbeatResponse {
        error: ErrorCode::UNKNOWN_MEMBER_ID,
        error_message: Some("unknown".to_owned()),
        ..StreamsGroupHeartbeatResponse::default()
    };
    round_trip(&refused);
}
