//! Several members and a simple coordinator of the consumer protocol, with events in any order and requests in flight
//! for any time. No two members that the coordinator counts read one partition. After the last event, one member
//! reads each partition.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{by_coordinator::settings_of, by_coordinator::topic_id, *};

const TOPICS: [(&str, i32); 2] = [("t", 5), ("u", 2)];

struct Player {
    machine: Machine,
    /// A heartbeat in flight.
    sent: Option<GroupHeartbeat>,
    doing: Option<Handover>,
    reads: BTreeSet<Key>,
}

/// A member as the coordinator knows it.
#[derive(Default)]
struct Known {
    epoch: i32,
    topics: BTreeSet<Arc<str>>,
    /// Partitions that it may read.
    given: BTreeSet<Key>,
    /// Partitions that it must still revoke.
    owed: BTreeSet<Key>,
    /// Partitions in its last response, so that they need not be repeated.
    told: Option<BTreeSet<Key>>,
}

struct World {
    now: Instant,
    players: Vec<Player>,
    known: BTreeMap<usize, Known>,
    epoch: i32,
    target: BTreeMap<usize, BTreeSet<Key>>,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The member's task takes one step.
    Step(usize),
    /// Its heartbeat arrives, and the response reaches the member.
    Arrive(usize),
    /// Its heartbeat arrives, and the response is lost.
    Lose(usize),
    /// Its heartbeat arrives and is refused, although the coordinator keeps its effect: Kafka's `CoordinatorRuntime`
    /// refuses a request whose append times out, and does not revert the append.
    Refuse(usize),
    /// Its heartbeat is lost.
    Drop(usize),
    /// The application begins a due handover, or finishes it.
    Poll(usize),
    Pass,
    /// The coordinator evicts the member.
    Expel(usize),
    Want(usize, bool),
    Leave(usize),
}

type Reply = Result<GroupReply, Trouble<&'static str>>;

fn lost() -> Reply {
    Err(Trouble::Lost("gone"))
}

fn by_id(keys: &BTreeSet<Key>) -> TopicIds {
    let mut ids = TopicIds::new();
    for (topic, index) in keys {
        ids.entry(topic_id(topic)).or_default().insert(*index);
    }
    ids
}

fn by_name(ids: &TopicIds) -> BTreeSet<Key> {
    let name = |id: &Uuid| TOPICS.iter().find(|(name, _)| topic_id(name) == *id).expect("one").0;
    ids.iter().flat_map(|(id, all)| all.iter().map(move |i| (name(id).into(), *i))).collect()
}

impl World {
    fn new(players: usize) -> Self {
        let now = Instant::now();
        let player = |who: usize| {
            let mut machine = Machine::new(settings_of(&format!("m{who}"), None), now);
            machine.subscribe(["t".into()].into(), now);
            Player { machine, sent: None, doing: None, reads: BTreeSet::new() }
        };
        Self {
            now,
            players: (0..players).map(player).collect(),
            known: BTreeMap::new(),
            epoch: 0,
            target: BTreeMap::new(),
        }
    }

    fn happen(&mut self, event: Event) {
        let (now, count) = (self.now, self.players.len());
        match event {
            Event::Step(who) => self.step(who % count),
            Event::Arrive(who) => self.arrive(who % count, |reply| reply),
            Event::Lose(who) => self.arrive(who % count, |_| lost()),
            Event::Refuse(who) => {
                self.arrive(who % count, |_| refused(ErrorCode::COORDINATOR_NOT_AVAILABLE));
            }
            Event::Drop(who) => {
                let player = &mut self.players[who % count];
                if player.sent.take().is_some() {
                    player.machine.group_beaten(lost(), now, 0.5);
                }
            }
            Event::Poll(who) => self.players[who % count].poll(now),
            Event::Pass => self.now += 5 * SECOND,
            Event::Expel(who) => self.forget(who % count),
            Event::Want(who, both) => {
                let topics = if both { vec!["t".into(), "u".into()] } else { vec!["t".into()] };
                self.players[who % count].machine.subscribe(topics.into_iter().collect(), now);
            }
            Event::Leave(who) => {
                let player = &mut self.players[who % count];
                // An application that leaves does nothing else.
                if player.doing.is_none() {
                    player.machine.leave(Departure::ByKind);
                    player.reads.clear();
                }
            }
        }
        self.check();
    }

