use curtail_wire::metadata::{MetadataBroker, MetadataPartition};
use proptest::prelude::*;

use super::*;

fn answer(topic: &str, id: u8, leaders: &[(i32, i32)]) -> MetadataResponse {
    MetadataResponse {
        brokers: (0..3)
            .map(|node_id| MetadataBroker {
                node_id,
                host: "localhost".into(),
                port: 9092 + node_id,
                rack: None,
            })
            .collect(),
        topics: vec![MetadataTopic {
            name: Some(topic.into()),
            topic_id: Uuid([id; 16]),
            partitions: leaders
                .iter()
                .enumerate()
                .map(|(index, &(leader_id, leader_epoch))| MetadataPartition {
                    index: index as i32,
                    leader_id,
                    leader_epoch,
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn hint(topic: &str, partition: i32, id: i32, epoch: i32) -> Hint {
    Hint { topic: topic.into(), partition, leader: Leader { id, epoch } }
}

#[test]
fn a_stale_response_never_overrides_a_newer_epoch() {
    let (snapshot, _) = Snapshot::default().apply(&answer("t", 1, &[(0, 5), (1, 7)]), None);
    let (snapshot, changes) = snapshot.apply(&answer("t", 1, &[(2, 4), (2, 8)]), None);
    assert_eq!(snapshot.leader("t", 0), Leader { id: 0, epoch: 5 });
    assert_eq!(snapshot.leader("t", 1), Leader { id: 2, epoch: 8 });
    assert_eq!(changes.topics, ["t".into()]);
}

#[test]
fn a_recreated_topic_starts_over() {
    let (snapshot, _) = Snapshot::default().apply(&answer("t", 1, &[(0, 50)]), None);
    let (snapshot, _) = snapshot.apply(&answer("t", 2, &[(1, 0)]), None);
    assert_eq!(snapshot.leader("t", 0), Leader { id: 1, epoch: 0 });
}

#[test]
fn only_a_hint_that_advances_the_epoch_counts() {
    let (snapshot, _) = Snapshot::default().apply(&answer("t", 1, &[(0, 5)]), None);
    for (given, expected) in
        [((1, 4), (0, 5)), ((1, 5), (0, 5)), ((-1, 6), (0, 5)), ((1, 6), (1, 6))]
    {
        let (next, taken) = snapshot.apply_hints(&[hint("t", 0, given.0, given.1)], &[]);
        assert_eq!(next.leader("t", 0), Leader { id: expected.0, epoch: expected.1 }, "{given:?}");
        assert_eq!(taken.is_empty(), expected == (0, 5));
    }
}

#[test]
fn a_hint_brings_the_address_of_a_broker_not_yet_known() {
    let (snapshot, _) = Snapshot::default().apply(&answer("t", 1, &[(0, 5)]), None);
    let node = Node { id: 9, host: "elsewhere".into(), port: 1, rack: None };
    let (next, _) = snapshot.apply_hints(&[hint("t", 0, 9, 6)], std::slice::from_ref(&node));
    assert_eq!(next.node(9), Some(&node));
}

#[test]
fn an_absurd_hint_does_not_pin_its_leader() {
    let (snapshot, _) = Snapshot::default().apply(&answer("t", 1, &[(0, 5)]), None);
    let (next, taken) = snapshot.apply_hints(&[hint("t", 0, 1, i32::MAX)], &[]);
    assert_eq!((next.leader("t", 0), taken.len()), (Leader { id: 0, epoch: 5 }, 0));
    let (next, _) = next.apply_hints(&[hint("t", 0, 1, 1005)], &[]);
    assert_eq!(next.leader("t", 0).id, 1);
}

/// A partition that the response leaves out, or names without an epoch, keeps its leader epoch.
#[test]
fn a_response_without_an_epoch_does_not_reset_it() {
    let (snapshot, _) = Snapshot::default().apply(&answer("t", 1, &[(0, 5), (1, 7)]), None);
    let (next, _) = snapshot.apply(&answer("t", 1, &[(2, -1), (2, -1)]), None);
    assert_eq!(next.leader("t", 0), Leader { id: 0, epoch: 5 });
    let mut hole = answer("t", 1, &[(2, 6), (2, 8)]);
    hole.topics[0].partitions[1].index = 0;
    let (next, _) = snapshot.apply(&hole, None);
    assert_eq!(next.leader("t", 1), Leader { id: 1, epoch: 7 });
    let (next, _) = next.apply_hints(&[hint("t", 1, 0, 6)], &[]);
    assert_eq!(next.leader("t", 1).epoch, 7, "nor can a stale hint win afterwards");
}

/// A hint may name a broker without its address. Tasks that wait for that leader are notified when the address arrives.
#[test]
fn a_topic_changes_when_the_address_of_its_leader_arrives() {
    let (snapshot, _) = Snapshot::default().apply(&answer("t", 1, &[(0, 5)]), None);
    let (hinted, _) = snapshot.apply_hints(&[hint("t", 0, 9, 6)], &[]);
    assert_eq!(hinted.node(9), None);
    let mut with_address = answer("other", 2, &[(0, 1)]);
    with_address.brokers.push(MetadataBroker {
        node_id: 9,
        host: "localhost".into(),
        port: 9,
        rack: None,
    });
    let (_, changes) = hinted.apply(&with_address, Some(&["other".into()]));
    assert_eq!(changes.topics, ["other".into(), "t".into()]);
    let (_, changes) = snapshot.apply(&with_address, Some(&["other".into()]));
    assert_eq!(changes.topics, ["other".into()], "whose leader was known is not told");
}

#[test]
fn an_unchanged_topic_is_shared_between_snapshots() {
    let (first, _) = Snapshot::default().apply(&answer("a", 1, &[(0, 1)]), None);
    let (second, _) = first.apply(&answer("b", 2, &[(0, 1)]), Some(&["b".into()]));
    assert!(Arc::ptr_eq(first.topic("a").unwrap(), second.topic("a").unwrap()));
}

#[test]
fn a_full_response_drops_topics_it_does_not_name_and_a_partial_one_does_not() {
    let (first, _) = Snapshot::default().apply(&answer("a", 1, &[(0, 1)]), None);
    let (partial, _) = first.apply(&answer("b", 2, &[(0, 1)]), Some(&["b".into()]));
    assert!(partial.topic("a").is_some());
    let (full, changes) = first.apply(&answer("b", 2, &[(0, 1)]), None);
    assert!(full.topic("a").is_none());
    assert_eq!(changes.topics.len(), 2);
}

#[test]
fn only_unknown_topic_removes_a_topic() {
    let (known, _) = Snapshot::default().apply(&answer("a", 1, &[(0, 1)]), None);
    for (error, stays) in [
        (ErrorCode::LEADER_NOT_AVAILABLE, true),
        (ErrorCode::TOPIC_AUTHORIZATION_FAILED, true),
        (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, false),
    ] {
        let mut failed = answer("a", 1, &[]);
        failed.topics[0].error = error;
        let (next, changes) = known.apply(&failed, Some(&["a".into()]));
        assert_eq!(next.topic("a").is_some(), stays, "{error:?}");
        assert_eq!(changes.errors, [("a".into(), error)]);
    }
}

#[test]
fn only_requested_topics_are_applied_and_a_missing_one_is_an_error() {
    let (next, changes) =
        Snapshot::default().apply(&answer("b", 2, &[(0, 1)]), Some(&["a".into()]));
    assert!(next.topic("b").is_none());
    assert_eq!(changes.errors, [("a".into(), ErrorCode::UNKNOWN_SERVER_ERROR)]);
    assert_eq!(changes.topics, []);
}

#[test]
fn an_expired_topic_is_removed_and_the_rest_is_shared() {
    let (both, _) = Snapshot::default().apply(&answer("a", 1, &[(0, 1)]), None);
    let (both, _) = both.apply(&answer("b", 2, &[(0, 1)]), Some(&["b".into()]));
    let left = both.without(&["a".into()]);
    assert!(left.topic("a").is_none());
    assert!(Arc::ptr_eq(both.topic("b").unwrap(), left.topic("b").unwrap()));
}

#[test]
fn another_cluster_starts_over() {
    let of = |cluster: &str, epoch| MetadataResponse {
        cluster_id: Some(cluster.into()),
        ..answer("a", 1, &[(0, epoch)])
    };
    let (first, changes) = Snapshot::default().apply(&of("one", 9), None);
    assert!(!changes.cluster);
    let (first, _) = first.apply(&answer("b", 2, &[(0, 1)]), Some(&["b".into()]));
    let (second, changes) = first.apply(&of("two", 3), Some(&["a".into()]));
    assert!(changes.cluster);
    assert_eq!(second.leader("a", 0).epoch, 3);
    assert!(second.topic("b").is_none());
    assert!(changes.topics.contains(&"b".into()));
}

#[test]
fn partitions_are_added_and_a_recreated_topic_may_have_fewer() {
    let (two, _) = Snapshot::default().apply(&answer("a", 1, &[(0, 5), (1, 5)]), None);
    let (three, _) = two.apply(&answer("a", 1, &[(0, 5), (1, 4), (2, 0)]), None);
    assert_eq!(three.topic("a").unwrap().leaders.len(), 3);
    assert_eq!(three.leader("a", 1), Leader { id: 1, epoch: 5 }, "the older entry is not taken");
    let (recreated, _) = three.apply(&answer("a", 2, &[(2, 0)]), None);
    assert_eq!(recreated.topic("a").unwrap().leaders.len(), 1);
    assert_eq!(recreated.leader("a", 1), Leader::NONE);
}

fn unknown(topic: &str) -> MetadataResponse {
    let mut unknown = answer(topic, 0, &[]);
    unknown.topics[0].error = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    unknown
}

/// A broker that lags behind the controller has not seen the new partitions of a topic that grows.
#[test]
fn a_response_with_fewer_partitions_of_the_same_topic_id_drops_none() {
    let (three, _) = Snapshot::default().apply(&answer("a", 1, &[(0, 5), (1, 5), (2, 0)]), None);
    let (stale, changes) = three.apply(&answer("a", 1, &[(0, 5), (1, 5)]), None);
    assert_eq!(stale.topic("a").unwrap().leaders.len(), 3);
    assert_eq!(stale.leader("a", 2), Leader { id: 2, epoch: 0 });
    assert_eq!(changes.leaderless, []);
}

#[test]
fn a_topic_that_was_unknown_returns_with_the_partitions_and_epochs_of_its_id() {
    let (two, _) = Snapshot::default().apply(&answer("a", 1, &[(0, 5), (1, 5)]), None);
    let (gone, _) = two.apply(&unknown("a"), None);
    assert!(gone.topic("a").is_none());
    let (same, _) = gone.apply(&answer("a", 1, &[(2, 4)]), None);
    assert_eq!(same.topic("a").unwrap().leaders[..], two.topic("a").unwrap().leaders[..]);
    let (another, _) = gone.apply(&answer("a", 2, &[(2, 0)]), None);
    assert_eq!(another.topic("a").unwrap().leaders[..], [Leader { id: 2, epoch: 0 }]);
}

#[test]
fn a_forgotten_topic_and_another_cluster_leave_no_epochs() {
    let named = |id: &str, answer| MetadataResponse { cluster_id: Some(id.into()), ..answer };
    let known = answer("a", 1, &[(0, 5), (1, 5)]);
    let (two, _) = Snapshot::default().apply(&named("one", known), None);
    let (gone, _) = two.apply(&unknown("a"), None);
    let (elsewhere, _) = gone.apply(&named("two", answer("b", 2, &[(0, 0)])), None);
    for snapshot in [gone.without(&["a".into()]), elsewhere] {
        let (next, _) = snapshot.apply(&answer("a", 1, &[(2, 0)]), None);
        assert_eq!(next.topic("a").unwrap().leaders[..], [Leader { id: 2, epoch: 0 }]);
    }
}

/// Responses about all topics, and no call of [`Snapshot::without`].
#[test]
fn missing_topics_are_forgotten_once_two_full_responses_leave_them_out() {
    let mut snapshot = Snapshot::default();
    for n in 0..100 {
        snapshot = snapshot.apply(&answer(&format!("t{n}"), 1, &[(0, 5)]), None).0;
        assert!(snapshot.missing.len() <= 1, "{} topics are kept", snapshot.missing.len());
    }
}

/// Metadata before version 10 has no topic ids: a smaller topic may be another one of that name.
#[test]
fn without_topic_ids_a_topic_has_the_partitions_of_the_last_response() {
    let (two, _) = Snapshot::default().apply(&answer("a", 0, &[(0, 5), (1, 5)]), None);
    let (one, _) = two.apply(&answer("a", 0, &[(0, 6)]), None);
    assert_eq!(one.topic("a").unwrap().leaders.len(), 1);
    let (gone, _) = two.apply(&unknown("a"), None);
    let (next, _) = gone.apply(&answer("a", 0, &[(2, 0)]), None);
    assert_eq!(next.topic("a").unwrap().leaders[..], [Leader { id: 2, epoch: 0 }]);
}

/// During an upgrade, some brokers report the topic's id and others do not.
#[test]
fn a_topic_keeps_an_id_that_an_older_broker_leaves_out() {
    let (known, _) = Snapshot::default().apply(&answer("a", 1, &[(0, 5), (1, 5)]), None);
    let (older, _) = known.apply(&answer("a", 0, &[(2, 6)]), None);
    let topic = older.topic("a").unwrap();
    assert_eq!(topic.id, Uuid([1; 16]));
    assert_eq!(topic.leaders[..], [Leader { id: 2, epoch: 6 }, Leader { id: 1, epoch: 5 }]);
}

/// One change of a client's view of a topic.
#[derive(Clone, Debug)]
enum Step {
    Answer { id: u8, leaders: Vec<(i32, i32)> },
    Unknown,
    AnotherTopic,
    Hint { partition: i32, leader: i32, epoch: i32 },
}

fn step() -> impl Strategy<Value = Step> {
    let leader = (-1..3i32, -1..10i32);
    prop_oneof![
        6 => (1..3u8, prop::collection::vec(leader, 0..5))
            .prop_map(|(id, leaders)| Step::Answer { id, leaders }),
        1 => Just(Step::Unknown),
        1 => Just(Step::AnotherTopic),
        3 => (-1..5i32, -1..3i32, -1..10i32)
            .prop_map(|(partition, leader, epoch)| Step::Hint { partition, leader, epoch }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    /// As long as no other topic takes the name, a topic id loses no partition and no epoch goes back.
    #[test]
    fn a_topic_id_never_loses_partitions_or_epochs(steps in prop::collection::vec(step(), 1..60)) {
        let mut snapshot = Snapshot::default();
        let mut known: Option<Arc<Topic>> = None;
        for step in steps {
            snapshot = match step {
                Step::Answer { id, leaders } => snapshot.apply(&answer("t", id, &leaders), Some(&["t".into()])).0,
                Step::Unknown => snapshot.apply(&unknown("t"), Some(&["t".into()])).0,
                Step::AnotherTopic => snapshot.apply(&answer("u", 9, &[(0, 0)]), Some(&["u".into()])).0,
                Step::Hint { partition, leader, epoch } => {
                    snapshot.apply_hints(&[hint("t", partition, leader, epoch)], &[]).0
                }
            };
            let Some(now) = snapshot.topic("t") else { continue };
            if let Some(before) = known.replace(now.clone()).filter(|before| before.id == now.id) {
                prop_assert!(now.leaders.len() >= before.leaders.len());
                prop_assert!(now.leaders.iter().zip(&before.leaders).all(|(now, before)| now.epoch >= before.epoch));
            }
        }
    }

    /// For any responses and hints in any order, no partition's epoch goes back.
    #[test]
    fn epochs_only_go_forward(steps in prop::collection::vec((any::<bool>(), 0..3usize, 0..3i32, 0..10i32), 1..60)) {
        let (mut snapshot, _) = Snapshot::default().apply(&answer("t", 1, &[(0, 0), (0, 0), (0, 0)]), None);
        for (by_hint, partition, leader, epoch) in steps {
            let before = snapshot.leader("t", partition as i32);
            snapshot = if by_hint {
                snapshot.apply_hints(&[hint("t", partition as i32, leader, epoch)], &[]).0
            } else {
                let mut leaders = [(0, 0); 3];
                leaders[partition] = (leader, epoch);
                snapshot.apply(&answer("t", 1, &leaders), None).0
            };
            let after = snapshot.leader("t", partition as i32);
            prop_assert!(after.epoch >= before.epoch);
            prop_assert!(after.epoch > before.epoch || after == before || !by_hint);
        }
    }
}

#[test]
fn a_partition_is_in_the_racks_of_all_its_replicas() {
    let mut answer = answer("t", 1, &[(0, 1), (1, 1), (2, 1)]);
    for (broker, rack) in answer.brokers.iter_mut().zip([Some("x"), Some("y"), None]) {
        broker.rack = rack.map(str::to_owned);
    }
    // In sync; one of two in sync; without a rack, and on a broker that is down.
    let replicas = [(vec![0], vec![0]), (vec![0, 1], vec![1]), (vec![2, 9], vec![2])];
    for (partition, (replicas, isr)) in answer.topics[0].partitions.iter_mut().zip(replicas) {
        (partition.replicas, partition.isr) = (replicas, isr);
    }
    let (snapshot, _) = Snapshot::default().apply(&answer, None);
    let topic = snapshot.topic("t").unwrap();
    let racks = |racks: &[&str]| Arc::new(racks.iter().map(|rack| (*rack).into()).collect());
    let layout = Layout { count: 3, racks: vec![racks(&["x"]), racks(&["x", "y"]), racks(&[])] };
    assert_eq!(snapshot.layouts_with_racks([topic]), [("t".into(), layout)].into());
    assert_eq!(topic.layout(), Layout::from(3));
}

#[test]
fn partitions_with_the_same_racks_share_them() {
    let mut answer = answer("t", 1, &[(0, 1), (1, 1), (2, 1)]);
    for (broker, rack) in answer.brokers.iter_mut().zip(["x", "y", "y"]) {
        broker.rack = Some(rack.to_owned());
    }
    for (partition, replicas) in
        answer.topics[0].partitions.iter_mut().zip([[0, 1], [1, 0], [2, 0]])
    {
        (partition.replicas, partition.isr) = (replicas.to_vec(), replicas.to_vec());
    }
    let (snapshot, _) = Snapshot::default().apply(&answer, None);
    let layouts = snapshot.layouts_with_racks(snapshot.topic("t"));
    let racks = &layouts["t"].racks;
    assert!(racks.iter().all(|set| Arc::ptr_eq(set, &racks[0]) && set.len() == 2), "{racks:?}");
}
