//! Several members and a simple coordinator, with events in any order. No two members that the coordinator counts own
//! one partition. After the last event, one member owns each partition.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Preparing,
    Completing,
    Stable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    Nothing,
    Join,
    Sync,
}

struct Player {
    machine: Machine,
    waiting: Waiting,
    /// The id under which it last joined.
    asked: Arc<str>,
    /// The application's handover in progress.
    doing: Option<Handover>,
    /// Partitions that the application reads.
    reads: BTreeSet<Key>,
}

impl Player {
    fn new(assignor: Assignor, now: Instant) -> Self {
        let mut machine = Machine::new(settings(&[assignor]), now);
        machine.subscribe(["t".into()].into(), now);
        Self {
            machine,
            waiting: Waiting::Nothing,
            asked: Arc::default(),
            doing: None,
            reads: BTreeSet::new(),
        }
    }

    /// The application polls: it begins a due handover, or finishes it.
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
                self.reads.retain(|key| !revoked.contains(key));
                self.reads.extend(added);
            }
        }
        self.machine.handed_over(now);
        assert_eq!(self.machine.owned(), &self.reads);
    }
}

/// A member as the coordinator knows it.
struct Known {
    player: usize,
    metadata: Bytes,
    joined: bool,
}

struct World {
    now: Instant,
    assignor: Assignor,
    players: Vec<Player>,
    state: State,
    generation: i32,
    known: BTreeMap<Arc<str>, Known>,
    leader: Arc<str>,
    assignments: BTreeMap<Arc<str>, Bytes>,
    ids: u32,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The member's task takes one step.
    Step(usize),
    /// The application polls.
    Poll(usize),
    /// A heartbeat is due.
    Beat,
    /// The coordinator evicts the member.
    Expel(usize),
    /// It subscribes to one topic, or to both.
    Want(usize, bool),
    Leave(usize),
}

fn topics() -> Topics {
    [("t".into(), 5.into()), ("u".into(), 2.into())].into()
}

impl World {
    fn new(players: usize, assignor: Assignor) -> Self {
        let now = Instant::now();
        Self {
            now,
            assignor,
            players: (0..players).map(|_| Player::new(assignor, now)).collect(),
            state: State::Stable,
            generation: 0,
            known: BTreeMap::new(),
            leader: "".into(),
            assignments: BTreeMap::new(),
            ids: 0,
        }
    }

    fn happen(&mut self, event: Event) {
        let count = self.players.len();
        match event {
            Event::Step(who) => self.step(who % count),
            Event::Poll(who) => self.players[who % count].poll(self.now),
            Event::Beat => self.now += 3 * SECOND,
            Event::Expel(who) => self.remove(who % count),
            Event::Want(who, both) => {
                let topics = if both { vec!["t".into(), "u".into()] } else { vec!["t".into()] };
                let player = &mut self.players[who % count];
                player.machine.subscribe(topics.into_iter().collect(), self.now);
            }
            Event::Leave(who) => {
                let player = &mut self.players[who % count];
                // An application that leaves does nothing else.
                if player.doing.is_none() {
                    player.machine.leave(Departure::ByKind);
                    player.reads.clear();
                    player.waiting = Waiting::Nothing;
                }
            }
        }
        self.check();
    }

    fn check(&self) {
        let mut owners: BTreeMap<&Key, usize> = BTreeMap::new();
        for (who, player) in self.players.iter().enumerate() {
            let counted = player.machine.identity().is_some_and(|identity| {
                self.known.get(&identity.member).is_some_and(|known| known.player == who)
            });
            for key in player.reads.iter().filter(|_| counted) {
                assert_eq!(owners.insert(key, who), None, "{key:?} is with two, one is {who}");
            }
        }
    }

    fn step(&mut self, who: usize) {
        let now = self.now;
        let player = &mut self.players[who];
        if player.waiting != Waiting::Nothing {
            return;
        }
        match player.machine.next(now) {
            Step::Idle | Step::Wait(_) => {}
            Step::Find => player.machine.found(Ok(node(1)), now, 0.5),
            Step::Flush(_) => player.machine.flushed(),
            Step::Join(_, join) => self.join(who, &join),
            Step::Assign(assignor, members) => {
                player.machine.assigned(&assignor.assign(&topics(), &members), topics());
            }
            Step::Sync(_, sync) => self.sync(who, sync),
            Step::Heartbeat(_, identity) => {
                let reply = match self.refusal(&identity) {
                    None if self.state == State::Preparing => {
                        refused(ErrorCode::REBALANCE_IN_PROGRESS)
                    }
                    None => Ok(()),
                    Some(code) => refused(code),
                };
                self.players[who].machine.beaten(reply, now, 0.5);
            }
            step @ (Step::GroupHeartbeat(..) | Step::Resolve(..)) => panic!("{step:?}"),
            Step::Leave(_, identity) => {
                if self.known.remove(&identity.member).is_some() {
                    self.prepare();
                }
                self.players[who].machine.left();
            }
        }
    }

    fn refusal(&self, identity: &Identity) -> Option<ErrorCode> {
        if !self.known.contains_key(&identity.member) {
            return Some(ErrorCode::UNKNOWN_MEMBER_ID);
        }
        (identity.generation != self.generation).then_some(ErrorCode::ILLEGAL_GENERATION)
    }