    fn check(&self) {
        let mut readers: BTreeMap<&Key, usize> = BTreeMap::new();
        for (who, player) in self.players.iter().enumerate() {
            let counted = self.known.contains_key(&who) && player.machine.identity().is_some();
            // An application already reads the partitions that it has begun to take.
            let taking = match &player.doing {
                Some(Handover::Adopt { added, .. }) => added.as_slice(),
                _ => &[],
            };
            for key in player.reads.iter().chain(taking).filter(|_| counted) {
                assert_eq!(readers.insert(key, who), None, "{key:?} is with two, one is {who}");
            }
        }
    }

    fn step(&mut self, who: usize) {
        let now = self.now;
        let player = &mut self.players[who];
        if player.sent.is_some() {
            return;
        }
        match player.machine.next(now) {
            Step::Idle | Step::Wait(_) => {}
            Step::Find => player.machine.found(Ok(node(1)), now, 0.5),
            Step::Flush(_) => player.machine.flushed(),
            Step::Resolve(ids, _) => {
                let names = TOPICS.iter().map(|(name, _)| (topic_id(name), Arc::from(*name)));
                let asked: Vec<_> = names.filter(|(id, _)| ids.contains(id)).collect();
                player.machine.resolved(asked, now);
            }
            Step::GroupHeartbeat(_, heartbeat) => player.sent = Some(heartbeat),
            Step::Leave(_, identity) => {
                assert_eq!(identity.generation, -1);
                self.forget(who);
                self.players[who].machine.left();
            }
            step => panic!("{step:?}"),
        }
    }

    fn arrive(&mut self, who: usize, received: impl FnOnce(Reply) -> Reply) {
        let Some(heartbeat) = self.players[who].sent.take() else { return };
        let reply = received(self.answer(who, heartbeat));
        self.players[who].machine.group_beaten(reply, self.now, 0.5);
    }

    fn answer(&mut self, who: usize, heartbeat: GroupHeartbeat) -> Reply {
        let joins = heartbeat.epoch == 0;
        if joins {
            assert_eq!(heartbeat.owned, Some(TopicIds::new()));
            // A member that joins has lost what it owned before.
            self.known.insert(who, Known::default());
        }
        let Some(known) = self.known.get_mut(&who) else {
            return refused(ErrorCode::UNKNOWN_MEMBER_ID);
        };
        let owned = heartbeat.owned.as_ref().map(by_name);
        if heartbeat.epoch != known.epoch && !joins {
            // The response with the newer epoch was lost, if the member owns nothing that was revoked since. Kafka's
            // `GroupMetadataManager` accepts only the member's previous epoch. Here any earlier one will do: the
            // member must not read too much in any case.
            let owns = owned.as_ref().is_some_and(|owned| owned.is_subset(&known.given));
            if heartbeat.epoch > known.epoch || !owns {
                self.forget(who);
                return refused(ErrorCode::FENCED_MEMBER_EPOCH);
            }
            known.told = None;
        }
        // A member that reports all fields gets all fields.
        if heartbeat.rebalance_timeout.is_some() {
            known.told = None;
        }
        if let Some(topics) = heartbeat.topics {
            let topics: BTreeSet<Arc<str>> = topics.into_iter().collect();
            if known.topics != topics || joins {
                known.topics = topics;
                self.assign();
            }
        }
        self.reconcile(who, owned.as_ref());
        let known = self.known.get_mut(&who).expect("a member");
        let assignment = (known.told.as_ref() != Some(&known.given)).then(|| by_id(&known.given));
        known.told = Some(known.given.clone());
        Ok(GroupReply { epoch: known.epoch, interval: 5 * SECOND, assignment })
    }

    /// Sets a new target: each topic's partitions in turn to the members subscribed to it.
    fn assign(&mut self) {
        self.epoch += 1;
        self.target.clear();
        for (topic, count) in TOPICS {
            let name: Arc<str> = topic.into();
            let wanting: Vec<usize> = self
                .known
                .iter()
                .filter(|(_, known)| known.topics.contains(&name))
                .map(|(who, _)| *who)
                .collect();
            for index in (0..count).filter(|_| !wanting.is_empty()) {
                let to = wanting[(index + self.epoch) as usize % wanting.len()];
                self.target.entry(to).or_default().insert((name.clone(), index));
            }
        }
    }

