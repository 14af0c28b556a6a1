//! The lifetime of one incarnation: it owns every task, so dropping its future ends them all.

mod listening;

use listening::{Connected, Listening};
pub(crate) use listening::{Machines, Place};

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use arc_swap::ArcSwap;
use curtail_net::Env;
use parking_lot::{Mutex, RwLock};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{
    Broker, Peers, connection,
    connections::{Limits, Registry},
};
use crate::{
    admission::{Admission, Admissions},
    config::{ClusterConfig, Endpoint, Plant},
    controller::{Addresses, Controller, Mailbox},
    coordinator::runtime::Coordinator,
    disk::{Disk, Failure, Watched},
    error::ClusterError,
    faults::Faults,
    gate::{Alive, Gate},
    image::{Endpoints, Image},
    observer::Observers,
    quota::Meters,
    replica::{
        fetcher::{self, Fetchers},
        partition::Owner,
        purgatory::WaitIds,
    },
    session::SessionCache,
    settings::{BrokerSettings, Changed},
    storage::Hold,
    telemetry::Origin,
};

/// The state of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Not running.
    Down,
    /// Listening, and registered with the controller.
    Up,
}

/// State that outlives a broker's incarnations.
pub(crate) struct Slot {
    pub(crate) id: i32,
    pub(crate) env: Env,
    pub(crate) disk: Arc<dyn Disk>,
    /// Whether a fault leaves the disk no space.
    pub(crate) disk_full: Arc<AtomicBool>,
    /// The cluster's lock on its directory.
    pub(crate) hold: Arc<Hold>,
    pub(crate) dir: PathBuf,
    pub(crate) machines: Machines,
    /// Where it listens, in the order of the listeners.
    pub(crate) places: Mutex<Vec<Place>>,
    pub(crate) admissions: Arc<Admissions>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) phase: watch::Sender<Phase>,
    /// Version of the broker's metadata.
    pub(crate) applied: watch::Sender<u64>,
    /// Held while an incarnation is started or closed, so that at most one runs.
    pub(crate) lifecycle: tokio::sync::Mutex<()>,
    /// Every task of the running incarnation holds the sender; the receiver ends with the last
    /// task.
    pub(crate) alive: Mutex<Option<mpsc::Receiver<std::convert::Infallible>>>,
    /// The running incarnation.
    pub(crate) current: Mutex<Option<std::sync::Weak<Broker>>>,
}

impl Slot {
    /// Returns what the listener at this position advertises.
    pub(crate) fn endpoint(&self, at: usize) -> Option<Endpoint> {
        self.places.lock().get(at).map(Place::endpoint)
    }

    fn endpoints(&self) -> Endpoints {
        let places = self.places.lock();
        places.iter().map(|place| (place.listener.name.clone(), place.endpoint())).collect()
    }
}

/// Resets the phase when the incarnation ends, in whatever way.
struct UpWhile<'a>(&'a Slot);

impl Drop for UpWhile<'_> {
    fn drop(&mut self) {
        self.0.phase.send_replace(Phase::Down);
    }
}

/// Runs one incarnation of a broker until the future is dropped or the listener fails.
pub(crate) async fn run(
    slot: Arc<Slot>,
    config: Arc<ClusterConfig>,
    controller: Arc<Controller>,
    observers: Arc<Observers>,
) -> Result<(), ClusterError> {
    let (alive, gone) = mpsc::channel(1);
    *slot.alive.lock() = Some(gone);
    let gate = Arc::clone(&slot.gate);
    // The previous incarnation may have ended while frozen.
    slot.faults.forget_freezes(slot.id);
    gate.open();
    let inner = {
        let alive = alive.clone();
        async move {
            let _up = UpWhile(&slot);
            let listening = Listening::open(&slot).await?;
            let inner = listening.inner_addr(&slot).await?;
            // As in Kafka, a starting broker waits for a controller to register with.
            controller.up().await;
            let life = Life::begin(&slot, inner, config, controller, observers, alive)?;
            life.serve(&slot, &listening).await
        }
    };
    gate.guard(&alive, inner).await
}

/// A time `by_ms` milliseconds after `begin`; before it if negative.
fn later(begin: Instant, by_ms: i64) -> Instant {
    let by = Duration::from_millis(by_ms.unsigned_abs());
    let other = if by_ms < 0 { begin.checked_sub(by) } else { begin.checked_add(by) };
    other.unwrap_or(begin)
}

struct Life {
    broker: Arc<Broker>,
    gate: Arc<Gate>,
    alive: Alive,
    mailbox: Arc<Mailbox>,
    /// Metadata in flight, with its time of arrival.
    under_way: VecDeque<(Instant, Arc<Image>)>,
    frozen: bool,
    /// Work from [`Broker::spawn`]. It is received immediately, so the queue stays short.
    work: mpsc::UnboundedReceiver<super::Work>,
    tasks: JoinSet<()>,
    connections: Arc<Registry>,
    /// When the next connections expire.
    next_expiry: Instant,
    failure: Arc<Failure>,
}

