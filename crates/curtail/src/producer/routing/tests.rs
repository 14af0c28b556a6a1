use curtail_proto::accumulator::Incarnation;
use curtail_wire::Uuid;

use super::{super::topic::Form, *};

fn topic(partitions: usize) -> TopicState {
    let form = Form { id: Uuid::ZERO, incarnation: Incarnation::FIRST, count: partitions };
    let partition = |index| Partition::new("t".into(), index, None);
    let partitions = (0..partitions as i32).map(partition).collect();
    TopicState::new("t".into(), form, partitions, 16_384, None, 0)
}

fn route(partitions: std::ops::Range<u32>) -> Route {
    Routes::default().carry_on(None, partitions.collect())
}

/// The first partition of a broker has the backlog. Beyond [`LOOKS`] partitions no search would find another one.
#[test]
fn the_first_proven_partition_is_remembered_while_its_broker_leads_it() {
    let topic = topic(300);
    let prove = |index: u32| topic.partitions[index as usize].standing.prove();
    let former = route(0..150);
    prove(100);
    former.remember(&topic, 100);
    prove(120);
    former.remember(&topic, 120);
    assert_eq!(former.home(&topic), Some(100), "the first");
    let now = route(150..300);
    now.home.set(100);
    assert_eq!(now.home(&topic), None, "it has another leader");
    prove(280);
    now.remember(&topic, 280);
    assert_eq!(now.home(&topic), Some(280), "in its place");
}

#[test]
fn an_unproven_partition_keeps_all_as_the_pioneer_and_only_its_trial_otherwise() {
    let now = Duration::from_secs(60);
    let route = route(0..4);
    route.pioneer.set(1);
    route.trial.begin(2, now);
    let keeps = |index, has_sent| route.unproven_keeps(index, has_sent, now);
    for (index, has_sent, expected) in [
        (0, false, Keeps::None),
        (0, true, Keeps::None),
        (1, false, Keeps::All),
        (1, true, Keeps::All),
        (2, false, Keeps::All),
        (2, true, Keeps::Sent),
    ] {
        assert_eq!(keeps(index, has_sent), expected, "partition {index}, sent: {has_sent}");
    }
}
