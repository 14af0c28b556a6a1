use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);

fn policy() -> RefreshPolicy {
    RefreshPolicy {
        max_age: 10_000 * MS,
        max_idle: Some(15_000 * MS),
        backoff: Backoff { initial: 100 * MS, max: 1000 * MS },
        group_topics: 3,
        group_partitions: 100,
    }
}

/// The machine, and a clock that the test advances.
struct Rig {
    refresh: Refresh,
    now: Instant,
}

impl Rig {
    fn new() -> Self {
        Self { refresh: Refresh::new(policy()), now: Instant::now() }
    }

    fn want(&mut self, topic: &str) {
        self.want_for(topic, Cause::Topic);
    }

    fn want_for(&mut self, topic: &str, cause: Cause) {
        self.refresh.want(topic, cause, self.now);
    }

    /// The topics requested now, if each has one partition and all are in use.
    fn take(&mut self) -> Option<Vec<String>> {
        let used = self.refresh.unwanted(self.now).into_iter().collect();
        self.refresh.take(self.now, &used, |_| 1).0.map(strings)
    }

    fn answer(&mut self, topic: &str, said: Said) {
        self.refresh.answered(topic, said, self.now, 0.5);
    }

    fn due_in(&self) -> Option<Duration> {
        self.refresh.next_due(self.now).map(|at| at.saturating_duration_since(self.now))
    }
}

fn strings(group: Vec<Arc<str>>) -> Vec<String> {
    group.into_iter().map(|name| String::from(&*name)).collect()
}

fn names(list: &[&str]) -> Option<Vec<String>> {
    Some(list.iter().map(ToString::to_string).collect())
}

#[test]
fn a_topic_is_requested_at_once_and_a_burst_joins_one_request() {
    let mut rig = Rig::new();
    assert_eq!(rig.due_in(), None);
    for _ in 0..100 {
        rig.want("a");
    }
    assert_eq!(rig.take(), names(&["a"]));
    rig.want("a");
    assert_eq!(rig.take(), None);
    rig.answer("a", Said::Complete);
    assert_eq!(rig.due_in(), Some(10_000 * MS));
}

#[test]
fn the_first_error_is_never_delayed_and_the_next_waits_for_the_minimum_interval() {
    let mut rig = Rig::new();
    rig.want("a");
    rig.take();
    rig.answer("a", Said::Complete);
    rig.want("a");
    assert_eq!(rig.due_in(), Some(Duration::ZERO), "fetching it was no error");
    rig.take();
    rig.answer("a", Said::Complete);
    rig.now += 10_000 * MS;
    assert_eq!(rig.take(), names(&["a"]), "for its age");
    rig.answer("a", Said::Complete);
    rig.want("a");
    assert_eq!(rig.due_in(), Some(Duration::ZERO), "the first error");
    rig.take();
    rig.answer("a", Said::Complete);
    rig.want("a");
    assert_eq!(rig.due_in(), Some(100 * MS), "the second one");
    rig.now += 40 * MS;
    rig.want("a");
    assert_eq!(rig.due_in(), Some(60 * MS), "asking again moves nothing");
}

#[test]
fn refreshes_for_one_broker_never_delay_the_first_error_of_another() {
    let mut rig = Rig::new();
    rig.want("a");
    rig.take();
    rig.answer("a", Said::Complete);
    // Broker 1 is unreachable, and its partitions are looked up repeatedly.
    for _ in 0..3 {
        rig.want_for("a", Cause::Broker(1));
        rig.now += rig.due_in().unwrap();
        rig.take();
        rig.answer("a", Said::Complete);
    }
    rig.now += 10 * MS;
    rig.want_for("a", Cause::Broker(1));
    assert_eq!(rig.due_in(), Some(90 * MS));
    rig.want_for("a", Cause::Broker(2));
    assert_eq!(rig.due_in(), Some(Duration::ZERO), "another broker");
    rig.take();
    rig.answer("a", Said::Complete);
    rig.want("a");
    assert_eq!(rig.due_in(), Some(Duration::ZERO), "an error of the topic");
    rig.take();
    rig.answer("a", Said::Complete);
    for cause in [Cause::Topic, Cause::Broker(1), Cause::Broker(2)] {
        rig.want_for("a", cause);
    }
    assert_eq!(rig.due_in(), Some(100 * MS), "each has had its first");
}

