//! A persistent directory: one cluster at a time, and no loss of its content.

use std::{fs, path::Path, sync::Arc, time::Duration};

use crate::support::{Client, batch, config, soon, start};
use curtail_cluster::{
    Cluster, ClusterConfig, ClusterHandle, Resize, Storage, brokers_of,
    disk::{Disk, MemDisk},
};
use curtail_net::Env;
use curtail_wire::{ErrorCode, Report};

fn stored(dir: &Path, brokers: u32) -> ClusterConfig {
    ClusterConfig { storage: Storage::Dir(dir.to_owned()), ..config(brokers) }
}

async fn refused(config: ClusterConfig) -> String {
    Report::new(&soon(Cluster::start(config, Env::real())).await.unwrap_err()).to_string()
}

/// Runs and stops a cluster on the directory: topic `t` with a record.
async fn filled(dir: &Path, brokers: u32) {
    let cluster = start(stored(dir, brokers)).await;
    cluster.create_topic("t", 1, 1, &[]).unwrap();
    cluster.settled().await;
    let (leader, _) = cluster.leader("t", 0).unwrap();
    let mut client = Client::connect(&cluster, leader).await;
    assert_eq!(client.produce("t", 0, -1, batch(&["a"], None)).await.error, ErrorCode::NONE);
    soon(cluster.shutdown()).await;
}

async fn read(cluster: &Cluster) -> Vec<String> {
    let (leader, _) = cluster.leader("t", 0).unwrap();
    Client::connect(cluster, leader).await.fetch_all("t", 0, 1).await
}

#[tokio::test]
async fn a_second_cluster_in_a_directory_is_refused_until_the_first_has_stopped() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 2).await;
    let cluster = start(stored(dir.path(), 2)).await;
    let error = refused(stored(dir.path(), 2)).await;
    let process = format!("(process {})", std::process::id());
    assert!(error.contains("in use by another cluster") && error.contains(&process), "{error}");
    assert_eq!(read(&cluster).await, ["a"], "the first one still serves");
    soon(cluster.shutdown()).await;
    let cluster = start(stored(dir.path(), 2)).await;
    assert_eq!(read(&cluster).await, ["a"]);
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn logs_whose_metadata_is_lost_are_not_deleted() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 1).await;
    let journal = dir.path().join("cluster-metadata.jsonl");
    let bytes = fs::read(&journal).unwrap();
    fs::write(&journal, "").unwrap();
    let empty = refused(stored(dir.path(), 1)).await;
    fs::remove_file(&journal).unwrap();
    let missing = refused(stored(dir.path(), 1)).await;
    for error in [empty, missing] {
        assert!(error.contains("broker-1/t-0") && error.contains("restore that file"), "{error}");
    }
    fs::write(&journal, bytes).unwrap();
    let cluster = start(stored(dir.path(), 1)).await;
    assert_eq!(read(&cluster).await, ["a"]);
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn another_number_of_brokers_is_refused_unless_it_is_allowed() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(brokers_of(dir.path()), None);
    filled(dir.path(), 2).await;
    assert_eq!(brokers_of(dir.path()), Some(2));
    let error = refused(stored(dir.path(), 3)).await;
    assert!(error.contains("--brokers 2") && error.contains("--resize"), "{error}");
    let cluster = start(ClusterConfig { resize: Resize::Allow, ..stored(dir.path(), 3) }).await;
    assert_eq!(read(&cluster).await, ["a"]);
    soon(cluster.shutdown()).await;
    assert_eq!(brokers_of(dir.path()), Some(3));
}

#[tokio::test]
async fn a_log_without_its_topics_id_keeps_its_records() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 1).await;
    fs::remove_file(dir.path().join("broker-1/t-0/partition.metadata")).unwrap();
    let cluster = start(stored(dir.path(), 1)).await;
    assert_eq!(read(&cluster).await, ["a"]);
    soon(cluster.shutdown()).await;
    assert!(dir.path().join("broker-1/t-0/partition.metadata").exists());
}

#[tokio::test]
async fn a_deletion_that_a_crash_interrupted_is_completed_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path(), 1).await;
    let log = dir.path().join("broker-1/u-0.deleted");
    fs::create_dir(&log).unwrap();
    fs::write(log.join("00000000000000000000.log"), "half").unwrap();
    let cluster = start(stored(dir.path(), 1)).await;
    assert!(!log.exists());
    assert_eq!(read(&cluster).await, ["a"]);
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn a_crash_of_the_machine_keeps_what_the_flush_settings_of_topics_have_synced() {
    let disk = MemDisk::new();
    let mut config = ClusterConfig {
        storage: Storage::Disks(vec![Arc::new(disk.clone())]),
        log_flush_scheduler_interval: Duration::from_millis(10),
        ..config(1)
    };
    config.set("log.flush.interval.ms", &i64::MAX.to_string()).unwrap();
    let cluster = start(config).await;
    let topics: [(_, _, &[&str]); 3] = [
        ("count", ("flush.messages", "2"), &["a", "b"]),
        ("never", ("flush.messages", "4"), &[]),
        ("time", ("flush.ms", "1"), &["a", "b", "c"]),
    ];
    for (topic, setting, _) in topics {
        cluster.create_topic(topic, 1, 1, &[setting]).unwrap();
    }
    cluster.settled().await;
    let mut client = Client::connect(&cluster, 1).await;
    for (topic, ..) in topics {
        // The records of `time` arrive together, so that one sync has them all.
        let batches: &[&[&str]] =
            if topic == "time" { &[&["a", "b", "c"]] } else { &[&["a"], &["b"], &["c"]] };
        for values in batches {
            let produced = client.produce(topic, 0, -1, batch(values, None)).await;
            assert_eq!(produced.error, ErrorCode::NONE);
        }
    }
    // Written by the flush after the first record.
    let flushed = Path::new("broker-1/time-0/leader-epoch-checkpoint");
    soon(async {
        while !disk.exists(flushed) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    cluster.kill(1);
    disk.crash(false);
    soon(cluster.restart(1)).await.unwrap();
    let led = |topic| move |c: &ClusterHandle| c.leader(topic, 0).is_some();
    for (topic, ..) in topics {
        soon(cluster.wait_until(led(topic))).await;
    }
    cluster.settled().await;
    let mut client = Client::connect(&cluster, 1).await;
    for (topic, _, kept) in topics {
        let (error, end, _) = client.list_offset(topic, 0, -1).await;
        assert_eq!((error, end), (ErrorCode::NONE, kept.len() as i64), "{topic}");
        assert_eq!(client.fetch_all(topic, 0, kept.len()).await, kept, "{topic}");
    }
    soon(cluster.shutdown()).await;
}
