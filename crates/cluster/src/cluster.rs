//! The interface of the cluster.

mod faults;

pub use faults::CoordinatorKey;

use std::{
    collections::BTreeMap,
    fmt,
    future::{Future, poll_fn},
    net::SocketAddr,
    ops::Deref,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    task::Poll,
};

use curtail_net::Env;
use curtail_wire::Report;
use parking_lot::Mutex;
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
    time::timeout,
};

use crate::{
    admission::Admissions,
    broker::{self, Machines, Phase, Place, Slot, broker_dir},
    config::{ClusterConfig, Endpoint, Listener, ListenerName, Storage},
    controller::{Controller, MorePartitions, TopicSpec},
    error::ClusterError,
    faults::Faults,
    gate::Gate,
    image::NO_LEADER,
    observer::{Observer, Observers},
    session::SessionMetrics,
    storage::{self, Opened},
    telemetry::ClientMetrics,
};

/// A cluster whose tasks the caller runs: the simulation gives each broker a separate host.
///
/// Clones are handles to the same cluster. [`Cluster`] runs the tasks on the current runtime, and
/// dereferences to this handle.
#[derive(Clone)]
pub struct ClusterHandle(Arc<Shared>);

struct Shared {
    config: Arc<ClusterConfig>,
    controller: Arc<Controller>,
    observers: Arc<Observers>,
    faults: Arc<Faults>,
    slots: BTreeMap<i32, Arc<Slot>>,
    /// The directory of the cluster's own files, if it has one.
    dir: Option<PathBuf>,
    ca_file: Option<PathBuf>,
}

impl fmt::Debug for ClusterHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterHandle").field("brokers", &self.0.slots.keys()).finish()
    }
}

/// One broker of a [`ClusterHandle`].
#[derive(Clone)]
pub struct BrokerHandle {
    cluster: ClusterHandle,
    slot: Arc<Slot>,
}

impl fmt::Debug for BrokerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokerHandle").field("id", &self.slot.id).finish()
    }
}

impl BrokerHandle {
    /// Runs an incarnation of the broker on the current runtime until the future is dropped.
    /// Dropping it kills the broker: all its tasks and connections end. The future is `'static`.
    ///
    /// Run again later, it starts from the content of its disk. Only one incarnation may run at a
    /// time.
    ///
    /// # Errors
    /// The broker cannot listen or cannot use its directory.
    pub fn run(&self) -> impl Future<Output = Result<(), ClusterError>> + Send + use<> {
        let shared = &self.cluster.0;
        broker::run(
            Arc::clone(&self.slot),
            Arc::clone(&shared.config),
            Arc::clone(&shared.controller),
            Arc::clone(&shared.observers),
        )
    }

    /// Returns whether the broker listens and has been registered.
    pub fn is_up(&self) -> bool {
        *self.slot.phase.borrow() == Phase::Up
    }

    /// Returns once the broker listens and has been registered.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn up(&self) {
        let _ = self.slot.phase.subscribe().wait_for(|phase| *phase == Phase::Up).await;
    }

    /// Returns an address at which the broker's machine reaches its first listener, whatever it
    /// advertises. The port is 0 until an ephemeral one has been chosen.
    pub fn addr(&self) -> SocketAddr {
        let first = self.slot.places.lock().first().map(Place::addr);
        first.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)))
    }

    /// Returns the endpoint that clients of the broker's first listener receive.
    pub fn endpoint(&self) -> Endpoint {
        // A valid configuration has a listener.
        self.slot.endpoint(0).unwrap_or_else(|| self.addr().into())
    }

    /// Returns once every task of the last incarnation has ended. The caller holds
    /// [`Slot::lifecycle`]: of several waiting tasks only one is woken.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn gone(&self) {
        poll_fn(|cx| match self.slot.alive.lock().as_mut() {
            Some(alive) => alive.poll_recv(cx).map(|_| ()),
            None => Poll::Ready(()),
        })
        .await;
    }
}

