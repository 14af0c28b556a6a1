//! A group under test: its state machine, the time, the cluster's topics, and the group as loaded
//! from its records.

use std::collections::BTreeSet;

use super::super::*;
use crate::coordinator::{
    records::{self, Key, consumer_record, decode_change, decode_key},
    step::Machine as _,
    topics::bench::TestTopics,
};

pub(super) use crate::coordinator::topics::bench::topic_id;

pub(super) const SESSION: Duration = Duration::from_secs(45);

pub(super) struct Bench {
    pub(super) group: ConsumerGroup,
    /// The state of a coordinator that has loaded the group from the log.
    loaded: ConsumerGroup,
    pub(super) world: TestTopics,
    start: Instant,
    now: Instant,
}

pub(super) fn heartbeat(id: &str) -> Heartbeat {
    Heartbeat {
        member_id: id.into(),
        client_id: "client".into(),
        client_host: "/127.0.0.1".into(),
        ..Heartbeat::default()
    }
}

/// Returns a member's first heartbeat.
pub(super) fn joining(id: &str, topics: &[&str]) -> Heartbeat {
    Heartbeat {
        rebalance_timeout_ms: Some(30_000),
        topics: Some(topics.iter().map(|topic| (*topic).to_owned()).collect()),
        owned: Some(Partitions::new()),
        ..heartbeat(id)
    }
}

impl Bench {
    pub(super) fn new() -> Self {
        let world = TestTopics::new();
        let group = ConsumerGroup::new(Arc::new(world.config.consumer_groups()));
        let now = Instant::now();
        Self { loaded: group.clone(), group, world, start: now, now }
    }

    pub(super) fn with_topic(name: &str, partitions: usize) -> Self {
        let mut bench = Self::new();
        bench.add_topic(name, partitions);
        bench
    }

    /// Adds a topic, or adds partitions to an existing one.
    pub(super) fn add_topic(&mut self, name: &str, partitions: usize) {
        self.world.add(name, partitions);
    }

    pub(super) fn remove_topic(&mut self, name: &str) {
        self.world.remove(name);
    }

