use std::time::Duration;

use curtail::security::SecurityConfig;

use super::*;
use crate::{
    experiments::{Condition, Published, Testbed},
    peers::Peer,
};

const PLAIN: Arm = Arm { name: "plain", about: "", properties: &[] };
const OURS: Arm =
    Arm { name: "ours", about: "", properties: &[("curtail.suspicion.enable", "false")] };

/// Two arms in two rounds; notes who ran. Java fails in the second round.
#[derive(Default)]
struct Noting(Mutex<Vec<String>>);

impl Experiment for Noting {
    fn name(&self) -> &'static str {
        "noting"
    }

    fn about(&self) -> &'static str {
        ""
    }

    fn source(&self) -> &'static str {
        ""
    }

    fn arms(&self, _: &Setting) -> Vec<Arm> {
        vec![PLAIN, OURS]
    }

    fn rounds(&self, _: &Setting) -> u32 {
        2
    }

    fn published(&self, _: &Setting) -> Vec<Published> {
        Vec::new()
    }

    fn start(&self, _: &Setting) -> Result<Testbed> {
        Ok(Testbed::none())
    }

    fn turn(&self, turn: &Turn<'_>) -> Result<Sample> {
        self.0.lock().push(turn.topic("x"));
        if turn.driver.is_some_and(|driver| driver.peer() == Peer::FranzGo) {
            return Err(Error::Lacking("it has no such thing".into()));
        }
        if turn.driver.is_some_and(|driver| driver.peer() == Peer::Java) && turn.round > 0 {
            return Err(Error::Unexpected("its delivery timeout passed".into()));
        }
        let records = if turn.driver.is_some() { 1 } else { 10 };
        Ok(Sample { records, elapsed: Duration::from_secs(1), ..Sample::default() })
    }

    fn admits(&self, _: &Arm, peer: Peer) -> Result<(), &'static str> {
        if peer == Peer::Librdkafka { Err("it is not wanted") } else { Ok(()) }
    }

    fn conditions(&self, _: &Setting, arms: &Arms<'_>) -> Vec<Condition> {
        let records = arms.get(PLAIN.name).map(|sample| sample.records);
        vec![Condition { text: format!("{records:?}"), held: true }]
    }
}

fn setting(clients: &[Client]) -> Setting {
    Setting { clients: clients.to_vec(), ..Setting::new(ClusterKind::Embedded) }
}

#[test]
fn two_rounds_give_every_pair_the_same_average_place() {
    for pairs in 1..13 {
        let mut places = vec![0; pairs];
        for rounds in [0..2, 2..4, 4..6] {
            let mut first = places.clone();
            for round in rounds {
                let mut seen = vec![false; pairs];
                for place in 0..pairs {
                    let pair = pair_at(round, place, pairs);
                    seen[pair] = true;
                    first[pair] += place;
                }
                assert!(seen.iter().all(|seen| *seen), "{pairs} pairs, round {round}");
            }
            places.iter_mut().for_each(|place| *place += pairs - 1);
            assert_eq!(first, places, "{pairs} pairs");
            places = first;
        }
    }
}

#[test]
fn arms_and_clients_take_turns_and_missing_or_failed_pairs_are_reported() {
    let [java, go, librdkafka] = [Peer::Java, Peer::FranzGo, Peer::Librdkafka].map(Client::Peer);
    let setting = setting(&[Client::Curtail, java, go, librdkafka]);
    let experiment = Noting::default();
    let told = Mutex::new(Vec::new());
    let progress = |event: Event<'_>| {
        if let Event::Without { arm, client, reason } = event {
            told.lock().push(format!("{arm} {client}: {reason}"));
        }
    };
    let mut pairs = pairs(&experiment, &setting, &progress).unwrap();
    let drivers = [Peer::Java, Peer::FranzGo].map(|peer| Driver::new(peer, Vec::new()));
    measure(&experiment, &setting, &mut pairs, &drivers, &progress).unwrap();
    let ran = experiment.0.lock().clone();
    assert_eq!(
        ran,
        [
            "lab-x-plain-0",
            "lab-x-plain-0-java",
            "lab-x-plain-0-franz-go",
            "lab-x-ours-0",
            "lab-x-ours-1",
            "lab-x-plain-1-java",
            "lab-x-plain-1"
        ]
    );
    assert_eq!(
        *told.lock(),
        [
            "plain librdkafka: it is not wanted",
            "ours java: it does not support curtail.suspicion.enable=false",
            "ours franz-go: it does not support curtail.suspicion.enable=false",
            "ours librdkafka: it is not wanted",
            "plain franz-go: it has no such thing",
            "plain java: its delivery timeout passed"
        ]
    );
    let report = report(&experiment, &setting, pairs, Environment::default());
    let arms: Vec<(&str, &str, u64)> =
        report.arms.iter().map(|arm| (&*arm.name, &*arm.client, arm.records)).collect();
    assert_eq!(arms, [("plain", "curtail", 20), ("plain", "java", 1), ("ours", "curtail", 20)]);
    assert_eq!(report.conditions[0].text, "Some(20)");
}

