use std::time::Duration;

use curtail_cluster::{Fault, OnBroker};

use super::{Action, Event, Leader, NewCoordinator, Partition, read};

#[test]
fn steps_become_events_in_the_order_of_their_times() {
    let text = "
seed: 7
steps:
- at: 2s
  kill: 1
- at: 0s
  fault: {kind: freeze, broker: 2}
  for: 2s
- at: 500ms
  name: again
  fault:
    kind: freeze
    broker: 3
- at: 1s
  move-leader: {topic: t, partition: 0, broker: 3}
- {at: 2s, restart: 1}
- {at: 3s, lift: again}
";
    let inject = |name: &str, seed, broker| {
        let fault = Fault::Freeze(OnBroker { broker }).named(name).seed(seed);
        Action::Inject(Box::new(fault))
    };
    let leader = Leader { topic: "t".into(), partition: 0, broker: 3 };
    let expected = [
        (0, inject("step-2", 7, 2)),
        (500, inject("again", 8, 3)),
        (1000, Action::MoveLeader(leader)),
        (2000, Action::Lift("step-2".into())),
        (2000, Action::Kill(1)),
        (2000, Action::Restart(1)),
        (3000, Action::Lift("again".into())),
    ];
    let expected = expected.map(|(ms, action)| Event { at: Duration::from_millis(ms), action });
    assert_eq!(read(text).unwrap(), expected);
}

/// JSON is YAML, too.
#[test]
fn a_script_may_be_json() {
    let text = r#"{"steps": [
        {"at": "1s", "stop": 1},
        {"at": "1s", "expire-fetch-sessions": 2},
        {"at": "1s", "expire-producer-ids": {"topic": "t", "partition": 0}},
        {"at": "1s", "move-coordinator": {"group": "g", "broker": 2}}
    ]}"#;
    let at = Duration::from_secs(1);
    let group = Some("g".to_owned());
    let actions = [
        Action::Stop(1),
        Action::ExpireFetchSessions(2),
        Action::ExpireProducerIds(Partition { topic: "t".into(), partition: 0 }),
        Action::MoveCoordinator(NewCoordinator { group, transactional_id: None, broker: 2 }),
    ];
    assert_eq!(read(text).unwrap(), actions.map(|action| Event { at, action }));
}

#[test]
fn a_script_that_cannot_run_is_refused_as_a_whole() {
    for (steps, reason) in [
        ("- {kill: 1}", "missing field `at`"),
        ("- {at: 1, kill: 1}", "'1' is no time"),
        ("- {at: 1s}", "step 1: an action is missing: fault, lift,"),
        ("- {at: 1s, kill: 1, stop: 1}", "step 1: only one action is possible"),
        ("- {at: 1s, kill: 1, for: 1s}", "step 1: for: only a fault stays"),
        ("- {at: 1s, kill: 1, name: x}", "step 1: name: only a fault has a name"),
        ("- {at: 'uniform(1s, 2s)', kill: 1}", "step 1: at: uniform(1s, 2s) is no fixed time"),
        ("- {at: 1s, lift: x}", "lift: no fault of the script is named 'x'"),
        ("- {at: 1s, melt: 1}", "melt"),
        (
            "- {at: 1s, move-coordinator: {broker: 1}}",
            "step 1: move-coordinator: give either group or transactional_id",
        ),
        (
            "- {at: 1s, fault: {kind: delay, time: 1ms, requests: {api: Nothing}}}",
            "'Nothing' is no API",
        ),
        ("- {at: 1s, fault: {kind: freeze, broker: 1, times: 3}}", "times"),
    ] {
        let error = read(&format!("steps:\n{steps}\n")).unwrap_err();
        assert!(error.contains(reason), "{steps}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}
