//! Operation sequences on the metadata snapshot: responses and hints that are stale, partial and absurd.

use std::sync::Arc;

use curtail_proto::metadata::{Hint, Leader, Node, Snapshot};
use curtail_wire::{
    ErrorCode, Uuid,
    metadata::{MetadataBroker, MetadataPartition, MetadataResponse, MetadataTopic, NO_OPERATIONS},
};

use crate::{Input, Target, memory};

pub(super) const TARGET: Target = Target { name: "metadata", run, seeds, cases: 10_000 };

/// Largest number of elections that a hint may be ahead of the known epoch.
const FARTHEST: i64 = 1000;

fn run(input: &[u8]) {
    let mut input = Input::new(input);
    let mut snapshot = Snapshot::default();
    while !input.is_empty() {
        snapshot = match input.below(4) {
            0 => hints(&snapshot, &mut input),
            1 => {
                let name = name(input.below(3));
                let next = snapshot.without(std::slice::from_ref(&name));
                assert!(next.topic(&name).is_none());
                next
            }
            _ => answer(&snapshot, &mut input),
        };
        for node in snapshot.nodes() {
            assert_eq!(snapshot.node(node.id), Some(node));
        }
    }
}

fn answer(before: &Snapshot, input: &mut Input<'_>) -> Snapshot {
    let response = response(input);
    let asked: Option<Vec<Arc<str>>> =
        input.flag().then(|| (0..input.below(3)).map(|_| name(input.below(3))).collect());
    let (after, changes) =
        memory::within("a metadata update", 1 << 20, || before.apply(&response, asked.as_deref()));
    for topic in (0..3).map(name) {
        let (was, is) = (before.topic(&topic), after.topic(&topic));
        if was != is {
            assert!(changes.topics.contains(&topic), "{topic}: a change that is not reported");
        }
        let is_asked = asked.as_ref().is_none_or(|asked| asked.contains(&topic));
        assert!(is_asked || was == is || changes.cluster, "{topic} changed and was not asked for");
        let (Some(was), Some(is)) = (was, is) else { continue };
        if changes.cluster || (was.id != is.id && was.id != Uuid::ZERO) {
            continue;
        }
        let is_known = was.id != Uuid::ZERO && was.id == is.id;
        assert!(
            !is_known || is.leaders.len() >= was.leaders.len(),
            "{topic}: partitions went away"
        );
        for (index, (old, new)) in was.leaders.iter().zip(&is.leaders).enumerate() {
            assert!(new.epoch >= old.epoch, "{topic}-{index}: an epoch went back");
        }
    }
    check_lookups(&after);
    after
}

fn hints(before: &Snapshot, input: &mut Input<'_>) -> Snapshot {
    let hints: Vec<Hint> = (0..1 + input.below(3))
        .map(|_| Hint {
            topic: name(input.below(4)),
            partition: input.number_i32() % 5,
            leader: Leader { id: input.below(5) as i32 - 1, epoch: input.number_i32() },
        })
        .collect();
    let node = |id| Node { id, host: "named".into(), port: 1, rack: None };
    let endpoints: Vec<Node> = (0..input.below(3)).map(|_| node(input.below(6) as i32)).collect();
    let (after, taken) = before.apply_hints(&hints, &endpoints);
    assert!(taken.iter().all(|hint| hints.contains(hint)), "takes what was hinted");
    for topic in before.topic_names() {
        for (index, old) in (0..).map(|i| (i, before.leader(topic, i))).take(5) {
            let new = after.leader(topic, index);
            let of_this = |hint: &&Hint| hint.topic == *topic && hint.partition == index;
            let count = taken.iter().filter(of_this).count() as i64;
            let advance = i64::from(new.epoch) - i64::from(old.epoch);
            assert!(
                (count..=FARTHEST * count).contains(&advance),
                "{topic}-{index}: {old:?} {new:?}"
            );
            assert!(count > 0 || old == new);
        }
    }
    for node in before.nodes() {
        assert_eq!(after.node(node.id), Some(node), "a hint replaced an address");
    }
    check_lookups(&after);
    after
}

fn check_lookups(snapshot: &Snapshot) {
    for topic in snapshot.topic_names() {
        for partition in [-1, 0, 3, i32::MAX, i32::MIN] {
            let leader = snapshot.leader(topic, partition);
            let exists = usize::try_from(partition)
                .is_ok_and(|p| snapshot.topic(topic).is_some_and(|topic| p < topic.leaders.len()));
            assert!(exists || leader == Leader::NONE);
            assert!(exists || snapshot.in_sync(topic, partition).is_empty());
        }
    }
}

fn name(topic: usize) -> Arc<str> {
    format!("t{topic}").into()
}

fn response(input: &mut Input<'_>) -> MetadataResponse {
    let broker = |input: &mut Input<'_>| MetadataBroker {
        node_id: input.below(4) as i32,
        host: format!("h{}", input.below(2)),
        port: input.number_i32(),
        rack: None,
    };
    let brokers = (0..input.below(4)).map(|_| broker(input)).collect();
    let cluster_id = [None, Some("a"), Some("a"), Some("b")][input.below(4)].map(str::to_owned);
    let topics = (0..input.below(4)).map(|_| topic(input)).collect();
    MetadataResponse { brokers, cluster_id, topics, ..MetadataResponse::default() }
}

fn topic(input: &mut Input<'_>) -> MetadataTopic {
    let error = ErrorCode([0, 0, 0, 0, 3, 5, -1, 29][input.below(8)]);
    let name = (input.below(8) > 0).then(|| name(input.below(3)).to_string());
    let topic_id = Uuid([input.below(3) as u8; 16]);
    let partitions = (0..input.below(5)).map(|index| partition(index, input)).collect();
    MetadataTopic {
        error,
        name,
        topic_id,
        is_internal: false,
        partitions,
        authorized_operations: NO_OPERATIONS,
    }
}

fn partition(index: usize, input: &mut Input<'_>) -> MetadataPartition {
    let ids = |input: &mut Input<'_>| (0..input.below(4)).map(|_| input.number_i32()).collect();
    MetadataPartition {
        error: ErrorCode([0, 0, 5, 9][input.below(4)]),
        index: if input.below(8) == 0 { input.number_i32() } else { index as i32 },
        leader_id: input.below(5) as i32 - 1,
        leader_epoch: input.number_i32(),
        replicas: ids(input),
        isr: ids(input),
        offline_replicas: Vec::new(),
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let partition = |leader: u8, epoch: u8| [0, 1, leader, epoch, 2, 1, 2, 1, 1];
    let topic =
        |epoch: u8| [&[0, 1, 0, 1, 2][..], &partition(2, epoch), &partition(1, epoch)].concat();
    let answer = |epoch: u8| [&[2, 2, 1, 0, 9, 2, 0, 9, 1, 1][..], &topic(epoch), &[0]].concat();
    vec![
        [answer(5), answer(3), answer(7)].concat(),
        [answer(5), vec![0, 1, 0, 1, 2, 6, 0, 0, 1, 3, 9, 1, 2], answer(5)].concat(),
        [answer(1), vec![1, 0], answer(1)].concat(),
    ]
}