impl ClusterHandle {
    /// Creates a cluster without running it: its tasks are [`Controller::run`] and one
    /// [`BrokerHandle::run`] per broker. `envs` has one entry per broker, in the order of their
    /// ids.
    ///
    /// # Errors
    /// The configuration is contradictory or the storage cannot be used.
    pub fn new(config: ClusterConfig, envs: Vec<Env>) -> Result<Self, ClusterError> {
        Self::on(Machines::Apart, config, envs)
    }

    fn on(machines: Machines, config: ClusterConfig, envs: Vec<Env>) -> Result<Self, ClusterError> {
        config.validate()?;
        if machines == Machines::One {
            config.validate_ports()?;
        }
        let config = Arc::new(config);
        let Opened { disks, root, hold } = storage::open(&config)?;
        let storage = |source| ClusterError::Storage { path: root.clone(), source };
        let first = envs.first().ok_or(ClusterError::NoSuchBroker(1))?;
        let entropy = first.entropy.fork();
        let faults = Arc::new(Faults::new(first.entropy.clone()));
        // With temporary storage the metadata need not survive the process.
        let journaled = match &config.storage {
            Storage::Dir(_) => Some((Arc::clone(&disks[0]), root.as_path())),
            Storage::Machines { controller, .. } => Some((Arc::clone(controller), root.as_path())),
            Storage::Disks(_) | Storage::Temp => None,
        };
        let certificates = match &config.storage {
            Storage::Dir(_) | Storage::Temp => Some(root.as_path()),
            Storage::Disks(_) | Storage::Machines { .. } => None,
        };
        let controller = Arc::new(Controller::new(&config, entropy, journaled).map_err(storage)?);
        let admissions = Arc::new(Admissions::new(&config, certificates)?);
        controller.configure_credentials(&admissions.credentials);
        let mut slots = BTreeMap::new();
        for ((id, env), disk) in config.broker_ids().zip(envs).zip(disks) {
            let places = config.listeners_of(id)?.into_iter().map(Place::new).collect();
            let slot = Slot {
                id,
                env,
                disk,
                disk_full: Arc::default(),
                hold: Arc::clone(&hold),
                dir: broker_dir(&root, id),
                machines,
                places: Mutex::new(places),
                admissions: Arc::clone(&admissions),
                gate: Arc::new(Gate::default()),
                faults: Arc::clone(&faults),
                phase: watch::Sender::new(Phase::Down),
                applied: watch::Sender::new(0),
                lifecycle: tokio::sync::Mutex::default(),
                alive: Mutex::new(None),
                current: Mutex::new(None),
            };
            slots.insert(id, Arc::new(slot));
        }
        let observers = Arc::default();
        let ca_file = admissions.ca_file.clone();
        let dir = certificates.map(Path::to_owned);
        let shared = Shared { config, controller, observers, faults, slots, dir, ca_file };
        Ok(Self(Arc::new(shared)))
    }

    /// Returns the controller, whose [`Controller::run`] must be running.
    pub fn controller(&self) -> Arc<Controller> {
        Arc::clone(&self.0.controller)
    }

    /// Returns the broker with this id (1 and up).
    pub fn broker(&self, id: i32) -> Option<BrokerHandle> {
        let slot = Arc::clone(self.0.slots.get(&id)?);
        Some(BrokerHandle { cluster: self.clone(), slot })
    }

    fn slot(&self, id: i32) -> Option<&Arc<Slot>> {
        self.0.slots.get(&id)
    }

    /// Returns the ids of the brokers.
    pub fn broker_ids(&self) -> Vec<i32> {
        self.0.slots.keys().copied().collect()
    }

    /// Returns what the brokers' first listener advertises, in the format of `bootstrap.servers`.
    pub fn bootstrap(&self) -> String {
        self.bootstrap_at(0)
    }

