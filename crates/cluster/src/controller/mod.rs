//! The controller: one in-process object that owns the cluster's metadata.
//!
//! Brokers call it directly and it never calls them: what it decides lies in each broker's [`Mailbox`] until the
//! broker takes it, after a delay that can be set. Its lock is held for the length of one decision and taken
//! last, after any lock of a broker.

mod access;
mod journal;
mod mailbox;
mod placement;
mod resize;
mod restart;
mod state;
#[cfg(test)]
mod tests;

pub(crate) use mailbox::Mailbox;
pub(crate) use placement::{TopicSpec, valid_name};
pub use resize::brokers_of;
pub(crate) use state::{
    Addresses, AlterPartition, Election, MorePartitions, Move, Moving, Refusal,
};

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use curtail_net::Entropy;
use curtail_wire::{ErrorCode, Uuid};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, futures::Notified},
    time::{Instant, sleep_until},
};

use crate::{
    acl::{Acl, Filter},
    config::{ClusterConfig, Plant},
    disk::Disk,
    image::{Image, PartitionImage, PartitionKey, TopicImage},
    quota::{Entity, Limit},
    sasl::{Credential, Credentials, Hash},
    settings::Whose,
    topic_config::ConfigEdits,
};
use journal::{Change, Journal};
use state::State;

/// The controller's broker id towards clients: the first broker, as in a combined deployment.
pub(crate) const CONTROLLER_ID: i32 = 1;

/// The controller of a cluster. [`Controller::run`] must be running for sessions to time out.
pub struct Controller {
    config: Arc<ClusterConfig>,
    entropy: Entropy,
    inner: Mutex<Inner>,
    mailboxes: BTreeMap<i32, Arc<Mailbox>>,
    /// Brokers heard of since the timer last looked.
    heard: Mutex<BTreeSet<i32>>,
    wake: Notify,
    /// Wakes waiters in the order in which they began to wait, as `came_up` does. A watch channel wakes them in a random one,
    /// and simulated runs of one seed would differ.
    changed: Notify,
    /// Where the journal is; `None` for metadata in memory only.
    home: Option<(Arc<dyn Disk>, PathBuf)>,
    came_up: Notify,
}

struct Inner {
    state: State,
    journal: Option<Journal>,
    published: u64,
    /// Whether the controller has crashed and not restarted.
    down: bool,
    /// Counts restarts: each gives every live broker a whole session time.
    restarts: u64,
    /// Credentials that the run began with; the journal does not have them.
    configured: Credentials,
}

impl std::fmt::Debug for Controller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controller").finish_non_exhaustive()
    }
}

/// A random id that is none of Kafka's reserved ones.
pub(crate) fn random_id(entropy: &Entropy) -> Uuid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&entropy.next_u64().to_be_bytes());
    bytes[8..].copy_from_slice(&entropy.next_u64().to_be_bytes());
    // Version 4, variant 1: never one of Kafka's reserved ids, which are zero but for the last byte.
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Uuid(bytes)
}

impl Controller {
    /// A controller that keeps its metadata on a disk, or in memory only.
    ///
    /// # Errors
    /// When the metadata of an earlier run is damaged, missing although there are logs, or for another number of brokers, or
    /// the disk fails.
    pub(crate) fn new(
        config: &Arc<ClusterConfig>,
        entropy: Entropy,
        disk: Option<(Arc<dyn Disk>, &Path)>,
    ) -> io::Result<Self> {
        let ids: Vec<i32> = config.broker_ids().collect();
        let changes = match &disk {
            Some((disk, dir)) => journal::read(disk.as_ref(), dir)?,
            None => Vec::new(),
        };
        let known = changes.iter().find_map(|change| match change {
            Change::Cluster { id, brokers } => Some((id.clone(), *brokers)),
            _ => None,
        });
        let mut state = match known {
            Some((id, brokers)) => {
                let before = State::replayed(&id, changes);
                resize::check(&before, brokers, config)?;
                before.resume(&ids)
            }
            None => {
                if let Some((disk, dir)) = &disk {
                    journal::refuse_orphans(disk.as_ref(), dir)?;
                }
                State::new(&random_id(&entropy).to_string())
            }
        };
        state.take_changes();
        state.elects_uncleanly = config.plant == Some(Plant::ElectUncleanly);
        let home = disk.map(|(disk, dir)| (disk, dir.to_owned()));
        let journal = restart::journal(home.as_ref(), &state, config)?;
        let delay = config.metadata_propagation_delay;
        let mailboxes = ids.iter().map(|id| (*id, Arc::new(Mailbox::new(delay)))).collect();
        let published = state.image.version;
        Ok(Self {
            config: Arc::clone(config),
            entropy,
            inner: Mutex::new(Inner {
                state,
                journal,
                published,
                down: false,
                restarts: 0,
                configured: Credentials::new(),
            }),
            mailboxes,
            heard: Mutex::default(),
            wake: Notify::new(),
            changed: Notify::new(),
            home,
            came_up: Notify::new(),
        })
    }

