//! Racks of partitions, as metadata reports them, and the rebalances that they cause (KIP-881).

use curtail_wire::metadata::{MetadataBroker, MetadataPartition, MetadataResponse, MetadataTopic};

use super::*;
use crate::metadata::Snapshot;

/// Broker ids and racks, and the partitions' replicas, each with those in sync.
type Cluster<'a> = (&'a [(i32, &'a str)], [(&'a [i32], &'a [i32]); 2]);

fn response((brokers, partitions): Cluster<'_>) -> MetadataResponse {
    let broker = |&(node_id, rack): &(i32, &str)| MetadataBroker {
        node_id,
        host: "localhost".into(),
        port: 9092,
        rack: Some(rack.into()),
    };
    let partition = |(index, (replicas, isr)): (i32, (&[i32], &[i32]))| MetadataPartition {
        index,
        leader_id: isr.first().copied().unwrap_or(-1),
        leader_epoch: 1,
        replicas: replicas.to_vec(),
        isr: isr.to_vec(),
        ..Default::default()
    };
    let partitions = (0..).zip(partitions).map(partition).collect();
    MetadataResponse {
        brokers: brokers.iter().map(broker).collect(),
        topics: vec![MetadataTopic {
            name: Some("t".into()),
            topic_id: Uuid([1; 16]),
            partitions,
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn seen(snapshot: &Snapshot) -> Topics {
    snapshot.layouts_with_racks(snapshot.topic("t"))
}

/// The leader of a group, after an assignment of these topics.
fn leader(rack: Option<&str>, layouts: Topics) -> Member {
    let settings =
        Settings { rack: rack.map(Arc::from), ..settings(&[Assignor::CooperativeSticky]) };
    let mut member = Member::with(settings);
    member.flush();
    member.find(1);
    let subscription = member.expect_join("");
    assert_eq!(subscription.rack.as_deref(), rack);
    let reply = JoinReply {
        generation: 1,
        member: "m".into(),
        protocol: "cooperative-sticky".into(),
        leader: "m".into(),
        skip_assignment: false,
        members: vec![("m".into(), None, subscription.encode(3))],
    };
    member.machine.joined(Ok(reply), member.now, 0.5);
    let Step::Assign(assignor, members) = member.next() else { panic!("{:?}", member.machine) };
    let assignments = assignor.assign(&layouts, &members);
    member.machine.assigned(&assignments, layouts);
    let Step::Sync(..) = member.next() else { panic!("{:?}", member.machine) };
    let partitions = assignor::by_topic(&keys(&[0, 1]));
    let assignment = consumer_protocol::Assignment { partitions, user_data: None };
    member.machine.synced(Ok(assignment.encode(3)), member.now, 0.5);
    member.hand_over();
    member
}

/// Whether the leader requests a rebalance after the last of these responses, and after none before it.
fn rebalances_at_last(responses: &[Cluster<'_>]) -> bool {
    let (mut snapshot, _) = Snapshot::default().apply(&response(responses[0]), None);
    let mut member = leader(Some("x"), seen(&snapshot));
    for cluster in &responses[1..] {
        assert!(member.machine.is_settled(), "before {cluster:?}");
        (snapshot, _) = snapshot.apply(&response(*cluster), None);
        member.see(&seen(&snapshot));
    }
    !member.machine.is_settled()
}

/// As in the Java client, a leader without a rack ignores the racks of partitions.
#[test]
fn a_leader_with_a_rack_rebalances_when_racks_of_partitions_change() {
    let racked = |racks: [&str; 2]| Layout {
        racks: racks.map(|rack| Arc::new([rack.into()].into())).to_vec(),
        ..Layout::from(2)
    };
    for rack in [None, Some("x")] {
        let seen = |racks| -> Topics {
            let layout = if rack.is_some() { racked(racks) } else { Layout::from(2) };
            [("t".into(), layout)].into()
        };
        let mut member = leader(rack, [("t".into(), racked(["x", "y"]))].into());
        assert_eq!(member.machine.follows_racks(), rack.is_some());
        member.see(&seen(["x", "y"]));
        assert!(member.machine.is_settled(), "nothing has changed");
        member.see(&seen(["y", "y"]));
        assert_eq!(member.machine.is_settled(), rack.is_none());
    }
}

const ALL: &[(i32, &str)] = &[(1, "x"), (2, "y"), (3, "z")];
const BEFORE: Cluster<'_> = (ALL, [(&[1, 2], &[1, 2]), (&[2, 3], &[2, 3])]);
const WITHOUT_2: Cluster<'_> = (&[(1, "x"), (3, "z")], [(&[1, 2], &[1]), (&[2, 3], &[3])]);

#[test]
fn a_broker_that_restarts_causes_no_rebalance() {
    let back: Cluster<'_> = (ALL, [(&[1, 2], &[1]), (&[2, 3], &[3])]);
    assert!(!rebalances_at_last(&[BEFORE, WITHOUT_2, back, BEFORE]));
}

#[test]
fn another_order_of_brokers_and_replicas_causes_no_rebalance() {
    let shuffled: Cluster<'_> =
        (&[(3, "z"), (1, "x"), (2, "y")], [(&[2, 1], &[2, 1]), (&[3, 2], &[2])]);
    assert!(!rebalances_at_last(&[BEFORE, shuffled]));
}

#[test]
fn a_broker_that_returns_in_another_rack_causes_a_rebalance() {
    let moved: Cluster<'_> = (&[(1, "x"), (2, "z"), (3, "z")], BEFORE.1);
    assert!(rebalances_at_last(&[BEFORE, WITHOUT_2, moved]));
}

#[test]
fn a_replica_that_moves_to_another_rack_causes_a_rebalance() {
    let reassigned: Cluster<'_> = (ALL, [(&[1, 3], &[1, 3]), (&[2, 3], &[2, 3])]);
    assert!(rebalances_at_last(&[BEFORE, reassigned]));
    // The replica of a stopped broker, too.
    let replaced: Cluster<'_> = (WITHOUT_2.0, [(&[1, 3], &[1, 3]), (&[2, 3], &[3])]);
    assert!(rebalances_at_last(&[BEFORE, WITHOUT_2, replaced]));
}