#[test]
fn a_request_in_flight_is_joined_for_the_same_cause_only() {
    let mut rig = Rig::new();
    rig.want("a");
    rig.take();
    rig.answer("a", Said::Complete);
    rig.want_for("a", Cause::Broker(1));
    rig.take();
    rig.want_for("a", Cause::Broker(1));
    rig.now += 5 * MS;
    rig.want_for("a", Cause::Broker(2));
    rig.answer("a", Said::Complete);
    assert_eq!(rig.due_in(), Some(Duration::ZERO), "left before broker 2 was in trouble");
    rig.take();
    rig.answer("a", Said::Complete);
    // Its interval is running: a request in flight for another cause makes it no shorter.
    rig.want_for("a", Cause::Broker(3));
    rig.take();
    rig.want_for("a", Cause::Broker(1));
    rig.answer("a", Said::Complete);
    assert_eq!(rig.due_in(), Some(100 * MS));
}

#[test]
fn an_error_during_a_refresh_for_age_requests_again_at_once() {
    let mut rig = Rig::new();
    rig.want("a");
    rig.take();
    rig.answer("a", Said::Complete);
    rig.now += 10_000 * MS;
    rig.take();
    rig.want("a");
    rig.answer("a", Said::Complete);
    assert_eq!(rig.due_in(), Some(Duration::ZERO));
    rig.take();
    rig.want("a");
    rig.answer("a", Said::Complete);
    assert_eq!(rig.due_in(), Some(10_000 * MS), "joined");
}

#[test]
fn errors_do_not_queue_after_topics_that_are_only_old() {
    let mut rig = Rig::new();
    for topic in ["a", "b", "c", "d"] {
        rig.want(topic);
    }
    assert_eq!(rig.take(), names(&["a", "b", "c"]), "a bounded group");
    assert_eq!(rig.take(), names(&["d"]));
    for topic in ["a", "b", "c", "d"] {
        rig.answer(topic, Said::Complete);
    }
    rig.now += 20_000 * MS;
    rig.want("d");
    assert_eq!(rig.take(), names(&["d"]));
    assert_eq!(rig.take(), names(&["a", "b", "c"]));
}

#[test]
fn a_group_is_bounded_by_partitions_and_a_larger_topic_is_requested_alone() {
    let mut rig = Rig::new();
    for topic in ["a", "b", "c"] {
        rig.want(topic);
    }
    let sizes = |name: &str| if name == "b" { 1000 } else { 60 };
    for expected in [["a"], ["b"], ["c"]] {
        let (group, _) = rig.refresh.take(rig.now, &BTreeSet::new(), sizes);
        assert_eq!(group.map(strings), names(&expected));
    }
}

#[test]
fn a_missing_leader_is_looked_up_steadily_and_then_with_growing_backoff() {
    let mut rig = Rig::new();
    rig.want("a");
    let mut pauses = Vec::new();
    for _ in 0..15 {
        assert_eq!(rig.take(), names(&["a"]));
        rig.answer("a", Said::Leaderless);
        let pause = rig.due_in().unwrap();
        pauses.push(pause.as_millis());
        rig.now += pause;
    }
    assert_eq!(
        pauses,
        [100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 200, 400, 800, 1000, 1000]
    );
    rig.take();
    rig.answer("a", Said::Leaderless);
    rig.want("a");
    assert_eq!(rig.due_in(), Some(100 * MS), "somebody waits");
}

#[test]
fn an_unknown_topic_is_forgotten_when_no_task_waits_for_it() {
    let mut rig = Rig::new();
    rig.want("a");
    rig.take();
    rig.answer("a", Said::Nothing);
    rig.now += 100 * MS;
    let (group, expired) = rig.refresh.take(rig.now, &BTreeSet::new(), |_| 1);
    assert_eq!((group, strings(expired)), (None, vec!["a".to_owned()]));
    assert_eq!(rig.due_in(), None);
}

#[test]
fn an_unknown_topic_is_requested_as_long_as_a_task_waits() {
    let mut rig = Rig::new();
    rig.want("a");
    for _ in 0..5 {
        assert_eq!(rig.take(), names(&["a"]));
        rig.answer("a", Said::Nothing);
        rig.want("a");
        assert_eq!(rig.due_in(), Some(100 * MS));
        rig.now += 100 * MS;
    }
}

#[test]
fn an_idle_topic_expires_and_one_in_use_does_not() {
    let mut rig = Rig::new();
    rig.want("idle");
    rig.want("used");
    rig.take();
    rig.answer("idle", Said::Complete);
    rig.answer("used", Said::Complete);
    let used = BTreeSet::from([Arc::from("used")]);
    rig.now += 10_000 * MS;
    assert_eq!(rig.refresh.unwanted(rig.now).len(), 2);
    let (group, expired) = rig.refresh.take(rig.now, &used, |_| 1);
    assert_eq!((group.map(strings), strings(expired)), (names(&["idle", "used"]), vec![]));
    rig.answer("idle", Said::Complete);
    rig.answer("used", Said::Complete);
    rig.now += 10_000 * MS;
    let (group, expired) = rig.refresh.take(rig.now, &used, |_| 1);
    assert_eq!((group.map(strings), strings(expired)), (names(&["used"]), vec!["idle".to_owned()]));
}

