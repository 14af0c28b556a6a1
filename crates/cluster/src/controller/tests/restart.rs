//! A controller that crashes and restarts while its brokers run.

use super::*;
use crate::{
    acl::{Acl, Operation, Pattern, Permission, ResourceType},
    disk::{Disk, MemDisk},
    topic_config::ConfigEdit,
};

const DIR: &str = "d";

fn open(disk: &MemDisk) -> Controller {
    let config = ClusterConfig { brokers: 3, ..ClusterConfig::default() };
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Controller::new(&Arc::new(config), Entropy::from_seed(1), Some((disk, Path::new(DIR)))).unwrap()
}

fn acl(name: &str) -> Acl {
    Acl {
        resource_type: ResourceType::Topic,
        resource_name: name.into(),
        pattern: Pattern::Literal,
        principal: "User:u".into(),
        host: "*".into(),
        operation: Operation::Read,
        permission: Permission::Allow,
    }
}

/// Attempts a random change. A refused change must leave no trace.
fn change(controller: &Controller, epochs: &[i64], dice: &Entropy) {
    let name = format!("t{}", dice.below(4));
    let broker = 1 + dice.below(3) as i32;
    let edit =
        |value: &str| [("retention.ms".to_owned(), ConfigEdit::Set(value.to_owned()))].into();
    match dice.below(10) {
        0 | 1 => drop(controller.create_topic(&spec(&name, 2, 3))),
        2 => drop(controller.move_leader(&name, 0, broker)),
        3 => drop(controller.alter_config(&name, &edit(&dice.below(9).to_string()))),
        4 => drop(controller.create_acls(vec![acl(&name)])),
        5 => {
            let total = 3 + dice.below(3) as i32;
            let more = MorePartitions { topic: name, total, replicas: None };
            drop(controller.create_partitions(&more));
        }
        6 => {
            let topic = controller.image().topic(&name).map(|topic| topic.id);
            drop(topic.map(|id| controller.delete_topic(id)));
        }
        7 => {
            let _ = controller.change(|state| state.fence(broker));
        }
        // The third broker only: the sessions of the others are checked at the end.
        8 => drop(controller.unregister(3)),
        _ => {
            controller.heartbeat(broker, epochs[broker as usize - 1]);
        }
    }
}

#[test]
fn a_restarted_controller_has_every_acknowledged_change_and_no_other() {
    for seed in 0..150 {
        let dice = Entropy::from_seed(seed);
        let disk = MemDisk::new();
        let controller = open(&disk);
        let register = |id| {
            let (epoch, _) = controller.register(id, addresses()).unwrap();
            assert!(controller.heartbeat(id, epoch));
            epoch
        };
        let epochs: Vec<i64> = (1..=3).map(register).collect();
        let mut last_id = -1;
        for life in 0..4 {
            for _ in 0..dice.below(20) {
                change(&controller, &epochs, &dice);
            }
            for _ in 0..dice.below(3) {
                let id = controller.next_producer_id().unwrap();
                assert!(id > last_id, "seed {seed}, life {life}: producer id {id} after {last_id}");
                last_id = id;
            }
            let (before, version) = (controller.text(), controller.image().version);
            controller.crash();
            assert!(controller.create_topic(&spec("late", 1, 1)).is_err());
            assert!(!controller.heartbeat(1, epochs[0]));
            disk.crash_torn(|n| dice.below(n));
            controller.restart().unwrap();
            assert_eq!(controller.text(), before, "seed {seed}, life {life}");
            assert!(controller.image().version > version);
            assert_eq!(
                controller.mailbox(1).unwrap().take().arrived.last().unwrap().version,
                controller.image().version
            );
        }
        // The brokers' sessions continue, unless a registration was removed.
        assert!((1..=2).zip(&epochs).all(|(id, epoch)| controller.heartbeat(id, *epoch)));
        let is_registered = controller.image().brokers.contains_key(&3);
        assert_eq!(controller.heartbeat(3, epochs[2]), is_registered);
        let (epoch, _) = controller.register(3, addresses()).unwrap();
        assert!(controller.heartbeat(3, epoch));
    }
}

/// A torn last line is an unacknowledged change; the lines before it contain everything else.
#[test]
fn a_torn_line_of_the_journal_is_dropped_at_any_byte() {
    let disk = MemDisk::new();
    let controller = open(&disk);
    controller.register(1, addresses()).unwrap();
    let path = Path::new(DIR).join("cluster-metadata.jsonl");
    let whole = disk.read_all(&path).unwrap();
    let before = controller.text();
    controller.register(2, addresses()).unwrap();
    let longer = disk.read_all(&path).unwrap();
    for cut in whole.len()..longer.len() {
        controller.crash();
        disk.alter(&path, |bytes| *bytes = longer[..cut].to_vec()).unwrap();
        controller.restart().unwrap();
        assert_eq!(controller.text(), before, "cut at {cut}");
    }
}

#[tokio::test(start_paused = true)]
async fn brokers_keep_their_sessions_while_the_controller_is_stuck() {
    let controller = open(&MemDisk::new());
    let mut epochs = Vec::new();
    for id in 1..=3 {
        let (epoch, _) = controller.register(id, addresses()).unwrap();
        assert!(controller.heartbeat(id, epoch));
        epochs.push(epoch);
    }
    let live = || controller.image().brokers.values().filter(|broker| !broker.fenced).count();
    let timeout = ClusterConfig::default().broker_session_timeout;
    let mut run = std::pin::pin!(controller.run());
    let mut turn = async || {
        std::future::poll_fn(|cx| {
            assert!(run.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
    };
    turn().await;
    for length in [timeout, 2 * timeout, 10 * timeout] {
        // The process is suspended.
        tokio::time::advance(length).await;
        turn().await;
        assert_eq!(live(), 3, "after {length:?}");
        for (id, epoch) in (1..=3).zip(&epochs) {
            assert!(controller.heartbeat(id, *epoch));
        }
        turn().await;
    }
    for _ in 0..5 {
        // Timers are rounded up to milliseconds.
        tokio::time::advance(timeout / 4 + std::time::Duration::from_millis(2)).await;
        turn().await;
    }
    assert_eq!(live(), 0, "without heartbeats since");
}
