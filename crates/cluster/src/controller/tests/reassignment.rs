//! Reassignment of partitions to other brokers.

use super::*;

/// Like [`three`], with a fourth broker without replicas.
fn four() -> (State, Vec<i64>) {
    let (mut state, mut epochs) = three();
    epochs.push(register(&mut state, 4));
    (state, epochs)
}

fn to(replicas: &[i32]) -> Move {
    Move::To { replicas: replicas.to_vec(), another_number: true }
}

/// The leader reports the in-sync replicas.
fn in_sync(state: &mut State, epochs: &[i64], index: i32, isr: &[i32]) {
    let p = partition(state, index);
    let alter = AlterPartition {
        broker: p.leader,
        broker_epoch: epochs[p.leader as usize - 1],
        key: key(index),
        leader_epoch: p.leader_epoch,
        partition_epoch: p.partition_epoch,
        isr: isr.iter().map(|id| (*id, None)).collect(),
    };
    state.alter_partition(&alter).unwrap();
}

#[test]
fn removed_replicas_stay_until_the_added_ones_are_in_sync() {
    let (mut state, epochs) = four();
    let index = led_by(&state, 1)[0];
    let before = partition(&state, index);
    state.reassign("t", index, &to(&[4, 2])).unwrap();
    let moving = partition(&state, index);
    assert_eq!((&moving.replicas[..], &moving.adding[..]), (&[4, 2, 1, 3][..], &[4][..]));
    assert_eq!(&moving.removing[..], [1, 3]);
    assert_eq!((moving.leader, moving.leader_epoch), (1, before.leader_epoch));
    let listed = state.reassignments(None);
    assert_eq!(listed, [Moving { topic: "t".into(), index, partition: moving.clone() }]);
    assert_eq!(state.reassignments(Some(&[("t".into(), vec![index + 1, 9])])), []);

    // The reassignment survives a restart.
    let (changes, snapshot) = (state.take_changes(), state.snapshot(4));
    for changes in [changes, snapshot] {
        let loaded = super::loaded(changes, &[1, 2, 3, 4]);
        let p = partition(&loaded, index);
        assert_eq!(
            (&p.replicas, &p.adding, &p.removing),
            (&moving.replicas, &moving.adding, &moving.removing)
        );
    }

    in_sync(&mut state, &epochs, index, &[1, 2, 3, 4]);
    let after = partition(&state, index);
    assert_eq!((&after.replicas[..], &after.isr[..]), (&[4, 2][..], &[2, 4][..]));
    assert!(!after.is_reassigned());
    assert_eq!((after.leader, after.leader_epoch), (4, before.leader_epoch + 1));
    assert_eq!(state.reassignments(None), []);
}

#[test]
fn a_leader_that_stays_continues_in_a_new_epoch() {
    let (mut state, _) = four();
    let index = led_by(&state, 1)[0];
    let before = partition(&state, index);
    // No replica is added, so the reassignment completes at once.
    state.reassign("t", index, &to(&[2, 1])).unwrap();
    let after = partition(&state, index);
    assert_eq!((&after.replicas[..], after.leader), (&[2, 1][..], 1));
    assert_eq!(after.leader_epoch, before.leader_epoch + 1, "3 is fenced off");
    state.reassign("t", index, &to(&[1, 2])).unwrap();
    assert_eq!(partition(&state, index).leader_epoch, after.leader_epoch, "only the order is new");
}

#[test]
fn a_cancelled_reassignment_restores_the_replicas() {
    let (mut state, epochs) = four();
    let index = led_by(&state, 1)[0];
    let before = partition(&state, index);
    state.reassign("t", index, &to(&[4])).unwrap();
    // Broker 4 is in sync and leads, but the replicas to remove still exist.
    state.fence(2);
    state.reassign("t", index, &to(&[4, 2])).unwrap();
    in_sync(&mut state, &epochs, index, &[1, 3, 4]);
    state.move_leader("t", index, 4).unwrap();
    state.reassign("t", index, &Move::Back).unwrap();
    let after = partition(&state, index);
    let ids = |ids: &[i32]| ids.iter().copied().collect::<BTreeSet<i32>>();
    assert_eq!(ids(&after.replicas), ids(&before.replicas));
    assert_eq!(&after.isr[..], [1, 3]);
    assert!(after.isr.contains(&after.leader) && !after.is_reassigned());
    let refused = state.reassign("t", index, &Move::Back).unwrap_err();
    assert_eq!(refused.0, ErrorCode::NO_REASSIGNMENT_IN_PROGRESS);
}

#[test]
fn an_invalid_reassignment_is_refused() {
    let (mut state, _) = four();
    let version = state.image.version;
    for (replicas, code) in [
        (&[][..], ErrorCode::INVALID_REPLICA_ASSIGNMENT),
        (&[1, 1], ErrorCode::INVALID_REPLICA_ASSIGNMENT),
        (&[1, 77], ErrorCode::INVALID_REPLICA_ASSIGNMENT),
    ] {
        assert_eq!(state.reassign("t", 0, &to(replicas)).unwrap_err().0, code);
    }
    let fewer = Move::To { replicas: vec![1, 4], another_number: false };
    let refused = state.reassign("t", 0, &fewer).unwrap_err();
    assert_eq!(refused.0, ErrorCode::INVALID_REPLICATION_FACTOR);
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    assert_eq!(state.reassign("t", 9, &to(&[1])).unwrap_err().0, unknown);
    assert_eq!(state.reassign("u", 0, &Move::Back).unwrap_err().0, unknown);
    assert_eq!(state.image.version, version, "nothing has changed");
}

#[test]
fn a_cancellation_is_refused_if_only_added_replicas_are_in_sync() {
    let (mut state, epochs) = four();
    let index = led_by(&state, 1)[0];
    state.fence(2);
    state.reassign("t", index, &to(&[4, 2])).unwrap();
    in_sync(&mut state, &epochs, index, &[1, 3, 4]);
    state.fence(1);
    state.fence(3);
    assert_eq!(partition(&state, index).isr[..], [4]);
    let refused = state.reassign("t", index, &Move::Back).unwrap_err();
    assert_eq!(refused.0, ErrorCode::INVALID_REPLICA_ASSIGNMENT);
}