#[test]
fn a_failed_request_leaves_its_topics_due() {
    let mut rig = Rig::new();
    rig.want("a");
    let group: Vec<Arc<str>> = vec!["a".into()];
    rig.take();
    rig.refresh.failed(&group, rig.now);
    assert_eq!(rig.take(), names(&["a"]));
    rig.refresh.want_all(Cause::Topic, rig.now);
    rig.answer("a", Said::Complete);
    assert_eq!(rig.due_in(), Some(10_000 * MS));
}

#[test]
fn without_topics_the_brokers_are_requested() {
    let mut rig = Rig::new();
    rig.refresh.want_all(Cause::Topic, rig.now);
    assert_eq!(rig.take(), names(&[]));
    rig.refresh.failed(&[], rig.now);
    assert_eq!(rig.take(), names(&[]));
    assert_eq!(rig.take(), None);
}

proptest! {
    /// For any events in any order: a topic is in one place and in one request at a time, and groups are bounded.
    /// Error-driven requests of a topic keep their interval for each cause. A topic that is not in use is forgotten.
    #[test]
    fn requests_are_bounded(
        steps in prop::collection::vec((0..6u8, 0..5usize, 0..3i32, 0..400u64), 1..200),
    ) {
        let all: [Arc<str>; 5] = ["a", "b", "c", "d", "e"].map(Arc::from);
        let mut rig = Rig::new();
        let mut under_way: Vec<Vec<Arc<str>>> = Vec::new();
        // For each topic and cause: time of the last complete response to a request for that cause, without a failure
        // since.
        let mut answered_at: BTreeMap<(Arc<str>, Cause), Instant> = BTreeMap::new();
        for (what, which, cause, pause) in steps {
            rig.now += MS * pause as u32;
            let cause = if cause == 0 { Cause::Topic } else { Cause::Broker(cause) };
            match what {
                0 | 1 => rig.want_for(&all[which], cause),
                2 => rig.refresh.want_all(cause, rig.now),
                3 => {
                    let used = rig.refresh.unwanted(rig.now).into_iter()
                        .filter(|name| **name != *"e").collect();
                    let wanted: BTreeMap<Arc<str>, BTreeSet<Cause>> = rig.refresh.topics.iter()
                        .map(|(name, entry)| (name.clone(), entry.wanted.clone())).collect();
                    let (group, _) = rig.refresh.take(rig.now, &used, |_| 40);
                    let Some(group) = group else { continue };
                    prop_assert!(group.len() <= 2, "80 partitions fit, 120 do not");
                    for name in &group {
                        prop_assert!(!under_way.iter().flatten().any(|other| other == name));
                        let causes = &wanted[name];
                        let may = |cause: &Cause| answered_at.get(&(name.clone(), *cause))
                            .is_none_or(|at| rig.now >= *at + 100 * MS);
                        prop_assert!(causes.is_empty() || causes.iter().any(may));
                    }
                    if !group.is_empty() {
                        under_way.push(group);
                    }
                }
                4 => if let Some(group) = under_way.pop() {
                    for name in group {
                        let entry = &rig.refresh.topics[&name];
                        let asked = if entry.known { entry.asked.clone() } else { BTreeSet::new() };
                        rig.answer(&name, Said::Complete);
                        let now = rig.now;
                        answered_at.extend(asked.into_iter().map(|cause| ((name.clone(), cause), now)));
                    }
                },
                _ => if let Some(group) = under_way.pop() {
                    rig.refresh.failed(&group, rig.now);
                    answered_at.retain(|(name, _), _| !group.contains(name));
                },
            }
            let listed = rig.refresh.urgent.len() + rig.refresh.aging.len();
            let flying = under_way.iter().map(Vec::len).sum::<usize>();
            prop_assert_eq!(listed + flying, rig.refresh.topics.len());
        }
        for group in under_way {
            for name in group {
                rig.answer(&name, Said::Complete);
            }
        }
        for _ in 0..40 {
            rig.now += 16_000 * MS;
            while let (Some(group), _) = rig.refresh.take(rig.now, &BTreeSet::new(), |_| 1) {
                for name in group {
                    rig.answer(&name, Said::Complete);
                }
            }
        }
        prop_assert!(rig.refresh.topics.is_empty());
    }
}
