//! The controller: an in-process object that owns the cluster's metadata.
//!
//! Brokers call the controller, and it never calls them. Its decisions stay in each broker's
//! [`Mailbox`] until the broker takes them, after a configurable delay. Its lock is held for one
//! decision only, and is taken last, after any lock of a broker.

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
    time::Duration,
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
    topic_config::{ConfigEdits, UNCLEAN_ELECTION, is_true},
};
use journal::{Change, Journal};
use state::State;

/// The controller's broker id for clients: the first broker, as in a combined deployment.
pub(crate) const CONTROLLER_ID: i32 = 1;

/// The controller of a cluster. Sessions time out only while [`Controller::run`] runs.
pub struct Controller {
    config: Arc<ClusterConfig>,
    entropy: Entropy,
    inner: Mutex<Inner>,
    mailboxes: BTreeMap<i32, Arc<Mailbox>>,
    /// Brokers with a heartbeat since the timer last checked.
    heard: Mutex<BTreeSet<i32>>,
    wake: Notify,
    /// Wakes waiters in the order in which they began to wait, as `came_up` does. A watch channel wakes them in a random
    /// order, so simulated runs of one seed would differ.
    changed: Notify,
    /// The journal's location; `None` for metadata in memory only.
    home: Option<(Arc<dyn Disk>, PathBuf)>,
    came_up: Notify,
}

struct Inner {
    state: State,
    journal: Option<Journal>,
    published: u64,
    /// Whether the controller has crashed and not restarted.
    down: bool,
    /// Number of restarts. After each, every live broker gets a full session timeout.
    restarts: u64,
    /// Credentials that the run was configured with; the journal does not contain them.
    configured: Credentials,
}

impl std::fmt::Debug for Controller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Controller").finish_non_exhaustive()
    }
}

/// Returns a random id that is not reserved in Kafka. As in Kafka its text begins with no `-`: tools would take it for a flag.
pub(crate) fn random_id(entropy: &Entropy) -> Uuid {
    let mut id = any_id(entropy);
    while id.to_string().starts_with('-') {
        id = any_id(entropy);
    }
    id
}

fn any_id(entropy: &Entropy) -> Uuid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&entropy.next_u64().to_be_bytes());
    bytes[8..].copy_from_slice(&entropy.next_u64().to_be_bytes());
    // Version 4, variant 1. Kafka's reserved ids are zero except for the last byte.
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Uuid(bytes)
}

