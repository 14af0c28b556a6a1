mod administration;
mod durability;
mod reassignment;
mod restart;

use std::path::Path;

use curtail_wire::{ErrorCode, Uuid};

use super::{
    journal::{self, Change, Journal},
    state::{AlterPartition, State},
    *,
};
use crate::{
    disk::MemDisk,
    image::{NO_LEADER, PartitionKey},
};

const TOPIC: Uuid = Uuid([7; 16]);

fn key(index: i32) -> PartitionKey {
    PartitionKey { topic: TOPIC, index }
}

fn spec(name: &str, partitions: i32, replication_factor: i16) -> TopicSpec {
    TopicSpec { name: name.to_owned(), partitions, replication_factor, ..TopicSpec::default() }
}

fn addresses() -> Addresses {
    let addr = std::net::SocketAddr::from(([127, 0, 0, 1], 9092));
    Addresses { endpoints: Arc::default(), inner: addr }
}

/// Returns the state of a later run with these brokers.
fn loaded(changes: Vec<Change>, brokers: &[i32]) -> State {
    State::replayed("cluster", changes).resume(brokers)
}

fn register(state: &mut State, id: i32) -> i64 {
    let epoch = state.register(id, addresses());
    assert!(state.heartbeat(id, epoch));
    epoch
}

/// Returns a state with three live brokers and a topic with three partitions on all of them, and
/// the brokers' epochs.
fn three() -> (State, Vec<i64>) {
    let mut state = State::new("cluster");
    let epochs = (1..=3).map(|id| register(&mut state, id)).collect();
    state.create_topic(&spec("t", 3, 3), TOPIC, &ClusterConfig::default()).unwrap();
    (state, epochs)
}

fn partition(state: &State, index: i32) -> PartitionImage {
    state.image.topic("t").unwrap().partitions[index as usize].clone()
}

fn led_by(state: &State, id: i32) -> Vec<i32> {
    (0..3).filter(|index| partition(state, *index).leader == id).collect()
}

#[test]
fn leaders_are_spread_and_all_replicas_in_sync() {
    let (state, _) = three();
    for id in 1..=3 {
        assert_eq!(led_by(&state, id).len(), 1);
    }
    assert_eq!(partition(&state, 0).isr.len(), 3);
}

#[test]
fn a_fenced_leader_is_replaced_by_the_next_in_sync_replica() {
    let (mut state, _) = three();
    let index = led_by(&state, 2)[0];
    let before = partition(&state, index);
    state.fence(2);
    let after = partition(&state, index);
    assert_eq!(after.leader, before.replicas[1]);
    assert_eq!(after.leader_epoch, before.leader_epoch + 1);
    assert!(!after.isr.contains(&2));
    // The leader epoch stays in partitions that it only followed.
    let other = led_by(&state, 1)[0];
    assert_eq!(partition(&state, other).leader_epoch, 0);
    assert!(!partition(&state, other).isr.contains(&2));
}

#[test]
fn the_last_in_sync_replica_stays_in_the_isr_and_leads_again() {
    let (mut state, _) = three();
    (1..=3).for_each(|id| state.fence(id));
    let p = partition(&state, 0);
    assert_eq!((p.leader, &p.isr[..]), (NO_LEADER, &[3][..]));
    register(&mut state, 1);
    assert_eq!(partition(&state, 0).leader, NO_LEADER, "1 does not have everything");
    register(&mut state, 3);
    assert_eq!(partition(&state, 0).leader, 3);
}

#[test]
fn a_second_incarnation_fences_the_first() {
    let (mut state, epochs) = three();
    let index = led_by(&state, 1)[0];
    let epoch = state.register(1, addresses());
    assert!(epoch > epochs[0]);
    assert_ne!(partition(&state, index).leader, 1);
    assert!(!state.heartbeat(1, epochs[0]), "the first is not the current one");
    assert!(state.heartbeat(1, epoch));
}

