//! Says once on standard error that records wait for their acknowledgement, and why.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use curtail::{
    Admin, Producer, ProducerConfig,
    admin::{ConfigResource, PartitionDescription},
    config::Acks,
    metrics::{BrokerMetrics, ProducerMetrics},
};
use tokio::{
    runtime::Runtime,
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval, timeout},
};

use crate::output::{self, count};

/// Time without an acknowledgement before the message.
const STALL: Duration = Duration::from_secs(5);

/// Time between two looks at the producer's metrics.
const LOOK: Duration = Duration::from_secs(1);

/// Longest wait for a description of the topic.
const DESCRIPTION: Duration = Duration::from_secs(2);

/// Partitions named in the message.
const NAMED: usize = 3;

/// A task that watches a producer. It ends with its message, or when this is dropped.
pub(super) struct Watch {
    task: JoinHandle<()>,
    sent: Arc<AtomicU64>,
}

impl Watch {
    pub(super) fn start(runtime: &Runtime, producer: &Producer, watched: Watched) -> Self {
        let sent = Arc::new(AtomicU64::new(0));
        let task = runtime.spawn(watched.watch(producer.clone(), sent.clone()));
        Self { task, sent }
    }

    /// Counts a record that the producer has accepted.
    pub(super) fn sent(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What the message is about.
pub(super) struct Watched {
    admin: Admin,
    topic: String,
    all_acks: bool,
    delivery_timeout: Duration,
}

impl Watched {
    pub(super) fn new(admin: Admin, topic: &str, config: &ProducerConfig) -> Self {
        Self {
            admin,
            topic: topic.to_owned(),
            all_acks: config.get_acks() == Acks::All,
            delivery_timeout: config.get_delivery_timeout(),
        }
    }

    async fn watch(self, producer: Producer, sent: Arc<AtomicU64>) {
        let mut timer = interval(LOOK);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut before = producer.metrics();
        let mut since = Instant::now();
        loop {
            timer.tick().await;
            let metrics = producer.metrics();
            // Counted first, a record may be settled already.
            let waiting = sent.load(Ordering::Relaxed).saturating_sub(settled(&metrics));
            if waiting == 0 || settled(&metrics) != settled(&before) {
                (before, since) = (metrics, Instant::now());
            } else if since.elapsed() >= STALL {
                let mut reasons = timeout(DESCRIPTION, self.describe()).await.unwrap_or_default();
                reasons.extend(of_brokers(&metrics.since(&before).brokers));
                output::note(self.message(waiting, &reasons));
                return;
            }
        }
    }

    fn message(&self, waiting: u64, reasons: &[String]) -> String {
        let have = if waiting == 1 { "has" } else { "have" };
        let reasons = match reasons {
            [] => "no broker has given a reason".to_owned(),
            reasons => reasons.join(", "),
        };
        format!(
            "{} {have} waited {STALL:?} for the acknowledgement: {reasons}; retrying for up to {:?} \
             (delivery.timeout.ms)",
            count(waiting, "record"),
            self.delivery_timeout
        )
    }

    /// Reasons in the state of the topic; none if no broker describes it.
    async fn describe(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        let described = self.admin.describe_topics(&[&self.topic]).await.unwrap_or_default();
        for (name, topic) in described {
            let Ok(topic) = topic else { continue };
            let min_isr = if self.all_acks { self.min_isr().await } else { None };
            reasons.extend(of_partitions(&name, &topic.partitions, min_isr));
        }
        reasons
    }

    async fn min_isr(&self) -> Option<usize> {
        let topic = ConfigResource::Topic(self.topic.clone());
        let (_, settings) = self.admin.describe_configs(&[topic]).await.ok()?.pop()?;
        let found = settings.ok()?.into_iter().find(|entry| entry.name == "min.insync.replicas");
        found?.value?.parse().ok()
    }
}

/// Records acknowledged or failed.
fn settled(metrics: &ProducerMetrics) -> u64 {
    let acknowledged = metrics.brokers.values().map(|broker| broker.record_send_total);
    acknowledged.sum::<u64>() + metrics.record_error_total
}

/// Partitions that cannot acknowledge.
fn of_partitions(
    topic: &str,
    partitions: &[PartitionDescription],
    min_isr: Option<usize>,
) -> Vec<String> {
    let reason = |partition: &PartitionDescription| {
        let (index, isr) = (partition.partition, partition.isr.len());
        match (partition.leader, min_isr) {
            (None, _) => Some(format!("{topic}-{index} has no leader")),
            (Some(_), Some(min)) if isr < min => Some(format!(
                "{topic}-{index} has {}, fewer than min.insync.replicas={min}",
                count(isr, "in-sync replica")
            )),
            _ => None,
        }
    };
    let mut reasons: Vec<String> = partitions.iter().filter_map(reason).collect();
    if let Some(more) = reasons.len().checked_sub(NAMED).filter(|more| *more > 0) {
        reasons.truncate(NAMED);
        reasons.push(format!("the same for {}", count(more, "more partition")));
    }
    reasons
}

/// What each broker has done since the last acknowledgement.
fn of_brokers(brokers: &BTreeMap<i32, BrokerMetrics>) -> Vec<String> {
    let reason = |(id, broker): (&i32, &BrokerMetrics)| {
        if broker.batch_refused_total > 0 {
            let batches = broker.batch_refused_total;
            Some(format!("broker {id} refused a batch {}", count(batches, "time")))
        } else if broker.requests_in_flight > 0 {
            let requests = count(broker.requests_in_flight, "request");
            Some(format!("broker {id} has not responded to {requests}"))
        } else if broker.connection_count == 0 && broker.queue_bytes > 0 {
            Some(format!("there is no connection to broker {id}"))
        } else {
            None
        }
    };
    brokers.iter().filter_map(reason).collect()
}
