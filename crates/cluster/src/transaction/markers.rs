//! How the partitions of a transaction learn of its end. One task for each ending transaction: it sends WriteTxnMarkers
//! to the leaders, follows leaders that move, and notes the transaction as complete when every partition has its
//! marker. A partition's marker is never given up, as readers wait for it, except with its topic.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use curtail_wire::{
    ErrorCode,
    cold::{
        StrBytes,
        messages::{
            ProducerId, TopicName, WriteTxnMarkersRequest,
            write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic},
        },
    },
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
    handlers::bumped_tag,
    image::{Image, NO_LEADER},
};

/// How often failed partitions are tried again and leaders that have moved are noticed, while markers are missing.
const CHECK: Duration = Duration::from_millis(20);
/// How long the log may lack replicas before its state is looked at again.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(5);
const VERSION: i16 = 1;

type Home = Shard<Transactions>;

/// Tells the partitions of `id` how its transaction ended, which has just been appended or loaded.
pub(super) fn start(cx: &Cx<'_, Transactions>, id: &Arc<str>) {
    let (broker, shard, id) = (Arc::clone(cx.broker), Arc::clone(cx.shard), Arc::clone(id));
    cx.broker.spawn(async move {
        // When the partition has moved, its new coordinator goes on from the log.
        if let Err(code) = finish(&broker, &shard, &id).await {
            tracing::debug!(transactional_id = %id, code = code.name(), "left to another coordinator");
        }
    });
}

async fn finish(broker: &Arc<Broker>, shard: &Arc<Home>, id: &Arc<str>) -> Result<(), ErrorCode> {
    // No partition may learn of an end that could still be lost with this broker.
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

/// Whether to try again what failed; nothing helps once the partition of the log has another coordinator.
fn may_retry(done: Result<(), ErrorCode>) -> Result<bool, ErrorCode> {
    match done {
        Ok(()) => Ok(false),
        Err(ErrorCode::NOT_COORDINATOR) => Err(ErrorCode::NOT_COORDINATOR),
        Err(_) => Ok(true),
    }
}

/// A partition's leader and the epoch it leads in.
type Target = (i32, i32);

/// What a leader answered for its partitions.
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
                    // The transaction's task may be gone.
                    let _ = answered.send(marker.send(&peer, leader, partitions).await);
                });
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        // Ends when the partition of the log has moved.
        shard.run(broker, |_: &mut Transactions, _| ())?;
        let answers = tokio::select! {
            biased;
            Some(answers) = answers.recv() => answers,
            () = sleep_until(ready) => continue,
        };
        for (partition, target, code) in answers {
            match code {
                // A higher epoch there says that the transaction has been ended before.
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

/// The partitions to ask now, by leader: those that have not been asked, or whose leader has changed since. What has
/// been deleted needs no marker.
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
    /// Sends the marker for some partitions to their leader. Without an answer each of them failed.
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
                tracing::debug!(broker = broker.id, leader, %error, "markers were not answered");
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
        let topics = by_topic.into_iter().map(|(topic, indexes)| {
            WritableTxnMarkerTopic::default()
                .with_name(TopicName(StrBytes::from_string(topic.to_owned())))
                .with_partition_indexes(indexes)
        });
        let marker = WritableTxnMarker::default()
            .with_producer_id(ProducerId(self.producer.id))
            .with_producer_epoch(self.producer.epoch)
            .with_transaction_result(self.result == EndTxnMarker::Commit)
            .with_coordinator_epoch(self.coordinator_epoch)
            .with_topics(topics.collect())
            .with_unknown_tagged_fields(bumped_tag(self.bumped));
        WriteTxnMarkersRequest::default().with_markers(vec![marker])
    }
}
