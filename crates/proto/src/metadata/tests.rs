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
fn a_stale_answer_never_overrides_a_newer_epoch() {
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

/// A partition that the answer leaves out, or names without an epoch, is not forgotten.
#[test]
fn an_answer_without_an_epoch_does_not_reset_it() {
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

/// A hint may name a broker without its address. Whoever waits for that leader is told when the address comes.
#[test]
fn a_topic_changes_when_the_address_of_its_leader_comes() {
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
fn a_full_answer_drops_what_it_does_not_name_and_a_partial_one_does_not() {
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
fn only_what_was_asked_for_is_taken_and_silence_is_an_error() {
    let (next, changes) =
        Snapshot::default().apply(&answer("b", 2, &[(0, 1)]), Some(&["a".into()]));
    assert!(next.topic("b").is_none());
    assert_eq!(changes.errors, [("a".into(), ErrorCode::UNKNOWN_SERVER_ERROR)]);
    assert_eq!(changes.topics, []);
}

#[test]
fn an_expired_topic_is_gone_and_the_rest_is_shared() {
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
fn partitions_are_added_and_a_topic_made_anew_may_have_fewer() {
    let (two, _) = Snapshot::default().apply(&answer("a", 1, &[(0, 5), (1, 5)]), None);
    let (three, _) = two.apply(&answer("a", 1, &[(0, 5), (1, 4), (2, 0)]), None);
    assert_eq!(three.topic("a").unwrap().leaders.len(), 3);
    assert_eq!(three.leader("a", 1), Leader { id: 1, epoch: 5 }, "the older entry is not taken");
    let (anew, _) = three.apply(&answer("a", 2, &[(2, 0)]), None);
    assert_eq!(anew.topic("a").unwrap().leaders.len(), 1);
    assert_eq!(anew.leader("a", 1), Leader::NONE);
}

proptest! {
    /// Whatever comes in whatever order: no partition's epoch ever goes back.
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