    /// Fences brokers whose session times out; runs until it is dropped.
    ///
    /// # Cancel safety
    /// Cancel safe. Run again, it gives every live broker a whole session time from then on.
    pub async fn run(&self) {
        let timeout = self.config.broker_session_timeout;
        let mut deadlines: BTreeMap<i32, Instant> = BTreeMap::new();
        let mut restarts = 0;
        let mut due = None;
        loop {
            let now = Instant::now();
            let restarted = self.inner.lock().restarts;
            if std::mem::replace(&mut restarts, restarted) != restarted {
                deadlines.clear();
            }
            for id in std::mem::take(&mut *self.heard.lock()) {
                deadlines.insert(id, now + timeout);
            }
            // A refused change is tried again once the sessions have timed out once more.
            let _ = self.change(|state| {
                // The lock may have been held by a change whose sync took long.
                let now = Instant::now();
                if self.was_stuck(due, now) {
                    deadlines.clear();
                }
                deadlines.retain(|id, _| state.has_session(*id));
                for id in self.mailboxes.keys() {
                    if !state.has_session(*id) {
                        continue;
                    }
                    let deadline = *deadlines.entry(*id).or_insert(now + timeout);
                    if deadline <= now {
                        tracing::info!(broker = id, "session timed out; broker fenced");
                        state.fence(*id);
                    }
                }
            });
            deadlines.retain(|_, deadline| *deadline > now);
            due = deadlines.values().min().copied();
            match due {
                Some(next) => tokio::select! {
                    biased;
                    () = self.wake.notified() => {}
                    () = sleep_until(next) => {}
                },
                None => self.wake.notified().await,
            }
        }
    }

    /// Whether the sessions could not be looked at for long after the first was due: the process was suspended, or a sync of
    /// the journal did not return. Heartbeats had no chance then.
    fn was_stuck(&self, due: Option<Instant>, now: Instant) -> bool {
        self.config.plant != Some(Plant::CountStandstill)
            && due.is_some_and(|due| now > due + self.config.broker_session_timeout / 2)
    }

    /// Decides under the lock, journals the changes, then publishes them.
    ///
    /// # Errors
    /// `KAFKA_STORAGE_ERROR` if the changes could not be made durable; the state is then as it was before.
    /// `REQUEST_TIMED_OUT` while the controller is down, as brokers answer that cannot reach a controller.
    fn change<T>(&self, decide: impl FnOnce(&mut State) -> T) -> Result<T, Refusal> {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        if inner.down {
            return Err((ErrorCode::REQUEST_TIMED_OUT, "The controller is not available".into()));
        }
        // Cheap: the image shares its structure with the copy.
        let before = inner.journal.is_some().then(|| inner.state.clone());
        let result = decide(&mut inner.state);
        let mut changes = inner.state.take_changes();
        if !changes.is_empty()
            && let (Some(journal), Some(before)) = (&mut inner.journal, before)
        {
            changes.push(Change::Version(inner.state.image.version));
            let snapshot = || inner.state.snapshot(self.config.brokers);
            if let Err(error) = journal.append(&changes, snapshot) {
                inner.state = before;
                tracing::error!(%error, "cluster metadata could not be written; the change is refused");
                let reason = format!("The cluster's metadata could not be written: {error}");
                return Err((ErrorCode::KAFKA_STORAGE_ERROR, reason));
            }
        }
        self.publish(inner);
        Ok(result)
    }

