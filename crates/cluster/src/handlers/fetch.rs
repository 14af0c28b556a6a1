//! Fetch, key 1, versions 4 to 18.
//!
//! - Long poll: a response waits for `min_bytes` or `max_wait_ms`. Appends wake followers, and the
//!   high watermark wakes consumers. An error, a diverging epoch or a redirection to a
//!   nearer replica ends the wait immediately.
//! - Sessions (KIP-227) from version 7: an incremental response contains only changed partitions.
//! - Leader epochs are checked from version 9, the epoch of the reader's last record from 12
//!   (KIP-595).
//! - From version 13 topics are identified by id. From 16 NOT_LEADER_OR_FOLLOWER and
//!   FENCED_LEADER_EPOCH name the leader and its address (KIP-951). The field exists from version
//!   12, but Kafka leaves it empty before 16.
//! - READ_COMMITTED returns nothing at or after the last stable offset. The records come with the
//!   aborted transactions among them (KIP-98).
//! - From version 11 a follower serves consumers, too. A leader may redirect consumers with a rack
//!   to a nearer replica instead of returning records (KIP-392).
//! - A follower's fetch reports its progress and advances the high watermark.
//! - Records beyond a consumer's quota are not sent: the response is empty and contains the
//!   throttle time (KIP-219). The session stays unchanged.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    fetch::{
        FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopicResponse, IsolationLevel,
    },
};
use tokio::time::{Instant, timeout_at};

use super::{Answer, Call, Endpoints, muted, throttle_ms};
use crate::{
    acl::{Operation, Resource},
    config::ReplicaSelector,
    faults,
    quota::{Limit, Meters},
    replica::{
        partition::{NotServed, Partition, ReadBy, ReadSpec},
        purgatory::{Reader, Wait},
    },
    session::{Context, Item, NO_SESSION, TopicRef},
};

/// First version with sessions.
const SESSIONS: i16 = 7;
/// First version with the consumer's rack.
const RACKS: i16 = 11;
/// First version with topic ids.
const TOPIC_IDS: i16 = 13;
/// First version with leaders in errors.
const LEADER_HINTS: i16 = 16;

pub(super) async fn handle(
    call: &Call<'_>,
    body: &Bytes,
    out: &mut Vec<Bytes>,
) -> Result<Answer, String> {
    let mut request =
        FetchRequest::decode(call.version(), body).map_err(|error| error.to_string())?;
    if call.version() < SESSIONS {
        (request.session_id, request.session_epoch) = (NO_SESSION, -1);
    }
    let by_ids = call.version() >= TOPIC_IDS;
    let begun = call.broker.sessions.lock().begin(&request, by_ids, Instant::now());
    let (response, silence) = match begun {
        Ok((context, items)) => serve(call, &request, &context, items).await,
        Err(error) => {
            call.concerns(0);
            (FetchResponse { error, ..FetchResponse::default() }, Duration::ZERO)
        }
    };
    response.encode_frame(call.version(), call.header.correlation_id, out);
    Ok(muted(Answer::Written, silence))
}

/// Returns the response and the following throttle time.
async fn serve(
    call: &Call<'_>,
    request: &FetchRequest,
    context: &Context,
    items: Vec<Item>,
) -> (FetchResponse, Duration) {
    call.concerns(items.len());
    let poll = Poll::new(call, request, items);
    let mut answers = poll.answers().await;
    let bytes = answers.iter().map(|(_, answer)| answer.records.len()).sum();
    let silence = match request.replica_id {
        0.. => Duration::ZERO,
        _ => call.count_if_sent(Limit::ConsumerByteRate, bytes),
    };
    if !silence.is_zero() {
        let throttle_time_ms = throttle_ms(silence);
        let session_id = context.session_id();
        return (FetchResponse { throttle_time_ms, session_id, ..Default::default() }, silence);
    }
    if call.broker.faults.is_active() {
        damage(call, &mut answers);
    }
    let random = || call.broker.env.entropy.next_u64();
    let (session_id, answers) =
        call.broker.sessions.lock().finish(context, answers, random, Instant::now());
    (respond(call, session_id, answers), silence)
}

/// Damages batches in the response, if a fault says so.
fn damage(call: &Call<'_>, answers: &mut [(Item, FetchPartitionResponse)]) {
    let request = call.as_faults_see_it();
    for (item, answer) in answers {
        let Some(end) = faults::first_batch_end(&answer.records) else { continue };
        let Some(topic) = topic_name(call, &item.topic) else { continue };
        if call.broker.faults.corrupts(&request, faults::Item::Partition(&topic, item.fetch.index))
        {
            answer.records = faults::damaged(&answer.records, end);
        }
    }
}

fn topic_name(call: &Call<'_>, topic: &TopicRef) -> Option<Arc<str>> {
    match topic {
        TopicRef::Name(name) => Some(Arc::clone(name)),
        TopicRef::Id(id) => Some(Arc::clone(&call.broker.image().topic_by_id(id)?.name)),
    }
}

