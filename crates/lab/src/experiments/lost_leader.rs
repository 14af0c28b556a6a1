//! Recovery when a broker is killed or frozen under load.
//!
//! The time without an acknowledgement is compared with the time that the cluster needs until its metadata
//! names other leaders. With two replicas, a third of the partitions has no replica on the lost broker, and
//! keyless records can go there. With three replicas and acks=all, every partition waits until the controller
//! fences the broker. The two experiments, `killed-leader` and `frozen-leader`, differ only in the fault.

use std::time::{Duration, Instant};

use curtail::{ProducerConfig, admin::TopicDescription};

use super::{
    Act, Arm, Arms, Condition, Experiment, Published, Sample, Setting, Simulated, Testbed, Turn,
    When, Workload,
    check::{Order, read_back},
    load::{Keys, Load, nanos, rehearse, sleep_until, with_properties, worst_ms},
    observer::{Seen, watch},
    testbed::Needs,
    workload::{properties, victim},
};
use crate::{
    peers::Peer,
    perf::{Error, Result},
};

const PARTITIONS: i32 = 12;
const RATE: f64 = 5000.0;
const SIZE: usize = 1000;
/// Enough that every partition has some.
const KEYS: u64 = 1200;

/// Longest time for the cluster to fence a broker after its session has timed out.
const GRACE: Duration = Duration::from_secs(30);

/// Fault of the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// SIGKILL.
    Killed,
    /// SIGSTOP for 20 s.
    Frozen,
}

const KEYLESS: Arm =
    Arm { name: "rf2-keyless", about: "two replicas, no keys, everything on", properties: &[] };
const KEYLESS_OFF: Arm = Arm {
    name: "rf2-keyless-off",
    about: "the same without routing around trouble and without suspicion",
    properties: OFF,
};
const KEYED: Arm =
    Arm { name: "rf3", about: "three replicas, keys, everything on", properties: &[] };
const KEYED_OFF: Arm = Arm {
    name: "rf3-off",
    about: "the same without routing around trouble and without suspicion",
    properties: OFF,
};

const OFF: &[(&str, &str)] =
    &[("curtail.suspicion.enable", "false"), ("curtail.route.around.trouble", "false")];

/// `killed-leader` and `frozen-leader`.
pub(super) struct LostLeader(pub(super) Fault);

/// The parts of a run.
struct Plan {
    before: Duration,
    session: Duration,
    frozen: Duration,
    whole: Duration,
    rate: f64,
}

impl Plan {
    fn broker_properties(&self) -> Vec<(&'static str, String)> {
        let millis = |duration: Duration| duration.as_millis().to_string();
        vec![
            ("broker.session.timeout.ms", millis(self.session)),
            // 9 s and 2 s by default.
            ("broker.heartbeat.interval.ms", millis(self.session.mul_f64(2.0 / 9.0))),
        ]
    }
}

fn is_keyless(arm: &Arm) -> bool {
    [KEYLESS.name, KEYLESS_OFF.name].contains(&arm.name)
}

impl LostLeader {
    fn plan(&self, setting: &Setting) -> Plan {
        let scaled = |seconds: f64, least: f64| {
            Duration::from_secs_f64((seconds * setting.scale).max(least))
        };
        let before = scaled(5.0, 0.5);
        let session = scaled(9.0, 1.0);
        let frozen = session.mul_f64(20.0 / 9.0);
        let lost = if self.0 == Fault::Killed { session.mul_f64(1.2) } else { frozen };
        let whole = before + lost + scaled(5.0, 1.0);
        // Short runs also use a low rate.
        let rate = RATE * (setting.scale * 10.0).clamp(0.1, 1.0);
        Plan { before, session, frozen, whole, rate }
    }

    fn limit(&self, killed: f64, frozen: f64) -> f64 {
        if self.0 == Fault::Killed { killed } else { frozen }
    }
}

