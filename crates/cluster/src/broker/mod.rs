//! One incarnation of a broker: the state shared by its tasks, and how the metadata changes it.

mod cleaner;
mod connection;
mod connections;
mod flusher;
mod peers;
mod run;

pub(crate) use connection::{Next, deliver, fill, write_all};
pub(crate) use peers::{Connection, Peers, connect};
pub(crate) use run::{Machines, Phase, Place, Slot, run};

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
};

use arc_swap::ArcSwap;
use curtail_net::Env;
use curtail_wire::{Report, produce::NodeEndpoint};
use parking_lot::{Mutex, RwLock};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};

use crate::{
    admission::Admissions,
    config::{ClusterConfig, ListenerName},
    controller::Controller,
    coordinator::{
        groups::Groups,
        runtime::{Coordinator, DeletedTopic},
    },
    disk::Disk,
    faults::Faults,
    image::{Image, PartitionImage, PartitionKey, TopicImage},
    log::{self, LogError, PartitionLog},
    quota::Meters,
    replica::{
        fetcher::{Fetchers, Role},
        partition::{Gone, Owner, Partition},
        purgatory::WaitIds,
    },
    session::SessionCache,
    settings::BrokerSettings,
    storage::Hold,
    telemetry::{Instances, Receiver},
    transaction::Transactions,
};

/// State shared by the tasks of one incarnation.
pub(crate) struct Broker {
    pub(crate) id: i32,
    pub(crate) epoch: i64,
    pub(crate) config: Arc<ClusterConfig>,
    pub(crate) env: Env,
    pub(crate) controller: Arc<Controller>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) sessions: Mutex<SessionCache>,
    pub(crate) wait_ids: WaitIds,
    pub(crate) fetchers: Fetchers,
    pub(crate) groups: Coordinator<Groups>,
    pub(crate) admissions: Arc<Admissions>,
    pub(crate) peers: Peers,
    pub(crate) meters: Meters,
    pub(crate) transactions: Coordinator<Transactions>,
    /// Clients that have asked for their metrics subscriptions.
    pub(crate) telemetry: Mutex<Instances>,
    owner: Arc<Owner>,
    pub(crate) disk: Arc<dyn Disk>,
    /// Held while a slow disk is busy with an append.
    device: tokio::sync::Mutex<()>,
    /// Tasks may outlive a cluster that its user has dropped.
    _hold: Arc<Hold>,
    dir: PathBuf,
    /// The settings it was started with, and later overrides.
    settings: ArcSwap<BrokerSettings>,
    /// The broker's copy of the metadata, possibly outdated. All responses come from it.
    image: ArcSwap<Image>,
    partitions: RwLock<BTreeMap<PartitionKey, Arc<Partition>>>,
    /// Sends work to the incarnation's task set.
    spawner: mpsc::UnboundedSender<Work>,
}

