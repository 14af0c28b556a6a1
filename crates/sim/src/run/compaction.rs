//! A consumer that seeks in the gaps of a compacted topic, and then reads it from its start to its end.
//!
//! Each record returned is at or after the position, and no record that is the newest of its key lies between them.

use std::{collections::BTreeMap, time::Duration};

use curtail::{
    Consumer, Error, TopicPartition,
    config::{IsolationLevel, OffsetReset},
};
use curtail_net::{Entropy, Env};
use tokio::time::timeout;

use super::{Shared, Stage, reader, topics::Place};
use crate::{
    history::{ReadBack, Skipped, Stray},
    net::{self, Client},
    payload,
    plan::{COMPACTED, CompactionPlan, Host},
    trace::now,
};

/// An offset that no log reaches.
const FAR: i64 = 1_000_000;
/// Polls at least before the consumer reads to the end.
const POLLS: usize = 100;

/// Position of the consumer in one partition.
#[derive(Clone, Copy, Debug)]
struct Position {
    /// The next record is at this offset or later.
    from: i64,
    /// Whether a record at this offset must be returned if it is still the newest of its key.
    is_exact: bool,
}

struct Reader {
    shared: Shared,
    entropy: Entropy,
    next: BTreeMap<i32, Position>,
    /// Per partition, the offset after the last record seen.
    end: BTreeMap<i32, i64>,
    /// Whether the consumer reads from the start to the end now.
    is_last: bool,
}

/// Seeks until the faults have ended, then reads every partition from its start to its end. Returns the consumer, for the
/// caller to close when no other consumer closes.
pub(super) async fn read(
    shared: Shared,
    plan: CompactionPlan,
    env: Env,
    entropy: Entropy,
) -> Result<Consumer, Error> {
    let client = Client::new("compaction", reader::REQUEST_TIMEOUT);
    let env = net::observed(&shared.fabric, &Host::Clients.name(), &env, &client);
    let isolation = match plan.transactional {
        true => IsolationLevel::ReadCommitted,
        false => IsolationLevel::ReadUncommitted,
    };
    let config = reader::config(&shared)
        .max_poll_records(20)
        .max_partition_fetch_bytes(plan.fetch_bytes)
        .isolation_level(isolation)
        .auto_offset_reset(OffsetReset::Earliest);
    let mut consumer = Consumer::with_env(config, &env)?;
    let partitions = partitions(&shared);
    consumer.assign(partitions.iter().cloned());
    let (next, end) = (BTreeMap::new(), BTreeMap::new());
    let mut reader = Reader { shared, entropy, next, end, is_last: false };
    for at in &partitions {
        reader.seek(&mut consumer, at, 0)?;
    }
    for round in 0.. {
        if round > POLLS && reader.shared.has_reached(Stage::Healed) {
            break;
        }
        reader.act(&mut consumer, &partitions)?;
        let patience = Duration::from_millis(reader.entropy.below(60));
        // A poll that is dropped has returned nothing.
        let polled = timeout(patience, consumer.poll(Duration::from_millis(40))).await;
        reader.take(polled.unwrap_or_else(|_| Ok(Default::default()))?);
    }
    reader.shared.ends.wait().await;
    reader.is_last = true;
    for at in &partitions {
        reader.seek(&mut consumer, at, 0)?;
    }
    while !reader.is_at_end(&mut consumer, &partitions).await {
        let records = consumer.poll(Duration::from_millis(100)).await?;
        reader.take(records);
    }
    client.leave();
    Ok(consumer)
}

/// Partitions of the topic.
fn partitions(shared: &Shared) -> Vec<TopicPartition> {
    let name = shared.topic(COMPACTED);
    let count = shared.cluster.partitions(name).unwrap_or(0) as i32;
    (0..count).map(|partition| TopicPartition::new(name, partition)).collect()
}

fn place(shared: &Shared, partition: i32) -> Place {
    Place { topic: COMPACTED, name: shared.topic(COMPACTED), partition }
}

impl Reader {
    /// One random call.
    fn act(&mut self, consumer: &mut Consumer, partitions: &[TopicPartition]) -> Result<(), Error> {
        let at = &partitions[self.entropy.below(partitions.len() as u64) as usize];
        let end = self.end.get(&at.partition).copied().unwrap_or(0);
        match self.entropy.below(12) {
            0..=3 => {
                let offset = self.entropy.below(end as u64 + 1) as i64;
                self.seek(consumer, at, offset)
            }
            4 => self.seek(consumer, at, 0),
            5 => {
                consumer.seek_to_end([at])?;
                self.moved(at.partition, Position { from: end, is_exact: false });
                Ok(())
            }
            // Beyond the end: the position is reset to the start.
            6 => {
                consumer.seek(at, FAR)?;
                self.moved(at.partition, Position { from: 0, is_exact: true });
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn seek(
        &mut self,
        consumer: &mut Consumer,
        at: &TopicPartition,
        offset: i64,
    ) -> Result<(), Error> {
        consumer.seek(at, offset)?;
        self.moved(at.partition, Position { from: offset, is_exact: true });
        Ok(())
    }

    fn moved(&mut self, partition: i32, to: Position) {
        self.shared.fabric.trace().event("compaction", format_args!("{partition} {to:?}"));
        self.next.insert(partition, to);
    }

    fn take(&mut self, records: curtail::consumer::Records) {
        for record in records {
            let (partition, offset) = (record.partition(), record.offset());
            let id = payload::id_of_record(&record);
            let told = format_args!("given {partition} {offset} {id:?}");
            self.shared.fabric.trace().event("compaction", told);
            self.passed(partition, offset);
            self.next.insert(partition, Position { from: offset + 1, is_exact: true });
            let end = self.end.entry(partition).or_default();
            *end = (*end).max(offset + 1);
            if self.is_last {
                let partition = place(&self.shared, partition).number();
                if let Some(compacted) = &mut self.shared.history.lock().compacted {
                    compacted.viewed.push(ReadBack { partition, offset, id });
                }
            }
        }
    }

    /// The consumer has passed everything before `offset`.
    fn passed(&self, partition: i32, offset: i64) {
        let Some(Position { from, is_exact }) = self.next.get(&partition).copied() else { return };
        let partition = place(&self.shared, partition).number();
        let mut history = self.shared.history.lock();
        if offset < from {
            let stray = Stray { at: now(), partition, expected: Some(from), given: offset };
            history.strays.push(stray);
        } else if let (true, Some(compacted)) = (is_exact, &mut history.compacted) {
            compacted.skipped.push(Skipped { partition, from, to: offset, at: now() });
        }
    }

    /// Whether everything is read.
    async fn is_at_end(&self, consumer: &mut Consumer, partitions: &[TopicPartition]) -> bool {
        for at in partitions {
            let end = self.shared.end_of(place(&self.shared, at.partition));
            // Without a position, poll has more to do or to say.
            let Ok(Ok(position)) = timeout(Duration::from_millis(1), consumer.position(at)).await
            else {
                return false;
            };
            // A marker may follow the last record.
            if position < end {
                return false;
            }
        }
        for at in partitions {
            self.passed(at.partition, self.shared.end_of(place(&self.shared, at.partition)));
        }
        true
    }
}
