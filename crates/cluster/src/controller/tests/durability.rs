//! Changes are acknowledged only once they are durable, and a damaged journal is refused.

use std::{
    io,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
};

use super::*;
use crate::{
    config::Resize,
    disk::{
        Disk,
        gated::{Change, GatedDisk},
    },
};

const DIR: &str = "d";

fn journal_path() -> PathBuf {
    Path::new(DIR).join("cluster-metadata.jsonl")
}

/// Returns a disk whose files fail to sync while the flag is set.
fn stubborn(disk: &MemDisk, fails: &Arc<AtomicBool>) -> GatedDisk {
    let fails = Arc::clone(fails);
    GatedDisk::new(disk.clone(), move |change| {
        if change == Change::Sync && fails.load(Ordering::Relaxed) {
            return Err(io::Error::other("the device is gone"));
        }
        Ok(())
    })
}

fn config(brokers: u32) -> ClusterConfig {
    ClusterConfig { brokers, ..ClusterConfig::default() }
}

fn open(disk: &(impl Disk + Clone + 'static), config: ClusterConfig) -> io::Result<Controller> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Controller::new(&Arc::new(config), Entropy::from_seed(1), Some((disk, Path::new(DIR))))
}

/// Returns a controller with registered, live brokers.
fn live(disk: &(impl Disk + Clone + 'static), brokers: u32) -> Controller {
    let controller = open(disk, config(brokers)).unwrap();
    for id in 1..=brokers as i32 {
        let (epoch, _) = controller.register(id, addresses()).unwrap();
        assert!(controller.heartbeat(id, epoch));
    }
    controller
}

fn topics(controller: &Controller) -> Vec<String> {
    controller.image().topics.keys().map(ToString::to_string).collect()
}

#[test]
fn acknowledged_changes_survive_a_crash_that_loses_unsynced_bytes() {
    let disk = MemDisk::new();
    let controller = live(&disk, 3);
    controller.create_topic(&spec("t", 3, 3)).unwrap();
    let id = controller.next_producer_id().unwrap();
    let isr =
        |controller: &Controller| controller.image().topic("t").unwrap().partitions[0].isr.len();
    controller.controlled_shutdown(3);
    assert_eq!(isr(&controller), 2);
    drop(controller);
    disk.crash(false);
    let controller = open(&disk, config(3)).unwrap();
    assert_eq!((topics(&controller), isr(&controller)), (vec!["t".to_owned()], 2));
    assert!(controller.next_producer_id().unwrap() > id);
}

#[test]
fn a_change_is_refused_and_undone_while_the_journal_cannot_be_synced() {
    let fails = Arc::new(AtomicBool::new(false));
    let disk = stubborn(&MemDisk::new(), &fails);
    let controller = live(&disk, 3);
    controller.create_topic(&spec("before", 1, 3)).unwrap();
    let before = controller.image();
    fails.store(true, Ordering::Relaxed);
    for _ in 0..2 {
        let (code, reason) = controller.create_topic(&spec("refused", 1, 3)).unwrap_err();
        assert_eq!(code, ErrorCode::KAFKA_STORAGE_ERROR);
        assert!(reason.contains("the device is gone"), "{reason}");
        assert_eq!(controller.next_producer_id(), Err(ErrorCode::COORDINATOR_LOAD_IN_PROGRESS));
        assert!(controller.delete_topic(before.topic("before").unwrap().id).is_err());
        assert!(controller.move_leader("before", 0, 2).is_err());
    }
    controller.controlled_shutdown(1);
    assert_eq!(controller.image().version, before.version, "nothing was published");
    assert_eq!(topics(&controller), ["before"]);
    // A crash at this point must restore exactly the acknowledged changes.
    assert_eq!(topics(&open(&disk.disk, config(3)).unwrap()), ["before"]);

    fails.store(false, Ordering::Relaxed);
    controller.create_topic(&spec("after", 1, 3)).unwrap();
    drop(controller);
    disk.disk.crash(false);
    assert_eq!(topics(&open(&disk, config(3)).unwrap()), ["after", "before"]);
}

#[test]
fn a_change_is_refused_while_the_disk_is_full() {
    let disk = MemDisk::new();
    let controller = live(&disk, 1);
    // Space for only a part of the line.
    disk.set_capacity(Some(disk.used() + 20));
    let refused = controller.create_topic(&spec("refused", 1, 1)).unwrap_err();
    assert_eq!(refused.0, ErrorCode::KAFKA_STORAGE_ERROR);
    assert!(topics(&controller).is_empty());
    disk.set_capacity(None);
    controller.create_topic(&spec("t", 1, 1)).unwrap();
    assert_eq!(topics(&open(&disk, config(1)).unwrap()), ["t"]);
}

#[test]
fn another_cluster_id_than_the_stored_one_is_refused() {
    let with_id =
        |id: &str| ClusterConfig { cluster_id: Some(id.to_owned()), ..ClusterConfig::default() };
    let disk = MemDisk::new();
    let controller = open(&disk, with_id("first")).unwrap();
    assert_eq!(&*controller.image().cluster_id, "first");
    drop(controller);
    let refused = open(&disk, with_id("second")).unwrap_err().to_string();
    assert!(refused.contains("the id first, not second"), "{refused}");
    for config in [with_id("first"), ClusterConfig::default()] {
        assert_eq!(&*open(&disk, config).unwrap().image().cluster_id, "first");
    }
}

/// Lines of a version whose brokers had one listener.
#[test]
fn a_journal_with_one_address_per_broker_is_read() {
    let disk = MemDisk::new();
    let lines = [
        r#"{"cluster":{"id":"x","brokers":1}}"#,
        r#"{"broker":{"id":1,"host":"127.0.0.1","port":9092,"inner":"127.0.0.1:9092","epoch":7,"fenced":false}}"#,
        r#"{"version":9}"#,
    ];
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    disk.create_dir_all(Path::new(DIR)).unwrap();
    disk.write_durable(&journal_path(), text.as_bytes()).unwrap();
    let controller = open(&disk, config(1)).unwrap();
    let (epoch, image) = controller.register(1, addresses()).unwrap();
    assert!(epoch > 9, "{epoch}");
    assert_eq!(&*image.cluster_id, "x");
    assert!(controller.heartbeat(1, epoch));
}

/// Returns a journal with an append for each of three topics.
fn written() -> (MemDisk, Vec<u8>) {
    let disk = MemDisk::new();
    let controller = live(&disk, 1);
    for name in ["a", "b", "c"] {
        controller.create_topic(&spec(name, 1, 1)).unwrap();
    }
    let bytes = disk.read_all(&journal_path()).unwrap().to_vec();
    (disk, bytes)
}

/// Returns the start of the last line.
fn last_line(bytes: &[u8]) -> usize {
    bytes[..bytes.len() - 1].iter().rposition(|b| *b == b'\n').unwrap() + 1
}

#[test]
fn a_last_append_torn_at_any_byte_is_dropped_and_the_others_stay() {
    let (disk, bytes) = written();
    for end in last_line(&bytes)..bytes.len() {
        disk.alter(&journal_path(), |content| *content = bytes[..end].to_vec()).unwrap();
        assert_eq!(topics(&open(&disk, config(1)).unwrap()), ["a", "b"], "cut at {end}");
        // Pages before the end of the file may be lost as well.
        let mut zeros = bytes.clone();
        zeros[last_line(&bytes)..end].fill(0);
        if end > last_line(&bytes) {
            disk.alter(&journal_path(), |content| *content = zeros).unwrap();
            assert_eq!(topics(&open(&disk, config(1)).unwrap()), ["a", "b"], "zeros to {end}");
        }
    }
    disk.alter(&journal_path(), |content| *content = bytes.clone()).unwrap();
    assert_eq!(topics(&open(&disk, config(1)).unwrap()), ["a", "b", "c"]);
}

#[test]
fn a_bit_flipped_before_the_last_line_refuses_the_start_and_changes_nothing() {
    let (disk, bytes) = written();
    // Flipping the newline before the last line merges two lines into one, which looks torn.
    for at in 0..last_line(&bytes) - 1 {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1;
        disk.alter(&journal_path(), |content| content.clone_from(&damaged)).unwrap();
        let error = open(&disk, config(1)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{at}");
        assert!(error.to_string().contains("restore the file from a copy"), "{error}");
        assert_eq!(disk.read_all(&journal_path()).unwrap(), damaged);
    }
}

#[test]
fn logs_without_metadata_refuse_the_start() {
    let (disk, bytes) = written();
    let log = Path::new(DIR).join("broker-1/a-0");
    disk.create_dir_all(&log).unwrap();
    disk.alter(&journal_path(), Vec::clear).unwrap();
    let empty = open(&disk, config(1)).unwrap_err().to_string();
    disk.remove_file(&journal_path()).unwrap();
    let missing = open(&disk, config(1)).unwrap_err().to_string();
    for error in [empty, missing] {
        assert!(error.contains("broker-1/a-0") && error.contains("restore"), "{error}");
    }
    assert!(disk.exists(&log) && !disk.exists(&journal_path()));
    // Directories without logs do not matter.
    disk.remove_dir_all(&log).unwrap();
    assert!(topics(&open(&disk, config(1)).unwrap()).is_empty());
    disk.create_dir_all(&log).unwrap();
    disk.alter(&journal_path(), |content| *content = bytes).unwrap();
    assert_eq!(topics(&open(&disk, config(1)).unwrap()), ["a", "b", "c"]);
}

#[test]
fn a_journal_of_an_earlier_version_is_read() {
    let disk = MemDisk::new();
    disk.create_dir_all(Path::new(DIR)).unwrap();
    let topic = Uuid([7; 16]);
    let lines = format!(
        "{{\"cluster\":{{\"id\":\"x\"}}}}\n{{\"producer_ids\":{{\"end\":1000}}}}\n{{\"topic\":{{\"name\":\"t\",\
         \"id\":\"{topic}\",\"config\":{{}},\"partitions\":[{{\"leader\":1,\"leader_epoch\":0,\"partition_epoch\":0,\
         \"isr\":[1,2],\"replicas\":[1,2]}}]}}}}\n{{\"producer_ids\":{{\"e"
    );
    disk.write_atomic(&journal_path(), lines.as_bytes()).unwrap();
    // The replicas reveal its number of brokers.
    let error = open(&disk, config(1)).unwrap_err().to_string();
    assert!(error.contains("--brokers 2"), "{error}");
    let controller = open(&disk, config(2)).unwrap();
    assert_eq!(topics(&controller), ["t"]);
    assert_eq!(controller.next_producer_id(), Ok(1000));
}

#[test]
fn another_number_of_brokers_needs_permission_and_loses_no_replica() {
    let disk = MemDisk::new();
    let controller = live(&disk, 3);
    controller.create_topic(&spec("everywhere", 3, 3)).unwrap();
    drop(controller);
    let resized = |brokers| ClusterConfig { resize: Resize::Allow, ..config(brokers) };
    for brokers in [1, 5] {
        let error = open(&disk, config(brokers)).unwrap_err().to_string();
        assert!(error.contains("--brokers 3") && error.contains("--resize"), "{error}");
    }
    assert_eq!(topics(&open(&disk, resized(5)).unwrap()), ["everywhere"]);
    assert!(open(&disk, config(3)).is_err(), "it has five now");
    assert_eq!(topics(&open(&disk, resized(1)).unwrap()), ["everywhere"]);

    let controller = live(&disk, 1);
    drop(controller);
    let controller = {
        let controller = open(&disk, resized(2)).unwrap();
        for id in [1, 2] {
            let (epoch, _) = controller.register(id, addresses()).unwrap();
            assert!(controller.heartbeat(id, epoch));
        }
        controller
    };
    controller.create_topic(&spec("alone", 2, 1)).unwrap();
    drop(controller);
    let error = open(&disk, resized(1)).unwrap_err().to_string();
    assert!(error.contains("no in-sync replica of alone-"), "{error}");
}