/// Work of a broker in addition to its requests.
type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Broker {
    /// The broker's copy of the metadata.
    pub(crate) fn image(&self) -> arc_swap::Guard<Arc<Image>> {
        self.image.load()
    }

    /// The current settings, including changes made while the broker runs.
    pub(crate) fn settings(&self) -> arc_swap::Guard<Arc<BrokerSettings>> {
        self.settings.load()
    }

    /// Returns the receiver of clients' metrics, if there is one.
    pub(crate) fn metrics_receiver(&self) -> Option<Receiver> {
        self.owner.observers.metrics.get()
    }

    /// Returns whether clients may push metrics.
    pub(crate) fn takes_metrics(&self) -> bool {
        self.owner.observers.metrics.is_present()
    }

    /// Returns the local replica of a partition.
    pub(crate) fn partition(&self, key: PartitionKey) -> Option<Arc<Partition>> {
        self.partitions.read().get(&key).cloned()
    }

    /// The directory of the broker's logs.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn partitions(&self) -> Vec<Arc<Partition>> {
        self.partitions.read().values().cloned().collect()
    }

    /// Runs work in a task of this incarnation. It stops with the broker's gate and ends with the
    /// incarnation.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        // After the incarnation's end the work is dropped.
        let _ = self.spawner.send(Box::pin(work));
    }

    /// Waits before batches are appended, on a disk that simulates the time of writes or that a fault
    /// slows down.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn disk_turn(&self, batches: usize, bytes: usize) {
        if batches == 0 {
            return;
        }
        if let Some(turn) = self.disk.turn(batches, bytes) {
            turn.await;
        }
        self.slow_disk_turn(batches).await;
    }

    /// Waits for this many appends, if a fault slows the disk down: one after the other, as on one
    /// device.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn slow_disk_turn(&self, appends: usize) {
        if !self.faults.slow_disks() {
            return;
        }
        let _device = self.device.lock().await;
        for _ in 0..appends {
            // Asked for each append: once the fault is lifted, the rest takes no time.
            let time = self.faults.disk_time(self.id);
            if !time.is_zero() {
                sleep(time).await;
            }
        }
    }

    /// Returns the endpoint of a leader named in a response to a client of this listener (KIP-951).
    pub(crate) fn endpoint(&self, id: i32, listener: &ListenerName) -> Option<NodeEndpoint> {
        let image = self.image.load();
        let endpoint = image.live_broker(id)?.endpoint(listener)?;
        Some(NodeEndpoint {
            node_id: id,
            host: endpoint.host().to_owned(),
            port: i32::from(endpoint.port()),
            rack: self.config.rack(id).map(str::to_owned),
        })
    }

    /// Replaces the broker's metadata with a new version and changes its replicas accordingly.
    pub(crate) fn apply(self: &Arc<Self>, image: &Arc<Image>) {
        let before = self.image.load_full();
        if image.version <= before.version && before.version != 0 {
            return;
        }
        let now = Instant::now();
        if before.version == 0 {
            self.delete_strays(image);
        }
        self.delete_replicas(&before, image);
        if before.settings != image.settings {
            let settings = BrokerSettings::new(&self.config, self.id, &image.settings);
            self.settings.store(Arc::new(settings));
            image.topics.values().for_each(|topic| self.configure_replicas(topic));
        }
        let changed = changed_topics(&before, image);
        let (mut roles, mut left) = (Vec::new(), Vec::new());
        // Replicas assume their roles before clients are directed to them.
        for (old, topic) in &changed {
            if old.as_ref().is_some_and(|old| old.config != topic.config) {
                self.configure_replicas(topic);
            }
            for (partition, index) in topic.partitions.iter().zip(0..) {
                let unchanged = old
                    .as_ref()
                    .and_then(|old| old.partitions.get(index as usize))
                    .is_some_and(|old| old == partition);
                if unchanged {
                    continue;
                }
                if partition.replicas.contains(&self.id) {
                    roles.extend(self.apply_partition(topic, index, partition, now));
                    continue;
                }
                let key = PartitionKey { topic: topic.id, index };
                if let Some(replica) = self.partition(key) {
                    // Waiting requests receive the new leader.
                    replica.apply(partition, now);
                    left.push((Arc::clone(&topic.name), key));
                }
            }
        }
        self.image.store(Arc::clone(image));
        self.fetchers.apply(self.id, image, roles);
        self.groups.apply(self, image);
        self.transactions.apply(self, image);
        self.groups.topics_deleted(self, &deleted_topics(&before, image));
        // From now on no client is directed to these replicas.
        for (name, key) in left {
            self.delete_replica(&name, key, Gone::Elsewhere);
        }
    }

    /// Applies a topic's changed settings to its local replicas.
    fn configure_replicas(&self, topic: &TopicImage) {
        let settings = self.settings();
        let min_isr = topic.config.min_insync_replicas(&settings.config);
        for index in 0..topic.partitions.len() as i32 {
            if let Some(partition) = self.partition(PartitionKey { topic: topic.id, index }) {
                partition.configure(topic.config.log_config(&settings.config), min_isr);
            }
        }
    }

    fn apply_partition(
        self: &Arc<Self>,
        topic: &TopicImage,
        index: i32,
        image: &PartitionImage,
        now: Instant,
    ) -> Option<Role> {
        let key = PartitionKey { topic: topic.id, index };
        let partition = match self.partition(key) {
            Some(partition) => partition,
            None => match self.open(topic, key) {
                Ok(partition) => partition,
                Err(error) => {
                    tracing::error!(broker = self.id, topic = %topic.name, partition = index, error = %Report::new(&error), "replica is offline");
                    return None;
                }
            },
        };
        partition.apply(image, now);
        Some(Role { partition, leader: image.leader, leader_epoch: image.leader_epoch })
    }

    fn open(&self, topic: &TopicImage, key: PartitionKey) -> Result<Arc<Partition>, LogError> {
        let dir = self.dir.join(format!("{}-{}", topic.name, key.index));
        let failed = |source| LogError::Io { path: dir.clone(), source };
        let disk = self.disk.as_ref();
        let of = if disk.exists(&dir) { log::read_partition_metadata(disk, &dir)? } else { None };
        // The directory belongs to a deleted topic of the same name, left while the broker was
        // down.
        if of.is_some_and(|of| of != topic.id) {
            remove_log(disk, &dir).map_err(failed)?;
        }
        if of != Some(topic.id) {
            disk.create_dir_all(&dir).map_err(failed)?;
            // Durable before the first record: without it the records cannot be attributed to a
            // topic.
            log::write_partition_metadata(disk, &dir, topic.id)?;
            disk.sync_dir(&self.dir).map_err(failed)?;
        }
        let settings = self.settings();
        let config = topic.config.log_config(&settings.config);
        let (log, recovery) = PartitionLog::open(Arc::clone(&self.disk), dir.clone(), config)?;
        if recovery.truncated_bytes > 0 {
            tracing::warn!(dir = %dir.display(), bytes = recovery.truncated_bytes, "torn tail of the log cut off");
        }
        let min_isr = topic.config.min_insync_replicas(&settings.config);
        let name = Arc::clone(&topic.name);
        let partition = Arc::new(Partition::new(key, name, log, min_isr, Arc::clone(&self.owner)));
        self.partitions.write().insert(key, Arc::clone(&partition));
        Ok(partition)
    }

    fn delete_replicas(&self, before: &Image, after: &Image) {
        for (id, name) in deleted_topics(before, after) {
            let Some(topic) = before.topics.get(&name) else { continue };
            for index in 0..topic.partitions.len() as i32 {
                self.delete_replica(&name, PartitionKey { topic: id, index }, Gone::Topic);
            }
        }
    }

    /// Ends the local replica of a partition, if there is one, and deletes its log.
    fn delete_replica(&self, topic: &str, key: PartitionKey, why: Gone) {
        let Some(partition) = self.partitions.write().remove(&key) else { return };
        partition.delete(why);
        self.fetchers.remove(key);
        self.delete_log(&self.dir.join(format!("{topic}-{}", key.index)));
    }

    fn delete_log(&self, dir: &Path) {
        if let Err(error) = remove_log(self.disk.as_ref(), dir) {
            tracing::warn!(dir = %dir.display(), error = %Report::new(&error), "an unneeded log was not deleted");
        }
    }

    /// Deletes the logs of partitions that moved to other brokers while this one was down.
    fn delete_strays(&self, image: &Image) {
        // A directory that cannot be listed has no logs.
        for dir in self.disk.list(&self.dir).unwrap_or_default() {
            let name = dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.ends_with(DELETED) {
                self.delete_log(&dir);
                continue;
            }
            let Some((name, index)) = name.rsplit_once('-') else { continue };
            let Some(topic) = image.topic(name) else { continue };
            let partition = index.parse().ok().and_then(|index: usize| topic.partitions.get(index));
            let stray = partition.is_some_and(|partition| !partition.replicas.contains(&self.id));
            let of = || log::read_partition_metadata(self.disk.as_ref(), &dir).ok().flatten();
            if stray && of() == Some(topic.id) {
                self.delete_log(&dir);
            }
        }
    }

    /// Writes everything that a clean shutdown preserves.
    pub(crate) fn close(&self) {
        for partition in self.partitions() {
            if let Err(error) = partition.close() {
                tracing::warn!(broker = self.id, topic = %partition.topic, error = %Report::new(&error), "log was not closed");
            }
        }
    }
}

