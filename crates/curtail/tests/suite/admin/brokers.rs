//! Log directories, features and the metadata quorum.

use curtail::{
    ErrorCode,
    admin::{FeatureUpdate, LogDirMove, Mode},
};

use super::{Backend, admin, at, code, common, only, until};

pub(super) async fn directories_and_features_are_described(backend: &Backend) {
    let admin = admin(backend);
    backend.create_topic("stored", 1, 3).await;
    let producer = common::producer(backend, &[]);
    let record = curtail::Record::to("stored").partition(0).value(&[7_u8; 1000]);
    producer.send(record).await.unwrap().await.unwrap();
    let described = admin.describe_log_dirs(&[1, 2, 3, 77]).await.unwrap();
    for (broker, dirs) in &described[..3] {
        let [dir] = &dirs.as_ref().unwrap()[..] else { panic!("{broker}: {dirs:?}") };
        assert!(dir.state.is_ok() && !dir.path.is_empty());
        // With acks=all every in-sync replica has the record, so its size is above 0 and its lag is 0.
        let replica = &dir.replicas[&at("stored", 0)];
        assert!(replica.size > 1000, "{broker}: {replica:?}");
        assert!(!replica.is_future && replica.offset_lag == 0, "{broker}: {replica:?}");
    }
    assert_eq!(code(&described[3].1), ErrorCode::BROKER_ID_NOT_REGISTERED);
    let error = described[3].1.as_ref().unwrap_err().to_string();
    assert!(error.ends_with("it is not alive; the live brokers are 1, 2, 3"), "{error}");

    let features = admin.describe_features().await.unwrap();
    assert_eq!(features.finalized.get("transaction.version"), Some(&2), "{features:?}");
    assert_eq!(features.finalized.get("group.version"), Some(&1), "{features:?}");
    assert!(features.supported["transaction.version"].1 >= 2);
    assert!(features.epoch.is_some());
}

pub(super) async fn the_quorum_is_described(backend: &Backend, expected: &[i32]) {
    let quorum = admin(backend).describe_metadata_quorum().await.unwrap();
    let mut voters: Vec<i32> = quorum.voters.iter().map(|voter| voter.id).collect();
    voters.sort_unstable();
    assert_eq!(voters, expected);
    assert!(voters.contains(&quorum.leader) && quorum.high_watermark > 0, "{quorum:?}");
}

pub(super) async fn replicas_move_between_directories(backend: &Backend) {
    let admin = admin(backend);
    backend.create_topic("housed", 1, 3).await;
    let described = only(admin.describe_log_dirs(&[2]).await.unwrap()).unwrap();
    let own = described[0].path.clone();
    let to = |broker: i32, path: &str| LogDirMove::new(broker, at("housed", 0), path);
    let ask = async || only(admin.alter_replica_log_dirs(&[to(2, &own)]).await.unwrap());
    until(ask, Result::is_ok).await.unwrap();
    let moves = [to(1, "/nowhere"), to(77, &own)];
    let refused = admin.alter_replica_log_dirs(&moves).await.unwrap();
    assert_eq!(code(&refused[0].1), ErrorCode::LOG_DIR_NOT_FOUND);
    assert_eq!(code(&refused[1].1), ErrorCode::BROKER_ID_NOT_REGISTERED);
}

pub(super) async fn features_and_registrations_are_refused(backend: &Backend) {
    let admin = admin(backend);
    let present = [("transaction.version", FeatureUpdate::Upgrade(2))];
    admin.update_features(&present, Mode::Apply).await.unwrap();
    for update in [
        ("transaction.version", FeatureUpdate::Upgrade(99)),
        ("no.such.feature", FeatureUpdate::Upgrade(1)),
    ] {
        let refused = admin.update_features(&[update], Mode::Validate).await;
        assert_eq!(code(&refused), ErrorCode::INVALID_UPDATE_VERSION, "{update:?}");
    }
    assert_eq!(code(&admin.unregister_broker(77).await), ErrorCode::BROKER_ID_NOT_REGISTERED);
}
