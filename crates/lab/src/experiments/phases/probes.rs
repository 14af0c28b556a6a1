//! Probes for brokers without phase timestamps: single records to a separate topic, before and after a load.

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

/// A topic for probes with the same replicas as the load's topic. Dropping this deletes the topic.
pub(in crate::experiments) struct Prober<'a> {
    testbed: &'a Testbed,
    config: ProducerConfig,
    topic: String,
    size: usize,
}

impl<'a> Prober<'a> {
    /// Creates a prober that sends records of `size` bytes to the separate topic `TOPIC-probes`, with as many replicas
    /// as `topic`.
    ///
    /// # Errors
    /// A topic that cannot be created.
    pub(in crate::experiments) fn new(
        testbed: &'a Testbed,
        config: &ProducerConfig,
        topic: &str,
        size: usize,
    ) -> Result<Self> {
        let described = testbed.describe(topic)?;
        let replicas = described.partitions.iter().map(|p| p.replicas.len()).max().unwrap_or(1);
        let topic = format!("{topic}-probes");
        testbed.create_topic(&topic, 1, i16::try_from(replicas).unwrap_or(i16::MAX))?;
        let mut config = config.clone().linger(Duration::ZERO);
        config.unset("transactional.id")?;
        Ok(Self { testbed, config, topic, size })
    }

    /// Measures round trips one after the other: at most 800, for at most five seconds.
    ///
    /// # Errors
    /// Invalid settings.
    pub(in crate::experiments) fn probe(&self) -> Result<Probes> {
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
        let _ = runtime.block_on(timeout(2 * LONGEST, self.pairs(&leader, &all, &mut probes)));
        Ok(probes)
    }

    async fn pairs(
        &self,
        leader: &Producer,
        all: &Producer,
        probes: &mut Probes,
    ) -> curtail::Result<()> {
        let value = vec![b'p'; self.size];
        let begun = Instant::now();
        for pair in 0..WARMUP + PAIRS {
            if begun.elapsed() > LONGEST {
                break;
            }
            let pair =
                (pair >= WARMUP, self.one(leader, &value).await?, self.one(all, &value).await?);
            if let (true, Some(leader), Some(all)) = pair {
                probes.leader.push(leader);
                probes.all.push(all);
            }
        }
        Ok(())
    }

    async fn one(&self, producer: &Producer, value: &[u8]) -> curtail::Result<Option<u64>> {
        let record = Record::to(&self.topic).partition(0).value(value);
        let mut delivery = producer.send(record).await?;
        (&mut delivery).await?;
        sleep(PAUSE).await;
        let took = |timing: curtail::producer::Timing| timing.acknowledged - timing.written;
        Ok(delivery.timing().map(|timing| nanos(took(timing))))
    }
}

impl Drop for Prober<'_> {
    fn drop(&mut self) {
        // A cluster that has stopped has no topic left to delete.
        let _ = self.testbed.delete_topic(&self.topic);
    }
}
