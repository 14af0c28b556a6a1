use std::fmt::Debug;

use bytes::Bytes;
use kafka_protocol::messages as other;
use proptest::prelude::*;

use super::*;
use crate::ErrorCode;
use crate::Uuid;
use crate::cold::{self, ColdError};
use crate::test_support::*;

fn offset_commits() -> impl Strategy<Value = OffsetCommitRequest> {
    let partition = (any::<(i32, i64, i32)>(), nullable_name()).prop_map(
        |((index, committed_offset, committed_leader_epoch), committed_metadata)| {
            OffsetCommitPartition {
                index,
                committed_offset,
                committed_leader_epoch,
                committed_metadata,
            }
        },
    );
    let topic = (name(), uuid(), some(partition))
        .prop_map(|(name, topic_id, partitions)| OffsetCommitTopic { name, topic_id, partitions });
    (name(), any::<i32>(), name(), nullable_name(), some(topic)).prop_map(
        |(group_id, generation_id_or_member_epoch, member_id, group_instance_id, topics)| {
            OffsetCommitRequest {
                group_id,
                generation_id_or_member_epoch,
                member_id,
                group_instance_id,
                topics,
            }
        },
    )
}

fn offset_fetches() -> impl Strategy<Value = OffsetFetchRequest> {
    let topic = (name(), uuid(), some(any::<i32>()))
        .prop_map(|(name, topic_id, partitions)| OffsetFetchTopic { name, topic_id, partitions });
    let group = (name(), nullable_name(), any::<i32>(), prop::option::of(some(topic))).prop_map(
        |(group_id, member_id, member_epoch, topics)| OffsetFetchGroup {
            group_id,
            member_id,
            member_epoch,
            topics,
        },
    );
    (prop::collection::vec(group, 1..3), any::<bool>())
        .prop_map(|(groups, require_stable)| OffsetFetchRequest { groups, require_stable })
}

fn markers() -> impl Strategy<Value = WriteTxnMarkersRequest> {
    let topic = (name(), some(any::<i32>()))
        .prop_map(|(name, partitions)| WritableTxnMarkerTopic { name, partitions });
    let marker = (any::<(i64, i16, bool, i32, i8)>(), some(topic)).prop_map(|(fixed, topics)| {
        WritableTxnMarker {
            producer_id: fixed.0,
            producer_epoch: fixed.1,
            transaction_result: fixed.2,
            topics,
            coordinator_epoch: fixed.3,
            transaction_version: fixed.4,
        }
    });
    some(marker).prop_map(|markers| WriteTxnMarkersRequest { markers })
}

fn voters() -> impl Strategy<Value = AddRaftVoterRequest> {
    let listener = (name(), name(), any::<u16>()).prop_map(|(name, host, port)| VoterListener {
        name,
        host,
        port,
    });
    (nullable_name(), any::<(i32, i32, bool)>(), uuid(), some(listener)).prop_map(
        |(cluster_id, fixed, voter_directory_id, listeners)| AddRaftVoterRequest {
            cluster_id,
            timeout_ms: fixed.0,
            voter_id: fixed.1,
            voter_directory_id,
            listeners,
            ack_when_committed: fixed.2,
        },
    )
}

fn log_dirs() -> impl Strategy<Value = DescribeLogDirsResponse> {
    let partition = any::<(i32, i64, i64, bool)>().prop_map(|fixed| DescribeLogDirsPartition {
        index: fixed.0,
        size: fixed.1,
        offset_lag: fixed.2,
        is_future: fixed.3,
    });
    let topic = (name(), some(partition))
        .prop_map(|(name, partitions)| DescribeLogDirsTopic { name, partitions });
    let result = (error_code(), name(), some(topic), any::<(i64, i64, bool)>()).prop_map(
        |(error, log_dir, topics, (total_bytes, usable_bytes, is_cordoned))| {
            DescribeLogDirsResult { error, log_dir, topics, total_bytes, usable_bytes, is_cordoned }
        },
    );
    (any::<i32>(), error_code(), some(result)).prop_map(|(throttle_time_ms, error, results)| {
        DescribeLogDirsResponse { throttle_time_ms, error, results }
    })
}