/// Backoff after accepting a connection failed because no file descriptor was available.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Maximum delay of metadata. A longer one would overflow the clock.
const MOST_DELAY: Duration = Duration::from_secs(365 * 24 * 3600);

/// Maximum versions in flight. Beyond it a new version replaces the previous one.
const MAX_UNDER_WAY: usize = 1024;

impl Life {
    fn begin(
        slot: &Slot,
        inner: SocketAddr,
        config: Arc<ClusterConfig>,
        controller: Arc<Controller>,
        observers: Arc<Observers>,
        alive: Alive,
    ) -> Result<Self, ClusterError> {
        let storage = |source| ClusterError::Storage { path: slot.dir.clone(), source };
        super::create_dir(slot.disk.as_ref(), &slot.dir).map_err(storage)?;
        let id = slot.id;
        let mailbox = Arc::clone(controller.mailbox(id).ok_or(ClusterError::NoSuchBroker(id))?);
        let addresses = Addresses { endpoints: Arc::new(slot.endpoints()), inner };
        let (epoch, image) = controller.register(id, addresses)?;
        let owner = Arc::new(Owner {
            broker: id,
            broker_epoch: epoch,
            controller: Arc::clone(&controller),
            observers,
            plant: config.plant,
        });
        let sessions =
            SessionCache::new(config.fetch_session_cache_slots, config.fetch_session_eviction);
        let (spawner, work) = mpsc::unbounded_channel();
        let failure = Arc::<Failure>::default();
        let disk: Arc<dyn Disk> = Arc::new(Watched::new(
            Arc::clone(&slot.disk),
            Arc::clone(&failure),
            Arc::clone(&slot.disk_full),
        ));
        let broker = Arc::new(Broker {
            id,
            epoch,
            env: slot.env.clone(),
            controller,
            faults: Arc::clone(&slot.faults),
            sessions: Mutex::new(sessions),
            wait_ids: WaitIds::default(),
            fetchers: Fetchers::default(),
            groups: Coordinator::default(),
            admissions: Arc::clone(&slot.admissions),
            peers: Peers::default(),
            meters: Meters::default(),
            transactions: Coordinator::default(),
            telemetry: Mutex::default(),
            owner,
            disk,
            device: tokio::sync::Mutex::default(),
            _hold: Arc::clone(&slot.hold),
            dir: slot.dir.clone(),
            settings: ArcSwap::from_pointee(BrokerSettings::new(&config, id, &Changed::new())),
            image: ArcSwap::from_pointee(Image::empty(&image.cluster_id)),
            partitions: RwLock::default(),
            spawner,
            config,
        });
        // The starting image already contains everything sent to the previous incarnation.
        mailbox.take();
        broker.apply(&image);
        *slot.current.lock() = Some(Arc::downgrade(&broker));
        let timers = Arc::clone(&broker);
        broker.spawn(async move { timers.groups.run_timers(&timers).await });
        let timers = Arc::clone(&broker);
        broker.spawn(async move { timers.transactions.run_timers(&timers).await });
        broker.spawn(super::cleaner::run(Arc::clone(&broker)));
        broker.spawn(super::flusher::run(Arc::clone(&broker)));
        let now = Instant::now();
        let limits = Limits {
            authentication: broker.config.security.authentication_timeout,
            idle: broker.config.connections_max_idle,
        };
        Ok(Self {
            broker,
            gate: Arc::clone(&slot.gate),
            alive,
            mailbox,
            under_way: VecDeque::new(),
            frozen: false,
            work,
            tasks: JoinSet::new(),
            connections: Registry::new(limits, now),
            next_expiry: now + limits.idle,
            failure,
        })
    }

