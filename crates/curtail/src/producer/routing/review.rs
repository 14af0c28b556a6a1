//! Which partitions of a topic keyless records may use, by the outlook of the brokers that they depend on.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use curtail_proto::{metadata::Snapshot, path::Trouble};

use super::{
    super::{
        lane::Lane, lanes::Lanes, memory::NOWHERE, partition::Partition, shared::Shared,
        topic::TopicState,
    },
    Passed, Purpose, Routes, avoids, next_past,
};

/// Trouble of the brokers that a partition's acknowledgements depend on: first the worst broker, then the leader,
/// which could receive no batch. The partitions with the best outlook are usable.
///
/// When one broker is unresponsive, leaders that wait for it become suspect, too. If both counted the same, batches
/// would move from the one to the other and become bound there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Outlook {
    worst: Trouble,
    leader: Trouble,
}

impl Outlook {
    const FINE: Self = Self { worst: Trouble::Fine, leader: Trouble::Fine };
    const LEADERLESS: Self = Self { worst: Trouble::Unreachable, leader: Trouble::Unreachable };

    fn needs_unreachable_replica(self) -> bool {
        self.worst == Trouble::Unreachable && self.leader != Trouble::Unreachable
    }
}

/// Work for the caller of [`review`].
#[derive(Default)]
#[must_use]
pub(in crate::producer) struct Reviewed {
    /// Partitions to pass to [`super::evacuate`].
    pub(in crate::producer) left: Vec<Arc<Partition>>,
    /// Partitions whose leader now waits for an unreachable replica, while others do not.
    pub(in crate::producer) stuck: Vec<Arc<Partition>>,
}

/// Determines the usable partitions of a topic. Callers serialize, and hold no lock except that of the lanes.
pub(in crate::producer) fn review(
    shared: &Shared,
    topic: &TopicState,
    snapshot: &Snapshot,
    lanes: &Lanes,
) -> Reviewed {
    let policy = &shared.routing.policy;
    let main_lane = |partition: &Arc<Partition>| {
        partition.state.lock().lane.as_ref().and_then(|lane| lane.main())
    };
    let main_lanes: Vec<Option<Arc<Lane>>> = topic.current().iter().map(main_lane).collect();
    let outlook = |index: usize| {
        let Some(lane) = &main_lanes[index] else { return Outlook::LEADERLESS };
        if !policy.around_trouble {
            return Outlook::FINE;
        }
        let leader = lanes.trouble(lane.broker);
        if !policy.needs_replicas {
            return Outlook { worst: leader, leader };
        }
        let isr = snapshot.in_sync(&topic.name, index as i32);
        let worst = isr.iter().map(|&replica| lanes.trouble(replica)).fold(leader, Trouble::max);
        Outlook { worst, leader }
    };
    let outlooks: Vec<Outlook> = (0..main_lanes.len()).map(outlook).collect();
    let best = outlooks.iter().min().copied().unwrap_or(Outlook::FINE);
    let mut by_lane: BTreeMap<i32, (Option<Arc<Lane>>, Vec<u32>)> = BTreeMap::new();
    let usable = |(index, _): &(usize, Option<Arc<Lane>>)| outlooks[*index] == best;
    for (index, lane) in main_lanes.into_iter().enumerate().filter(usable) {
        let broker = lane.as_ref().map_or(NOWHERE, |lane| lane.broker);
        by_lane.entry(broker).or_insert_with(|| (lane, Vec::new())).1.push(index as u32);
    }
    if let Some(rack) = &policy.rack {
        let near = |broker: &i32| {
            snapshot.node(*broker).and_then(|node| node.rack.as_ref()).is_some_and(|r| r == rack)
        };
        if by_lane.keys().any(near) {
            by_lane.retain(|broker, _| near(broker));
        }
    }
    let by_lane = by_lane.into_values();
    let former = topic.routes.load();
    let routes = Routes {
        by_lane: by_lane.map(|(lane, p)| former.carry_on(lane, p)).collect(),
        avoided: outlooks.iter().filter(|outlook| **outlook > best).count(),
    };
    topic.routes.store(Arc::new(routes));
    keep_to_routes(shared, topic);
    let mut reviewed = Reviewed::default();
    for partition in topic.vanished() {
        let mut state = partition.state.lock();
        state.set_avoided(true);
        if !state.queue.is_drained() {
            reviewed.left.push(partition.clone());
        }
    }
    for (partition, outlook) in topic.current().iter().zip(outlooks) {
        let mut state = partition.state.lock();
        let is_avoided = policy.around_trouble && outlook > best;
        state.set_avoided(is_avoided);
        let unproven = policy.prefers_proven && avoids(shared, topic, partition, &state);
        if (is_avoided || unproven) && !state.queue.is_drained() {
            reviewed.left.push(partition.clone());
        }
        let is_stuck = is_avoided && outlook.needs_unreachable_replica();
        if is_stuck && policy.separates && !state.mark_stuck() {
            reviewed.stuck.push(partition.clone());
        }
    }
    reviewed
}

/// Whether one of these partitions waits for an in-sync replica that `is_unreachable`, while another partition of the
/// same topics has the same leader and no such replica.
pub(in crate::producer) fn is_stuck(
    shared: &Shared,
    leader: i32,
    partitions: &[Arc<Partition>],
    is_unreachable: impl Fn(&i32) -> bool,
) -> bool {
    let snapshot = shared.metadata.snapshot();
    let waits =
        |topic: &str, index: i32| snapshot.in_sync(topic, index).iter().any(&is_unreachable);
    if !partitions.iter().any(|partition| waits(&partition.topic, partition.index)) {
        return false;
    }
    let topics = shared.topics.load();
    let names: BTreeSet<&Arc<str>> = partitions.iter().map(|partition| &partition.topic).collect();
    let mut others = names.into_iter().filter_map(|name| topics.get(name)).flat_map(|topic| {
        topic.partitions.iter().filter(|partition| partition.state.lock().leader.id == leader)
    });
    others.any(|partition| !waits(&partition.topic, partition.index))
}

/// Moves the choice if its partition is not usable, for example the first one, which is drawn from all partitions.
fn keep_to_routes(shared: &Shared, topic: &TopicState) {
    let current = topic.sticky.current();
    let routes = topic.routes.load();
    if !routes.by_lane.iter().any(|route| route.partitions.contains(&current)) {
        topic
            .sticky
            .leave(current, |_| next_past(shared, topic, Purpose::Waiting, &Passed::default()));
    }
}