    /// Returns what the brokers advertise for this listener, in the format of `bootstrap.servers`;
    /// `None` if they have no such listener.
    ///
    /// # Example
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use curtail_cluster::{Cluster, ClusterConfig};
    ///
    /// let mut config = ClusterConfig::default();
    /// config.set("listeners", "PLAINTEXT://127.0.0.1:0,SSL://localhost:0")?;
    /// let cluster = Cluster::start(config, curtail_net::Env::real()).await?;
    /// assert!(cluster.bootstrap_of("SSL").is_some_and(|servers| servers.starts_with("localhost:")));
    /// # Ok(())
    /// # }
    /// ```
    pub fn bootstrap_of(&self, listener: &str) -> Option<String> {
        let name = ListenerName::new(listener)?;
        let at = self.listeners().iter().position(|listener| listener.name == name)?;
        Some(self.bootstrap_at(at))
    }

    fn bootstrap_at(&self, at: usize) -> String {
        let endpoints = self.0.slots.values().filter_map(|slot| slot.endpoint(at));
        endpoints.map(|endpoint| endpoint.to_string()).collect::<Vec<_>>().join(",")
    }

    /// Returns the listeners of the first broker. All brokers have the same names and protocols.
    pub fn listeners(&self) -> Vec<Listener> {
        let first = self.0.slots.values().next();
        first.map_or_else(Vec::new, |slot| {
            slot.places.lock().iter().map(|place| place.listener.clone()).collect()
        })
    }

    /// Returns the file with the certificate that clients must trust (PEM). `None` unless the
    /// brokers use TLS with certificates created by the cluster, and the cluster has a directory.
    pub fn ca_file(&self) -> Option<&Path> {
        self.0.ca_file.as_deref()
    }

    pub(crate) fn dir(&self) -> Option<&Path> {
        self.0.dir.as_deref()
    }

    pub(crate) fn config(&self) -> &ClusterConfig {
        &self.0.config
    }

    /// Makes `to` the leader of a partition, as a preferred-leader election or a reassignment
    /// would.
    ///
    /// # Errors
    /// The partition does not exist, or `to` is not one of its in-sync replicas.
    pub fn move_leader(&self, topic: &str, partition: i32, to: i32) -> Result<(), ClusterError> {
        Ok(self.0.controller.move_leader(topic, partition, to)?)
    }

    /// Crashes the controller: it accepts no heartbeats and no requests until it restarts. Brokers
    /// continue with their current metadata.
    pub fn crash_controller(&self) {
        self.0.controller.crash();
    }

    /// Restarts a crashed controller from its journal, or from memory if it has none.
    ///
    /// # Errors
    /// The journal cannot be read or replaced; the controller stays down.
    pub fn restart_controller(&self) -> Result<(), ClusterError> {
        let storage = |source| ClusterError::Storage { path: PathBuf::new(), source };
        self.0.controller.restart().map_err(storage)
    }

    /// Returns a producer id that was never assigned before; `None` while there is none.
    #[doc(hidden)]
    pub fn allocate_producer_id(&self) -> Option<i64> {
        self.0.controller.next_producer_id().ok()
    }

    /// Returns all durable metadata as text, which is equal before a crash of the controller and
    /// after its restart.
    #[doc(hidden)]
    pub fn metadata_text(&self) -> String {
        self.0.controller.text()
    }

    /// Creates a topic; -1 selects the cluster's default for partitions or replicas. Brokers learn
    /// the topic independently, see [`ClusterHandle::settled`].
    ///
    /// # Errors
    /// As in the CreateTopics API: an invalid or existing name, too few brokers, an unknown
    /// setting.
    pub fn create_topic(
        &self,
        name: &str,
        partitions: i32,
        replication_factor: i16,
        configs: &[(&str, &str)],
    ) -> Result<(), ClusterError> {
        let spec = TopicSpec {
            name: name.to_owned(),
            partitions,
            replication_factor,
            assignment: Vec::new(),
            configs: configs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        };
        self.0.controller.create_topic(&spec)?;
        Ok(())
    }

    /// Adds partitions to a topic, up to `total`.
    ///
    /// # Errors
    /// As in the CreatePartitions API: the topic does not exist or already has `total` or more
    /// partitions.
    pub fn add_partitions(&self, topic: &str, total: i32) -> Result<(), ClusterError> {
        let more = MorePartitions { topic: topic.to_owned(), total, replicas: None };
        self.0.controller.create_partitions(&more)?;
        Ok(())
    }