    fn join(&mut self, who: usize, join: &Join) {
        let id: Arc<str> = if join.member.is_empty() {
            self.ids += 1;
            format!("m{}", self.ids).into()
        } else if self.known.contains_key(&join.member) {
            join.member.clone()
        } else {
            let now = self.now;
            let code = ErrorCode::UNKNOWN_MEMBER_ID;
            return self.players[who].machine.joined(refused(code), now, 0.5);
        };
        // A member that left before it received its id is still known, and is evicted later.
        let metadata = join.protocols[0].1.clone();
        self.known.insert(id.clone(), Known { player: who, metadata, joined: true });
        self.players[who].waiting = Waiting::Join;
        self.players[who].asked = id.clone();
        if self.state != State::Preparing {
            self.prepare();
            if let Some(known) = self.known.get_mut(&id) {
                known.joined = true;
            }
        }
        self.complete();
    }

    /// Begins a rebalance: all members have to join.
    fn prepare(&mut self) {
        if self.state != State::Preparing {
            self.state = State::Preparing;
            for known in self.known.values_mut() {
                known.joined = false;
            }
            for player in &mut self.players {
                if player.waiting == Waiting::Sync {
                    player.waiting = Waiting::Nothing;
                    let code = ErrorCode::REBALANCE_IN_PROGRESS;
                    player.machine.synced(refused(code), self.now, 0.5);
                }
            }
        }
        self.complete();
    }

    fn complete(&mut self) {
        let ready = !self.known.is_empty() && self.known.values().all(|known| known.joined);
        if self.state != State::Preparing || !ready {
            return;
        }
        self.generation += 1;
        self.state = State::Completing;
        self.assignments.clear();
        self.leader = self.known.keys().next().cloned().unwrap_or_default();
        let all = self.known.iter().map(|(id, known)| (id.clone(), None, known.metadata.clone()));
        let all: Vec<_> = all.collect();
        for (id, known) in &self.known {
            let player = &mut self.players[known.player];
            if player.waiting != Waiting::Join || player.asked != *id {
                continue;
            }
            player.waiting = Waiting::Nothing;
            let reply = JoinReply {
                generation: self.generation,
                member: id.clone(),
                protocol: self.assignor.name().to_owned(),
                leader: self.leader.clone(),
                skip_assignment: false,
                members: if *id == self.leader { all.clone() } else { Vec::new() },
            };
            player.machine.joined(Ok(reply), self.now, 0.5);
        }
    }

    fn sync(&mut self, who: usize, sync: Sync) {
        let now = self.now;
        let code = match self.refusal(&sync.identity) {
            None if self.state == State::Preparing => Some(ErrorCode::REBALANCE_IN_PROGRESS),
            refusal => refusal,
        };
        if let Some(code) = code {
            return self.players[who].machine.synced(refused(code), now, 0.5);
        }
        self.players[who].waiting = Waiting::Sync;
        if sync.identity.member == self.leader && self.state == State::Completing {
            self.assignments = sync.assignments.into_iter().collect();
            self.state = State::Stable;
        }
        if self.state == State::Stable {
            for (id, known) in &self.known {
                let player = &mut self.players[known.player];
                let of_player = player.machine.identity().is_some_and(|i| i.member == *id);
                if of_player && player.waiting == Waiting::Sync {
                    player.waiting = Waiting::Nothing;
                    let assignment = self.assignments.get(id).cloned().unwrap_or_default();
                    player.machine.synced(Ok(assignment), now, 0.5);
                }
            }
        }
    }

    /// Evicts all members of this player.
    fn remove(&mut self, who: usize) {
        let before = self.known.len();
        self.known.retain(|_, known| known.player != who);
        if self.known.len() == before {
            return;
        }
        let player = &mut self.players[who];
        let code = ErrorCode::UNKNOWN_MEMBER_ID;
        match std::mem::replace(&mut player.waiting, Waiting::Nothing) {
            Waiting::Nothing => {}
            Waiting::Join => player.machine.joined(refused(code), self.now, 0.5),
            Waiting::Sync => player.machine.synced(refused(code), self.now, 0.5),
        }
        self.prepare();
    }

    /// Evicts members that no player knows: they would never send a request.
    fn forget_strangers(&mut self) {
        let players = &self.players;
        let before = self.known.len();
        self.known.retain(|id, known| {
            let player = &players[known.player];
            (player.waiting == Waiting::Join && player.asked == *id)
                || player.machine.identity().is_some_and(|identity| identity.member == *id)
        });
        if self.known.len() < before {
            self.prepare();
        }
    }

    /// Runs all members and the coordinator until no step is left.
    fn come_to_rest(&mut self) {
        for _ in 0..60 {
            for who in 0..self.players.len() {
                for _ in 0..4 {
                    self.happen(Event::Step(who));
                    self.happen(Event::Poll(who));
                }
            }
            self.forget_strangers();
            self.happen(Event::Beat);
        }
    }
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => (0..4usize).prop_map(Event::Step),
        6 => (0..4usize).prop_map(Event::Poll),
        3 => Just(Event::Beat),
        1 => (0..4usize).prop_map(Event::Expel),
        1 => (0..4usize, any::<bool>()).prop_map(|(who, both)| Event::Want(who, both)),
        1 => (0..4usize).prop_map(Event::Leave),
    ]
}

proptest! {
    #[test]
    fn a_partition_is_never_with_two_and_at_last_with_one(
        players in 1..5usize,
        assignor in proptest::sample::select(&Assignor::ALL[..]),
        events in proptest::collection::vec(event(), 0..250),
    ) {
        let mut world = World::new(players, assignor);
        for event in events {
            world.happen(event);
        }
        for who in 0..players {
            world.happen(Event::Want(who, who % 2 == 0));
        }
        world.come_to_rest();
        let mut owned = BTreeMap::new();
        for (who, player) in world.players.iter().enumerate() {
            prop_assert!(player.machine.is_settled(), "{who}: {:?}", player.machine);
            for key in &player.reads {
                prop_assert_eq!(owned.insert(key.clone(), who), None);
            }
        }
        prop_assert_eq!(owned.len(), 7);
    }
}
