//! Admin clients.

use super::{HOUR_MS, Rig, Steps, Trap, Trouble, rounds};
use curtail::{
    Admin, AdminConfig, TopicPartition,
    admin::{ConfigResource, NewTopic, OffsetSpec},
    config::IsolationLevel,
};
use curtail_net::Entropy;

const METADATA: i16 = 3;
const DESCRIBE_CONFIGS: i16 = 32;

#[test]
fn every_call_ends_when_the_admins_runtime_shuts_down() {
    rounds(round);
}

fn round(rig: &Rig, seed: u64, steps: Steps) {
    let draw = Entropy::from_seed(seed);
    let topic = format!("shutdown-{seed}");
    rig.create_topic(&topic, 2);
    let mut trap = Trap::set(&draw, steps);
    let (trouble, trouble_at) =
        (Trouble::draw(&draw, &[METADATA, DESCRIBE_CONFIGS]), draw.below(30));
    let mut config = AdminConfig::new(rig.backend.bootstrap());
    for name in ["default.api.timeout.ms", "request.timeout.ms"] {
        config.set(name, HOUR_MS).expect("a known property");
    }
    let entered = trap.doomed.0.handle.enter();
    let admin = Admin::new(config).expect("usable");
    drop(entered);
    for n in 0..20 {
        if n == trouble_at {
            rig.trouble(trouble);
        }
        let which = draw.below(6);
        call(&mut trap, &admin, &topic, which, n);
    }
    trap.shut();
    for n in 20..26 {
        call(&mut trap, &admin, &topic, n - 20, n);
    }
}

fn call(trap: &mut Trap, admin: &Admin, topic: &str, which: u64, n: u64) {
    match which {
        0 => drop(trap.run("describe_cluster", admin.describe_cluster())),
        1 => drop(trap.run("list_topics", admin.list_topics())),
        2 => drop(trap.run("describe_topics", admin.describe_topics(&[topic]))),
        3 => {
            let resources = [ConfigResource::Topic(topic.into()), ConfigResource::Broker(1)];
            drop(trap.run("describe_configs", admin.describe_configs(&resources)));
        }
        4 => {
            let wanted: Vec<_> = (0..2)
                .map(|index| (TopicPartition::new(topic, index), OffsetSpec::Latest))
                .collect();
            drop(
                trap.run(
                    "list_offsets",
                    admin.list_offsets(&wanted, IsolationLevel::ReadUncommitted),
                ),
            );
        }
        _ => {
            let new = [NewTopic::new(format!("{topic}-{n}")).partitions(1)];
            drop(trap.run("create_topics", admin.create_topics(&new)));
        }
    }
}