fn respond(
    call: &Call<'_>,
    session_id: i32,
    answers: Vec<(Item, FetchPartitionResponse)>,
) -> FetchResponse {
    let mut endpoints = Endpoints::default();
    let mut topics: Vec<(TopicRef, FetchTopicResponse)> = Vec::new();
    for (item, mut answer) in answers {
        let leader = answer.current_leader.take();
        if call.version() >= LEADER_HINTS && !answer.error.is_none() {
            let refused = NotServed { leader, ..NotServed::code(answer.error) };
            let topic = topic_name(call, &item.topic).unwrap_or_default();
            let part = faults::Item::Partition(&topic, item.fetch.index);
            answer.current_leader = endpoints.hint(call, part, &refused);
        }
        match topics.last_mut().filter(|(topic, _)| *topic == item.topic) {
            Some((_, topic)) => topic.partitions.push(answer),
            None => {
                let mut topic =
                    FetchTopicResponse { partitions: vec![answer], ..Default::default() };
                match &item.topic {
                    TopicRef::Name(name) => topic.name = name.to_string(),
                    TopicRef::Id(id) => topic.topic_id = *id,
                }
                topics.push((item.topic, topic));
            }
        }
    }
    FetchResponse {
        throttle_time_ms: 0,
        error: ErrorCode::NONE,
        session_id,
        topics: topics.into_iter().map(|(_, topic)| topic).collect(),
        node_endpoints: endpoints.0,
    }
}

/// One request's long poll.
struct Poll<'a> {
    call: &'a Call<'a>,
    by: ReadBy,
    min_bytes: usize,
    max_bytes: usize,
    isolation: IsolationLevel,
    /// Rack of a consumer that may be redirected to a replica there.
    rack: Option<String>,
    deadline: Option<Instant>,
    items: Vec<(Item, Result<Arc<Partition>, NotServed>)>,
}

/// The result of one pass over the partitions.
struct Pass {
    answers: Vec<FetchPartitionResponse>,
    bytes: usize,
    /// Whether the response must not wait.
    urgent: bool,
}

/// Removes registrations when a poll ends or is dropped.
struct Registered<'a, 'b> {
    poll: &'a Poll<'b>,
    id: u64,
}

impl Drop for Registered<'_, '_> {
    fn drop(&mut self) {
        for partition in self.poll.partitions() {
            partition.stop_waiting(self.id);
        }
    }
}

impl<'a> Poll<'a> {
    fn new(call: &'a Call<'a>, request: &FetchRequest, items: Vec<Item>) -> Self {
        let by = match request.replica_id {
            id if id >= 0 => {
                let broker_epoch = Some(request.replica_epoch).filter(|epoch| *epoch >= 0);
                ReadBy::Follower { id, broker_epoch, arrived: true }
            }
            _ => ReadBy::Consumer { anywhere: call.version() >= RACKS },
        };
        let most = match by {
            ReadBy::Consumer { .. } => {
                request.max_bytes.min(call.broker.config.fetch_max_bytes).min(quota(call))
            }
            ReadBy::Follower { .. } => request.max_bytes,
        };
        let max_bytes = usize::try_from(most).unwrap_or(0);
        let wait = u64::try_from(request.max_wait_ms).unwrap_or(0);
        // Only brokers may be followers.
        let follows = match by {
            ReadBy::Follower { .. } => call.may(Operation::ClusterAction, Resource::Cluster),
            ReadBy::Consumer { .. } => true,
        };
        let items = items
            .into_iter()
            .map(|item| {
                let partition = match follows {
                    true => replica(call, &item),
                    false => Err(NotServed::code(ErrorCode::TOPIC_AUTHORIZATION_FAILED)),
                };
                (item, partition)
            })
            .collect();
        Self {
            call,
            by,
            min_bytes: usize::try_from(request.min_bytes).unwrap_or(0).min(max_bytes),
            max_bytes,
            isolation: request.isolation_level,
            rack: Some(request.rack_id.clone()).filter(|rack| {
                !rack.is_empty()
                    && call.broker.config.replica_selector == ReplicaSelector::RackAware
            }),
            deadline: (wait > 0).then(|| Instant::now() + Duration::from_millis(wait)),
            items,
        }
    }

    fn partitions(&self) -> impl Iterator<Item = &Arc<Partition>> {
        self.items.iter().filter_map(|(_, partition)| partition.as_ref().ok())
    }