fn log_dir_requests() -> impl Strategy<Value = DescribeLogDirsRequest> {
    let topic = (name(), some(any::<i32>()))
        .prop_map(|(name, partitions)| DescribableLogDirTopic { name, partitions });
    prop::option::of(some(topic)).prop_map(|topics| DescribeLogDirsRequest { topics })
}

/// `kafka-protocol` reads the same message from our bytes, in every version that it knows. In all versions the message
/// is written again as it was read.
fn assert_agreement<Ours, Theirs>(ours: &Ours)
where
    Ours: Message + Encodable + Decodable + PartialEq + Debug,
    Theirs: Message + Encodable + Decodable + Debug,
{
    let known = Theirs::VERSIONS.min..=Theirs::VERSIONS.max;
    for version in Ours::VERSIONS.min..=Ours::VERSIONS.max {
        let bytes = match cold::encode(version, ours) {
            Ok(bytes) => bytes,
            // OffsetFetch before version 8 has one group.
            Err(ColdError::Encode { .. }) if version < 8 => continue,
            Err(error) => panic!("version {version}: {error}"),
        };
        assert_eq!(ours.compute_size(version).unwrap(), bytes.len(), "version {version}");
        let again: Ours = cold::decode(version, bytes.clone()).unwrap();
        assert_eq!(cold::encode(version, &again).unwrap(), bytes, "version {version}");
        if known.contains(&version) {
            let theirs: Theirs = cold::decode(version, bytes.clone()).unwrap();
            assert_eq!(cold::encode(version, &theirs).unwrap(), bytes, "version {version}");
        }
    }
}

proptest! {
    #[test]
    fn offset_commits_agree_with_the_other_implementation(request in offset_commits()) {
        assert_agreement::<_, other::OffsetCommitRequest>(&request);
    }

    #[test]
    fn offset_fetches_agree_with_the_other_implementation(request in offset_fetches()) {
        assert_agreement::<_, other::OffsetFetchRequest>(&request);
    }

    #[test]
    fn markers_agree_with_the_other_implementation(request in markers()) {
        assert_agreement::<_, other::WriteTxnMarkersRequest>(&request);
        let read: WriteTxnMarkersRequest = cold::decode(2, cold::encode(2, &request).unwrap()).unwrap();
        prop_assert_eq!(read, request);
    }

    #[test]
    fn voters_agree_with_the_other_implementation(request in voters()) {
        assert_agreement::<_, other::AddRaftVoterRequest>(&request);
        let read: AddRaftVoterRequest = cold::decode(1, cold::encode(1, &request).unwrap()).unwrap();
        prop_assert_eq!(read, request);
    }

    #[test]
    fn requests_for_log_directories_agree_with_the_other_implementation(
        request in log_dir_requests(),
    ) {
        assert_agreement::<_, other::DescribeLogDirsRequest>(&request);
    }

    #[test]
    fn log_directories_agree_with_the_other_implementation(response in log_dirs()) {
        assert_agreement::<_, other::DescribeLogDirsResponse>(&response);
        let read: DescribeLogDirsResponse = cold::decode(5, cold::encode(5, &response).unwrap()).unwrap();
        prop_assert_eq!(read, response);
    }
}

fn commit() -> OffsetCommitRequest {
    let partition = OffsetCommitPartition {
        index: 2,
        committed_offset: 3,
        committed_leader_epoch: 4,
        committed_metadata: None,
    };
    let topic = OffsetCommitTopic {
        topic_id: Uuid([7; 16]),
        partitions: vec![partition],
        ..Default::default()
    };
    OffsetCommitRequest {
        group_id: "g".to_owned(),
        generation_id_or_member_epoch: 5,
        member_id: "m".to_owned(),
        group_instance_id: None,
        topics: vec![topic],
    }
}

fn fetch() -> OffsetFetchRequest {
    let topic =
        OffsetFetchTopic { topic_id: Uuid([7; 16]), partitions: vec![2], ..Default::default() };
    let group = OffsetFetchGroup {
        group_id: "g".to_owned(),
        member_id: Some("m".to_owned()),
        member_epoch: 5,
        topics: Some(vec![topic]),
    };
    OffsetFetchRequest { groups: vec![group], require_stable: true }
}

