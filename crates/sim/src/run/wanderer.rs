//! A consumer that seeks, pauses and resumes at random. The next record is always known: the log of the first topic
//! has no gaps.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use curtail::{Consumer, Error, TopicPartition};
use curtail_net::{Entropy, Env};
use tokio::time::timeout;

use super::{Shared, Stage, TOPIC, mortal, reader};
use crate::{
    history::Stray,
    net::{self, Client},
    plan::Host,
    trace::now,
};

/// Polls before it looks whether the run is over.
const POLLS: usize = 50;

/// Runs until the faults have ended.
pub(super) async fn run(shared: Shared, env: Env, entropy: Entropy) -> Result<(), Error> {
    let client = Client::new("wanderer", reader::REQUEST_TIMEOUT);
    let env = net::observed(&shared.fabric, &Host::Clients.name(), &env, &client);
    let mut consumer = Consumer::with_env(reader::config(&shared).max_poll_records(20), &env)?;
    let partitions: Vec<TopicPartition> =
        (0..shared.partitions()).map(|p| TopicPartition::new(TOPIC, p)).collect();
    consumer.assign(partitions.iter().cloned());
    let mut wanderer = Wanderer { shared, entropy, next: BTreeMap::new(), end: BTreeMap::new() };
    for at in &partitions {
        wanderer.seek(&mut consumer, at, 0)?;
    }
    let mut paused = BTreeSet::new();
    for round in 0.. {
        if round > POLLS && wanderer.shared.has_reached(Stage::Healed) {
            break;
        }
        let at = &partitions[wanderer.entropy.below(partitions.len() as u64) as usize];
        match wanderer.entropy.below(8) {
            0 | 1 => {
                let end = wanderer.end.get(&at.partition).copied().unwrap_or(0);
                let offset = wanderer.entropy.below(end as u64 + 1) as i64;
                wanderer.seek(&mut consumer, at, offset)?;
            }
            2 => {
                consumer.seek_to_beginning([at])?;
                wanderer.next.insert(at.partition, 0);
            }
            3 => {
                consumer.pause([at]);
                paused.insert(at.partition);
            }
            4 => {
                consumer.resume(&partitions);
                paused.clear();
            }
            _ => {}
        }
        let patience = Duration::from_millis(wanderer.entropy.below(60));
        let polls = match wanderer.shared.plan.dropped > 0 {
            true => 1 + wanderer.entropy.below(4),
            false => u64::MAX,
        };
        // A poll that is dropped has returned nothing.
        let polled = mortal::for_polls(consumer.poll(Duration::from_millis(40)), polls);
        let Ok(Some(records)) = timeout(patience, polled).await else { continue };
        for record in records? {
            wanderer.given(record.partition(), record.offset(), &paused);
        }
    }
    client.leave();
    consumer.close().await;
    Ok(())
}

struct Wanderer {
    shared: Shared,
    entropy: Entropy,
    /// Per partition, the offset that comes next.
    next: BTreeMap<i32, i64>,
    /// Per partition, the offset after the last record seen.
    end: BTreeMap<i32, i64>,
}

impl Wanderer {
    fn seek(
        &mut self,
        consumer: &mut Consumer,
        at: &TopicPartition,
        offset: i64,
    ) -> Result<(), Error> {
        self.shared.fabric.trace().event("wanderer", format_args!("seek {at:?} {offset}"));
        self.next.insert(at.partition, offset);
        consumer.seek(at, offset)
    }

    fn given(&mut self, partition: i32, given: i64, paused: &BTreeSet<i32>) {
        self.shared.fabric.trace().event("wanderer", format_args!("given {partition} {given}"));
        let next = self.next.insert(partition, given + 1).unwrap_or(0);
        let end = self.end.entry(partition).or_default();
        *end = (*end).max(given + 1);
        let expected = (!paused.contains(&partition)).then_some(next);
        if expected != Some(given) {
            let stray = Stray { at: now(), partition, expected, given };
            self.shared.history.lock().strays.push(stray);
        }
    }
}
