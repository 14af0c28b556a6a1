//! Reassignments of replicas and leader elections.

use std::collections::BTreeMap;

use curtail::{
    ErrorCode,
    admin::{Elected, Election, NewTopic, Reassignment},
};

use super::{Backend, admin, at, code, only, topics::described, until};

pub(super) async fn preferred_leaders_are_elected(backend: &Backend) {
    let admin = admin(backend);
    backend.create_topic("led", 1, 3).await;
    let before = described(backend, "led", 1).await.partitions[0].clone();
    let preferred = before.replicas[0];
    assert_eq!(before.leader, Some(preferred));
    let elect =
        async |election| only(admin.elect_leaders(election, &[at("led", 0)]).await.unwrap());
    // It leads already, which is no error.
    assert_eq!(elect(Election::Preferred).await.unwrap(), Elected::Already);
    backend.kill(preferred);
    let ask = async || described(backend, "led", 1).await.partitions[0].clone();
    let moved = until(ask, |p| p.leader != Some(preferred) && !p.isr.contains(&preferred)).await;
    assert!(moved.leader_epoch > before.leader_epoch, "{moved:?}");
    assert_eq!(code(&elect(Election::Preferred).await), ErrorCode::PREFERRED_LEADER_NOT_AVAILABLE);
    // There is a leader, so no record needs to be lost.
    assert_eq!(elect(Election::Unclean).await.unwrap(), Elected::Already);
    backend.restart(preferred).await;
    until(ask, |p| p.isr.contains(&preferred)).await;
    assert_eq!(elect(Election::Preferred).await.unwrap(), Elected::Now);
    until(ask, |p| p.leader == Some(preferred)).await;

    let unknown = admin.elect_leaders(Election::Preferred, &[at("missing", 0)]).await.unwrap();
    assert_eq!(code(&only(unknown)), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
}

pub(super) async fn are_reassigned(backend: &Backend) {
    let admin = admin(backend);
    let new = NewTopic::new("moved").partitions(2).replication_factor(1);
    only(admin.create_topics(&[new]).await.unwrap()).unwrap();
    let from = described(backend, "moved", 2).await.partitions[0].replicas[0];
    let to: Vec<i32> = (1..=3).filter(|id| *id != from).collect();
    let wanted = [
        (at("moved", 0), Reassignment::To(to.clone())),
        (at("moved", 1), Reassignment::To(vec![77])),
        (at("missing", 0), Reassignment::To(vec![1])),
    ];
    let begun = admin.alter_partition_reassignments(&wanted).await.unwrap();
    assert!(begun[0].1.is_ok(), "{begun:?}");
    assert_eq!(code(&begun[1].1), ErrorCode::INVALID_REPLICA_ASSIGNMENT);
    assert_eq!(code(&begun[2].1), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    let ask = async || described(backend, "moved", 2).await.partitions[0].replicas.clone();
    until(ask, |replicas| *replicas == to).await;
    let ask = async || admin.list_partition_reassignments(None).await.unwrap();
    until(ask, BTreeMap::is_empty).await;
    let cancel = [(at("moved", 0), Reassignment::Cancel)];
    let nothing = only(admin.alter_partition_reassignments(&cancel).await.unwrap());
    assert_eq!(code(&nothing), ErrorCode::NO_REASSIGNMENT_IN_PROGRESS);
    let named = [at("moved", 0)];
    assert!(admin.list_partition_reassignments(Some(&named)).await.unwrap().is_empty());

    // A reassignment that cannot end, because its broker is gone, is listed until it is cancelled.
    backend.kill(from);
    let wanted = [(at("moved", 0), Reassignment::To(vec![from]))];
    let begun = only(admin.alter_partition_reassignments(&wanted).await.unwrap());
    begun.unwrap();
    let ongoing = admin.list_partition_reassignments(Some(&named)).await.unwrap();
    let found = &ongoing[&named[0]];
    assert_eq!((&found.adding[..], found.removing.len()), (&[from][..], 2), "{ongoing:?}");
    only(admin.alter_partition_reassignments(&cancel).await.unwrap()).unwrap();
    until(ask, BTreeMap::is_empty).await;
    backend.restart(from).await;
}