    pub(super) fn topics(&self) -> Topics<'_> {
        self.world.view()
    }

    pub(super) fn moment(&self) -> Moment {
        let passed = i64::try_from((self.now - self.start).as_millis()).unwrap();
        Moment { now: self.now, now_ms: 1_000_000 + passed }
    }

    /// Applies a step. Checks that its records decode to the same changes and lead another
    /// coordinator to the same group.
    pub(super) fn take(&mut self, group: ConsumerGroup, changes: &[Change]) {
        self.group = group;
        for change in changes {
            let record = consumer_record("g", change);
            let Ok(Some(Key::Consumer(id, part))) = decode_key(&record.key) else {
                panic!("{change:?} has no key")
            };
            let read = decode_change(part, record.value.as_deref()).unwrap().unwrap();
            assert_eq!((id.as_str(), &read), ("g", change));
            self.loaded.apply(read);
        }
        let state = |group: &ConsumerGroup| {
            let ConsumerGroup { epoch, assignment_epoch, metadata_hash, .. } = group;
            let members: Vec<_> =
                group.members().map(|(id, member)| (id.to_owned(), member.clone())).collect();
            let statics = group.statics.clone();
            let owners = group.owners.clone();
            let numbers = (*epoch, *assignment_epoch, *metadata_hash, group.assignment_timestamp);
            (numbers, members, group.targets.clone(), statics, owners, group.regexes.clone())
        };
        assert_eq!(state(&self.group), state(&self.loaded), "what is loaded is what was stored");
    }

    /// Moves the group to another coordinator.
    pub(super) fn move_on(&mut self) {
        self.group = self.loaded.clone();
        self.group.resume(self.now);
    }

    pub(super) fn send(
        &mut self,
        request: impl std::borrow::Borrow<Heartbeat>,
    ) -> Result<Beat, Refused> {
        let step = self.group.heartbeat(self.moment(), &self.topics(), request.borrow())?;
        self.take(step.group, &step.changes);
        Ok(step.answer)
    }

    pub(super) fn join(&mut self, id: &str, topics: &[&str]) -> Beat {
        self.send(joining(id, topics)).unwrap()
    }

    /// Sends a heartbeat without changes in the member's epoch.
    pub(super) fn beat(&mut self, id: &str) -> Result<Beat, Refused> {
        let request = Heartbeat { epoch: self.epoch_of(id), ..self.named(id) };
        self.send(request)
    }

    /// Like [`Bench::beat`], for a member that owns these partitions of the topic `t` and nothing
    /// else.
    pub(super) fn beat_owning(&mut self, id: &str, owned: &[i32]) -> Result<Beat, Refused> {
        let owned = Some(self.of("t", owned));
        let request = Heartbeat { epoch: self.epoch_of(id), owned, ..self.named(id) };
        self.send(request)
    }

    fn named(&self, id: &str) -> Heartbeat {
        let instance_id =
            self.group.members.get(id).and_then(|member| member.profile.instance_id.clone());
        Heartbeat { instance_id, ..heartbeat(id) }
    }

    /// Lets every member follow its assignment immediately until nothing changes.
    pub(super) fn settle(&mut self) {
        for _ in 0..20 {
            for id in self.members() {
                if self.epoch_of(&id) < 0 {
                    continue;
                }
                let owned = self.group.members.get(&id).map(|m| partitions(&m.current.assigned));
                let request = Heartbeat { epoch: self.epoch_of(&id), owned, ..self.named(&id) };
                self.send(request).unwrap();
            }
            if self.group.state() == ConsumerState::Stable {
                return;
            }
            self.pass(Duration::from_millis(300));
        }
        panic!("it does not settle: {:?}", self.group);
    }

    pub(super) fn resolve(&mut self, expressions: &BTreeSet<String>) {
        let resolved = resolve(expressions, &self.world.image, self.moment().now_ms);
        let step = self.group.resolved(&self.topics(), self.world.image.version, resolved);
        self.take(step.group, &step.changes);
    }

    /// Advances the time and handles everything as it becomes due.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.group.deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            let step = self.group.expire(self.now, &self.topics());
            self.take(step.group, &step.changes);
        }
        self.now = end;
    }

    pub(super) fn members(&self) -> Vec<String> {
        self.group.members.keys().cloned().collect()
    }

    pub(super) fn state_of(&self, id: &str) -> MemberState {
        self.group.members[id].current.state
    }

    pub(super) fn epoch_of(&self, id: &str) -> i32 {
        self.group.members.get(id).map_or(-1, |member| member.current.epoch)
    }

    /// Returns the partitions of `t` that a member may read.
    pub(super) fn claims(&self, id: &str) -> Vec<i32> {
        let assigned = partitions(&self.group.members[id].current.assigned);
        assigned.get(&topic_id("t")).into_iter().flatten().copied().collect()
    }

    pub(super) fn of(&self, topic: &str, partitions: &[i32]) -> Partitions {
        if partitions.is_empty() {
            return Partitions::new();
        }
        Partitions::from([(topic_id(topic), partitions.iter().copied().collect())])
    }
}

#[test]
fn truncated_records_are_refused() {
    let mut epochs = member::Epochs::new();
    epochs.entry(topic_id("t")).or_default().extend([(0, 3), (1, 4)]);
    let profile = Profile {
        instance_id: Some("i".into()),
        topics: ["t".to_owned()].into(),
        regex: "x.*".into(),
        ..Profile::default()
    };
    let current = Current { assigned: epochs.clone(), revoking: epochs, ..Current::default() };
    let target = Partitions::from([(topic_id("t"), [0, 1].into())]);
    let resolved = Resolved { topics: ["t".to_owned()].into(), version: 3, timestamp: 4 };
    let changes = [
        Change::Group(Some((3, 9))),
        Change::Member("m".into(), Some(profile)),
        Change::TargetEpoch(Some((3, 77))),
        Change::Target("m".into(), Some(target)),
        Change::Current("m".into(), Some(current)),
        Change::Regex("x.*".into(), Some(resolved)),
    ];
    for change in changes {
        let record = consumer_record("g", &change);
        for cut in 0..record.key.len() {
            assert!(!matches!(decode_key(&record.key[..cut]), Ok(Some(_))), "{change:?}");
        }
        let Ok(Some(Key::Consumer(_, part))) = decode_key(&record.key) else { panic!("no key") };
        let value = record.value.unwrap();
        for cut in 0..value.len() {
            assert!(decode_change(part.clone(), Some(&value[..cut])).is_err(), "{change:?} {cut}");
        }
        let deleted: Change = records::decode_change(part, None).unwrap().unwrap();
        assert!(deleted.is_deletion() && !change.is_deletion());
    }
}