#[test]
fn chosen_arms_run_for_the_chosen_rounds() {
    let named = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let experiment = Noting::default();
    let setting =
        Setting { arms: named(&["ours"]), rounds: Some(3), ..setting(&[Client::Curtail]) };
    run(&experiment, &setting, &mut |_| {}).unwrap();
    assert_eq!(*experiment.0.lock(), ["lab-x-ours-0", "lab-x-ours-1", "lab-x-ours-2"]);
    for (setting, expected) in [
        (Setting { rounds: Some(0), ..setting.clone() }, "the number of rounds must be at least 1"),
        (
            Setting {
                cluster: ClusterKind::Sim,
                cluster_properties: vec![("a".into(), "b".into())],
                ..setting.clone()
            },
            "the simulation takes no broker properties; use embedded or apache",
        ),
        (
            Setting { security: Some(SecurityConfig::default()), ..setting.clone() },
            "security settings are for an existing cluster; use --cluster host:port",
        ),
        (
            Setting {
                cluster: ClusterKind::Bootstrap("h:1".into()),
                security: Some(SecurityConfig::default()),
                clients: vec![Client::Peer(Peer::Java)],
                ..setting.clone()
            },
            "security settings are for Curtail's clients; leave out others",
        ),
        (
            Setting { arms: named(&["ours", "mine"]), ..setting },
            "noting has no arm 'mine'; it has plain, ours",
        ),
    ] {
        assert_eq!(run(&experiment, &setting, &mut |_| {}).unwrap_err().to_string(), expected);
    }
}

fn variant(name: &str, property: &str, value: &str) -> Variant {
    Variant { name: name.into(), properties: vec![(property.into(), value.into())] }
}

#[test]
fn variants_take_turns_with_their_arms_and_count_in_no_condition() {
    let experiment = Noting::default();
    let java = Client::Peer(Peer::Java);
    let setting = Setting {
        arms: vec!["plain".into()],
        variants: vec![
            variant("alone", "curtail.suspicion.enable", "false"),
            variant("now", "linger.ms", "0"),
        ],
        rounds: Some(1),
        ..setting(&[Client::Curtail, java])
    };
    let skipped = Mutex::new(Vec::new());
    let progress = |event: Event<'_>| {
        if let Event::Without { arm, client, .. } = event {
            skipped.lock().push(format!("{arm} {client}"));
        }
    };
    let mut pairs = pairs(&experiment, &setting, &progress).unwrap();
    assert_eq!(*skipped.lock(), ["plain+alone java"], "it has no such setting");
    assert_eq!(pairs[3].arm.properties, [("linger.ms", "0")]);
    let drivers = [Driver::new(Peer::Java, Vec::new())];
    measure(&experiment, &setting, &mut pairs, &drivers, &|_| {}).unwrap();
    assert_eq!(
        *experiment.0.lock(),
        [
            "lab-x-plain-0",
            "lab-x-plain-0-java",
            "lab-x-plain-0-alone",
            "lab-x-plain-0-now",
            "lab-x-plain-0-java-now"
        ]
    );
    let report = report(&experiment, &setting, pairs, Environment::default());
    let names: Vec<&str> = report.arms.iter().map(|arm| &*arm.name).collect();
    assert_eq!(names, ["plain", "plain", "plain+alone", "plain+now", "plain+now"]);
    assert_eq!(report.conditions[0].text, "Some(10)", "of the arm alone");
}

#[test]
fn variants_that_make_no_sense_are_refused_before_the_run() {
    let experiment = Noting::default();
    let refused = |variants: Vec<Variant>| {
        let setting = Setting { variants, ..setting(&[Client::Curtail]) };
        run(&experiment, &setting, &mut |_| {}).unwrap_err().to_string()
    };
    let fine = variant("a", "linger.ms", "0");
    assert_eq!(refused(vec![fine.clone(), fine]), "two variants have the name 'a'");
    for name in ["", "a b", "a/b"] {
        let expected = format!("variant '{name}': a name has letters, digits and hyphens");
        assert_eq!(refused(vec![variant(name, "linger.ms", "0")]), expected);
    }
    for (name, value, expected) in [
        ("linger.sm", "0", "unknown property 'linger.sm'"),
        ("linger.ms", "x", "linger.ms=x: "),
        ("fetch.max.wait.ms", "x", "fetch.max.wait.ms=x: "),
    ] {
        let told = refused(vec![variant("a", name, value)]);
        assert!(told.starts_with(&format!("variant 'a': {expected}")), "{told}");
    }
    assert!(experiment.0.lock().is_empty());
}

#[test]
fn a_run_without_any_arm_says_why() {
    let experiment = Noting::default();
    for (clients, expected) in [
        (
            vec![Client::Peer(Peer::Librdkafka)],
            "no arm of noting can be run with this client: it is not wanted",
        ),
        (vec![], "name at least one client, each only once"),
        (vec![Client::Curtail, Client::Curtail], "name at least one client, each only once"),
    ] {
        let error = run(&experiment, &setting(&clients), &mut |_| {}).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}