impl Controller {
    /// Creates a controller that stores its metadata on a disk, or in memory only.
    ///
    /// # Errors
    /// The disk fails, or the metadata of an earlier run is damaged, belongs to another number of
    /// brokers, or is missing although logs exist.
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
                restart::check_id(&id, config.cluster_id.as_deref())?;
                let before = State::replayed(&id, changes);
                resize::check(&before, brokers, config)?;
                before.resume(&ids)
            }
            None => {
                if let Some((disk, dir)) = &disk {
                    journal::refuse_orphans(disk.as_ref(), dir)?;
                }
                let random = || random_id(&entropy).to_string();
                State::new(&config.cluster_id.clone().unwrap_or_else(random))
            }
        };
        state.take_changes();
        let default = config.topic_defaults.given(UNCLEAN_ELECTION);
        state.elects_uncleanly =
            config.plant == Some(Plant::ElectUncleanly) || default.is_some_and(is_true);
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
    /// Cancel safe. A new run gives every live broker a full session timeout.
    pub async fn run(&self) {
        let timeout = self.config.broker_session_timeout;
        let mut deadlines: BTreeMap<i32, Instant> = BTreeMap::new();
        let mut restarts = 0;
        let mut planned = None;
        loop {
            let now = Instant::now();
            let restarted = self.inner.lock().restarts;
            if std::mem::replace(&mut restarts, restarted) != restarted {
                deadlines.clear();
            }
            for id in std::mem::take(&mut *self.heard.lock()) {
                deadlines.insert(id, now + timeout);
            }
            // A refused change is retried after the sessions have timed out again.
            let _ = self.change(|state| {
                // The lock may have been held by a change whose sync took long.
                let now = Instant::now();
                let late = self.late(planned, now);
                deadlines.values_mut().for_each(|deadline| *deadline += late);
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
            let now = Instant::now();
            deadlines.retain(|_, deadline| *deadline > now);
            let next = deadlines.values().min().map(|due| (*due).min(now + timeout / 4));
            planned = next;
            match next {
                Some(next) => tokio::select! {
                    biased;
                    () = self.wake.notified() => {}
                    () = sleep_until(next) => {}
                },
                None => self.wake.notified().await,
            }
        }
    }

    /// Returns how much later than planned the sessions are checked. The process was suspended, or a sync of the journal
    /// did not return. Brokers could not send heartbeats, so this time does not count.
    fn late(&self, planned: Option<Instant>, now: Instant) -> Duration {
        let planned = planned.filter(|_| self.config.plant != Some(Plant::CountStandstill));
        planned.map_or(Duration::ZERO, |planned| now.saturating_duration_since(planned))
    }

    /// Decides under the lock, journals the changes, then publishes them.
    ///
    /// # Errors
    /// `KAFKA_STORAGE_ERROR` if the changes could not be made durable; the state is unchanged.
    /// `REQUEST_TIMED_OUT` while the controller is down, as from brokers that cannot reach a
    /// controller.
    fn change<T>(&self, decide: impl FnOnce(&mut State) -> T) -> Result<T, Refusal> {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        if inner.down {
            return Err((ErrorCode::REQUEST_TIMED_OUT, "The controller is not available".into()));
        }
        // Cheap: the clone shares the image's structure.
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

    /// Sends a new version to the brokers.
    fn publish(&self, inner: &mut Inner) {
        if inner.state.image.version == inner.published {
            return;
        }
        inner.published = inner.state.image.version;
        let image = Arc::new(inner.state.image.clone());
        // Holding the lock keeps the versions in order in every mailbox.
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

    /// Returns the controller's metadata.
    pub(crate) fn image(&self) -> Image {
        self.inner.lock().state.image.clone()
    }

    /// Returns the leader of a partition and its epoch to the broker `id`; `None` if the broker
    /// cannot reach the controller.
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

    /// Returns the number of unclean elections of a partition since this process started.
    pub(crate) fn unclean_elections(&self, topic: &str, index: i32) -> u64 {
        let state = &self.inner.lock().state;
        let key = state.image.topic(topic).map(|topic| PartitionKey { topic: topic.id, index });
        key.and_then(|key| state.unclean.get(&key)).copied().unwrap_or(0)
    }

    /// Returns the number of the controller's incarnation, from 1.
    pub(crate) fn epoch(&self) -> i32 {
        i32::try_from(self.inner.lock().restarts + 1).unwrap_or(i32::MAX)
    }

    /// Completes with the next version of the metadata after this call.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Registers an incarnation of a broker. Returns its epoch and the metadata to start from; the
    /// mailbox then contains only later versions.
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

    /// Handles a broker's heartbeat. Returns false if this incarnation is not the current one.
    pub(crate) fn heartbeat(&self, id: i32, epoch: i64) -> bool {
        if self.is_cut_off(id) || self.change(|state| state.heartbeat(id, epoch)) != Ok(true) {
            return false;
        }
        self.heard.lock().insert(id);
        self.wake.notify_one();
        true
    }

    /// Moves leaderships away from a broker that is about to stop.
    pub(crate) fn controlled_shutdown(&self, id: i32) {
        // The broker stops in any case. If this fails, its leaderships move after its session
        // timeout.
        let _ = self.change(|state| state.leave(id));
    }

    /// Removes a broker's registration; see [`State::unregister`].
    pub(crate) fn unregister(&self, id: i32) -> Result<(), Refusal> {
        self.change(|state| state.unregister(id))?
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

    /// Validates [`Controller::create_topic`] and returns the number of partitions and the
    /// replication factor.
    pub(crate) fn check_topic(&self, spec: &TopicSpec) -> Result<(i32, i16), Refusal> {
        let inner = self.inner.lock();
        let (_, placed) = inner.state.check_topic(spec, &self.config)?;
        Ok((placed.len() as i32, placed.first().map_or(0, Vec::len) as i16))
    }

    pub(crate) fn create_partitions(&self, more: &MorePartitions) -> Result<(), Refusal> {
        self.change(|state| state.create_partitions(more, &self.config))?
    }

    /// Validates [`Controller::create_partitions`].
    pub(crate) fn check_partitions(&self, more: &MorePartitions) -> Result<(), Refusal> {
        self.inner.lock().state.check_partitions(more, &self.config).map(drop)
    }

    pub(crate) fn alter_config(&self, topic: &str, edits: &ConfigEdits) -> Result<(), Refusal> {
        self.change(|state| state.alter_config(topic, edits))?
    }

    /// Validates [`Controller::alter_config`].
    pub(crate) fn check_config(&self, topic: &str, edits: &ConfigEdits) -> Result<(), Refusal> {
        self.inner.lock().state.check_config(topic, edits).map(drop)
    }

    /// Changes the settings of a broker or a group.
    pub(crate) fn alter_settings(&self, whose: &Whose, edits: &ConfigEdits) -> Result<(), Refusal> {
        self.change(|state| state.alter_settings(whose, edits, &self.config))?
    }

    /// Validates [`Controller::alter_settings`].
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

    /// Starts, changes or cancels the reassignment of a partition.
    pub(crate) fn reassign(&self, topic: &str, index: i32, to: &Move) -> Result<(), Refusal> {
        self.change(|state| state.reassign(topic, index, to))?
    }

    /// Returns the reassignments in progress, of these partitions or of all.
    pub(crate) fn reassignments(&self, of: Option<&[(String, Vec<i32>)]>) -> Vec<Moving> {
        self.inner.lock().state.reassignments(of)
    }

    /// Deletes a topic. Returns false if no topic has this id.
    pub(crate) fn delete_topic(&self, id: Uuid) -> Result<bool, Refusal> {
        self.change(|state| state.remove_topic(id))
    }

    pub(crate) fn create_acls(&self, acls: Vec<Acl>) -> Result<(), Refusal> {
        self.change(|state| state.create_acls(acls))
    }

    /// Removes ACLs and returns them.
    pub(crate) fn delete_acls(&self, filter: &Filter) -> Result<Vec<Acl>, Refusal> {
        self.change(|state| state.delete_acls(filter))
    }

    /// Sets limits, or removes those without a value.
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

    /// Sets the credentials that this run is configured with. No broker may have registered yet.
    pub(crate) fn configure_credentials(&self, credentials: &Credentials) {
        // They are not journaled, so this cannot fail.
        let _ = self.change(|state| state.configure_credentials(credentials));
        self.inner.lock().configured = credentials.clone();
    }

    /// Sets a user's credential for a mechanism.
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

    /// Returns a producer id that was never assigned before.
    ///
    /// # Errors
    /// `COORDINATOR_LOAD_IN_PROGRESS`, as in Kafka without a block of ids; producers retry.
    pub(crate) fn next_producer_id(&self) -> Result<i64, ErrorCode> {
        self.change(State::next_producer_id).map_err(|_| ErrorCode::COORDINATOR_LOAD_IN_PROGRESS)
    }
}
