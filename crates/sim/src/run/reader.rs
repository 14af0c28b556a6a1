//! The consumer of a run: reads everything from the first record on while things go wrong.

use std::time::Duration;

use curtail::{
    Consumer, ConsumerConfig, Error, TopicPartition,
    config::{IsolationLevel, OffsetReset},
};
use curtail_net::Env;
use tokio::time::sleep;

use super::{Shared, TOPIC};
use crate::{
    history::{ReadAfar, ReadBack, Truncation},
    net::{self, Client},
    payload,
    plan::{Host, RACKS, Scenario},
    trace::now,
};

pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a consumer may take to be sent to the replica of its rack once every replica is in sync.
const SENT_NEAR: Duration = Duration::from_secs(5);

/// Place of a consumer among those that read everything.
#[derive(Clone, Copy)]
pub(super) struct Role {
    pub(super) number: usize,
    /// `client.rack`.
    pub(super) rack: Option<&'static str>,
}

/// Reads all partitions until it is at their final ends. It has no reset policy: a position that is lost is an error.
pub(super) async fn follow(shared: Shared, env: Env, role: Role) -> Result<(), Error> {
    let client = Client::new(format!("reader-{}", role.number), REQUEST_TIMEOUT);
    let env = net::observed(&shared.fabric, &Host::Clients.name(), &env, &client);
    let config = config(&shared).client_rack(role.rack.unwrap_or_default());
    let mut consumer = Consumer::with_env(config, &env)?;
    let mut next: Vec<i64> = Vec::new();
    let grows = matches!(shared.plan.scenario, Some(Scenario::Topics | Scenario::Controller));
    let decays = shared.plan.scenario == Some(Scenario::Corruption);
    loop {
        let partitions: Vec<TopicPartition> =
            (0..shared.partitions()).map(|p| TopicPartition::new(TOPIC, p)).collect();
        if partitions.len() > next.len() {
            consumer.assign(partitions.iter().cloned());
            for partition in &partitions[next.len()..] {
                consumer.seek(partition, 0)?;
            }
            next.resize(partitions.len(), 0);
        }
        let final_ends = shared.ends.get();
        let is_at_end = |ends: &Vec<i64>| next.iter().zip(ends).all(|(next, end)| next >= end);
        if final_ends.as_ref().is_some_and(is_at_end) {
            if let Some(rack) = role.rack {
                must_read_near(&shared, &mut consumer, rack).await?;
            }
            client.leave();
            consumer.close().await;
            return Ok(());
        }
        let records = tokio::select! {
            biased;
            _ = shared.ends.wait(), if final_ends.is_none() => continue,
            records = consumer.poll(Duration::from_secs(1)) => records,
        };
        let records = match records {
            // The broker asked has not learned of the new partitions yet.
            Err(Error::UnknownPartition { .. }) if grows => {
                sleep(Duration::from_millis(50)).await;
                continue;
            }
            // The first topic loses nothing, so that a report of a loss is a violation.
            Err(
                Error::LogTruncated { partition, offset, .. }
                | Error::OffsetOutOfRange { partition, offset, .. },
            ) => {
                let expected = next.get(partition as usize).copied().unwrap_or(0);
                let report = Truncation { at: now(), partition, offset, expected };
                shared.history.lock().truncations.push(report);
                client.leave();
                consumer.close().await;
                return Ok(());
            }
            // A damaged batch is an error until another replica leads.
            Err(Error::Corrupt { partition, offset, .. }) if decays => {
                let trace = shared.fabric.trace();
                trace.event("clients", format_args!("corrupt batch at {partition} {offset}"));
                sleep(Duration::from_millis(100)).await;
                continue;
            }
            records => records?,
        };
        let read_from = consumer.read_from();
        let mut history = shared.history.lock();
        for record in records {
            let id = payload::id_of_record(&record);
            let (partition, offset) = (record.partition(), record.offset());
            let reader = role.number;
            let told = format_args!("consumed by {reader} {partition} {offset} {id:?}");
            shared.fabric.trace().event("clients", told);
            if let Some(next) = next.get_mut(partition as usize) {
                *next = offset + 1;
            }
            let at = TopicPartition::new(TOPIC, partition);
            let leader = shared.cluster.leader(TOPIC, partition).map(|(leader, _)| leader);
            let is_near = read_from.get(&at).is_some_and(|from| from.is_some() && *from != leader);
            history.read_near += u64::from(is_near);
            history.consumed_by(role.number).push(ReadBack { partition, offset, id });
        }
    }
}

/// Polls until every partition is read from the replica in the consumer's rack.
async fn must_read_near(
    shared: &Shared,
    consumer: &mut Consumer,
    rack: &'static str,
) -> Result<(), Error> {
    let near = RACKS.iter().position(|known| *known == rack).map(|index| index as i32 + 1);
    let begin = now();
    loop {
        consumer.poll(Duration::from_millis(100)).await?;
        let read_from = consumer.read_from();
        let mut afar = read_from.iter().filter(|(_, from)| **from != near);
        let Some((at, from)) = afar.next() else { return Ok(()) };
        if now() - begin > SENT_NEAR {
            let reading = ReadAfar { partition: at.partition, rack, from: *from };
            shared.history.lock().read_afar.push(reading);
            return Ok(());
        }
    }
}

/// Reads the committed records of every partition up to its end.
pub(super) async fn committed(
    shared: &Shared,
    env: &Env,
    topic: &str,
    ends: &[i64],
) -> Result<Vec<ReadBack>, Error> {
    let config = config(shared).isolation_level(IsolationLevel::ReadCommitted);
    let mut consumer = Consumer::with_env(config, env)?;
    let partitions: Vec<TopicPartition> =
        (0..ends.len() as i32).map(|p| TopicPartition::new(topic, p)).collect();
    consumer.assign(partitions.iter().cloned());
    for partition in &partitions {
        consumer.seek(partition, 0)?;
    }
    let mut seen = Vec::new();
    loop {
        let mut done = true;
        for (partition, end) in partitions.iter().zip(ends) {
            done &= consumer.position(partition).await? >= *end;
        }
        if done {
            consumer.close().await;
            return Ok(seen);
        }
        for record in consumer.poll(Duration::from_millis(100)).await? {
            let id = payload::id_of_record(&record);
            let (partition, offset) = (record.partition(), record.offset());
            seen.push(ReadBack { partition, offset, id });
        }
    }
}

pub(super) fn config(shared: &Shared) -> ConsumerConfig {
    let ms = Duration::from_millis;
    ConsumerConfig::new(shared.cluster.bootstrap())
        .auto_offset_reset(OffsetReset::None)
        .request_timeout(REQUEST_TIMEOUT)
        .fetch_max_wait(ms(300))
        .retry_backoff(ms(20), ms(500))
        .reconnect_backoff(ms(20), ms(500))
        .connection_setup_timeout(ms(1000))
        .metadata_max_age(Duration::from_secs(10))
}