/// The layout of Kafka's message definitions: no name, 16 bytes of the id.
#[test]
fn version_10_names_topics_by_id() {
    let id = [7; 16];
    let expected = [
        &[2, b'g', 0, 0, 0, 5, 2, b'm', 0, 2][..],
        &id,
        &[2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0],
    ];
    assert_eq!(cold::encode(10, &commit()).unwrap(), expected.concat());
    let read: OffsetCommitRequest = cold::decode(10, expected.concat().into()).unwrap();
    assert_eq!(read, commit());

    let expected = [&[2, 2, b'g', 2, b'm', 0, 0, 0, 5, 2][..], &id, &[2, 0, 0, 0, 2, 0, 0, 1, 0]];
    assert_eq!(cold::encode(10, &fetch()).unwrap(), expected.concat());
    let read: OffsetFetchRequest = cold::decode(10, expected.concat().into()).unwrap();
    assert_eq!(read, fetch());
}

/// The layout of Kafka's message definitions: the new field is the last one of the marker.
#[test]
fn version_2_of_markers_has_the_version_of_the_transaction() {
    let marker = WritableTxnMarker {
        producer_id: 1,
        producer_epoch: 2,
        transaction_result: true,
        topics: vec![],
        coordinator_epoch: 3,
        transaction_version: 2,
    };
    let bytes = cold::encode(2, &WriteTxnMarkersRequest { markers: vec![marker] }).unwrap();
    assert_eq!(bytes[..], [2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 1, 1, 0, 0, 0, 3, 2, 0, 0]);
}

#[test]
fn version_5_of_log_directories_has_cordoned_ones() {
    let result = DescribeLogDirsResult {
        log_dir: "/d".to_owned(),
        total_bytes: 1,
        usable_bytes: -1,
        is_cordoned: true,
        ..Default::default()
    };
    let response =
        DescribeLogDirsResponse { throttle_time_ms: 0, error: ErrorCode(0), results: vec![result] };
    let expected = [
        &[0, 0, 0, 0, 0, 0, 2, 0, 0, 3, b'/', b'd', 1][..],
        &[0, 0, 0, 0, 0, 0, 0, 1],
        &[0xff; 8],
        &[1, 0, 0],
    ];
    assert_eq!(cold::encode(5, &response).unwrap(), expected.concat());
}

#[test]
fn unknown_versions_are_refused() {
    let unsupported = |version| cold::encode(version, &commit()).unwrap_err();
    for version in [1, 11] {
        assert!(matches!(unsupported(version), ColdError::UnsupportedVersion { .. }), "{version}");
    }
    // Null topics mean all of them; version 1 has no such request.
    let classic = [&[0, 1, b'g'][..], &[0xff; 4]].concat();
    assert!(cold::decode::<OffsetFetchRequest>(1, classic.clone().into()).is_err());
    let all: OffsetFetchRequest = cold::decode(2, classic.into()).unwrap();
    assert_eq!(all.groups[0].topics, None);
    let many = OffsetFetchRequest { groups: vec![OffsetFetchGroup::default(); 2], ..all.clone() };
    assert!(cold::encode(1, &all).is_err() && cold::encode(2, &all).is_ok());
    assert!(cold::encode(7, &many).is_err() && cold::encode(8, &many).is_ok());
}

#[test]
fn cut_messages_and_extreme_lengths_are_refused() {
    fn check<T: Decodable + Message + Debug>(version: i16, message: &Bytes) {
        for end in 0..message.len() {
            let cut = cold::decode::<T>(version, message.slice(..end));
            assert!(cut.is_err(), "cut at {end} of {}: {cut:?}", message.len());
        }
        let longer = Bytes::from([&message[..], &[1, 0, 0]].concat());
        assert!(cold::decode::<T>(version, longer).is_ok(), "bytes after the message are ignored");
        survive_extreme_lengths(message, |bytes| {
            drop(cold::decode::<T>(version, bytes.clone()));
        });
    }
    for version in [8, 10] {
        check::<OffsetCommitRequest>(version, &cold::encode(version, &commit()).unwrap());
        check::<OffsetFetchRequest>(version, &cold::encode(version, &fetch()).unwrap());
    }
    let marker = WritableTxnMarker {
        topics: vec![WritableTxnMarkerTopic { name: "t".to_owned(), partitions: vec![1] }],
        ..Default::default()
    };
    let markers = WriteTxnMarkersRequest { markers: vec![marker] };
    check::<WriteTxnMarkersRequest>(2, &cold::encode(2, &markers).unwrap());
}
