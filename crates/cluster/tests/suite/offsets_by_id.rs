//! OffsetCommit and OffsetFetch from version 10 on: topics have ids instead of names (KIP-848).

use crate::support::{
    Client,
    group::{GROUP, ready, text, topic},
    one_partition, soon,
};
use curtail_wire::{
    ErrorCode, Uuid,
    cold::{
        messages::{DeleteTopicsRequest, offset_fetch_response::OffsetFetchResponseGroup},
        newer::{
            OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic, OffsetFetchGroup,
            OffsetFetchRequest, OffsetFetchTopic,
        },
    },
};

const NEWEST: i16 = 10;
const NONE: i16 = 0;
const UNKNOWN: i16 = ErrorCode::UNKNOWN_TOPIC_ID.0;

/// A topic as a request names it.
#[derive(Clone, Copy)]
enum Topic {
    Id(Uuid),
    Name(&'static str),
}

/// Returns the version, name and id of a request's topic.
fn named(topic: Topic) -> (i16, String, Uuid) {
    match topic {
        Topic::Id(id) => (NEWEST, String::new(), id),
        Topic::Name(name) => (NEWEST - 1, name.to_owned(), Uuid::ZERO),
    }
}

fn uuid(id: uuid::Uuid) -> Uuid {
    Uuid(*id.as_bytes())
}

/// Commits offsets of partition 0 and of partition 9, which does not exist. Returns the id in the
/// response, and the error of each partition.
async fn commit(client: &mut Client, topic: Topic, offset: i64) -> (Uuid, Vec<i16>) {
    let (version, name, topic_id) = named(topic);
    let partition = |index| OffsetCommitPartition {
        index,
        committed_offset: offset,
        committed_leader_epoch: 5,
        committed_metadata: Some("here".to_owned()),
    };
    let request = OffsetCommitRequest {
        group_id: GROUP.to_owned(),
        generation_id_or_member_epoch: -1,
        topics: vec![OffsetCommitTopic {
            name,
            topic_id,
            partitions: [0, 9].map(partition).into(),
        }],
        ..Default::default()
    };
    let topic = client.cold(version, &request).await.topics.remove(0);
    (uuid(topic.topic_id), topic.partitions.iter().map(|p| p.error_code).collect())
}

async fn fetch(client: &mut Client, topics: Option<&[Topic]>) -> OffsetFetchResponseGroup {
    let asked = |topic: &Topic| {
        let (_, name, topic_id) = named(*topic);
        OffsetFetchTopic { name, topic_id, partitions: vec![0] }
    };
    let version = match topics {
        Some([Topic::Name(_), ..]) => NEWEST - 1,
        _ => NEWEST,
    };
    let group = OffsetFetchGroup {
        group_id: GROUP.to_owned(),
        topics: topics.map(|topics| topics.iter().map(asked).collect()),
        ..Default::default()
    };
    let request = OffsetFetchRequest { groups: vec![group], require_stable: true };
    client.cold(version, &request).await.groups.remove(0)
}

/// Returns the offset and the error of partition 0 of each topic.
async fn offsets(client: &mut Client, topics: &[Topic]) -> Vec<(i64, i16)> {
    let group = fetch(client, Some(topics)).await;
    assert_eq!(group.error_code, NONE);
    let first = group.topics.iter().map(|topic| &topic.partitions[0]);
    first.map(|partition| (partition.committed_offset, partition.error_code)).collect()
}

async fn id_of(client: &mut Client, name: &str) -> Uuid {
    client.metadata(name).await.1.topic_id
}

#[tokio::test]
async fn offsets_are_committed_and_fetched_by_topic_id() {
    let (cluster, mut client) = one_partition().await;
    ready(&cluster).await;
    let (id, other) = (id_of(&mut client, "t").await, Uuid([7; 16]));
    let missing = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0;

    assert_eq!(commit(&mut client, Topic::Id(id), 4).await, (id, vec![NONE, missing]));
    for unknown in [other, Uuid::ZERO] {
        let refused = commit(&mut client, Topic::Id(unknown), 5).await;
        assert_eq!(refused, (unknown, vec![UNKNOWN, UNKNOWN]));
    }
    let found = offsets(&mut client, &[Topic::Id(other), Topic::Id(id)]).await;
    assert_eq!(found, [(-1, UNKNOWN), (4, NONE)]);
    assert_eq!(offsets(&mut client, &[Topic::Name("t")]).await, [(4, NONE)]);

    // All of them: the response has ids, too.
    let all = fetch(&mut client, None).await.topics;
    assert_eq!(all.iter().map(|topic| uuid(topic.topic_id)).collect::<Vec<_>>(), [id]);
    assert_eq!(all[0].partitions[0].metadata, Some(text("here")));
    assert_eq!(all[0].partitions[0].committed_leader_epoch, 5);

    // A commit by name replaces one by id.
    assert_eq!(commit(&mut client, Topic::Name("t"), 6).await.1, [NONE, missing]);
    assert_eq!(offsets(&mut client, &[Topic::Id(id)]).await, [(6, NONE)]);
    soon(cluster.shutdown()).await;
}

#[tokio::test]
async fn an_offset_of_a_deleted_topic_is_none_of_its_successor() {
    let (cluster, mut client) = one_partition().await;
    ready(&cluster).await;
    let previous = id_of(&mut client, "t").await;
    assert_eq!(commit(&mut client, Topic::Id(previous), 4).await.1[0], NONE);

    let delete = DeleteTopicsRequest::default().with_topic_names(vec![topic("t")]);
    assert_eq!(client.cold(5, &delete).await.responses[0].error_code, NONE);
    cluster.settled().await;
    cluster.create_topic("t", 1, 1, &[]).unwrap();
    cluster.settled().await;
    let id = id_of(&mut client, "t").await;
    assert_ne!(id, previous);

    let found = offsets(&mut client, &[Topic::Id(previous), Topic::Id(id)]).await;
    assert_eq!(found, [(-1, UNKNOWN), (-1, NONE)]);
    assert_eq!(commit(&mut client, Topic::Id(previous), 5).await.1[0], UNKNOWN);
    assert_eq!(commit(&mut client, Topic::Id(id), 6).await.1[0], NONE);
    assert_eq!(offsets(&mut client, &[Topic::Id(id)]).await, [(6, NONE)]);
    soon(cluster.shutdown()).await;
}

/// As in Kafka, the coordinator deletes the offsets of a deleted topic, however they were committed.
#[tokio::test]
async fn offsets_end_with_their_topic() {
    let (cluster, mut client) = one_partition().await;
    ready(&cluster).await;
    for commits_by_id in [false, true] {
        let id = id_of(&mut client, "t").await;
        let by = if commits_by_id { Topic::Id(id) } else { Topic::Name("t") };
        assert_eq!(commit(&mut client, by, 4).await.1[0], NONE);
        assert_eq!(offsets(&mut client, &[Topic::Name("t")]).await, [(4, NONE)]);
        assert!(cluster.delete_topic("t"));
        cluster.settled().await;
        assert_eq!(fetch(&mut client, None).await.topics, []);
        cluster.create_topic("t", 1, 1, &[]).unwrap();
        cluster.settled().await;
        let id = id_of(&mut client, "t").await;
        assert_eq!(fetch(&mut client, None).await.topics, []);
        assert_eq!(offsets(&mut client, &[Topic::Name("t")]).await, [(-1, NONE)]);
        assert_eq!(offsets(&mut client, &[Topic::Id(id)]).await, [(-1, NONE)]);
        // The log has it, too.
        cluster.kill(1);
        soon(cluster.restart(1)).await.unwrap();
        cluster.settled().await;
        client = Client::connect(&cluster, 1).await;
        ready(&cluster).await;
        assert_eq!(offsets(&mut client, &[Topic::Name("t")]).await, [(-1, NONE)]);
    }
    soon(cluster.shutdown()).await;
}
