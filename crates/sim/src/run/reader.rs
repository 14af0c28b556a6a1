//! The consumer of a run: reads everything from the first record on while things go wrong.

use std::time::Duration;

use curtail::{Consumer, ConsumerConfig, Error, IsolationLevel, OffsetReset, TopicPartition};
use curtail_net::Env;
use tokio::{sync::watch, time::sleep};

use super::{Shared, TOPIC};
use crate::{
    history::ReadBack,
    net::{self, Client},
    payload,
    plan::{Host, Scenario},
};

pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// End offsets of the partitions, once they are final.
pub(crate) type Ends = Option<Vec<i64>>;

/// Reads all partitions until it is at their final ends. It has no reset policy: a position that is lost is an error.
pub(super) async fn follow(
    shared: Shared,
    env: Env,
    mut ends: watch::Receiver<Ends>,
) -> Result<(), Error> {
    let client = Client::new("reader", REQUEST_TIMEOUT);
    let env = net::observed(&shared.fabric, &Host::Clients.name(), &env, &client);
    let mut consumer = Consumer::with_env(config(&shared), &env)?;
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
        let final_ends = ends.borrow_and_update().clone();
        let is_at_end = |ends: Vec<i64>| next.iter().zip(&ends).all(|(next, end)| next >= end);
        if final_ends.is_some_and(is_at_end) {
            client.leave();
            consumer.close().await;
            return Ok(());
        }
        let records = tokio::select! {
            biased;
            _ = ends.changed() => continue,
            records = consumer.poll(Duration::from_secs(1)) => records,
        };
        let records = match records {
            // The broker asked has not learned of the new partitions yet.
            Err(Error::UnknownPartition { .. }) if grows => {
                sleep(Duration::from_millis(50)).await;
                continue;
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
        let mut history = shared.history.lock();
        for record in records {
            let id = record.value().and_then(payload::id_of);
            let (partition, offset) = (record.partition(), record.offset());
            shared
                .fabric
                .trace()
                .event("clients", format_args!("consumed {partition} {offset} {id:?}"));
            if let Some(next) = next.get_mut(partition as usize) {
                *next = offset + 1;
            }
            history.consumed.push(ReadBack { partition, offset, id });
        }
    }
}

/// What a reader of committed records sees of every partition up to its end.
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
            let id = record.value().and_then(payload::id_of);
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
