//! Administrative changes of existing topics.

use super::*;
use crate::{settings::Whose, topic_config::ConfigEdit};

fn more(total: i32) -> MorePartitions {
    MorePartitions { topic: "t".to_owned(), total, replicas: None }
}

fn reloaded(state: &mut State) -> State {
    loaded(state.take_changes(), &[1, 2, 3])
}

#[test]
fn partitions_and_settings_survive_a_restart() {
    let config = ClusterConfig::default();
    let (mut state, _) = three();
    let before = partition(&state, 2);
    state.create_partitions(&more(5), &config).unwrap();
    assert_eq!(partition(&state, 2), before, "what is there stays as it is");
    assert_eq!(partition(&state, 4).isr.len(), 3);
    let set = [("retention.ms".to_owned(), ConfigEdit::Set("7".to_owned()))];
    state.alter_config("t", &set.into()).unwrap();
    state.fence(1);
    let after = reloaded(&mut state);
    let topic = after.image.topic("t").unwrap();
    assert_eq!(topic.partitions.len(), 5);
    assert_eq!(topic.config.given()["retention.ms"], "7");
    assert!(!partition(&after, 4).isr.contains(&1), "changes after that count as well");
}

#[test]
fn a_refused_change_changes_nothing() {
    let config = ClusterConfig::default();
    let (mut state, _) = three();
    state.take_changes();
    let version = state.image.version;
    for total in [3, 2, -1] {
        let refused = state.create_partitions(&more(total), &config).unwrap_err();
        assert_eq!(refused.0, ErrorCode::INVALID_PARTITIONS);
    }
    let unknown = MorePartitions { replicas: Some(vec![vec![1, 2, 9]]), ..more(4) };
    let refused = state.create_partitions(&unknown, &config).unwrap_err();
    assert_eq!(refused.0, ErrorCode::INVALID_REPLICA_ASSIGNMENT);
    let edits = [
        ("retention.ms".to_owned(), ConfigEdit::Set("7".to_owned())),
        ("retention.ms".to_owned(), ConfigEdit::Append("7".to_owned())),
    ];
    let refused = state.alter_config("t", &edits.into()).unwrap_err();
    assert_eq!(refused.0, ErrorCode::INVALID_CONFIG);
    assert_eq!((state.image.version, state.take_changes()), (version, Vec::new()));
}

#[test]
fn only_an_unclean_election_elects_an_out_of_sync_replica() {
    let (mut state, _) = three();
    (1..=3).for_each(|id| state.fence(id));
    let last = partition(&state, 0).isr[0];
    let other = (1..=3).find(|id| *id != last).unwrap();
    register(&mut state, other);
    let before = partition(&state, 0);
    assert_eq!(before.leader, NO_LEADER);
    let refused = state.elect_leader("t", 0, Election::Preferred).unwrap_err();
    assert_eq!(refused.0, ErrorCode::PREFERRED_LEADER_NOT_AVAILABLE);
    state.elect_leader("t", 0, Election::Unclean).unwrap();
    let after = partition(&state, 0);
    assert_eq!((after.leader, &after.isr[..]), (other, &[other][..]));
    assert!(after.leader_epoch > before.leader_epoch);
    let refused = state.elect_leader("t", 0, Election::Unclean).unwrap_err();
    assert_eq!(refused.0, ErrorCode::ELECTION_NOT_NEEDED);
}

/// Like [`three`], with `unclean.leader.election.enable`.
fn three_uncleanly() -> State {
    let (mut state, _) = three();
    allow_unclean(&mut state);
    state
}

fn allow_unclean(state: &mut State) {
    let name = "unclean.leader.election.enable".to_owned();
    state.alter_config("t", &[(name, ConfigEdit::Set("true".to_owned()))].into()).unwrap();
}

fn unclean_elections(state: &State) -> u64 {
    state.unclean.values().sum()
}

