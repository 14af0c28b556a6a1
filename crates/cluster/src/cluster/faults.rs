//! Faults of a running cluster.

use std::{sync::atomic::Ordering, time::Duration};

use curtail_wire::{ApiKey, ErrorCode};

use super::{ClusterHandle, Shared};
use crate::{
    coordinator::{Kind, partition_of},
    error::ClusterError,
    faults::{
        ActiveFault, Changes, Delay, DelayMetadata, Fault, FaultError, Injection, OnBroker,
        Requests, Sender, Time,
    },
    image::PartitionKey,
};

/// A key that has a coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoordinatorKey {
    /// A group, of consumers of either protocol.
    Group(String),
    /// A transactional id.
    TransactionalId(String),
}

impl Changes for Shared {
    fn freeze(&self, broker: i32, frozen: bool) {
        match self.slots.get(&broker) {
            Some(slot) if frozen => slot.gate.close(),
            Some(slot) => slot.gate.open(),
            None => {}
        }
    }

    fn freeze_metadata(&self, broker: i32, frozen: bool) {
        if let Some(mailbox) = self.controller.mailbox(broker) {
            mailbox.freeze(frozen);
        }
    }

    fn cut_off(&self, broker: i32, cut_off: bool) {
        if let Some(mailbox) = self.controller.mailbox(broker) {
            mailbox.cut_off(cut_off);
        }
    }

    fn fill_disk(&self, broker: i32, full: bool) {
        if let Some(slot) = self.slots.get(&broker) {
            slot.disk_full.store(full, Ordering::Relaxed);
        }
    }

    fn delay_metadata(&self, broker: i32, delay: Option<Duration>) {
        if let Some(mailbox) = self.controller.mailbox(broker) {
            mailbox.set_delay(delay.unwrap_or(self.config.metadata_propagation_delay));
        }
    }
}

/// The seed of faults without random choices. The cluster's random numbers stay as they are.
const NO_CHOICES: u64 = 0;

/// Faults on request.
impl ClusterHandle {
    /// Injects a fault and returns its name. It stays until it is lifted, also while brokers restart;
    /// only a freeze ends with the process of its broker.
    ///
    /// # Errors
    /// The fault contradicts itself, names an unknown broker, or has a name that is taken.
    ///
    /// # Example
    /// ```
    /// # async fn example(cluster: &curtail_cluster::Cluster) -> Result<(), curtail_cluster::FaultError> {
    /// use curtail_cluster::{ApiKey, ErrorCode, Fault, Requests};
    ///
    /// // The leaders refuse the next three partitions that clients produce to.
    /// let refused = Requests::of(ApiKey::PRODUCE).times(3);
    /// let name = cluster.inject(Fault::error(refused, ErrorCode::NOT_LEADER_OR_FOLLOWER))?;
    /// cluster.lift(&name);
    /// # Ok(())
    /// # }
    /// ```
    pub fn inject(&self, fault: impl Into<Injection>) -> Result<String, FaultError> {
        self.0.faults.inject(fault.into(), &self.broker_ids(), self.0.as_ref())
    }

    /// Lifts a fault. Returns false if none has the name.
    pub fn lift(&self, name: &str) -> bool {
        self.0.faults.lift(self.0.as_ref(), |fault, _| fault == name) > 0
    }

    /// Lifts all faults and returns how many there were.
    pub fn lift_all(&self) -> usize {
        self.0.faults.lift(self.0.as_ref(), |_, _| true)
    }

    /// Returns all faults, oldest first. A fault that has affected as many requests as it may stays
    /// until it is lifted.
    pub fn faults(&self) -> Vec<ActiveFault> {
        self.0.faults.list()
    }

    /// Freezes a broker as SIGSTOP freezes a process: it reads and handles no requests, sends no
    /// responses and heartbeats, and does not replicate. Its connections stay open. The controller
    /// fences it when its session times out. The fault is named `freeze-of-` and the id.
    pub fn freeze(&self, id: i32) {
        self.replace(&format!("freeze-of-{id}"), Fault::Freeze(OnBroker { broker: id }));
    }

    /// Resumes a frozen broker, and lifts all its freezes.
    pub fn thaw(&self, id: i32) {
        self.end(|fault| matches!(fault, Fault::Freeze(on) if on.broker == id));
    }

    /// Delays responses of one broker or all, to one API (by its key) or to all APIs. A later call
    /// takes precedence where both apply. A delay of zero removes the one of the same brokers and
    /// API. Later responses on the same connection wait, too. Responses to followers count as well.
    /// The removal does not shorten delays in progress.
    ///
    /// [`Fault::Delay`] has more conditions.
    pub fn delay(&self, broker: Option<i32>, api: Option<i16>, delay: Duration) {
        for id in self.broker_ids() {
            if broker.is_some_and(|broker| broker != id) {
                continue;
            }
            let of = api.map_or("all".to_owned(), |api| api.to_string());
            let name = format!("{DELAY_OF}{id}-{of}");
            if delay.is_zero() {
                self.lift(&name);
                continue;
            }
            let requests = Requests {
                broker: Some(id),
                api: api.map(ApiKey),
                from: Sender::All,
                ..Requests::default()
            };
            self.replace(&name, Fault::Delay(Delay { requests, time: Time::Fixed(delay) }));
        }
    }

