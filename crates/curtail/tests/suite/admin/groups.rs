//! Groups of both protocols, and their committed offsets.

use std::time::Duration;

use curtail::{
    Admin, Consumer, ConsumerConfig, Error, ErrorCode, Record,
    admin::{GroupDescription, GroupKind, GroupMember, GroupState},
    transaction::OffsetAndMetadata,
};

use super::{Backend, admin, at, code, common, only, until};

const PROTOCOLS: [(&str, GroupKind); 2] =
    [("classic", GroupKind::Classic), ("consumer", GroupKind::Consumer)];

async fn describe(admin: &Admin, group: &str) -> Result<GroupDescription, Error> {
    only(admin.describe_groups(&[group]).await.unwrap())
}

async fn listed(admin: &Admin) -> Vec<(String, GroupKind, GroupState)> {
    let mut all = Vec::new();
    for (_, groups) in admin.list_groups().await.unwrap() {
        all.extend(groups.unwrap().into_iter().map(|g| (g.group_id, g.kind, g.state)));
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

/// The only member of a group. It has both partitions of `shared` and has committed offset 1 of each.
async fn member(backend: &Backend, protocol: &str) -> Consumer {
    let mut config = ConsumerConfig::new(backend.bootstrap());
    let properties = [
        ("group.id", protocol),
        ("group.protocol", protocol),
        ("enable.auto.commit", "false"),
        ("client.id", "reader"),
    ];
    for (name, value) in properties {
        config.set(name, value).unwrap();
    }
    let mut consumer = Consumer::new(config).unwrap();
    consumer.subscribe(["shared"]).unwrap();
    while consumer.assignment().len() < 2 {
        consumer.poll(Duration::from_millis(100)).await.unwrap();
    }
    let offsets = (0..2).map(|partition| {
        let offset = OffsetAndMetadata { metadata: "mine".into(), ..OffsetAndMetadata::new(1) };
        (at("shared", partition), offset)
    });
    consumer.commit_offsets(offsets).await.unwrap();
    consumer
}

pub(super) async fn are_listed_described_and_deleted(backend: &Backend) {
    let admin = admin(backend);
    backend.create_topic("shared", 2, 3).await;
    let producer = common::producer(backend, &[]);
    for partition in [0, 0, 0, 1, 1, 1] {
        let record = Record::to("shared").partition(partition).value("x");
        producer.send(record).await.unwrap().await.unwrap();
    }
    let missing = describe(&admin, "missing").await;
    assert_eq!(code(&missing), ErrorCode::GROUP_ID_NOT_FOUND);
    for (protocol, kind) in PROTOCOLS {
        let mut consumer = member(backend, protocol).await;
        let ask = async || {
            consumer.poll(Duration::from_millis(50)).await.unwrap();
            describe(&admin, protocol).await.unwrap()
        };
        let group = until(ask, |group| group.state == GroupState::Stable).await;
        assert_eq!((group.group_id.as_str(), &group.kind), (protocol, &kind));
        assert_eq!(group.epoch.is_some(), kind == GroupKind::Consumer);
        assert!(!group.assignor.is_empty());
        let [member] = &group.members[..] else { panic!("{group:?}") };
        assert_eq!(member.assignment, [at("shared", 0), at("shared", 1)]);
        assert_eq!(member.topics, ["shared"]);
        assert_eq!(member.client_id, "reader");
        let all = listed(&admin).await;
        assert!(all.contains(&(protocol.to_owned(), kind.clone(), GroupState::Stable)), "{all:?}");

        let refused = only(admin.delete_groups(&[protocol]).await.unwrap());
        assert_eq!(code(&refused), ErrorCode::NON_EMPTY_GROUP);
        let offset = (at("shared", 0), OffsetAndMetadata::new(0));
        let refused = only(admin.alter_group_offsets(protocol, &[offset]).await.unwrap());
        assert_eq!(code(&refused), ErrorCode::UNKNOWN_MEMBER_ID);
        assert!(refused.unwrap_err().to_string().contains("stop them"));
        let read = [at("shared", 0)];
        let refused = only(admin.delete_group_offsets(protocol, &read).await.unwrap());
        assert_eq!(code(&refused), ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC);
        consumer.close().await;
        let ask = async || describe(&admin, protocol).await.unwrap();
        until(ask, |group| group.state == GroupState::Empty && group.members.is_empty()).await;
    }
}

pub(super) async fn offsets_are_listed_altered_and_deleted(backend: &Backend) {
    let admin = admin(backend);
    let groups = ["classic", "consumer", "missing"];
    let committed = admin.list_group_offsets(&groups).await.unwrap();
    for (group, offsets) in &committed[..2] {
        let offsets = offsets.as_ref().unwrap();
        assert_eq!(offsets.len(), 2, "{group}: {offsets:?}");
        let first = &offsets[&at("shared", 0)];
        assert_eq!((first.offset, first.metadata.as_str()), (1, "mine"));
    }
    assert!(committed[2].1.as_ref().unwrap().is_empty(), "{committed:?}");

    for (group, _) in PROTOCOLS {
        let changed = [(at("shared", 0), OffsetAndMetadata::new(3))];
        let changed = admin.alter_group_offsets(group, &changed).await.unwrap();
        only(changed).unwrap();
        let forgotten = admin.delete_group_offsets(group, &[at("shared", 1)]).await.unwrap();
        only(forgotten).unwrap();
        let offsets = only(admin.list_group_offsets(&[group]).await.unwrap()).unwrap();
        let offsets: Vec<_> =
            offsets.iter().map(|(at, found)| (at.clone(), found.offset)).collect();
        assert_eq!(offsets, [(at("shared", 0), 3)]);
    }
    // An error of one partition is final, and the others are changed.
    let unknown = [at("shared", 9), at("nowhere", 0)];
    let offsets = [&unknown[..], &[at("shared", 0)]].concat();
    let altered = offsets.iter().map(|at| (at.clone(), OffsetAndMetadata::new(3)));
    let altered: Vec<_> = altered.collect();
    let altered = admin.alter_group_offsets("classic", &altered).await.unwrap();
    let deleted = admin.delete_group_offsets("classic", &offsets).await.unwrap();
    for each in [altered, deleted] {
        let results: Vec<_> = each.into_iter().map(|(_, result)| result).collect();
        assert!(
            matches!(
                &results[..],
                [
                    Err(Error::UnknownPartition { partition: 9, partitions: 2, .. }),
                    Err(Error::UnknownTopic(_)),
                    Ok(())
                ]
            ),
            "{results:?}"
        );
    }
    // Creates a group that only has offsets.
    let begun = [(at("shared", 1), OffsetAndMetadata::new(2))];
    only(admin.alter_group_offsets("made", &begun).await.unwrap()).unwrap();
    assert_eq!(describe(&admin, "made").await.unwrap().state, GroupState::Empty);

    let deleted = admin.delete_groups(&["classic", "consumer", "made", "missing"]).await.unwrap();
    assert!(deleted[..3].iter().all(|(_, result)| result.is_ok()), "{deleted:?}");
    assert_eq!(code(&deleted[3].1), ErrorCode::GROUP_ID_NOT_FOUND);
    assert_eq!(listed(&admin).await, []);
    let refused = admin.delete_group_offsets("missing", &[at("shared", 1)]).await;
    assert_eq!(code(&refused), ErrorCode::GROUP_ID_NOT_FOUND);
}

/// A static member stays in its group after it has closed, until its session ends or it is removed.
pub(super) async fn members_are_removed(backend: &Backend) {
    let admin = admin(backend);
    backend.create_topic("shared-statically", 1, 3).await;
    let mut config = ConsumerConfig::new(backend.bootstrap()).group_id("static");
    config.set("group.instance.id", "pod-1").unwrap();
    let mut consumer = Consumer::new(config).unwrap();
    consumer.subscribe(["shared-statically"]).unwrap();
    while consumer.assignment().is_empty() {
        consumer.poll(Duration::from_millis(100)).await.unwrap();
    }
    consumer.close().await;
    let group = describe(&admin, "static").await.unwrap();
    let [member] = &group.members[..] else { panic!("{group:?}") };
    assert_eq!(member.group_instance_id.as_deref(), Some("pod-1"));

    let member = |instance: &str| GroupMember::Static(instance.to_owned());
    let asked = [member("pod-2"), member("pod-1"), GroupMember::Id("nobody".to_owned())];
    let removed = admin.remove_group_members("static", &asked).await.unwrap();
    assert_eq!(code(&removed[0].1), ErrorCode::UNKNOWN_MEMBER_ID);
    assert!(removed[1].1.is_ok(), "{removed:?}");
    assert_eq!(code(&removed[2].1), ErrorCode::UNKNOWN_MEMBER_ID);
    let ask = async || describe(&admin, "static").await.unwrap();
    until(ask, |group| group.members.is_empty()).await;
}
