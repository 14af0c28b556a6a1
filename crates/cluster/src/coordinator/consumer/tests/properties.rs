//! Groups under arbitrary events of their members and coordinators. No partition ever has two
//! owners, and once all members send heartbeats every member has its part.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{
    super::*,
    bench::{Bench, SESSION, heartbeat, joining, topic_id},
};

/// A member's view of itself.
#[derive(Clone, Debug, Default)]
struct Client {
    epoch: i32,
    instance_id: Option<String>,
    wants: usize,
    /// Partitions it reads.
    owned: Partitions,
    /// Partitions it has been told to read.
    told: Partitions,
    /// Whether a response was lost. Its next heartbeat is then complete, and so is the response.
    unsure: bool,
}

/// An event of the member with a number.
#[derive(Clone, Debug)]
enum Event {
    Join {
        who: usize,
        is_static: bool,
        wants: usize,
        assignor: usize,
    },
    /// It revokes and takes over partitions as assigned, then sends a heartbeat.
    Obey(usize),
    Beat(usize),
    /// The response to its heartbeat is lost.
    BeatUnanswered(usize),
    Want {
        who: usize,
        wants: usize,
    },
    Leave(usize),
    LeaveForNow(usize),
    /// It sends no more heartbeats.
    Die(usize),
    Pass(u64),
    Grow(usize),
    MoveOn,
}

const WISHES: [&[&str]; 4] = [&["t"], &["t", "u"], &["u", "v"], &[]];

struct World {
    bench: Bench,
    clients: BTreeMap<usize, Client>,
    /// Counts joins, so that no member id is used twice.
    lives: usize,
    names: BTreeMap<usize, String>,
    sizes: BTreeMap<&'static str, usize>,
}

impl World {
    fn new() -> Self {
        let mut bench = Bench::new();
        let sizes = BTreeMap::from([("t", 5), ("u", 3), ("v", 1)]);
        sizes.iter().for_each(|(name, size)| bench.add_topic(name, *size));
        Self { bench, clients: BTreeMap::new(), lives: 0, names: BTreeMap::new(), sizes }
    }

    fn happens(&mut self, event: &Event) {
        match *event {
            Event::Join { who, is_static, wants, assignor } => {
                if self.clients.contains_key(&who) {
                    return;
                }
                self.lives += 1;
                let id = format!("m{who}-{}", self.lives);
                let instance_id = is_static.then(|| format!("i{who}"));
                let assignor = ["uniform", "range"][assignor].to_owned();
                let client =
                    Client { instance_id: instance_id.clone(), wants, ..Client::default() };
                let request = Heartbeat {
                    instance_id,
                    assignor: Some(assignor),
                    ..joining(&id, WISHES[wants])
                };
                self.names.insert(who, id);
                self.clients.insert(who, client);
                self.send(who, &request, true);
            }
            Event::Obey(who) => {
                if let Some(client) = self.clients.get_mut(&who) {
                    client.owned = client.told.clone();
                }
                self.beat(who, true);
            }
            Event::Beat(who) => self.beat(who, true),
            Event::BeatUnanswered(who) => self.beat(who, false),
            Event::Want { who, wants } => {
                let Some(client) = self.clients.get_mut(&who) else { return };
                client.wants = wants;
                let request = self.request(who);
                let topics = WISHES[wants].iter().map(|topic| (*topic).to_owned()).collect();
                self.send(who, &Heartbeat { topics: Some(topics), ..request }, true);
            }
            Event::Leave(who) => self.leave(who, LEFT),
            Event::LeaveForNow(who) => {
                let is_static = self.clients.get(&who).is_some_and(|c| c.instance_id.is_some());
                self.leave(who, if is_static { LEFT_FOR_NOW } else { LEFT });
            }
            // It may keep reading its partitions until its session expires. No other member may
            // have them before then.
            Event::Die(who) => {
                self.clients.remove(&who);
            }
            Event::Pass(seconds) => self.bench.pass(Duration::from_secs(seconds)),
            Event::Grow(topic) => {
                let name = ["t", "u", "v"][topic];
                let size = self.sizes.entry(name).or_default();
                *size += 1;
                self.bench.add_topic(name, *size);
            }
            Event::MoveOn => self.bench.move_on(),
        }
    }

    fn request(&self, who: usize) -> Heartbeat {
        let (client, id) = (&self.clients[&who], &self.names[&who]);
        let request = Heartbeat {
            epoch: client.epoch,
            instance_id: client.instance_id.clone(),
            owned: Some(client.owned.clone()),
            ..heartbeat(id)
        };
        if !client.unsure {
            return request;
        }
        let Heartbeat { topics, rebalance_timeout_ms, .. } = joining(id, WISHES[client.wants]);
        Heartbeat { topics, rebalance_timeout_ms, ..request }
    }