    /// Returns the number of partitions of a topic; `None` if it does not exist.
    pub fn partitions(&self, topic: &str) -> Option<usize> {
        Some(self.0.controller.image().topic(topic)?.partitions.len())
    }

    /// Deletes a topic. Returns false if it does not exist, or if the controller cannot make the
    /// change durable.
    pub fn delete_topic(&self, name: &str) -> bool {
        let id = self.0.controller.image().topic(name).map(|topic| topic.id);
        id.is_some_and(|id| self.0.controller.delete_topic(id) == Ok(true))
    }

    /// Returns a partition's leader and leader epoch from the controller; `None` without a leader.
    pub fn leader(&self, topic: &str, partition: i32) -> Option<(i32, i32)> {
        let image = self.0.controller.image();
        let partition = image.topic(topic)?.partitions.get(usize::try_from(partition).ok()?)?;
        (partition.leader != NO_LEADER).then_some((partition.leader, partition.leader_epoch))
    }

    /// Returns a partition's in-sync replicas from the controller.
    pub fn isr(&self, topic: &str, partition: i32) -> Option<Vec<i32>> {
        let image = self.0.controller.image();
        let partition = image.topic(topic)?.partitions.get(usize::try_from(partition).ok()?)?;
        Some(partition.isr.to_vec())
    }

    /// Whether a broker is in sync for all partitions of which it has a replica.
    fn is_in_sync(&self, id: i32) -> bool {
        let image = self.0.controller.image();
        let mut partitions = image.topics.values().flat_map(|topic| topic.partitions.iter());
        partitions.all(|one| !one.replicas.contains(&id) || one.isr.contains(&id))
    }

    /// Returns the number of unclean elections of a partition since this process started.
    pub fn unclean_elections(&self, topic: &str, partition: i32) -> u64 {
        self.0.controller.unclean_elections(topic, partition)
    }

    /// Returns the brokers with a session, from the controller.
    pub fn live_brokers(&self) -> Vec<i32> {
        let image = self.0.controller.image();
        image.brokers.values().filter(|b| !b.fenced).map(|b| b.id).collect()
    }

    /// Returns a broker's metrics of its fetch sessions; `None` if it does not run.
    pub fn fetch_sessions(&self, id: i32) -> Option<SessionMetrics> {
        let broker = self.slot(id)?.current.lock().as_ref()?.upgrade()?;
        let sessions = broker.sessions.lock().metrics();
        Some(sessions)
    }

    /// Returns the running incarnation of a broker.
    #[cfg(test)]
    pub(crate) fn running(&self, id: i32) -> Option<Arc<broker::Broker>> {
        self.slot(id)?.current.lock().as_ref()?.upgrade()
    }

