//! The admin client, on the embedded cluster and on Apache Kafka: the same checks on both.

mod brokers;
mod configs;
mod groups;
mod java;
mod replicas;
mod rights;
mod topics;
mod transactions;

use std::{fmt::Debug, time::Duration};

use crate::common::{self, Backend};
use curtail::{Admin, AdminConfig, Error, ErrorCode, TopicPartition, admin::Each};
use curtail_apache::ApacheClusterBuilder;
use tokio::time::{sleep, timeout};

/// Longer than any wait on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);

fn admin(backend: &Backend) -> Admin {
    Admin::new(AdminConfig::new(backend.bootstrap())).unwrap()
}

/// Returns the only result.
fn only<K: Debug, T: Debug>(each: Each<K, T>) -> Result<T, Error> {
    let [(_, result)] = <[_; 1]>::try_from(each).unwrap_or_else(|each| panic!("{each:?}"));
    result
}

/// The broker's code of a failure; its text is one line.
fn code<T: Debug>(result: &Result<T, Error>) -> ErrorCode {
    let Err(error @ Error::Broker { code, .. }) = result else { panic!("{result:?}") };
    assert!(!error.report().to_string().contains('\n'), "{error}");
    *code
}

fn at(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition::new(topic, partition)
}

/// Repeats a call until its result is as expected: brokers learn of changes with a delay.
async fn until<T: Debug>(mut ask: impl AsyncFnMut() -> T, expected: impl Fn(&T) -> bool) -> T {
    let asked = async {
        loop {
            let answer = ask().await;
            if expected(&answer) {
                return answer;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(LIMIT, asked).await.expect("the response becomes as expected")
}

/// The checks of both clusters; three brokers.
async fn everything(backend: &Backend) {
    topics::come_and_go(backend).await;
    topics::the_cluster_is_described(backend).await;
    topics::records_are_deleted(backend).await;
    topics::offsets_are_listed(backend).await;
    topics::partitions_are_added(backend).await;
    configs::are_described_and_altered(backend).await;
    configs::of_brokers_and_groups_change_while_they_run(backend).await;
    groups::are_listed_described_and_deleted(backend).await;
    groups::offsets_are_listed_altered_and_deleted(backend).await;
    configs::resources_are_listed(backend).await;
    groups::members_are_removed(backend).await;
    brokers::directories_and_features_are_described(backend).await;
    brokers::replicas_move_between_directories(backend).await;
    brokers::features_and_registrations_are_refused(backend).await;
    transactions::are_found_and_aborted(backend).await;
    transactions::producers_are_fenced(backend).await;
    rights::users_have_passwords(backend).await;
    replicas::preferred_leaders_are_elected(backend).await;
    replicas::are_reassigned(backend).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn admin_calls_work_on_the_embedded_cluster() {
    let backend = Backend::embedded(3).await;
    brokers::the_quorum_is_described(&backend, &[1]).await;
    everything(&backend).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn admin_calls_work_on_apache_kafka() {
    let ruled = |builder: ApacheClusterBuilder| {
        let authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
        builder
            .property("authorizer.class.name", authorizer)
            .property("super.users", "User:ANONYMOUS")
    };
    let Some(backend) = Backend::apache_with("admin_calls_work_on_apache_kafka", 3, ruled) else {
        return;
    };
    brokers::the_quorum_is_described(&backend, &[1, 2, 3]).await;
    rights::access_is_ruled(&backend).await;
    rights::quotas_are_set(&backend).await;
    everything(&backend).await;
}

#[tokio::test]
async fn unreachable_cluster_is_reported_at_once() {
    let admin = Admin::new(AdminConfig::new("127.0.0.1:1")).unwrap();
    let error = admin.list_topics().await.unwrap_err();
    assert!(matches!(error, Error::Unreachable { .. }), "{error}");
    let text = error.report().to_string();
    assert!(text.contains("127.0.0.1:1") && !text.contains('\n'), "{text}");
}