    fn beat(&mut self, who: usize, answered: bool) {
        if self.clients.contains_key(&who) {
            self.send(who, &self.request(who), answered);
        }
    }

    fn leave(&mut self, who: usize, epoch: i32) {
        if !self.clients.contains_key(&who) {
            return;
        }
        let request = Heartbeat { epoch, ..self.request(who) };
        // An unknown member cannot leave.
        let _ = self.bench.send(request);
        self.clients.remove(&who);
    }

    fn send(&mut self, who: usize, request: &Heartbeat, answered: bool) {
        let result = self.bench.send(request);
        let Some(client) = self.clients.get_mut(&who) else { return };
        match result {
            Ok(beat) if answered => {
                client.epoch = beat.epoch;
                client.unsure = false;
                if let Some(assignment) = beat.assignment {
                    client.told = assignment;
                }
            }
            Ok(_) => client.unsure = true,
            // It revokes everything and may rejoin.
            Err(_) => {
                self.clients.remove(&who);
            }
        }
    }

    /// Checks the owners of partitions among the living clients that the coordinator still regards
    /// as members.
    fn check(&self) {
        let mut readers: BTreeMap<(Uuid, i32), &str> = BTreeMap::new();
        for (who, client) in &self.clients {
            let id = &self.names[who];
            // A client whose session has expired does not know it yet; its next heartbeat is
            // fenced.
            if !self.bench.members().contains(id) {
                continue;
            }
            for (topic, partitions) in &client.owned {
                for partition in partitions {
                    let other = readers.insert((*topic, *partition), id);
                    assert_eq!(other, None, "{topic}-{partition} is with {id} as well");
                }
            }
        }
        let mut holders = BTreeSet::new();
        for (id, member) in self.bench.group.members() {
            for at in member.current.held() {
                assert!(holders.insert(at), "{at:?} is with {id} as well");
            }
        }
    }

    /// All members send heartbeats and follow their assignments.
    fn settles(&mut self) {
        // Members without heartbeats are removed first, while the others send theirs.
        let mut beat_for = |time: Duration| {
            let mut passed = Duration::ZERO;
            while passed < time {
                for who in self.clients.keys().copied().collect::<Vec<_>>() {
                    self.happens(&Event::Obey(who));
                    self.check();
                }
                self.bench.pass(Duration::from_secs(1));
                passed += Duration::from_secs(1);
            }
        };
        beat_for(SESSION + Duration::from_secs(20));
        if self.clients.is_empty() {
            assert_eq!(self.bench.group.state(), ConsumerState::Empty);
            return;
        }
        assert_eq!(self.bench.group.state(), ConsumerState::Stable);
        let mut wanted = BTreeSet::new();
        for client in self.clients.values() {
            for topic in WISHES[client.wants] {
                let size = i32::try_from(self.sizes[topic]).unwrap();
                wanted.extend((0..size).map(|partition| (topic_id(topic), partition)));
            }
        }
        let owned = self.clients.values().flat_map(|client| &client.owned);
        let owned = owned.flat_map(|(topic, of)| of.iter().map(|index| (*topic, *index)));
        assert_eq!(owned.collect::<BTreeSet<_>>(), wanted, "everything wanted is read");
    }
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let who = 0..4_usize;
    let event = prop_oneof![
        4 => (who.clone(), any::<bool>(), 0..WISHES.len(), 0..2_usize).prop_map(
            |(who, is_static, wants, assignor)| Event::Join { who, is_static, wants, assignor }
        ),
        8 => who.clone().prop_map(Event::Obey),
        4 => who.clone().prop_map(Event::Beat),
        2 => who.clone().prop_map(Event::BeatUnanswered),
        1 => (who.clone(), 0..WISHES.len()).prop_map(|(who, wants)| Event::Want { who, wants }),
        1 => who.clone().prop_map(Event::Leave),
        1 => who.clone().prop_map(Event::LeaveForNow),
        1 => who.prop_map(Event::Die),
        4 => (1..40_u64).prop_map(Event::Pass),
        1 => (0..3_usize).prop_map(Event::Grow),
        1 => Just(Event::MoveOn),
    ];
    prop::collection::vec(event, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_partition_has_two_owners_and_all_members_reach_the_target(events in events()) {
        let mut world = World::new();
        for event in &events {
            world.happens(event);
            world.check();
        }
        world.settles();
    }
}
