//! Errors for authenticated clients without ACL permissions.

use curtail::{
    ErrorCode, TransactionalProducer,
    admin::{Acl, AclFilter, AclOperation, AclResource, NewTopic},
};

use super::*;
use crate::common::Backend;
use curtail_cluster::{Listeners, User};

const TOPIC: &str = "guarded";

/// Checks that the error names the missing ACL permission and its resource.
#[track_caller]
fn lacks(error: &Error, parts: &[&str]) {
    let line = error.report().to_string();
    assert!(parts.iter().all(|part| line.contains(part)), "{line} lacks {parts:?}");
    assert!(!line.contains("secret") && !line.contains('\n'), "{line}");
}

pub(super) async fn missing_rights(cluster: &ApacheCluster) {
    let all = async {
        let root = admin(&cluster.bootstrap(), &Vec::new());
        let new = NewTopic::new(TOPIC).partitions(1).replication_factor(1);
        root.create_topics(&[new]).await.unwrap().remove(0).1.unwrap();

        let bootstrap = cluster.listener("CLEAR");
        let clear = vec![("security.protocol", "SASL_PLAINTEXT".to_owned())];
        let dave = sasl(clear, "PLAIN", login(PLAIN, "dave", "dave-secret"));
        without_any(&bootstrap, &dave).await;
        let read = Acl::allow("User:dave", AclOperation::Read, AclResource::Group, "open-group");
        root.create_acls(&[read]).await.unwrap().remove(0).1.unwrap();
        with_the_group_only(&bootstrap, &dave).await;
        let describe = Acl::allow("User:dave", AclOperation::Describe, AclResource::Topic, TOPIC);
        root.create_acls(&[describe]).await.unwrap().remove(0).1.unwrap();
        with_describe_only(&bootstrap, &dave).await;
    };
    timeout(LIMIT, all).await.expect("refusals end calls at once");
}

async fn without_any(bootstrap: &str, dave: &Properties) {
    let topic = ["topic 'guarded': TOPIC_AUTHORIZATION_FAILED", "ACL for the topic: WRITE"];
    let producer = producer(bootstrap, dave);
    lacks(&producer.send(Record::to(TOPIC).value("x")).await.unwrap_err(), &topic);
    producer.close().await.unwrap();

    let mut config = ProducerConfig::new(bootstrap).transactional_id("guarded-id");
    for (name, value) in dave {
        config.set(name, value).unwrap();
    }
    let mut transactional = TransactionalProducer::new(config).unwrap();
    let id = ["'guarded-id'", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "transactional id: WRITE"];
    lacks(&transactional.init_transactions().await.unwrap_err(), &id);
    transactional.close().await.unwrap();

    let everything = AclFilter::default();
    let rules = admin(bootstrap, dave).describe_acls(&everything).await.unwrap_err();
    lacks(&rules, &["CLUSTER_AUTHORIZATION_FAILED", "ACL for the cluster"]);
}

/// Every member of a group reports a topic that it may not describe. It would wait for partitions indefinitely.
async fn with_the_group_only(bootstrap: &str, dave: &Properties) {
    let member = || {
        let mut member = consumer(bootstrap, dave, Some("open-group"));
        member.subscribe([TOPIC]).unwrap();
        member
    };
    let refused = async |member: &mut Consumer| {
        let error = loop {
            match member.poll(LIMIT).await.unwrap_err() {
                // The broker applies the ACL with a delay.
                Error::Broker { code: ErrorCode::GROUP_AUTHORIZATION_FAILED, .. } => {}
                error => break error,
            }
        };
        lacks(&error, &["topic 'guarded': TOPIC_AUTHORIZATION_FAILED", "READ to consume"]);
    };
    let (mut leader, mut follower) = (member(), member());
    refused(&mut leader).await;
    // The first member stays the leader while it polls.
    let leading = async {
        loop {
            let _ = leader.poll(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        biased;
        () = refused(&mut follower) => {}
        () = leading => {}
    }
    follower.close().await;
    leader.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_group_member_reports_a_topic_that_it_may_not_describe() {
    let backend = Backend::embedded_with(1, |config| {
        config.listeners = Listeners::local(SecurityProtocol::SaslPlaintext);
        config.security.users =
            vec![User::new("root", "root-secret"), User::new("dave", "dave-secret")];
        config.set("super.users", "User:root").unwrap();
        config.set("group.initial.rebalance.delay.ms", "0").unwrap();
        let authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
        config.set("authorizer.class.name", authorizer).unwrap();
    });
    let backend = backend.await;
    let all = async {
        let bootstrap = backend.bootstrap();
        let of = |user: &str, password: &str| {
            let clear = vec![("security.protocol", "SASL_PLAINTEXT".to_owned())];
            sasl(clear, "PLAIN", login(PLAIN, user, password))
        };
        let root = admin(&bootstrap, &of("root", "root-secret"));
        let new = NewTopic::new(TOPIC).partitions(1).replication_factor(1);
        root.create_topics(&[new]).await.unwrap().remove(0).1.unwrap();
        let read = Acl::allow("User:dave", AclOperation::Read, AclResource::Group, "open-group");
        root.create_acls(&[read]).await.unwrap().remove(0).1.unwrap();
        with_the_group_only(&bootstrap, &of("dave", "dave-secret")).await;
    };
    timeout(LIMIT, all).await.expect("refusals end calls at once");
}

async fn with_describe_only(bootstrap: &str, dave: &Properties) {
    let producer = producer(bootstrap, dave);
    // The broker applies the ACL with a delay.
    let delivery = loop {
        match producer.send(Record::to(TOPIC).value("x")).await {
            Err(Error::Broker { code: ErrorCode::TOPIC_AUTHORIZATION_FAILED, .. }) => {}
            sent => break sent.unwrap(),
        }
    };
    let error = delivery.await.unwrap_err();
    assert!(!error.may_have_been_written(), "{error}");
    let cluster = ["CLUSTER_AUTHORIZATION_FAILED", "IDEMPOTENT_WRITE"];
    lacks(&error, &cluster);
    producer.close().await.unwrap();

    let mut reader = consumer(bootstrap, dave, None);
    reader.assign([TopicPartition::new(TOPIC, 0)]);
    let error = reader.poll(LIMIT).await.unwrap_err();
    lacks(&error, &["guarded-0: TOPIC_AUTHORIZATION_FAILED", "READ to consume"]);
    reader.close().await;

    let mut member = consumer(bootstrap, dave, Some("guarded-group"));
    member.subscribe([TOPIC]).unwrap();
    let error = member.poll(LIMIT).await.unwrap_err();
    lacks(&error, &["'guarded-group'", "GROUP_AUTHORIZATION_FAILED", "ACL for the group: READ"]);
    member.close().await;
}