    /// Sends the brokers a version that they do not have.
    fn publish(&self, inner: &mut Inner) {
        if inner.state.image.version == inner.published {
            return;
        }
        inner.published = inner.state.image.version;
        let image = Arc::new(inner.state.image.clone());
        // Under the lock, so that every mailbox sees the versions in order.
        for mailbox in self.mailboxes.values() {
            mailbox.put(&image);
        }
        self.changed.notify_waiters();
    }

    pub(crate) fn mailbox(&self, id: i32) -> Option<&Arc<Mailbox>> {
        self.mailboxes.get(&id)
    }

    fn is_cut_off(&self, id: i32) -> bool {
        self.mailboxes.get(&id).is_some_and(|mailbox| mailbox.is_cut_off())
    }

    /// The metadata as the controller has it.
    pub(crate) fn image(&self) -> Image {
        self.inner.lock().state.image.clone()
    }

    /// The leader of a partition and its epoch, asked for by the broker `id`; `None` if it cannot ask.
    pub(crate) fn leader_of(&self, id: i32, key: PartitionKey) -> Option<(i32, i32)> {
        if self.is_cut_off(id) {
            return None;
        }
        let inner = self.inner.lock();
        if inner.down {
            return None;
        }
        let topic = inner.state.image.topic_by_id(&key.topic)?;
        let partition = topic.partitions.get(usize::try_from(key.index).ok()?)?;
        Some((partition.leader, partition.leader_epoch))
    }

    /// Unclean elections of a partition, as far as this process has seen them.
    pub(crate) fn unclean_elections(&self, topic: &str, index: i32) -> u64 {
        let state = &self.inner.lock().state;
        let key = state.image.topic(topic).map(|topic| PartitionKey { topic: topic.id, index });
        key.and_then(|key| state.unclean.get(&key)).copied().unwrap_or(0)
    }

    /// Completes with the next version of the metadata after this call.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Registers an incarnation of a broker: its epoch, and the metadata to start from. The mailbox then
    /// holds only what comes later.
    pub(crate) fn register(
        &self,
        id: i32,
        addresses: Addresses,
    ) -> Result<(i64, Arc<Image>), Refusal> {
        self.change(|state| {
            let epoch = state.register(id, addresses);
            (epoch, Arc::new(state.image.clone()))
        })
    }

    /// A broker's sign of life; false when the controller does not take this incarnation for the current one.
    pub(crate) fn heartbeat(&self, id: i32, epoch: i64) -> bool {
        if self.is_cut_off(id) || self.change(|state| state.heartbeat(id, epoch)) != Ok(true) {
            return false;
        }
        self.heard.lock().insert(id);
        self.wake.notify_one();
        true
    }

    /// Moves everything away from a broker that is about to stop.
    pub(crate) fn controlled_shutdown(&self, id: i32) {
        // The broker stops in any case. What it leads moves once its session has timed out.
        let _ = self.change(|state| state.leave(id));
    }

    pub(crate) fn alter_partition(
        &self,
        alter: &AlterPartition,
    ) -> Result<PartitionImage, ErrorCode> {
        if self.is_cut_off(alter.broker) {
            return Err(ErrorCode::NETWORK_EXCEPTION);
        }
        self.change(|state| state.alter_partition(alter)).map_err(|(code, _)| code)?
    }

    pub(crate) fn move_leader(&self, topic: &str, partition: i32, to: i32) -> Result<(), Refusal> {
        self.change(|state| state.move_leader(topic, partition, to))?
    }

    pub(crate) fn create_topic(&self, spec: &TopicSpec) -> Result<Arc<TopicImage>, Refusal> {
        let id = random_id(&self.entropy);
        self.change(|state| state.create_topic(spec, id, &self.config))?
    }

    /// What [`Controller::create_topic`] would do: partitions and replication factor.
    pub(crate) fn check_topic(&self, spec: &TopicSpec) -> Result<(i32, i16), Refusal> {
        let inner = self.inner.lock();
        let (_, placed) = inner.state.check_topic(spec, &self.config)?;
        Ok((placed.len() as i32, placed.first().map_or(0, Vec::len) as i16))
    }

    pub(crate) fn create_partitions(&self, more: &MorePartitions) -> Result<(), Refusal> {
        self.change(|state| state.create_partitions(more, &self.config))?
    }

