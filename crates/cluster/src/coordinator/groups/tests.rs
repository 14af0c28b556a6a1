//! Expiry of offsets (`offsets.retention.minutes`).

use std::{collections::BTreeSet, time::Duration};

use bytes::{BufMut, Bytes};
use curtail_wire::{ErrorCode, records::EndTxnMarker};

use super::*;
use crate::{
    ClusterConfig,
    coordinator::{
        bench::{Bench, Home},
        consumer::Heartbeat,
        records::OffsetValue,
    },
};

const GROUP: &str = "hello";
const RETENTION: Duration = Duration::from_secs(3600);
const MS: Duration = Duration::from_millis(1);

async fn start() -> (Bench, Home<Groups>) {
    let config = ClusterConfig { offsets_retention_minutes: 60, ..ClusterConfig::default() };
    let bench = Bench::start(Kind::Group, config).await;
    let home = home(&bench).await;
    (bench, home)
}

async fn home(bench: &Bench) -> Home<Groups> {
    bench.home(|broker| &broker.groups, GROUP).await
}

/// Commits an offset of a topic's first partition.
async fn commit(
    (bench, home): &(Bench, Home<Groups>),
    (member_id, generation): (&str, i32),
    topic: &str,
) -> Result<(), ErrorCode> {
    let committer = Committer { member_id, instance_id: None, generation };
    let offsets = vec![((topic.to_owned(), 0), value(bench))];
    let taken = home.run(|groups, cx| groups.commit(GROUP, committer, 9, offsets, cx))?;
    home.committed(taken).await
}

fn value(bench: &Bench) -> OffsetValue {
    OffsetValue { offset: 5, commit_timestamp: bench.now_ms(), ..OffsetValue::default() }
}

/// No member, as tools commit.
const NO_MEMBER: (&str, i32) = ("", -1);

/// Checks the retention, and returns the topics with an offset; `None` if there is no group.
fn kept((_, home): &(Bench, Home<Groups>)) -> Option<String> {
    home.run(|groups, cx| {
        groups.drop_expired(cx);
        topics(groups)
    })
}

fn topics(groups: &Groups) -> Option<String> {
    let offsets = groups.offsets(GROUP)?;
    let topics: Vec<&str> = offsets.all().map(|((topic, _), _)| topic.as_str()).collect();
    Some(topics.join(" "))
}

fn some(topics: &str) -> Option<String> {
    Some(topics.to_owned())
}

/// Returns the topics and the number of groups that have a tombstone in the log.
fn tombstones((_, home): &(Bench, Home<Groups>)) -> (String, usize) {
    let (mut topics, mut groups) = (Vec::new(), 0);
    for key in home.tombstones(0).0 {
        match records::decode_key(&key).expect("a valid key") {
            Some(Key::Offset { topic, .. }) => topics.push(topic),
            _ => groups += 1,
        }
    }
    (topics.join(" "), groups)
}

/// Joins as the only member of a group of the classic protocol, which subscribes to `t`.
async fn join((_, home): &(Bench, Home<Groups>)) -> (String, i32) {
    let mut subscription = vec![0, 0, 0, 0, 0, 1, 0, 1];
    subscription.put_slice(b"t\xff\xff\xff\xff");
    let join = Join {
        member_id: String::new(),
        new_id: "m".into(),
        instance_id: None,
        client_id: "c".into(),
        client_host: "/h".into(),
        session_timeout: Duration::from_secs(1800),
        rebalance_timeout: Duration::from_secs(60),
        protocol_type: CONSUMER.into(),
        protocols: vec![("range".into(), Bytes::from(subscription))],
        needs_known_id: false,
        may_skip_assignment: false,
    };
    let joined = home.run(|groups, cx| groups.join(GROUP, join, cx));
    let joined = joined.await.expect("answered").expect("joined");
    let sync = SyncRequest {
        member_id: joined.member_id.clone(),
        instance_id: None,
        generation: joined.generation,
        protocol_type: None,
        protocol: None,
        assignments: BTreeMap::new(),
    };
    let synced = home.run(|groups, cx| groups.sync(GROUP, sync, cx));
    synced.await.expect("answered").expect("synced");
    (joined.member_id, joined.generation)
}

#[tokio::test]
async fn offsets_of_a_classic_group_expire_after_its_last_member_left() {
    let at = start().await;
    let (member, generation) = join(&at).await;
    for topic in ["t", "u"] {
        commit(&at, (&member, generation), topic).await.unwrap();
    }
    let (bench, home_of_group) = &at;
    bench.pass(RETENTION - MS);
    assert_eq!(kept(&at), some("t u"));
    bench.pass(MS);
    assert_eq!(kept(&at), some("t"), "the member subscribes to t only");
    bench.pass(10 * RETENTION);
    assert_eq!(kept(&at), some("t"));

    let leaving = [(member, None)];
    let left = home_of_group.run(|groups, cx| groups.leave(GROUP, &leaving, cx)).unwrap();
    assert_eq!(left.0, [Ok(())]);
    bench.pass(RETENTION - MS);
    assert_eq!(kept(&at), some("t"), "an old commit, but the group became empty later");
    assert_eq!(tombstones(&at), ("u".into(), 0));
    bench.pass(MS);
    assert_eq!(kept(&at), None);
    assert_eq!(tombstones(&at), ("u t".into(), 1));

    bench.restart().await;
    let again = home(bench).await;
    assert_eq!(again.run(|groups, _| topics(groups)), None);
}

