//! DescribeTopicPartitions, key 75, version 0 (KIP-966): topics in the order of their names, page by
//! page. A response has at most [`MOST_PARTITIONS`] partitions; its cursor names the first of the next
//! page.

use std::collections::BTreeSet;

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    cold::messages::{
        BrokerId, DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse, TopicName,
        describe_topic_partitions_response::{
            Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
        },
    },
};

use super::{Answer, Call, metadata, text};
use crate::{
    acl::{Operation, Resource},
    controller::valid_name,
    coordinator::Kind,
    image::{Image, NO_LEADER, PartitionImage, TopicImage},
};

/// The default of Kafka's `max.request.partition.size.limit`.
const MOST_PARTITIONS: i32 = 2000;

pub(super) fn handle(call: &Call<'_>, body: Bytes, out: &mut Vec<Bytes>) -> Result<Answer, String> {
    let request: DescribeTopicPartitionsRequest = call.decode(body)?;
    let image = call.broker.image();
    let asked: BTreeSet<&str> = request.topics.iter().map(|topic| topic.name.as_str()).collect();
    let lists_all = asked.is_empty();
    let Some(start) = Start::of(&request, &asked) else {
        // The response has no field for the error of a whole request.
        call.concerns(0);
        let topics = asked.iter().map(|name| failed(name, ErrorCode::INVALID_REQUEST)).collect();
        return call.answer(&DescribeTopicPartitionsResponse::default().with_topics(topics), out);
    };
    let all = || image.topics.keys().map(|name| &**name).collect();
    let names: BTreeSet<&str> = if lists_all { all() } else { asked };
    let rest = names.range(start.topic..);
    call.concerns(rest.clone().count());

    let mut page = Page::new(request.response_partition_limit);
    let mut refused = Vec::new();
    for name in rest {
        match call.require(Operation::Describe, Resource::Topic(name)) {
            Ok(()) => page.add(call, &image, name, &start, lists_all),
            Err(_) if lists_all => {}
            Err(code) => refused.push(failed(name, code).with_is_internal(false)),
        }
        if page.is_full() {
            break;
        }
    }
    page.topics.extend(refused);
    let response = DescribeTopicPartitionsResponse::default()
        .with_topics(page.topics)
        .with_next_cursor(page.next);
    call.answer(&response, out)
}

/// Where a page begins.
#[derive(Default)]
struct Start<'a> {
    topic: &'a str,
    partition: usize,
}

impl<'a> Start<'a> {
    /// Returns `None` if the cursor is invalid: its partition is negative, or it names a topic that the
    /// request does not.
    fn of(request: &'a DescribeTopicPartitionsRequest, asked: &BTreeSet<&str>) -> Option<Self> {
        let Some(cursor) = &request.cursor else { return Some(Self::default()) };
        let topic = cursor.topic_name.as_str();
        let is_named = asked.is_empty() || asked.contains(topic);
        let partition = usize::try_from(cursor.partition_index).ok()?;
        is_named.then_some(Self { topic, partition })
    }

    fn partition_of(&self, topic: &str) -> usize {
        if topic == self.topic { self.partition } else { 0 }
    }
}

/// The topics of a response, and where the next one begins.
struct Page {
    topics: Vec<DescribeTopicPartitionsResponseTopic>,
    /// Partitions that still fit.
    room: usize,
    next: Option<Cursor>,
}

impl Page {
    fn new(limit: i32) -> Self {
        let room = limit.clamp(1, MOST_PARTITIONS) as usize;
        Self { topics: Vec::new(), room, next: None }
    }

    /// Whether the next page begins with a topic that this one has passed.
    fn is_full(&self) -> bool {
        self.next.is_some()
    }

    fn add(&mut self, call: &Call<'_>, image: &Image, name: &str, start: &Start<'_>, all: bool) {
        if self.room == 0 {
            return self.continue_at(name, 0);
        }
        let Some(topic) = image.topic(name) else {
            // A topic may have been deleted since the page before.
            if !all {
                let known = valid_name(name);
                let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
                let code = if known { unknown } else { ErrorCode::INVALID_TOPIC_EXCEPTION };
                let operations = metadata::topic_operations(call, name);
                self.topics.push(failed(name, code).with_topic_authorized_operations(operations));
            }
            return;
        };
        let first = start.partition_of(name).min(topic.partitions.len());
        let end = topic.partitions.len().min(first + self.room);
        self.topics.push(describe(call, image, topic, first..end));
        self.room -= end - first;
        if end < topic.partitions.len() {
            self.continue_at(name, end);
        }
    }

    fn continue_at(&mut self, topic: &str, partition: usize) {
        let cursor = Cursor::default().with_topic_name(TopicName(text(topic)));
        let index = i32::try_from(partition).unwrap_or(i32::MAX);
        self.next = Some(cursor.with_partition_index(index));
    }
}

fn failed(name: &str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic {
    DescribeTopicPartitionsResponseTopic::default()
        .with_error_code(code.0)
        .with_name(Some(TopicName(text(name))))
        .with_is_internal(Kind::of_topic(name).is_some())
}

fn describe(
    call: &Call<'_>,
    image: &Image,
    topic: &TopicImage,
    range: std::ops::Range<usize>,
) -> DescribeTopicPartitionsResponseTopic {
    let partitions = topic.partitions.iter().zip(0..).skip(range.start).take(range.len());
    DescribeTopicPartitionsResponseTopic::default()
        .with_name(Some(TopicName(text(&topic.name))))
        .with_topic_id(uuid::Uuid::from_bytes(topic.id.0))
        .with_is_internal(Kind::of_topic(&topic.name).is_some())
        .with_partitions(partitions.map(|(p, index)| partition(image, p, index)).collect())
        .with_topic_authorized_operations(metadata::topic_operations(call, &topic.name))
}

fn partition(
    image: &Image,
    p: &PartitionImage,
    index: i32,
) -> DescribeTopicPartitionsResponsePartition {
    let nodes = |ids: &[i32]| ids.iter().copied().map(BrokerId).collect::<Vec<_>>();
    let is_down = |id: &i32| image.live_broker(*id).is_none();
    let leader = image.live_broker(p.leader).map_or(NO_LEADER, |broker| broker.id);
    DescribeTopicPartitionsResponsePartition::default()
        .with_partition_index(index)
        .with_leader_id(BrokerId(leader))
        .with_leader_epoch(p.leader_epoch)
        .with_replica_nodes(nodes(&p.replicas))
        .with_isr_nodes(nodes(&p.isr))
        // Without `eligible.leader.replicas.version` there are none.
        .with_eligible_leader_replicas(Some(Vec::new()))
        .with_last_known_elr(Some(Vec::new()))
        .with_offline_replicas(p.replicas.iter().copied().filter(is_down).map(BrokerId).collect())
}