#[test]
fn a_late_heartbeat_does_not_unfence_a_broker_that_left() {
    let (mut state, epochs) = three();
    state.leave(2);
    assert!(!state.heartbeat(2, epochs[1]));
    assert!(led_by(&state, 2).is_empty());
    register(&mut state, 2);
}

#[test]
fn only_the_current_leader_changes_the_in_sync_replicas() {
    let (mut state, epochs) = three();
    let index = led_by(&state, 1)[0];
    let p = partition(&state, index);
    let alter = AlterPartition {
        broker: 1,
        broker_epoch: epochs[0],
        key: key(index),
        leader_epoch: p.leader_epoch,
        partition_epoch: p.partition_epoch,
        isr: vec![(1, None), (3, None)],
    };
    let refused = |state: &mut State, change: fn(&mut AlterPartition)| {
        let mut alter = alter.clone();
        change(&mut alter);
        state.alter_partition(&alter).unwrap_err()
    };
    assert_eq!(refused(&mut state, |a| a.broker_epoch -= 1), ErrorCode::STALE_BROKER_EPOCH);
    assert_eq!(refused(&mut state, |a| a.leader_epoch += 1), ErrorCode::FENCED_LEADER_EPOCH);
    assert_eq!(refused(&mut state, |a| a.partition_epoch += 1), ErrorCode::INVALID_UPDATE_VERSION);
    assert_eq!(refused(&mut state, |a| a.isr = vec![(3, None)]), ErrorCode::INVALID_REQUEST);

    let after = state.alter_partition(&alter).unwrap();
    assert_eq!(&after.isr[..], [1, 3]);
    assert_eq!(after.leader_epoch, p.leader_epoch);

    // An earlier incarnation of broker 2 had caught up; the current one has not.
    let grow = |epoch| AlterPartition {
        partition_epoch: after.partition_epoch,
        isr: vec![(1, None), (3, None), (2, Some(epoch))],
        ..alter.clone()
    };
    let refused = state.alter_partition(&grow(epochs[1] - 1)).unwrap_err();
    assert_eq!(refused, ErrorCode::INELIGIBLE_REPLICA);
    assert_eq!(state.alter_partition(&grow(epochs[1])).unwrap().isr.len(), 3);
}