    async fn answers(mut self) -> Vec<(Item, FetchPartitionResponse)> {
        let mut pass = self.pass();
        if let Some(deadline) = self.deadline.filter(|_| !self.enough(&pass)) {
            let wait = Wait::for_any();
            let id = self.call.broker.wait_ids.next();
            let reader = match self.by {
                ReadBy::Consumer { .. } => Reader::Consumer,
                ReadBy::Follower { .. } => Reader::Follower,
            };
            if let ReadBy::Follower { arrived, .. } = &mut self.by {
                *arrived = false;
            }
            let registered = Registered { poll: &self, id };
            for partition in self.partitions() {
                partition.wait_for_news(reader, id, &wait);
            }
            // Records may have arrived between the first pass and the registration.
            pass = self.pass();
            while !self.enough(&pass) && timeout_at(deadline, wait.done()).await.is_ok() {
                pass = self.pass();
            }
            drop(registered);
        }
        self.items.into_iter().map(|(item, _)| item).zip(pass.answers).collect()
    }

    /// Returns a replica nearer to the consumer than this one, if any.
    fn nearer_replica(
        &self,
        item: &Item,
        partition: &Result<Arc<Partition>, NotServed>,
    ) -> Option<i32> {
        let ReadBy::Consumer { anywhere: true } = self.by else { return None };
        let rack = self.rack.as_deref()?;
        let config = &self.call.broker.config;
        let partition = partition.as_ref().ok()?;
        partition.nearer_replica(item.fetch.fetch_offset, rack, |id| config.rack(id))
    }

    fn enough(&self, pass: &Pass) -> bool {
        pass.urgent || pass.bytes >= self.min_bytes || self.items.is_empty()
    }

    /// Reads every partition in order until the response is full.
    fn pass(&self) -> Pass {
        let now = Instant::now();
        let mut pass =
            Pass { answers: Vec::with_capacity(self.items.len()), bytes: 0, urgent: false };
        for (item, partition) in &self.items {
            let left = self.max_bytes.saturating_sub(pass.bytes);
            let spec = ReadSpec {
                current_leader_epoch: item.fetch.current_leader_epoch,
                fetch_offset: item.fetch.fetch_offset,
                last_fetched_epoch: item.fetch.last_fetched_epoch,
                log_start: item.fetch.log_start_offset,
                max_bytes: left.min(usize::try_from(item.fetch.max_bytes).unwrap_or(0)),
                // An oversized first batch is sent anyway, or its reader could never get past it.
                at_least_one: pass.bytes == 0,
                isolation: self.isolation,
            };
            let read = match partition {
                Ok(partition) => partition.read(&spec, self.by, now),
                Err(refused) => Err(refused.clone()),
            };
            let mut answer = nothing(item.fetch.index);
            let nearer = self.nearer_replica(item, partition);
            match read {
                Ok(mut slice) => {
                    if let Some(nearer) = nearer {
                        answer.preferred_read_replica = nearer;
                        slice.records = Bytes::new();
                    }
                    pass.bytes += slice.records.len();
                    pass.urgent |= slice.diverging.is_some() || nearer.is_some();
                    answer.high_watermark = slice.high_watermark;
                    answer.last_stable_offset = slice.last_stable;
                    answer.aborted_transactions = slice.aborted;
                    answer.log_start_offset = slice.log_start;
                    answer.diverging_epoch = slice.diverging;
                    answer.records = slice.records;
                }
                Err(refused) => {
                    pass.urgent = true;
                    answer.error = refused.code;
                    // Named only with some errors and versions; see `respond`.
                    answer.current_leader = refused.leader;
                    if refused.code == ErrorCode::OFFSET_OUT_OF_RANGE
                        && let Ok(partition) = partition
                    {
                        answer.log_start_offset = partition.log_start();
                    }
                }
            }
            pass.answers.push(answer);
        }
        pass
    }
}

/// Returns the local replica of a requested partition, if the client may read it.
fn replica(call: &Call<'_>, item: &Item) -> Result<Arc<Partition>, NotServed> {
    let may_read = |topic: &str| {
        call.require(Operation::Read, Resource::Topic(topic))?;
        call.injected(faults::Item::Partition(topic, item.fetch.index))
    };
    match &item.topic {
        TopicRef::Name(name) => {
            may_read(name)?;
            call.replica_by_name(name, item.fetch.index)
        }
        TopicRef::Id(id) => {
            let topic = call.topic_by_id(*id)?;
            may_read(&topic.name)?;
            call.replica(&topic, item.fetch.index)
        }
    }
}

/// Returns the maximum bytes that the client's quota allows in one response.
fn quota(call: &Call<'_>) -> i32 {
    let image = call.broker.image();
    let client = call.limited().filter(|_| !image.quotas.is_empty());
    let most =
        client.and_then(|client| Meters::most(&image.quotas, Limit::ConsumerByteRate, client));
    // The cast saturates if the float is too large.
    most.map_or(i32::MAX, |most| most as i32)
}

fn nothing(index: i32) -> FetchPartitionResponse {
    FetchPartitionResponse { index, ..FetchPartitionResponse::default() }
}