/// In Kafka the state of an empty group decides, not the commit.
#[tokio::test]
async fn offsets_committed_to_an_empty_group_expire_with_the_others() {
    let at = start().await;
    let (member, generation) = join(&at).await;
    commit(&at, (&member, generation), "t").await.unwrap();
    let leaving = [(member, None)];
    at.1.run(|groups, cx| groups.leave(GROUP, &leaving, cx)).unwrap();
    at.0.pass(RETENTION - MS);
    commit(&at, NO_MEMBER, "u").await.unwrap();
    assert_eq!(kept(&at), some("t u"));
    at.0.pass(MS);
    assert_eq!(kept(&at), None);
}

#[tokio::test]
async fn offsets_of_a_group_that_never_had_members_expire_after_their_commit() {
    let at = start().await;
    commit(&at, NO_MEMBER, "t").await.unwrap();
    at.0.pass(RETENTION / 2);
    commit(&at, NO_MEMBER, "u").await.unwrap();
    at.0.pass(RETENTION / 2);
    assert_eq!(kept(&at), some("u"));
    commit(&at, NO_MEMBER, "u").await.unwrap();
    at.0.pass(RETENTION - MS);
    assert_eq!(kept(&at), some("u"), "another commit extends the retention");
    at.0.pass(MS);
    assert_eq!(kept(&at), None);
    assert_eq!(tombstones(&at), ("t u".into(), 1));
}

#[tokio::test]
async fn an_offset_with_a_pending_replacement_does_not_expire() {
    let at = start().await;
    for topic in ["t", "u"] {
        commit(&at, NO_MEMBER, topic).await.unwrap();
    }
    let (bench, home) = &at;
    let producer = Producer { id: 7, epoch: 0 };
    let committer = Committer { member_id: "", instance_id: None, generation: -1 };
    let offsets = vec![(("t".to_owned(), 0), value(bench))];
    let taken = home.run(|groups, cx| {
        let guard = cx.begin_verification(producer).unwrap();
        groups.prepare(GROUP, committer, (producer, guard), offsets, cx)
    });
    home.committed(taken.unwrap()).await.unwrap();
    bench.pass(RETENTION);
    assert_eq!(kept(&at), some("t"));
    let marker = TxnMarker {
        producer_id: 7,
        producer_epoch: 0,
        result: EndTxnMarker::Abort,
        coordinator_epoch: 0,
        bumped: false,
    };
    home.run(|groups, cx| groups.write_marker(&marker, cx)).unwrap();
    assert_eq!(kept(&at), None);
}

#[tokio::test]
async fn offsets_of_a_consumer_group_expire_after_their_commit_except_for_subscribed_topics() {
    let at = start().await;
    let (bench, home) = &at;
    bench.cluster.create_topic("t", 1, 1, &[]).expect("the topic is new");
    bench.cluster.settled().await;
    let joining = Heartbeat {
        member_id: "m".into(),
        new_id: String::new(),
        epoch: 0,
        instance_id: None,
        rack_id: None,
        client_id: "c".into(),
        client_host: "/h".into(),
        rebalance_timeout_ms: Some(60_000),
        topics: Some(BTreeSet::from(["t".to_owned()])),
        regex: None,
        assignor: None,
        owned: Some(Default::default()),
    };
    let (beat, taken) = home.run(|groups, cx| groups.beat(GROUP, &joining, cx)).unwrap();
    home.committed(taken).await.unwrap();
    for topic in ["t", "u"] {
        commit(&at, ("m", beat.epoch), topic).await.unwrap();
    }
    bench.pass(RETENTION);
    assert_eq!(kept(&at), some("t"));
    let leaving = Heartbeat { epoch: -1, topics: None, owned: None, ..joining };
    home.run(|groups, cx| groups.beat(GROUP, &leaving, cx)).unwrap();
    assert_eq!(kept(&at), None, "the commit is old enough");
}

#[tokio::test]
async fn a_group_that_has_never_committed_disappears_with_its_last_member() {
    let at = start().await;
    let (member, _) = join(&at).await;
    assert_eq!(kept(&at), some(""));
    at.1.run(|groups, cx| groups.leave(GROUP, &[(member, None)], cx)).unwrap();
    assert_eq!(kept(&at), None);
}

#[tokio::test]
async fn retention_is_checked_at_its_interval() {
    let config = ClusterConfig {
        offsets_retention_minutes: 60,
        offsets_retention_check_interval: Duration::from_secs(30),
        ..ClusterConfig::default()
    };
    let bench = Bench::start(Kind::Group, config).await;
    let home = home(&bench).await;
    let at = (bench, home);
    commit(&at, NO_MEMBER, "t").await.unwrap();
    at.0.pass(RETENTION);
    at.1.run(|groups, cx| {
        let check = groups.next_retention_check.expect("the log has been read");
        assert!(check <= cx.now + Duration::from_secs(30));
        assert_eq!(groups.deadline(), Some(check));
        cx.now = check - MS;
        groups.expire(cx);
        assert_eq!(topics(groups), some("t"));
        cx.now = check;
        groups.expire(cx);
        assert_eq!(topics(groups), None);
        assert_eq!(groups.deadline(), Some(check + Duration::from_secs(30)));
    });
}