#[test]
fn leaders_move_to_in_sync_replicas_only() {
    let (mut state, _) = three();
    let index = led_by(&state, 1)[0];
    state.move_leader("t", index, 3).unwrap();
    assert_eq!(partition(&state, index).leader, 3);
    state.fence(2);
    let refused = state.move_leader("t", index, 2).unwrap_err().0;
    assert_eq!(refused, ErrorCode::ELIGIBLE_LEADERS_NOT_AVAILABLE);
    let refused = state.move_leader("t", 9, 1).unwrap_err().0;
    assert_eq!(refused, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
}

#[test]
fn an_invalid_replica_assignment_is_refused() {
    let (state, _) = three();
    let config = ClusterConfig::default();
    let refusal = |assignment: Vec<(i32, Vec<i32>)>| {
        let spec = TopicSpec { assignment, ..spec("a", -1, -1) };
        state.check_topic(&spec, &config).map_err(|(code, _)| code).map(|(_, placed)| placed)
    };
    let good = refusal(vec![(1, vec![2, 3]), (0, vec![3, 1])]);
    assert_eq!(good, Ok(vec![vec![3, 1], vec![2, 3]]));
    let bad = Err(ErrorCode::INVALID_REPLICA_ASSIGNMENT);
    assert_eq!(refusal(vec![(1, vec![1])]), bad);
    assert_eq!(refusal(vec![(0, vec![])]), bad);
    assert_eq!(refusal(vec![(0, vec![1, 1])]), bad);
    assert_eq!(refusal(vec![(0, vec![9])]), bad);
    assert_eq!(refusal(vec![(0, vec![1]), (1, vec![1, 2])]), bad);
}

#[test]
fn a_topic_is_created_while_a_broker_is_down() {
    let (mut state, _) = three();
    state.fence(2);
    let config = ClusterConfig::default();
    let topic = state.create_topic(&spec("u", 4, 3), Uuid([8; 16]), &config).unwrap();
    for p in &topic.partitions {
        assert_eq!(p.replicas.len(), 3);
        assert!(p.leader != 2 && !p.isr.contains(&2));
    }
    let collides = state.create_topic(&spec("u.v", 1, 1), Uuid([9; 16]), &config);
    assert!(collides.is_ok());
    let collides = state.create_topic(&spec("u_v", 1, 1), Uuid([10; 16]), &config);
    assert_eq!(collides.unwrap_err().0, ErrorCode::INVALID_TOPIC_EXCEPTION);
}

#[test]
fn producer_ids_are_journaled_before_they_are_used() {
    let mut state = State::new("cluster");
    let first = state.next_producer_id();
    let changes = state.take_changes();
    assert_eq!(changes, [Change::ProducerIds { end: 1000 }]);
    let mut later = loaded(changes, &[]);
    assert!(later.next_producer_id() > first + 998);
}

#[test]
fn the_journal_rebuilds_the_state() {
    let disk = Arc::new(MemDisk::new());
    let dir = Path::new("d");
    let (mut state, _) = three();
    let mut log = Journal::create(disk.clone(), dir, &[]).unwrap();
    log.append(&state.take_changes(), Vec::new).unwrap();
    state.fence(1);
    log.append(&state.take_changes(), Vec::new).unwrap();

    let changes = journal::read(disk.as_ref(), dir).unwrap();
    let loaded = loaded(changes, &[1, 2, 3]);
    for index in 0..3 {
        let (before, after) = (partition(&state, index), partition(&loaded, index));
        assert_eq!((after.leader, &after.isr), (before.leader, &before.isr));
        assert_eq!(after.leader_epoch, before.leader_epoch + 1, "nothing old passes for current");
    }
}

#[test]
fn leaderships_of_an_earlier_run_stay_for_a_session_timeout() {
    let (mut state, _) = three();
    let changes = state.take_changes();
    let mut loaded = loaded(changes, &[1, 2, 3]);
    let index = led_by(&loaded, 3)[0];
    register(&mut loaded, 1);
    assert_eq!(partition(&loaded, index).leader, 3, "3 has its session time to come back");
    register(&mut loaded, 3);
    assert_eq!(partition(&loaded, index).isr.len(), 3);
    loaded.fence(2);
    assert_eq!(partition(&loaded, index).isr.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_broker_without_heartbeats_is_fenced_after_its_session_timeout() {
    let config = Arc::new(ClusterConfig { brokers: 2, ..ClusterConfig::default() });
    let controller = Arc::new(Controller::new(&config, Entropy::from_seed(1), None).unwrap());
    let run = tokio::spawn({
        let controller = Arc::clone(&controller);
        async move { controller.run().await }
    });
    let epochs: Vec<i64> =
        (1..=2).map(|id| controller.register(id, addresses()).unwrap().0).collect();
    let begin = Instant::now();
    for (id, epoch) in (1..=2).zip(&epochs) {
        assert!(controller.heartbeat(id, *epoch));
    }
    // Broker 2 sends heartbeats, broker 1 does not.
    loop {
        let changed = controller.changed();
        if controller.image().live_broker(1).is_none() {
            break;
        }
        tokio::select! {
            biased;
            () = changed => {}
            () = tokio::time::sleep(config.broker_heartbeat_interval) => {
                assert!(controller.heartbeat(2, epochs[1]));
            }
        }
    }
    let waited = begin.elapsed();
    assert!(waited >= config.broker_session_timeout, "{waited:?}");
    assert!(waited < config.broker_session_timeout + config.broker_heartbeat_interval);
    assert!(controller.image().live_broker(2).is_some());
    run.abort();
}

/// One random id of 64 would begin with a `-`.
#[test]
fn ids_are_never_taken_for_flags() {
    let entropy = Entropy::from_seed(1);
    for _ in 0..2_000 {
        let id = random_id(&entropy).to_string();
        assert!(!id.starts_with('-'), "{id}");
    }
}
