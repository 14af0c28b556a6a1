//! A group under test: its state machine, the time, the cluster's topics, and the group as loaded from its
//! records.

use curtail_wire::cold::newer::streams::{CopartitionGroup, Subtopology, TopicInfo};

use super::super::*;
use crate::coordinator::{
    records::{Key, decode_key, decode_streams_change, streams_record},
    step::Machine as _,
    topics::bench::TestTopics,
};

pub(super) const SESSION: Duration = Duration::from_secs(45);
/// The delay of the first assignment.
pub(super) const DELAY: Duration = Duration::from_secs(3);

pub(super) struct Bench {
    pub(super) group: StreamsGroup,
    /// The state of a coordinator that has loaded the group from the log.
    loaded: StreamsGroup,
    pub(super) world: TestTopics,
    is_stored: bool,
    start: Instant,
    now: Instant,
}

pub(super) fn internal(name: &str, partitions: i32) -> TopicInfo {
    TopicInfo { name: name.into(), partitions, ..TopicInfo::default() }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A word count: the first subtopology writes words to a repartition topic, the second counts them in a store.
pub(super) fn word_count() -> Topology {
    let split = Subtopology {
        subtopology_id: "0".into(),
        source_topics: names(&["lines"]),
        repartition_sink_topics: names(&["words"]),
        ..Subtopology::default()
    };
    let count = Subtopology {
        subtopology_id: "1".into(),
        repartition_source_topics: vec![internal("words", 0)],
        state_changelog_topics: vec![internal("counts", 0)],
        ..Subtopology::default()
    };
    Topology { epoch: 0, subtopologies: vec![split, count] }
}

/// A join of two topics with the same keys.
pub(super) fn join_of(topics: &[&str]) -> Topology {
    let indexes = (0..topics.len()).map(|index| i16::try_from(index).unwrap()).collect();
    let group = CopartitionGroup { source_topics: indexes, ..CopartitionGroup::default() };
    let join = Subtopology {
        subtopology_id: "0".into(),
        source_topics: names(topics),
        copartition_groups: vec![group],
        ..Subtopology::default()
    };
    Topology { epoch: 0, subtopologies: vec![join] }
}

pub(super) fn heartbeat(id: &str) -> Heartbeat {
    Heartbeat {
        member_id: id.into(),
        client_id: "client".into(),
        client_host: "/127.0.0.1".into(),
        ..Heartbeat::default()
    }
}

/// Returns a member's first heartbeat. The letters of its id name its process.
pub(super) fn joining(id: &str, topology: &Topology) -> Heartbeat {
    Heartbeat {
        rebalance_timeout_ms: Some(30_000),
        topology: Some(topology.clone()),
        owned: Some(Roles::default()),
        process_id: Some(id.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned()),
        ..heartbeat(id)
    }
}

impl Bench {
    pub(super) fn new() -> Self {
        let world = TestTopics::new();
        let group = StreamsGroup::new(Arc::new(world.config.streams_groups()));
        let now = Instant::now();
        Self { loaded: group.clone(), group, world, is_stored: false, start: now, now }
    }

    /// Returns a bench with the topics of [`word_count`], all with this number of partitions.
    pub(super) fn counting(partitions: usize) -> Self {
        let mut bench = Self::new();
        ["lines", "words", "counts"].iter().for_each(|topic| bench.world.add(topic, partitions));
        bench
    }

    pub(super) fn set(&mut self, change: impl FnOnce(&mut Settings)) {
        let mut settings = (*self.group.settings).clone();
        change(&mut settings);
        self.group.configure(&Arc::new(settings));
    }

    pub(super) fn moment(&self) -> Moment {
        let passed = i64::try_from((self.now - self.start).as_millis()).unwrap();
        Moment { now: self.now, now_ms: 1_000_000 + passed }
    }

    /// Applies a step. Checks that its records decode to the same changes and lead another coordinator to the same
    /// group.
    pub(super) fn take(&mut self, group: StreamsGroup, changes: &[Change]) {
        self.group = group;
        for change in changes {
            let record = streams_record("g", change);
            let Ok(Some(Key::Streams(id, part))) = decode_key(&record.key) else {
                panic!("{change:?} has no key")
            };
            let read = decode_streams_change(part, record.value.as_deref()).unwrap().unwrap();
            assert_eq!((id.as_str(), &read), ("g", change));
            self.loaded.apply(read);
        }
        let state = |group: &StreamsGroup| {
            let members: Vec<_> =
                group.members().map(|(id, member)| (id.to_owned(), member.clone())).collect();
            let numbers = (group.assignment_epoch, group.assignment_timestamp);
            let targets = group.targets.clone();
            let held = (group.owners.clone(), group.copies.clone());
            (group.value.clone(), numbers, group.topology.clone(), members, targets, held)
        };
        assert_eq!(state(&self.group), state(&self.loaded), "what is loaded is what was stored");
    }

    /// Moves the group to another coordinator.
    pub(super) fn move_on(&mut self) {
        let settings = Arc::clone(&self.group.settings);
        self.group = self.loaded.clone();
        self.group.configure(&settings);
        self.group.resume(self.now);
    }

    pub(super) fn send(
        &mut self,
        request: impl std::borrow::Borrow<Heartbeat>,
    ) -> Result<Beat, Refused> {
        let step = self.group.heartbeat(
            self.moment(),
            &self.world.view(),
            request.borrow(),
            !self.is_stored,
        )?;
        self.is_stored = true;
        self.take(step.group, &step.changes);
        Ok(step.answer)
    }

    pub(super) fn join(&mut self, id: &str) -> Beat {
        self.send(joining(id, &word_count())).unwrap()
    }

    /// Sends a heartbeat of a member that owns what it was assigned.
    pub(super) fn beat(&mut self, id: &str) -> Beat {
        let current = &self.group.members[id].current;
        let (epoch, owned) = (current.epoch, Some(current.assigned.roles()));
        self.send(Heartbeat { epoch, owned, ..heartbeat(id) }).unwrap()
    }

    /// Lets all members send heartbeats until the group is stable.
    pub(super) fn settle(&mut self) {
        for _ in 0..20 {
            for id in self.members() {
                self.beat(&id);
            }
            if self.group.state() == StreamsState::Stable {
                return;
            }
            self.pass(Duration::from_millis(300));
        }
        panic!("it does not settle: {:?}", self.group);
    }

    /// Advances the time and handles everything as it becomes due.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.group.deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            let step = self.group.expire(self.moment());
            self.take(step.group, &step.changes);
        }
        self.now = end;
    }

    pub(super) fn members(&self) -> Vec<String> {
        self.group.members.keys().cloned().collect()
    }

    pub(super) fn current(&self, id: &str) -> &Current {
        &self.group.members[id].current
    }

    /// Returns a member's tasks, as in `0[0 1]1[0] standby 1[1]`.
    pub(super) fn tasks(&self, id: &str) -> String {
        let roles = self.current(id).assigned.roles();
        match roles.standby.is_empty() {
            true => shown(&roles.active),
            false => format!("{} standby {}", shown(&roles.active), shown(&roles.standby)),
        }
    }
}

pub(super) fn shown(tasks: &Tasks) -> String {
    let one = |(id, of): (&String, &BTreeSet<i32>)| {
        let of: Vec<String> = of.iter().map(i32::to_string).collect();
        format!("{id}[{}]", of.join(" "))
    };
    tasks.iter().map(one).collect()
}