    /// Removes all delays of [`ClusterHandle::delay`]. Delays in progress are not shortened.
    pub fn clear_delays(&self) {
        let is_delay = |fault: &Fault| matches!(fault, Fault::Delay(_));
        self.0
            .faults
            .lift(self.0.as_ref(), |name, fault| name.starts_with(DELAY_OF) && is_delay(fault));
    }

    /// Sets the propagation delay of later metadata changes to a broker. The fault is named
    /// `metadata-delay-of-` and the id; without one the delay is that of the configuration.
    pub fn set_metadata_delay(&self, broker: i32, delay: Duration) {
        let fault = Fault::DelayMetadata(DelayMetadata { broker, time: delay });
        self.replace(&format!("metadata-delay-of-{broker}"), fault);
    }

    /// Freezes a broker's metadata at its current version, or lets it catch up and lifts all such
    /// faults of the broker. The fault is named `metadata-freeze-of-` and the id.
    pub fn freeze_metadata(&self, broker: i32, frozen: bool) {
        if frozen {
            let fault = Fault::FreezeMetadata(OnBroker { broker });
            self.replace(&format!("metadata-freeze-of-{broker}"), fault);
        } else {
            self.end(|fault| matches!(fault, Fault::FreezeMetadata(on) if on.broker == broker));
        }
    }

    /// Disconnects a broker from the controller, or reconnects it and lifts all such faults of the
    /// broker: no heartbeats, no metadata, no changes of in-sync replicas. Clients and other brokers
    /// still reach it, so it continues to act as a leader. The fault is named `cut-off-of-` and the
    /// id.
    pub fn cut_off(&self, broker: i32, cut_off: bool) {
        if cut_off {
            let fault = Fault::CutOff(OnBroker { broker });
            self.replace(&format!("cut-off-of-{broker}"), fault);
        } else {
            self.end(|fault| matches!(fault, Fault::CutOff(on) if on.broker == broker));
        }
    }

    /// Makes the broker forget all its fetch sessions. Readers receive FETCH_SESSION_ID_NOT_FOUND
    /// and begin new sessions. Returns how many there were; `None` if the broker does not run.
    pub fn expire_fetch_sessions(&self, id: i32) -> Option<usize> {
        let broker = self.slot(id)?.current.lock().as_ref()?.upgrade()?;
        let expired = broker.sessions.lock().expire_all();
        Some(expired)
    }

    /// Makes the running replicas of a partition forget its producers, as after
    /// `producer.id.expiration.ms`; producers with an open transaction stay. Returns how many the
    /// leader forgot; `None` if the partition does not exist.
    ///
    /// As in Kafka, the broker then takes any next sequence number of an idempotent producer, also
    /// that of a batch which it already has. A replica that restarts knows the producers in its log
    /// again.
    pub fn expire_producer_ids(&self, topic: &str, partition: i32) -> Option<usize> {
        let image = self.0.controller.image();
        let topic = image.topic(topic)?;
        let of = topic.partitions.get(usize::try_from(partition).ok()?)?;
        let key = PartitionKey { topic: topic.id, index: partition };
        let forgotten = |id: i32| {
            let broker = self.slot(id)?.current.lock().as_ref()?.upgrade()?;
            Some((id, broker.partition(key)?.forget_producers()))
        };
        let forgotten: Vec<_> = of.replicas.iter().copied().filter_map(forgotten).collect();
        let by_leader = forgotten.into_iter().find(|(id, _)| *id == of.leader);
        Some(by_leader.map_or(0, |(_, count)| count))
    }

    /// Makes an in-sync replica the coordinator of a group or a transactional id: it becomes the leader
    /// of their partition of the internal topic, and with it the coordinator of every key there.
    ///
    /// # Errors
    /// COORDINATOR_NOT_AVAILABLE before a client has asked for a coordinator of this kind, and as
    /// [`ClusterHandle::move_leader`].
    pub fn move_coordinator(&self, of: &CoordinatorKey, to: i32) -> Result<(), ClusterError> {
        let (kind, key) = match of {
            CoordinatorKey::Group(id) => (Kind::Group, id),
            CoordinatorKey::TransactionalId(id) => (Kind::Transaction, id),
        };
        let partition = partition_of(&self.0.controller.image(), kind, key).ok_or_else(|| {
            ClusterError::Refused {
                code: ErrorCode::COORDINATOR_NOT_AVAILABLE,
                reason: format!(
                    "{} does not exist until a client asks for a coordinator",
                    kind.topic()
                ),
            }
        })?;
        self.move_leader(kind.topic(), partition, to)
    }

    /// Injects a fault in place of an earlier one of the same name. An unknown broker has no faults.
    fn replace(&self, name: &str, fault: Fault) {
        let injection = Injection { seed: Some(NO_CHOICES), ..fault.named(name) };
        let _ = self.0.faults.replace(injection, &self.broker_ids(), self.0.as_ref());
    }

    fn end(&self, ended: impl Fn(&Fault) -> bool) {
        self.0.faults.lift(self.0.as_ref(), |_, fault| ended(fault));
    }
}

/// The start of the names of [`ClusterHandle::delay`].
const DELAY_OF: &str = "delay-of-";