    /// Returns once the condition holds; it is checked at every change of the cluster's metadata.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait_until(&self, mut condition: impl FnMut(&Self) -> bool) {
        loop {
            let changed = self.0.controller.changed();
            if condition(self) {
                return;
            }
            changed.await;
        }
    }

    /// Returns once every running broker has the controller's current metadata. Brokers with held
    /// back metadata do not count ([`ClusterHandle::freeze_metadata`], [`ClusterHandle::cut_off`]).
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn settled(&self) {
        let version = self.0.controller.image().version;
        let is_held = |id| self.0.controller.mailbox(id).is_some_and(|mailbox| mailbox.is_held());
        for (_, slot) in self.0.slots.iter().filter(|(id, _)| !is_held(**id)) {
            if *slot.phase.borrow() == Phase::Up {
                let _ = slot.applied.subscribe().wait_for(|applied| *applied >= version).await;
            }
        }
    }

    /// Sets the observer of the brokers' events; it replaces the previous one.
    pub fn observe(&self, observer: Arc<dyn Observer>) {
        self.0.observers.set(observer);
    }

    /// Removes the observer.
    pub fn stop_observing(&self) {
        self.0.observers.clear();
    }

    /// Sets the receiver of the metrics that clients push (KIP-714); it replaces the previous one. It stands for the plugin
    /// that Apache Kafka needs, a `ClientTelemetryReceiver`: without a receiver clients are not offered the APIs. A client
    /// learns of it with its next connection, so set the receiver first.
    ///
    /// Clients push what subscriptions ask for: resources of the type `CLIENT_METRICS`, which admin clients change. An error
    /// refuses the client's push with INVALID_RECORD. Brokers call the receiver from their tasks: it must be quick, must not
    /// block and must not call the cluster.
    ///
    /// # Example
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// use curtail_cluster::{Cluster, ClusterConfig};
    ///
    /// let cluster = Cluster::start(ClusterConfig::default(), curtail_net::Env::real()).await?;
    /// let (sender, mut pushes) = tokio::sync::mpsc::unbounded_channel();
    /// cluster.receive_client_metrics(move |push| sender.send(push).map_err(|error| error.to_string()));
    /// // A client connects, and has a subscription.
    /// let push = pushes.recv().await.expect("the cluster holds the sender");
    /// println!("{} bytes of OTLP from {}", push.metrics.len(), push.client_id);
    /// # Ok(())
    /// # }
    /// ```
    pub fn receive_client_metrics(
        &self,
        receiver: impl Fn(ClientMetrics) -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.0.observers.metrics.set(Some(Arc::new(receiver)));
    }

    /// Removes the receiver.
    pub fn stop_receiving_client_metrics(&self) {
        self.0.observers.metrics.set(None);
    }
}

/// A running cluster. Dropping it stops it without closing its logs; [`Cluster::shutdown`] closes
/// them.
#[derive(Debug)]
pub struct Cluster {
    handle: ClusterHandle,
    controller: JoinHandle<()>,
    brokers: Mutex<BTreeMap<i32, JoinHandle<()>>>,
}

impl Deref for Cluster {
    type Target = ClusterHandle;

    fn deref(&self) -> &ClusterHandle {
        &self.handle
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.controller.abort();
        for task in self.brokers.lock().values() {
            task.abort();
        }
    }
}

impl Cluster {
    /// Starts a controller and all brokers on the current tokio runtime. Returns when every broker
    /// listens, has a session with the controller and knows the others.
    ///
    /// # Errors
    /// The configuration is contradictory, a port is taken or the storage cannot be used.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped future stops everything it has started.
    pub async fn start(config: ClusterConfig, env: Env) -> Result<Self, ClusterError> {
        let envs = config
            .broker_ids()
            .map(|_| Env { entropy: env.entropy.fork(), ..env.clone() })
            .collect();
        Self::run(ClusterHandle::on(Machines::One, config, envs)?).await
    }

    /// Starts a cluster with a separate environment, and so a machine, for each broker, in the
    /// order of their ids.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    ///
    /// # Cancel safety
    /// As [`Cluster::start`].
    pub async fn start_apart(config: ClusterConfig, envs: Vec<Env>) -> Result<Self, ClusterError> {
        Self::run(ClusterHandle::new(config, envs)?).await
    }

    async fn run(handle: ClusterHandle) -> Result<Self, ClusterError> {
        let controller = handle.controller();
        let controller = tokio::spawn(async move { controller.run().await });
        let cluster = Self { handle, controller, brokers: Mutex::default() };
        for id in cluster.broker_ids() {
            cluster.start_broker(id).await?;
        }
        cluster.settled().await;
        Ok(cluster)
    }

    async fn start_broker(&self, id: i32) -> Result<(), ClusterError> {
        let broker = self.handle.broker(id).ok_or(ClusterError::NoSuchBroker(id))?;
        let (failed, mut failure) = oneshot::channel();
        let run = broker.run();
        let task = tokio::spawn(async move {
            if let Err(error) = run.await {
                tracing::error!(broker = id, error = %Report::new(&error), "broker ended");
                // The receiver is dropped once the broker is up.
                let _ = failed.send(error);
            }
        });
        self.brokers.lock().insert(id, task);
        tokio::select! {
            biased;
            error = &mut failure => Err(error.unwrap_or(ClusterError::Ended(id))),
            () = broker.up() => Ok(()),
        }
    }