impl Experiment for LostLeader {
    fn name(&self) -> &'static str {
        if self.0 == Fault::Killed { "killed-leader" } else { "frozen-leader" }
    }

    fn about(&self) -> &'static str {
        match self.0 {
            Fault::Killed => {
                "a broker is killed (kill -9): the stall compared with the cluster's own election"
            }
            Fault::Frozen => {
                "a broker is frozen for 20 s (SIGSTOP): the stall compared with the cluster's own election"
            }
        }
    }

    fn source(&self) -> &'static str {
        "Curtail"
    }

    fn arms(&self, _: &Setting) -> Vec<Arm> {
        vec![KEYLESS, KEYLESS_OFF, KEYED, KEYED_OFF]
    }

    fn rounds(&self, _: &Setting) -> u32 {
        1
    }

    fn published(&self, _: &Setting) -> Vec<Published> {
        Vec::new()
    }

    fn simulated(&self, setting: &Setting, arm: &Arm) -> Result<Simulated> {
        let plan = self.plan(setting);
        let keyless = is_keyless(arm);
        let broker = victim(setting);
        let script = match self.0 {
            Fault::Killed => vec![(When::At(plan.before), Act::Kill { broker })],
            Fault::Frozen => vec![
                (When::At(plan.before), Act::Freeze { broker }),
                (When::At(plan.before + plan.frozen), Act::Thaw { broker }),
            ],
        };
        Ok(Simulated::from(Workload {
            brokers: 3,
            broker_properties: plan.broker_properties(),
            partitions: PARTITIONS,
            replicas: if keyless { 2 } else { 3 },
            properties: properties(&[], arm),
            records: (plan.rate * plan.whole.as_secs_f64()) as u64,
            warmup: (plan.rate * plan.before.as_secs_f64() * 0.4) as u64,
            rate: Some(plan.rate),
            size: SIZE,
            keys: if keyless { Keys::None } else { Keys::Cycle(KEYS) },
            order: if keyless { Order::Acknowledged } else { Order::Sent },
            script,
            ..Workload::default()
        }))
    }

    fn start(&self, setting: &Setting) -> Result<Testbed> {
        let properties = self.plan(setting).broker_properties();
        let needs = Needs { brokers: 3, properties, faults: true, ..Needs::default() };
        Testbed::start(setting, &needs)
    }

    fn turn(&self, turn: &Turn<'_>) -> Result<Sample> {
        let keyless = is_keyless(turn.arm);
        let topic = turn.topic(self.name());
        let testbed = turn.testbed;
        testbed.create_topic(&topic, PARTITIONS, if keyless { 2 } else { 3 })?;
        let plan = self.plan(turn.setting);
        let victim = turn.victim();
        let config = ProducerConfig::new(testbed.bootstrap());
        let load = Load {
            config: with_properties(config, turn.arm.properties)?,
            records: (plan.rate * plan.whole.as_secs_f64()) as u64,
            warmup: (plan.rate * plan.before.as_secs_f64() * 0.4) as u64,
            rate: plan.rate,
            size: SIZE,
            keys: if keyless { Keys::None } else { Keys::Cycle(KEYS) },
            ..Load::new(turn, &topic)?
        };
        rehearse(&load, turn)?;
        let (sent, (struck, until, seen)) =
            turn.send(load, |start| self.strike(testbed, &topic, victim, &plan, start))?;
        if self.0 == Fault::Killed {
            testbed.restart(victim)?;
        }
        testbed.await_healthy(&topic, PARTITIONS as usize)?;
        let mut sample = sent.sample();
        let what = match self.0 {
            Fault::Killed => format!("broker {victim} killed"),
            Fault::Frozen => format!("broker {victim} frozen"),
        };
        sample.mark(sent.start, struck, until, what);
        let order = if keyless { Order::Acknowledged } else { Order::Sent };
        read_back(&sent, order, &mut sample)?;
        let stall = sent.longest_silence(nanos(struck - sent.start));
        let beyond = stall as f64 / 1e6 - seen.all.as_secs_f64() * 1000.0;
        sample.note("election_first_broker_ms", worst_ms(nanos(seen.first)));
        sample.note("election_all_brokers_ms", worst_ms(nanos(seen.all)));
        sample.note("stall_ms", worst_ms(stall));
        sample.note("stall_beyond_election_ms", super::Figure::Worst(beyond));
        testbed.delete_topic(&topic)?;
        Ok(sample)
    }

    fn admits(&self, _: &Arm, _: Peer) -> Result<(), &'static str> {
        Ok(())
    }

    fn conditions(&self, _: &Setting, arms: &Arms<'_>) -> Vec<Condition> {
        let mut conditions = arms.intact();
        if let Some(sample) = arms.get(KEYLESS.name) {
            let p999 = sample.latency.quantile(0.999).as_secs_f64() * 1000.0;
            let limit = self.limit(250.0, 1000.0);
            conditions.push(Condition::below_ms("two replicas, keyless: p99.9", p999, limit));
        }
        if let Some(sample) = arms.get(KEYED.name) {
            let beyond = sample.figure("stall_beyond_election_ms");
            let what = "three replicas: the stall beyond the cluster's own election";
            conditions.push(Condition::below_ms(what, beyond, self.limit(150.0, 500.0)));
        }
        conditions
    }
}

impl LostLeader {
    /// Injects the fault and watches the other brokers. Returns when the broker was hit, when it resumed or
    /// all others had fenced it, and when their metadata had dropped it.
    fn strike(
        &self,
        testbed: &Testbed,
        topic: &str,
        victim: i32,
        plan: &Plan,
        start: Instant,
    ) -> Result<(Instant, Instant, Seen)> {
        let others: Vec<i32> =
            testbed.broker_ids().into_iter().filter(|id| *id != victim).collect();
        let dropped = move |topic: &TopicDescription| {
            !topic.partitions.is_empty()
                && topic.partitions.iter().all(|partition| {
                    partition.leader.is_some_and(|leader| leader != victim)
                        && !partition.isr.contains(&victim)
                })
        };
        sleep_until(start, plan.before);
        let limit = plan.session + GRACE;
        let (struck, done, seen) = watch(testbed, &others, topic, limit, dropped, |struck| {
            match self.0 {
                Fault::Killed => testbed.kill(victim)?,
                Fault::Frozen => {
                    testbed.freeze(victim)?;
                    sleep_until(struck, plan.frozen);
                }
            }
            Ok::<_, Error>(())
        })?;
        // A resumed broker is soon back in sync: wait until all others have shown that it was fenced.
        if self.0 == Fault::Frozen {
            testbed.thaw(victim)?;
        }
        let until = Instant::now();
        done?;
        let seen = seen?;
        Ok((struck, until, seen))
    }
}
