//! Writing of transaction markers. One task per ending transaction sends WriteTxnMarkers to the
//! leaders, follows leaders that move, and completes the transaction when every partition has its
//! marker. It retries a partition's marker until the topic is deleted, because readers wait for the
//! marker.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use curtail_wire::{
    ErrorCode,
    cold::newer::{WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest},
    records::EndTxnMarker,
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use super::{
    Transactions,
    machine::{ProducerEpoch, TopicPartition, Txn, Version},
};
use crate::{
    broker::Broker,
    coordinator::runtime::{Cx, Shard},
    image::{Image, NO_LEADER},
};

/// Interval of retries and of checks for moved leaders, while markers are missing.
const CHECK: Duration = Duration::from_millis(20);
/// How long the log may lack replicas before its state is checked again.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(5);
/// First version with the version of the transaction (KIP-1228).
const VERSION: i16 = 2;

type Home = Shard<Transactions>;

/// Starts writing the markers of `id`, whose end has just been appended or loaded.
pub(super) fn start(cx: &Cx<'_, Transactions>, id: &Arc<str>) {
    let (broker, shard, id) = (Arc::clone(cx.broker), Arc::clone(cx.shard), Arc::clone(id));
    cx.broker.spawn(async move {
        // If the partition has moved, its new coordinator continues from the log.
        if let Err(code) = finish(&broker, &shard, &id).await {
            tracing::debug!(transactional_id = %id, code = code.name(), "the transaction is left to another coordinator");
        }
    });
}

async fn finish(broker: &Arc<Broker>, shard: &Arc<Home>, id: &Arc<str>) -> Result<(), ErrorCode> {
    // No partition may get the marker of an end that could still be lost with this broker.
    while may_retry(shard.settled(broker, COMMIT_TIMEOUT).await)? {
        sleep_until(Instant::now() + CHECK).await;
    }
    let txn = shard.run(broker, |state: &mut Transactions, _| state.by_id.get(id).cloned())?;
    let Some(txn) = txn else { return Ok(()) };
    let Some(result) = txn.phase.ending() else { return Ok(()) };
    tell(broker, shard, &txn, result).await?;
    while may_retry(complete(broker, shard, id, &txn))? {
        sleep_until(Instant::now() + CHECK).await;
    }
    Ok(())
}

fn complete(broker: &Arc<Broker>, shard: &Arc<Home>, id: &str, txn: &Txn) -> Result<(), ErrorCode> {
    shard.run(broker, |state: &mut Transactions, cx| {
        let current = state.by_id.get(id).filter(|current| current.producer == txn.producer);
        match current.and_then(|current| current.complete(cx.now_ms())) {
            Some(next) => state.change(cx, id, next).map(|_| ()),
            None => Ok(()),
        }
    })?
}

/// Returns whether to retry. Retrying is useless once the log's partition has another coordinator.
fn may_retry(done: Result<(), ErrorCode>) -> Result<bool, ErrorCode> {
    match done {
        Ok(()) => Ok(false),
        Err(ErrorCode::NOT_COORDINATOR) => Err(ErrorCode::NOT_COORDINATOR),
        Err(_) => Ok(true),
    }
}

/// A partition's leader and leader epoch.
type Target = (i32, i32);

/// A leader's response for its partitions.
type Answers = Vec<(TopicPartition, Target, ErrorCode)>;