    /// Kills a broker like kill -9: its tasks and connections end at once, and its written bytes
    /// stay with the operating system. The controller fences it when its session times out.
    pub fn kill(&self, id: i32) {
        let Some(task) = self.brokers.lock().remove(&id) else { return };
        // Closing the gate first ensures that no task is polled again, even one that is ready to
        // run before its abort.
        if let Some(slot) = self.slot(id) {
            self.handle.0.faults.forget_freezes(id);
            slot.gate.close();
        }
        task.abort();
    }

    /// Restarts a broker that was killed, stopped or ended by a failed disk, with the same port and
    /// logs.
    ///
    /// # Errors
    /// The broker is running, or as [`Cluster::start`].
    pub async fn restart(&self, id: i32) -> Result<(), ClusterError> {
        let broker = self.handle.broker(id).ok_or(ClusterError::NoSuchBroker(id))?;
        let _lifecycle = broker.slot.lifecycle.lock().await;
        // A broker whose disk failed has ended, and may start again.
        if self.is_running(id) {
            return Err(ClusterError::AlreadyRunning(id));
        }
        broker.gone().await;
        self.start_broker(id).await
    }

    /// Stops a broker cleanly: its leaderships move away first, and its logs are closed. As in
    /// Kafka it serves requests until every broker knows the new leaders, so that it can name them
    /// to clients. It waits for them at most for a session timeout.
    pub async fn stop(&self, id: i32) {
        self.handle.0.controller.controlled_shutdown(id);
        let patience = self.handle.0.config.broker_session_timeout;
        // A broker without this metadata by then is dead, or its metadata is held back on purpose.
        let _ = timeout(patience, self.settled()).await;
        self.close(id).await;
    }

    /// Whether a broker runs, also while it is frozen: it was not killed or stopped, and no failed disk
    /// has ended it.
    pub fn is_running(&self, id: i32) -> bool {
        self.brokers.lock().get(&id).is_some_and(|task| !task.is_finished())
    }

    /// Restarts every broker in turn, as an update of the cluster does: each is stopped cleanly, started
    /// again, and in sync for all its partitions before the next one stops. Leaderships that have
    /// moved away stay there. Brokers that do not run are started first.
    ///
    /// It does not return while the controller is down, a broker is cut off, or the only in-sync replica
    /// of a partition is frozen.
    ///
    /// # Errors
    /// As [`Cluster::restart`]. The later brokers were not restarted.
    ///
    /// # Cancel safety
    /// A dropped future may leave one broker stopped.
    pub async fn roll(&self) -> Result<(), ClusterError> {
        for id in self.broker_ids() {
            if !self.is_running(id) {
                self.restart(id).await?;
            }
            self.wait_until(|cluster| cluster.is_in_sync(id)).await;
        }
        for id in self.broker_ids() {
            self.stop(id).await;
            self.restart(id).await?;
            self.wait_until(|cluster| cluster.is_in_sync(id)).await;
        }
        Ok(())
    }

    async fn close(&self, id: i32) {
        let Some(broker) = self.handle.broker(id) else { return };
        // Held until its logs are closed.
        let _running = broker.slot.current.lock().as_ref().and_then(Weak::upgrade);
        // A restart keeps the lock until the broker is up, which a crashed controller delays
        // indefinitely; the kill ends it.
        self.kill(id);
        let _lifecycle = broker.slot.lifecycle.lock().await;
        let current = broker.slot.current.lock().take().and_then(|current| current.upgrade());
        // Another restart may have had the lock before.
        self.kill(id);
        broker.gone().await;
        if let Some(current) = current {
            current.close();
        }
    }

    /// Stops the whole cluster and closes its logs, without moving leaderships.
    pub async fn shutdown(self) {
        for id in self.broker_ids() {
            self.close(id).await;
        }
    }
}
