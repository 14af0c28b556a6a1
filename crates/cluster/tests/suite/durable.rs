//! A persistent directory: one cluster at a time, and no loss of its content.

use std::{fs, path::Path};

use crate::support::{Client, batch, config, soon, start};
use curtail_cluster::{Cluster, ClusterConfig, Resize, Storage, brokers_of};
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