#[test]
fn an_out_of_sync_replica_that_returns_first_is_elected_if_the_topic_allows_it() {
    let mut state = three_uncleanly();
    (1..=3).for_each(|id| state.fence(id));
    let before = partition(&state, 0);
    assert_eq!((before.leader, &before.isr[..]), (NO_LEADER, &[3][..]));
    register(&mut state, 1);
    let after = partition(&state, 0);
    assert_eq!((after.leader, &after.isr[..]), (1, &[1][..]));
    assert!(after.leader_epoch > before.leader_epoch);
    assert_eq!(unclean_elections(&state), 3);
    register(&mut state, 3);
    assert_eq!(partition(&state, 0), after, "3 has to follow and truncate first");
}

#[test]
fn a_live_out_of_sync_replica_is_elected_when_the_last_in_sync_replica_is_fenced() {
    let (mut state, epochs) = three();
    allow_unclean(&mut state);
    let before = partition(&state, 0);
    let leader = before.leader;
    let alone = AlterPartition {
        broker: leader,
        broker_epoch: epochs[leader as usize - 1],
        key: key(0),
        leader_epoch: before.leader_epoch,
        partition_epoch: before.partition_epoch,
        isr: vec![(leader, None)],
    };
    state.alter_partition(&alone).unwrap();
    state.fence(leader);
    let after = partition(&state, 0);
    assert_eq!((after.leader, &after.isr[..]), (before.replicas[1], &before.replicas[1..2]));
    assert_eq!(unclean_elections(&state), 1, "the other partitions have in-sync replicas");
}

#[test]
fn allowing_unclean_elections_elects_leaders_for_leaderless_partitions() {
    let (mut state, _) = three();
    (1..=3).for_each(|id| state.fence(id));
    register(&mut state, 2);
    assert_eq!(led_by(&state, 2), [] as [i32; 0]);
    allow_unclean(&mut state);
    assert_eq!(led_by(&state, 2), [0, 1, 2]);
}

#[test]
fn brokers_allow_unclean_elections_for_topics_without_a_value() {
    let config = ClusterConfig::default();
    let (mut state, _) = three();
    (1..=3).for_each(|id| state.fence(id));
    register(&mut state, 2);
    let name = "unclean.leader.election.enable".to_owned();
    let edits = [(name.clone(), ConfigEdit::Set("true".into()))].into();
    state.alter_settings(&Whose::Group("g".into()), &[].into(), &config).unwrap();
    assert_eq!(led_by(&state, 2), [] as [i32; 0]);
    state.alter_settings(&Whose::Brokers, &edits, &config).unwrap();
    assert_eq!(led_by(&state, 2), [0, 1, 2]);

    let (mut state, _) = three();
    state.elects_uncleanly = true;
    let never = [(name.clone(), ConfigEdit::Set("false".into()))].into();
    state.alter_settings(&Whose::Brokers, &never, &config).unwrap();
    (1..=3).for_each(|id| state.fence(id));
    register(&mut state, 2);
    assert_eq!(
        led_by(&state, 2),
        [] as [i32; 0],
        "a value set at run time comes before that of the start"
    );

    let (mut state, _) = three();
    let never = [(name, ConfigEdit::Set("false".into()))].into();
    state.alter_config("t", &never).unwrap();
    state.elects_uncleanly = true;
    (1..=3).for_each(|id| state.fence(id));
    register(&mut state, 2);
    assert_eq!(led_by(&state, 2), [] as [i32; 0], "the topic's own value comes first");
}

#[test]
fn the_brokers_default_of_the_start_decides_on_unclean_elections() {
    for (value, expected) in [("true", true), ("false", false)] {
        let mut config = ClusterConfig::default();
        config.set("unclean.leader.election.enable", value).unwrap();
        let controller = Controller::new(&Arc::new(config), Entropy::from_seed(1), None).unwrap();
        assert_eq!(controller.inner.lock().state.elects_uncleanly, expected);
    }
}

#[test]
fn an_election_with_a_live_in_sync_replica_is_clean() {
    let mut state = three_uncleanly();
    state.fence(1);
    register(&mut state, 1);
    state.fence(2);
    for index in 0..3 {
        assert_eq!(partition(&state, index).leader, 3, "1 lives and is out of sync");
    }
    assert_eq!(unclean_elections(&state), 0);
}
