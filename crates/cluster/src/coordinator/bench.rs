//! A cluster of one broker for tests of coordinators. The test sets the wall clock, and calls the timers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use curtail_net::{Env, WallClock};
use curtail_wire::{ErrorCode, records::batches};

use super::{
    Kind,
    runtime::{Coordinator, Cx, Shard, State},
};
use crate::{
    Cluster, ClusterConfig, broker::Broker, image::PartitionKey, replica::partition::Taken,
};

const PATIENCE: Duration = Duration::from_secs(20);

struct Clock(AtomicI64);

impl WallClock for Clock {
    fn now_ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The cluster, and the wall clock of its broker.
pub(crate) struct Bench {
    pub(crate) cluster: Cluster,
    clock: Arc<Clock>,
}

/// A coordinator's shard, and its broker.
pub(crate) struct Home<S> {
    pub(crate) broker: Arc<Broker>,
    pub(crate) shard: Arc<Shard<S>>,
}

impl Bench {
    /// Starts a cluster with the internal topic of this kind.
    pub(crate) async fn start(kind: Kind, config: ClusterConfig) -> Self {
        let clock = Arc::new(Clock(AtomicI64::new(1_700_000_000_000)));
        let env = Env { wall: Arc::<Clock>::clone(&clock), ..Env::real() };
        let config = ClusterConfig { brokers: 1, ..config };
        let cluster = Cluster::start(config.clone(), env).await.expect("it starts");
        cluster.controller().create_topic(&kind.topic_spec(&config)).expect("a new topic");
        cluster.settled().await;
        Self { cluster, clock }
    }

    /// Lets the wall clock advance.
    pub(crate) fn pass(&self, time: Duration) {
        self.clock.0.fetch_add(time.as_millis() as i64, Ordering::Relaxed);
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    /// Waits until the shard with a key's state has loaded.
    pub(crate) async fn home<S: State>(
        &self,
        of: fn(&Broker) -> &Coordinator<S>,
        key: &str,
    ) -> Home<S> {
        let loaded = async {
            loop {
                if let Some(broker) = self.cluster.running(1)
                    && let Ok(shard) = of(&broker).shard(&broker, key)
                    && shard.run(&broker, |_, _| ()).is_ok()
                {
                    return Home { broker, shard };
                }
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, loaded).await.expect("it loads")
    }

    /// Kills the broker and starts it again.
    pub(crate) async fn restart(&self) {
        self.cluster.kill(1);
        self.cluster.restart(1).await.expect("it starts again");
    }
}

impl<S: State> Home<S> {
    pub(crate) fn run<R>(&self, operation: impl FnOnce(&mut S, &mut Cx<'_, S>) -> R) -> R {
        self.shard.run(&self.broker, operation).expect("the coordinator is here")
    }

    pub(crate) async fn committed(&self, taken: Option<Taken>) -> Result<(), ErrorCode> {
        let Some(taken) = taken else { return Ok(()) };
        self.shard.committed(&self.broker, &taken, PATIENCE).await
    }

    /// Returns the keys of the log's records without a value, from this offset on, and the end of the log.
    pub(crate) fn tombstones(&self, from: i64) -> (Vec<Bytes>, i64) {
        let image = self.broker.image();
        let topic = image.topic(S::KIND.topic()).expect("the topic exists");
        let key = PartitionKey { topic: topic.id, index: self.shard.index };
        let partition = self.broker.partition(key).expect("the replica is here");
        let (mut found, mut next) = (Vec::new(), from);
        loop {
            let read = partition.read_in_epoch(self.shard.leader_epoch, Some(next), 1 << 20);
            let (_, records) = read.expect("the log is readable");
            if records.is_empty() {
                return (found, next);
            }
            for batch in batches(records) {
                let batch = batch.expect("whole batches");
                next = batch.header.last_offset() + 1;
                for record in batch.records(&Default::default()).expect("records") {
                    let record = record.expect("a record");
                    if record.value.is_none() && !batch.header.is_control() {
                        found.push(record.key.expect("a key"));
                    }
                }
            }
        }
    }
}