async fn tell(
    broker: &Arc<Broker>,
    shard: &Arc<Home>,
    txn: &Txn,
    result: EndTxnMarker,
) -> Result<(), ErrorCode> {
    let mut left: BTreeSet<TopicPartition> = txn.partitions.clone();
    let mut asked: BTreeMap<TopicPartition, Target> = BTreeMap::new();
    let (answered, mut answers) = mpsc::unbounded_channel::<Answers>();
    let marker = Marker {
        producer: txn.producer,
        result,
        coordinator_epoch: shard.leader_epoch,
        bumped: txn.version == Version::Two,
    };
    let mut ready = Instant::now();
    loop {
        if ready <= Instant::now() {
            ready = Instant::now() + CHECK;
            for (leader, partitions) in due(&broker.image(), &mut left, &mut asked) {
                let (peer, answered) = (Arc::clone(broker), answered.clone());
                broker.spawn(async move {
                    // The transaction's task may have ended.
                    let _ = answered.send(marker.send(&peer, leader, partitions).await);
                });
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        // Fails once the log's partition has moved.
        shard.run(broker, |_: &mut Transactions, _| ())?;
        let answers = tokio::select! {
            biased;
            Some(answers) = answers.recv() => answers,
            () = sleep_until(ready) => continue,
        };
        for (partition, target, code) in answers {
            match code {
                // A higher epoch means that the transaction was already ended.
                ErrorCode::NONE | ErrorCode::INVALID_PRODUCER_EPOCH => {
                    left.remove(&partition);
                }
                ErrorCode::TRANSACTION_COORDINATOR_FENCED => return Err(code),
                _ => {
                    if asked.get(&partition) == Some(&target) {
                        asked.remove(&partition);
                    }
                }
            }
        }
    }
}

/// Returns the partitions to request now, by leader: those without a request, or with a new leader
/// since. Deleted partitions need no marker.
fn due(
    image: &Image,
    left: &mut BTreeSet<TopicPartition>,
    asked: &mut BTreeMap<TopicPartition, Target>,
) -> BTreeMap<i32, Vec<(TopicPartition, Target)>> {
    let mut by_leader: BTreeMap<i32, Vec<(TopicPartition, Target)>> = BTreeMap::new();
    left.retain(|partition| {
        let (topic, index) = partition;
        let Some(topic) = image.topic(topic) else { return false };
        let known = usize::try_from(*index).ok().and_then(|index| topic.partitions.get(index));
        let Some(known) = known else { return false };
        let target = (known.leader, known.leader_epoch);
        if known.leader != NO_LEADER && asked.get(partition) != Some(&target) {
            asked.insert(partition.clone(), target);
            by_leader.entry(known.leader).or_default().push((partition.clone(), target));
        }
        true
    });
    by_leader
}

#[derive(Clone, Copy)]
struct Marker {
    producer: ProducerEpoch,
    result: EndTxnMarker,
    coordinator_epoch: i32,
    bumped: bool,
}

impl Marker {
    /// Sends the marker for some partitions to their leader. Without a response all of them have
    /// failed.
    async fn send(
        &self,
        broker: &Broker,
        leader: i32,
        partitions: Vec<(TopicPartition, Target)>,
    ) -> Answers {
        let request = self.request(&partitions);
        let codes = match broker.peers.call(broker, leader, VERSION, &request).await {
            Ok(response) => {
                let topics = response.markers.into_iter().flat_map(|marker| marker.topics);
                let each = topics.flat_map(|topic| {
                    let name = topic.name.0.to_string();
                    topic.partitions.into_iter().map(move |partition| {
                        let code = ErrorCode(partition.error_code);
                        ((name.clone(), partition.partition_index), code)
                    })
                });
                each.collect::<BTreeMap<TopicPartition, ErrorCode>>()
            }
            Err(error) => {
                tracing::debug!(broker = broker.id, leader, %error, "no response to transaction markers");
                BTreeMap::new()
            }
        };
        let answer = |(partition, target): (TopicPartition, Target)| {
            let code = codes.get(&partition).copied().unwrap_or(ErrorCode::NETWORK_EXCEPTION);
            (partition, target, code)
        };
        partitions.into_iter().map(answer).collect()
    }

    fn request(&self, partitions: &[(TopicPartition, Target)]) -> WriteTxnMarkersRequest {
        let mut by_topic: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
        for ((topic, index), _) in partitions {
            by_topic.entry(topic).or_default().push(*index);
        }
        let topics = by_topic.into_iter().map(|(topic, partitions)| WritableTxnMarkerTopic {
            name: topic.to_owned(),
            partitions,
        });
        let marker = WritableTxnMarker {
            producer_id: self.producer.id,
            producer_epoch: self.producer.epoch,
            transaction_result: self.result == EndTxnMarker::Commit,
            topics: topics.collect(),
            coordinator_epoch: self.coordinator_epoch,
            transaction_version: if self.bumped { 2 } else { 1 },
        };
        WriteTxnMarkersRequest { markers: vec![marker] }
    }
}