    /// Assigns free partitions after the member has revoked those outside its target. As in Kafka's
    /// `CurrentAssignmentBuilder`, partitions that the heartbeat does not report as owned are free at once, even if the
    /// member was not told yet to revoke them.
    fn reconcile(&mut self, who: usize, owned: Option<&BTreeSet<Key>>) {
        let target = self.target.get(&who).cloned().unwrap_or_default();
        let taken: BTreeSet<Key> = self
            .known
            .iter()
            .filter(|(other, _)| **other != who)
            .flat_map(|(_, known)| known.given.iter().chain(&known.owed).cloned())
            .collect();
        let epoch = self.epoch;
        let Some(known) = self.known.get_mut(&who) else { return };
        let owns_any = |keys: &BTreeSet<Key>| owned.is_none_or(|owned| !owned.is_disjoint(keys));
        if !known.owed.is_empty() {
            if owns_any(&known.owed) {
                return;
            }
            known.owed.clear();
        }
        if known.epoch != epoch {
            let gone: BTreeSet<Key> = known.given.difference(&target).cloned().collect();
            known.given.retain(|key| target.contains(key));
            if !gone.is_empty() && owns_any(&gone) {
                known.owed = gone;
                return;
            }
            known.epoch = epoch;
        }
        known.given.extend(target.difference(&taken).cloned());
    }

    fn forget(&mut self, who: usize) {
        if self.known.remove(&who).is_some() {
            self.assign();
        }
    }

    /// Each partition has one reader after these events.
    fn happen_and_rest(&mut self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            self.happen(event);
        }
        for who in 0..self.players.len() {
            self.happen(Event::Want(who, who % 2 == 0));
        }
        self.come_to_rest();
        let mut read = BTreeMap::new();
        for (who, player) in self.players.iter().enumerate() {
            assert!(player.machine.is_settled(), "{who}: {:?}", player.machine);
            for key in &player.reads {
                assert_eq!(read.insert(key.clone(), who), None);
            }
        }
        assert_eq!(read.len(), 7);
    }

    /// Runs all members and the coordinator until no step is left.
    fn come_to_rest(&mut self) {
        for _ in 0..60 {
            for who in 0..self.players.len() {
                for _ in 0..4 {
                    self.happen(Event::Step(who));
                    self.happen(Event::Arrive(who));
                    self.happen(Event::Poll(who));
                    self.happen(Event::Poll(who));
                }
            }
            self.happen(Event::Pass);
        }
    }
}

impl Player {
    fn poll(&mut self, now: Instant) {
        self.machine.polled(now);
        let Some(done) = self.doing.take() else {
            self.doing = self.machine.handover();
            return;
        };
        match done {
            Handover::Revoke(keys) | Handover::Lose(keys) => {
                self.reads.retain(|key| !keys.contains(key));
            }
            Handover::Adopt { revoked, added } => {
                assert_eq!(revoked, []);
                self.reads.extend(added);
            }
        }
        self.machine.handed_over(now);
        assert_eq!(self.machine.owned(), &self.reads);
    }
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => (0..4usize).prop_map(Event::Step),
        10 => (0..4usize).prop_map(Event::Arrive),
        1 => (0..4usize).prop_map(Event::Lose),
        1 => (0..4usize).prop_map(Event::Refuse),
        1 => (0..4usize).prop_map(Event::Drop),
        8 => (0..4usize).prop_map(Event::Poll),
        3 => Just(Event::Pass),
        1 => (0..4usize).prop_map(Event::Expel),
        1 => (0..4usize, any::<bool>()).prop_map(|(who, both)| Event::Want(who, both)),
        1 => (0..4usize).prop_map(Event::Leave),
    ]
}

/// Two heartbeats in succession lose their responses. With the second, sent before the member takes its target, the
/// coordinator assigns partitions of that target to the other member.
#[test]
fn a_target_is_not_taken_after_lost_responses_until_the_coordinator_repeats_it() {
    use Event::{Arrive, Expel, Leave, Lose, Pass, Poll, Step, Want};
    let narrow = Want(2, false);
    let events = [
        Step(0),
        Step(0),
        Step(0),
        Step(0),
        Arrive(0),
        Step(1),
        Poll(0),
        Poll(2),
        Step(1),
        Leave(2),
        Step(0),
        Step(0),
        narrow,
        Step(2),
        Step(2),
        Step(0),
        Arrive(0),
        Poll(0),
        Expel(1),
        Step(0),
        Pass,
        Step(1),
        Arrive(1),
        Step(0),
        Lose(2),
        Pass,
        Step(0),
        Step(0),
        Step(0),
        Lose(2),
        Step(0),
        Step(0),
        Step(0),
        Step(0),
        Step(0),
    ];
    World::new(2).happen_and_rest(events);
}

proptest! {
    #[test]
    fn a_partition_is_never_read_by_two_and_at_last_by_one(
        players in 1..5usize,
        events in proptest::collection::vec(event(), 0..300),
    ) {
        World::new(players).happen_and_rest(events);
    }
}
