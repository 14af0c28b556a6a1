//! Groups under arbitrary events of their members and coordinators. No active task ever has two owners, no process
//! has a task twice, and once all members send heartbeats every task runs.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{
    super::*,
    bench::{Bench, SESSION, heartbeat, joining, word_count},
};

/// A member's view of itself.
#[derive(Clone, Debug, Default)]
struct Client {
    epoch: i32,
    /// Tasks it runs.
    owned: Roles,
    /// Tasks it has been told to run.
    told: Roles,
}

/// An event of the member with a number.
#[derive(Clone, Debug)]
enum Event {
    Join(usize),
    /// It revokes and takes over tasks as assigned, then sends a heartbeat.
    Obey(usize),
    Beat(usize),
    Leave(usize),
    /// It sends no more heartbeats.
    Die(usize),
    Pass(u64),
    Standbys(u32),
    Grow,
    MoveOn,
}

struct World {
    bench: Bench,
    clients: BTreeMap<usize, Client>,
    names: BTreeMap<usize, String>,
    /// Counts joins, so that no member id is used twice.
    lives: usize,
    partitions: usize,
}

impl World {
    fn new() -> Self {
        let (bench, partitions) = (Bench::counting(3), 3);
        Self { bench, clients: BTreeMap::new(), names: BTreeMap::new(), lives: 0, partitions }
    }

    fn happens(&mut self, event: &Event) {
        match *event {
            Event::Join(who) => {
                if self.clients.contains_key(&who) {
                    return;
                }
                self.lives += 1;
                // Two members for each process.
                let process = ["a", "b"][who / 2 % 2];
                let id = format!("{process}{who}{}", self.lives);
                self.clients.insert(who, Client::default());
                self.names.insert(who, id.clone());
                self.send(who, &joining(&id, &word_count()));
            }
            Event::Obey(who) => {
                if let Some(client) = self.clients.get_mut(&who) {
                    client.owned = client.told.clone();
                }
                self.beat(who);
            }
            Event::Beat(who) => self.beat(who),
            Event::Leave(who) => {
                if let Some(client) = self.clients.remove(&who) {
                    let id = &self.names[&who];
                    let request = Heartbeat { epoch: -1, ..heartbeat(id) };
                    drop(client);
                    // An unknown member cannot leave.
                    let _ = self.bench.send(request);
                }
            }
            Event::Die(who) => drop(self.clients.remove(&who)),
            Event::Pass(seconds) => self.bench.pass(Duration::from_secs(seconds)),
            Event::Standbys(count) => self.bench.set(|settings| settings.standbys = count),
            Event::Grow => {
                self.partitions += 1;
                let partitions = self.partitions;
                let topics = ["lines", "words", "counts"];
                topics.iter().for_each(|topic| self.bench.world.add(topic, partitions));
            }
            Event::MoveOn => self.bench.move_on(),
        }
    }

    fn beat(&mut self, who: usize) {
        let Some(client) = self.clients.get(&who) else { return };
        let owned = Some(client.owned.clone());
        let request = Heartbeat { epoch: client.epoch, owned, ..heartbeat(&self.names[&who]) };
        self.send(who, &request);
    }

    fn send(&mut self, who: usize, request: &Heartbeat) {
        let result = self.bench.send(request);
        let Some(client) = self.clients.get_mut(&who) else { return };
        match result {
            Ok(beat) => {
                client.epoch = beat.epoch;
                if let Some(assignment) = beat.assignment {
                    client.told = assignment;
                }
            }
            // It gives up all tasks and may rejoin.
            Err(_) => drop(self.clients.remove(&who)),
        }
    }

    /// Checks the owners of tasks among the living clients that the coordinator still regards as members, and
    /// what the coordinator believes.
    fn check(&self) {
        let members = self.bench.members();
        let owned = self.clients.iter().filter(|(who, _)| members.contains(&self.names[who]));
        check_roles(owned.map(|(who, client)| (self.names[who].as_str(), client.owned.clone())));
        check_roles(self.bench.group.members().map(|(id, member)| {
            let mut roles = member.current.assigned.roles();
            let revoking = member.current.revoking.roles();
            for (id, tasks) in revoking.active {
                roles.active.entry(id).or_default().extend(tasks);
            }
            for (id, tasks) in revoking.standby {
                roles.standby.entry(id).or_default().extend(tasks);
            }
            (id, roles)
        }));
    }

    /// All members send heartbeats and follow their assignments.
    fn settles(&mut self) {
        for _ in 0..SESSION.as_secs() + 30 {
            for who in self.clients.keys().copied().collect::<Vec<_>>() {
                self.happens(&Event::Obey(who));
                self.check();
            }
            self.bench.pass(Duration::from_secs(1));
        }
        let state = self.bench.group.state();
        if self.clients.is_empty() {
            assert_eq!(state, StreamsState::Empty);
            return;
        }
        assert_eq!(state, StreamsState::Stable, "{:?}", self.bench.group);
        let running: BTreeSet<(String, i32)> = self
            .clients
            .values()
            .flat_map(|client| &client.owned.active)
            .flat_map(|(id, of)| of.iter().map(|at| (id.clone(), *at)))
            .collect();
        assert_eq!(running.len(), 2 * self.partitions, "every task runs");
    }
}

fn check_roles<'a>(members: impl Iterator<Item = (&'a str, Roles)>) {
    let (mut active, mut processes) = (BTreeMap::new(), BTreeMap::new());
    for (id, roles) in members {
        for (of, is_active) in [(&roles.active, true), (&roles.standby, false)] {
            for (task, partitions) in of {
                for at in partitions {
                    let task = (task.clone(), *at);
                    let process = &id[..1];
                    if is_active && let Some(other) = active.insert(task.clone(), id) {
                        panic!("{task:?} is with {other} and {id}");
                    }
                    if let Some(other) = processes.insert((task.clone(), process), id) {
                        panic!("{task:?} is twice in {process}, with {other} and {id}");
                    }
                }
            }
        }
    }
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let who = 0..4_usize;
    let event = prop_oneof![
        4 => who.clone().prop_map(Event::Join),
        8 => who.clone().prop_map(Event::Obey),
        4 => who.clone().prop_map(Event::Beat),
        1 => who.clone().prop_map(Event::Leave),
        1 => who.prop_map(Event::Die),
        4 => (1..40_u64).prop_map(Event::Pass),
        1 => (0..3_u32).prop_map(Event::Standbys),
        1 => Just(Event::Grow),
        1 => Just(Event::MoveOn),
    ];
    prop::collection::vec(event, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_task_has_two_owners_and_all_members_reach_the_target(events in events()) {
        let mut world = World::new();
        for event in &events {
            world.happens(event);
            world.check();
        }
        world.settles();
    }
}
