//! Probes for brokers without phase timestamps: single records to separate topics, before and after a load.

use std::time::{Duration, Instant};

use curtail::{Producer, ProducerConfig, Record};
use tokio::time::{sleep, timeout};

use crate::{
    experiments::{
        Testbed,
        load::{nanos, with_properties},
    },
    perf::{Result, client_runtime},
    phases::Probes,
};

/// Pairs of round trips per probe run: one with acks=1, one with acks=all.
const PAIRS: usize = 400;
/// Warm-up pairs: connections are opened, and a Java virtual machine compiles.
const WARMUP: usize = 20;
/// Pause between two records.
const PAUSE: Duration = Duration::from_millis(1);
/// Limit of a probe run: no more pairs are begun after this, and no response is awaited any longer.
const LONGEST: Duration = Duration::from_secs(5);

/// Probes in topics with the same replicas as the load's topic.
///
/// A topic for probes exists only while they are sent. An idle partition in the followers' fetch sessions delays them after a
/// move of all leaders, and other clients' loads, which nothing probes, would have an advantage (decision 0142).
pub(in crate::experiments) struct Prober<'a> {
    testbed: &'a Testbed,
    config: ProducerConfig,
    /// The load's topic.
    topic: String,
    replicas: i16,
    size: usize,
}

impl<'a> Prober<'a> {
    /// Creates a prober that sends records of `size` bytes to topics with as many replicas as `topic`.
    ///
    /// # Errors
    /// A topic that cannot be described, and settings that cannot be changed.
    pub(in crate::experiments) fn new(
        testbed: &'a Testbed,
        config: &ProducerConfig,
        topic: &str,
        size: usize,
    ) -> Result<Self> {
        let described = testbed.describe(topic)?;
        let replicas = described.partitions.iter().map(|p| p.replicas.len()).max().unwrap_or(1);
        let replicas = i16::try_from(replicas).unwrap_or(i16::MAX);
        let mut config = config.clone().linger(Duration::ZERO);
        config.unset("transactional.id")?;
        Ok(Self { testbed, config, topic: topic.to_owned(), replicas, size })
    }

    /// Measures round trips one after the other, before the load: at most 800, for at most five seconds.
    ///
    /// # Errors
    /// A topic that cannot be created, and invalid settings.
    pub(in crate::experiments) fn before(&self) -> Result<Probes> {
        let topic = format!("{}-probes-before", self.topic);
        self.testbed.create_topic(&topic, 1, self.replicas)?;
        self.probe(&topic)
    }

    /// As [`Self::before`], after the load. Empty if the load has left a cluster that cannot have the topic.
    ///
    /// # Errors
    /// Invalid settings.
    pub(in crate::experiments) fn after(&self) -> Result<Probes> {
        let topic = format!("{}-probes-after", self.topic);
        match self.testbed.create_topic(&topic, 1, self.replicas) {
            Ok(()) => self.probe(&topic),
            Err(_) => {
                // It may exist, with a replica that is not in sync.
                let _ = self.testbed.delete_topic(&topic);
                Ok(Probes::default())
            }
        }
    }

    fn probe(&self, topic: &str) -> Result<Probes> {
        let runtime = client_runtime()?;
        let _context = runtime.enter();
        let producer = |acks| -> Result<Producer> {
            // The two producers differ in nothing but acks.
            let properties = [("enable.idempotence", "false"), ("acks", acks)];
            Ok(Producer::new(with_properties(self.config.clone(), &properties)?)?)
        };
        let (leader, all) = (producer("1")?, producer("all")?);
        let mut probes = Probes::default();
        // Requests that an impaired cluster does not acknowledge say nothing about phases.
        let sent = self.pairs(topic, (&leader, &all), &mut probes);
        let _ = runtime.block_on(timeout(2 * LONGEST, sent));
        // A cluster that has stopped has no topic left to delete.
        let _ = self.testbed.delete_topic(topic);
        Ok(probes)
    }

    async fn pairs(
        &self,
        topic: &str,
        (leader, all): (&Producer, &Producer),
        probes: &mut Probes,
    ) -> curtail::Result<()> {
        let value = vec![b'p'; self.size];
        let begun = Instant::now();
        for pair in 0..WARMUP + PAIRS {
            if begun.elapsed() > LONGEST {
                break;
            }
            let of_leader = one(leader, topic, &value).await?;
            let pair = (pair >= WARMUP, of_leader, one(all, topic, &value).await?);
            if let (true, Some(leader), Some(all)) = pair {
                probes.leader.push(leader);
                probes.all.push(all);
            }
        }
        Ok(())
    }
}

async fn one(producer: &Producer, topic: &str, value: &[u8]) -> curtail::Result<Option<u64>> {
    let record = Record::to(topic).partition(0).value(value);
    let mut delivery = producer.send(record).await?;
    (&mut delivery).await?;
    sleep(PAUSE).await;
    let took = |timing: curtail::producer::Timing| timing.acknowledged - timing.written;
    Ok(delivery.timing().map(|timing| nanos(took(timing))))
}