/// The suffix of a log that is being removed. No partition's directory has it.
const DELETED: &str = ".deleted";

/// Removes a log atomically with respect to crashes: a partial log would be mistaken for that of a
/// later topic of its name.
fn remove_log(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    if name.to_string_lossy().ends_with(DELETED) {
        return disk.remove_dir_all(dir);
    }
    name.push(DELETED);
    let deleted = dir.with_file_name(name);
    if disk.exists(&deleted) {
        disk.remove_dir_all(&deleted)?;
    }
    disk.rename(dir, &deleted)?;
    disk.remove_dir_all(&deleted)
}

type Changed = (Option<Arc<TopicImage>>, Arc<TopicImage>);

/// Returns the id and the name of each topic that no longer exists.
fn deleted_topics(before: &Image, after: &Image) -> Vec<DeletedTopic> {
    let gone = before.names.iter().filter(|(id, _)| !after.names.contains_key(*id));
    gone.map(|(id, name)| (*id, Arc::clone(name))).collect()
}

/// Returns the topics that are new or changed. The cost depends on the difference, because versions
/// share structure.
fn changed_topics(before: &Image, after: &Image) -> Vec<Changed> {
    use imbl::ordmap::DiffItem;
    before
        .topics
        .diff(&after.topics)
        .filter_map(|item| match item {
            DiffItem::Add(_, new) => Some((None, Arc::clone(new))),
            DiffItem::Update { old: (_, old), new: (_, new) } => {
                // A topic that was deleted and recreated shares nothing with the old one.
                let old = (old.id == new.id).then(|| Arc::clone(old));
                Some((old, Arc::clone(new)))
            }
            DiffItem::Remove(..) => None,
        })
        .collect()
}

/// Returns the directory of a broker under the cluster's.
pub(crate) fn broker_dir(root: &Path, id: i32) -> PathBuf {
    root.join(format!("broker-{id}"))
}

pub(crate) fn create_dir(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    disk.create_dir_all(dir)
}