    /// Whether [`Controller::create_partitions`] would do it.
    pub(crate) fn check_partitions(&self, more: &MorePartitions) -> Result<(), Refusal> {
        self.inner.lock().state.check_partitions(more, &self.config).map(drop)
    }

    pub(crate) fn alter_config(&self, topic: &str, edits: &ConfigEdits) -> Result<(), Refusal> {
        self.change(|state| state.alter_config(topic, edits))?
    }

    /// Whether [`Controller::alter_config`] would do it.
    pub(crate) fn check_config(&self, topic: &str, edits: &ConfigEdits) -> Result<(), Refusal> {
        self.inner.lock().state.check_config(topic, edits).map(drop)
    }

    /// Changes the settings of a broker or a group.
    pub(crate) fn alter_settings(&self, whose: &Whose, edits: &ConfigEdits) -> Result<(), Refusal> {
        self.change(|state| state.alter_settings(whose, edits, &self.config))?
    }

    /// Whether [`Controller::alter_settings`] would do it.
    pub(crate) fn check_settings(&self, whose: &Whose, edits: &ConfigEdits) -> Result<(), Refusal> {
        self.inner.lock().state.check_settings(whose, edits, &self.config).map(drop)
    }

    pub(crate) fn all_partitions(&self) -> BTreeMap<String, Vec<i32>> {
        self.inner.lock().state.all_partitions()
    }

    pub(crate) fn elect_leader(
        &self,
        topic: &str,
        index: i32,
        election: Election,
    ) -> Result<(), Refusal> {
        self.change(|state| state.elect_leader(topic, index, election))?
    }

    /// Begins, changes or takes back the reassignment of a partition.
    pub(crate) fn reassign(&self, topic: &str, index: i32, to: &Move) -> Result<(), Refusal> {
        self.change(|state| state.reassign(topic, index, to))?
    }

    /// The reassignments under way, of these partitions or all.
    pub(crate) fn reassignments(&self, of: Option<&[(String, Vec<i32>)]>) -> Vec<Moving> {
        self.inner.lock().state.reassignments(of)
    }

    /// Deletes a topic; false when there is none of this id.
    pub(crate) fn delete_topic(&self, id: Uuid) -> Result<bool, Refusal> {
        self.change(|state| state.remove_topic(id))
    }

    pub(crate) fn create_acls(&self, acls: Vec<Acl>) -> Result<(), Refusal> {
        self.change(|state| state.create_acls(acls))
    }

    /// Takes rules away and returns them.
    pub(crate) fn delete_acls(&self, filter: &Filter) -> Result<Vec<Acl>, Refusal> {
        self.change(|state| state.delete_acls(filter))
    }

    /// Sets limits, or takes those without a value away.
    pub(crate) fn alter_quotas(
        &self,
        entity: &Entity,
        changes: &[(Limit, Option<f64>)],
    ) -> Result<(), Refusal> {
        self.change(|state| {
            for (limit, value) in changes {
                state.alter_quota(entity, *limit, *value);
            }
        })
    }

    /// Credentials that this run begins with; brokers must not have registered yet.
    pub(crate) fn configure_credentials(&self, credentials: &Credentials) {
        // They are not journaled, so this cannot fail.
        let _ = self.change(|state| state.configure_credentials(credentials));
        self.inner.lock().configured = credentials.clone();
    }

    /// Sets what is kept of a user's password for a mechanism.
    pub(crate) fn set_credential(
        &self,
        user: String,
        mechanism: Hash,
        credential: Credential,
    ) -> Result<(), Refusal> {
        self.change(|state| state.set_credential(user, mechanism, Some(Arc::new(credential))))
    }

    pub(crate) fn delete_credential(&self, user: String, mechanism: Hash) -> Result<(), Refusal> {
        self.change(|state| state.delete_credential(user, mechanism))?
    }

    /// A producer id that was never given to another producer.
    ///
    /// # Errors
    /// `COORDINATOR_LOAD_IN_PROGRESS`, as in Kafka while there is no block of ids: producers try again.
    pub(crate) fn next_producer_id(&self) -> Result<i64, ErrorCode> {
        self.change(State::next_producer_id).map_err(|_| ErrorCode::COORDINATOR_LOAD_IN_PROGRESS)
    }
}