    /// Accepts connections, applies metadata, sends heartbeats and checks the in-sync replicas.
    async fn serve(mut self, slot: &Slot, listening: &Listening) -> Result<(), ClusterError> {
        let config = Arc::clone(&self.broker.config);
        let isr_interval = config.replica_lag_time_max / 2;
        let mut next_heartbeat = Instant::now();
        let mut next_isr_check = Instant::now() + isr_interval;
        let mut next_upkeep = Instant::now() + config.log_retention_check_interval;
        let mut accept_from = Instant::now();
        let mut announced = false;
        let failure = Arc::clone(&self.failure);
        let serves_on = config.plant == Some(Plant::ServeOnFailedDisk);
        let by_wall_clock = config.plant == Some(Plant::TimersByWallClock);
        let wall = Arc::clone(&slot.env.wall);
        let (began, began_ms) = (Instant::now(), wall.now_ms());
        loop {
            self.take_metadata();
            slot.applied.send_if_modified(|applied| {
                let version = self.broker.image().version;
                std::mem::replace(applied, version) != version
            });
            self.start_fetchers();
            let now =
                if by_wall_clock { later(began, wall.now_ms() - began_ms) } else { Instant::now() };
            if next_heartbeat <= now {
                next_heartbeat = now + config.broker_heartbeat_interval;
                self.heartbeat();
                if !announced {
                    announced = true;
                    slot.phase.send_replace(Phase::Up);
                }
                continue;
            }
            if next_isr_check <= now {
                next_isr_check = now + isr_interval;
                for partition in self.broker.partitions() {
                    partition.shrink_isr(config.replica_lag_time_max, now);
                }
                continue;
            }
            if next_upkeep <= now {
                next_upkeep = now + config.log_retention_check_interval;
                let now_ms = slot.env.wall.now_ms();
                self.broker.partitions().iter().for_each(|partition| partition.upkeep(now_ms));
                continue;
            }
            if self.next_expiry <= now {
                self.expire_connections(now);
                continue;
            }
            let due = self.under_way.front().filter(|_| !self.frozen).map(|(due, _)| *due);
            let mut next = due.map_or(next_heartbeat, |due| due.min(next_heartbeat));
            next = next.min(next_isr_check).min(next_upkeep).min(self.next_expiry);
            if accept_from > now {
                next = next.min(accept_from);
            }
            if by_wall_clock {
                next = Instant::now() + next.saturating_duration_since(now);
            }
            tokio::select! {
                biased;
                error = failure.first(), if !serves_on => return Err(self.disk_failed(slot, error)),
                () = self.mailbox.changed() => {}
                Some(work) = self.work.recv() => {
                    self.tasks.spawn(self.gate.guard(&self.alive, work));
                }
                Some(_) = self.tasks.join_next() => {}
                accepted = listening.accept(), if accept_from <= now => match accepted {
                    Ok((connected, admission)) => self.connected(connected, admission),
                    Err((error, _)) if is_passing(&error) => {
                        tracing::warn!(broker = slot.id, %error, "a connection was not accepted");
                        accept_from = Instant::now() + ACCEPT_PAUSE;
                    }
                    Err((source, entrance)) => return Err(entrance.failed(source)),
                },
                () = sleep_until(next) => {}
            }
        }
    }

    /// Ends the broker, as Kafka does if its only log directory has failed. Its leaderships move at
    /// once if the controller is reachable.
    fn disk_failed(&self, slot: &Slot, source: io::Error) -> ClusterError {
        tracing::error!(broker = slot.id, error = %source, "the disk failed; the broker stops");
        if !self.mailbox.is_held() {
            self.broker.controller.controlled_shutdown(slot.id);
        }
        ClusterError::Storage { path: slot.dir.clone(), source }
    }

    fn heartbeat(&self) {
        if !self.broker.controller.heartbeat(self.broker.id, self.broker.epoch) {
            tracing::debug!(broker = self.broker.id, "the controller refused the heartbeat");
        }
    }

    /// Receives metadata from the controller and applies the versions that have arrived.
    fn take_metadata(&mut self) {
        let now = Instant::now();
        let delivery = self.mailbox.take();
        let due = now + delivery.delay.min(MOST_DELAY);
        self.frozen = delivery.frozen;
        for image in delivery.arrived {
            if self.under_way.len() == MAX_UNDER_WAY {
                self.under_way.pop_back();
            }
            self.under_way.push_back((due, image));
        }
        if self.frozen {
            return;
        }
        // Of several versions only the newest is applied.
        let mut newest = None;
        while let Some((due, _)) = self.under_way.front()
            && *due <= now
        {
            newest = self.under_way.pop_front();
        }
        if let Some((_, image)) = newest {
            self.broker.apply(&image);
        }
    }

    fn start_fetchers(&mut self) {
        for lane in self.broker.fetchers.take_new() {
            let task = fetcher::run(Arc::clone(&self.broker), lane);
            self.tasks.spawn(self.gate.guard(&self.alive, task));
        }
    }

    fn connected(&mut self, (socket, peer): Connected, admission: &Arc<Admission>) {
        let now = Instant::now();
        let most = self.broker.settings().config.max_connections;
        let Some(ticket) = self.connections.enter(admission.for_whom(), most, now) else {
            tracing::warn!(broker = self.broker.id, "max.connections reached; connection closed");
            return;
        };
        let deadline = now + self.broker.config.security.authentication_timeout;
        self.next_expiry = self.next_expiry.min(deadline);
        let id = ticket.id();
        let broker = Arc::clone(&self.broker);
        let admission = Arc::clone(admission);
        // A socket for both families shows IPv4 addresses as parts of IPv6.
        let origin = Origin::new(peer.ip().to_canonical(), peer.port(), id);
        let task = connection::serve(broker, socket, origin, admission, ticket);
        let task = self.tasks.spawn(self.gate.guard(&self.alive, task));
        self.connections.attach(id, task);
    }

    fn expire_connections(&mut self, now: Instant) {
        let (late, next) = self.connections.expire(now);
        self.next_expiry = next;
        if late > 0 {
            tracing::warn!(
                broker = self.broker.id,
                connections = late,
                "connections closed that did not authenticate in time"
            );
        }
    }
}

/// Returns whether accepting may succeed later.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    ) || matches!(error.raw_os_error(), Some(23 | 24))
}
