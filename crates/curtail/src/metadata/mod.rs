//! The client's view of the cluster: a snapshot that readers load without waiting, and one task that refreshes it.
//! The task has a separate connection, so that control traffic never queues behind data.

mod canonical;
mod control;
mod driver;
mod retired;
#[cfg(test)]
pub(crate) mod tests;
mod trace;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock, Weak, atomic::AtomicBool},
    time::Duration,
};

use arc_swap::ArcSwap;
use curtail_net::Env;
use curtail_proto::{
    backoff::Backoff,
    metadata::{
        Hint, Node, Snapshot, Topic,
        recovery::{Recovery, Source},
        refresh::{Cause, Refresh, RefreshPolicy, Said},
    },
};
use curtail_wire::{ErrorCode, metadata::MetadataResponse};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, timeout, timeout_at},
};

pub(crate) use self::{
    control::{ControlConnection, Throttled},
    retired::Retired,
};
use crate::{
    Error, Result,
    config::CommonConfig,
    conn::{Connection, Idle},
    runtime::{Lifeguard, Runtime},
    security::sasl::CredentialSource,
    telemetry::Telemetry,
};

/// Limits of one request: topics, and their partitions together. A response of that size takes well below a
/// millisecond to parse and apply.
const GROUP_TOPICS: usize = 100;
const GROUP_PARTITIONS: usize = 2_000;

/// Receives every change of the snapshot, on the task that made it, after the new snapshot is in place.
pub(crate) trait Listener: Send + Sync {
    /// Topics whose leaders, partitions or ids have changed.
    fn changed(&self, snapshot: &Arc<Snapshot>, topics: &[Arc<str>]);

    /// Whether the topic was used since the previous call.
    fn uses(&self, topic: &str) -> bool;

    /// Whether something waits for a partition of the topic that `snapshot` does not name.
    fn lacks(&self, snapshot: &Snapshot, topic: &str) -> bool;

    /// Topics unused for `metadata.max.idle.ms`. They are no longer refreshed; a later user must request them again.
    fn expired(&self, topics: &[Arc<str>]);

    /// Called on the control task after updates, to free values that readers may have held.
    fn tidy(&self);

    /// Called once the client's runtime has ended, and with it all tasks of the client. The caller holds no lock.
    fn runtime_ended(&self);
}

/// Whether a request for a topic may create it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AutoCreate {
    /// The broker may create it, if configured so.
    Allowed,
    /// The broker must not create it.
    Never,
}

/// A handle to the client's view of the cluster. Clones share it; the driver's task ends with the last one.
#[derive(Clone)]
pub(crate) struct MetadataHandle {
    shared: Arc<Shared>,
    _driver: Arc<DriverGuard>,
}

struct Shared {
    env: Env,
    runtime: Runtime,
    common: CommonConfig,
    bootstrap: Arc<str>,
    auto_create: AutoCreate,
    snapshot: ArcSwap<Snapshot>,
    /// Serializes writers; readers never take it. Guards the replaced snapshots.
    writer: Mutex<Retired<Snapshot>>,
    listeners: Mutex<Vec<Weak<dyn Listener>>>,
    wanted: Mutex<Wanted>,
    wake: Notify,
    /// Notified when a broker becomes suspect.
    suspected: Notify,
    /// Counts responses, failures and hints, so that waiters look again.
    version: watch::Sender<u64>,
    /// Latest failure of a topic or of the whole refresh, for waiters that time out.
    problems: Mutex<Problems>,
    /// The control connection while no request uses it. It belongs to the driver's task.
    control: Weak<Idle<()>>,
    /// Whether a refresh is in flight, which has the control connection.
    is_refreshing: AtomicBool,
    /// With `enable.metrics.push`.
    telemetry: OnceLock<Arc<Telemetry>>,
}

#[derive(Default)]
struct Problems {
    /// Set if no broker responded.
    unreachable: Option<Error>,
    topics: BTreeMap<Arc<str>, ErrorCode>,
}

struct Wanted {
    refresh: Refresh,
    /// Brokers that the next request avoids.
    avoid: BTreeSet<i32>,
    /// A broker with newer metadata than the snapshot, to be asked first.
    informed: Option<i32>,
}

/// Belongs to the driver's task, which is dropped when the client's runtime ends.
struct EndGuard {
    // Before the listeners are called: their waiting calls must see the end.
    lifeguard: Option<Lifeguard>,
    shared: Arc<Shared>,
}

impl Drop for EndGuard {
    fn drop(&mut self) {
        drop(self.lifeguard.take());
        let listeners = self.shared.listeners.lock().clone();
        for listener in listeners.iter().filter_map(Weak::upgrade) {
            listener.runtime_ended();
        }
    }
}

/// Ends the driver's task, and that of the client's metrics, when the last handle is dropped.
struct DriverGuard {
    driver: tokio::task::AbortHandle,
    shared: Arc<Shared>,
}

impl Drop for DriverGuard {
    fn drop(&mut self) {
        self.driver.abort();
        self.shared.end_telemetry();
    }
}

impl MetadataHandle {
    /// Starts the driver on the current tokio runtime. It sends no request before a topic is wanted.
    pub(crate) fn start(env: &Env, common: &CommonConfig, auto_create: AutoCreate) -> Result<Self> {
        Self::start_expiring(env, common, auto_create, None)
    }

    /// As [`Self::start`]. Topics expire when no listener has used them for `max_idle`.
    pub(crate) fn start_expiring(
        env: &Env,
        common: &CommonConfig,
        auto_create: AutoCreate,
        max_idle: Option<Duration>,
    ) -> Result<Self> {
        let policy = RefreshPolicy {
            max_age: common.metadata_max_age,
            max_idle,
            backoff: Backoff { initial: common.retry_backoff, max: common.retry_backoff_max },
            group_topics: GROUP_TOPICS,
            group_partitions: GROUP_PARTITIONS,
        };
        let wanted =
            Wanted { refresh: Refresh::new(policy), avoid: BTreeSet::new(), informed: None };
        let (runtime, lifeguard) = Runtime::of(common)?;
        let control = Arc::new(Idle::new(&runtime));
        let shared = Arc::new(Shared {
            env: env.clone(),
            runtime,
            common: common.clone(),
            bootstrap: common.bootstrap_servers.join(",").into(),
            auto_create,
            snapshot: ArcSwap::default(),
            writer: Mutex::default(),
            listeners: Mutex::default(),
            wanted: Mutex::new(wanted),
            wake: Notify::new(),
            suspected: Notify::new(),
            version: watch::Sender::new(0),
            problems: Mutex::default(),
            control: Arc::downgrade(&control),
            is_refreshing: AtomicBool::new(false),
            telemetry: OnceLock::new(),
        });
        let guard = EndGuard { lifeguard: Some(lifeguard), shared: shared.clone() };
        let driver = shared.runtime.spawn(driver::run(guard, control)).abort_handle();
        let driver = Arc::new(DriverGuard { driver, shared: shared.clone() });
        Ok(Self { shared, _driver: driver })
    }

    /// Returns the current snapshot.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.snapshot.load_full()
    }

    /// Registers `listener` for later changes.
    pub(crate) fn listen(&self, listener: Weak<dyn Listener>) {
        let registered = listener.upgrade();
        self.shared.listeners.lock().push(listener);
        // The guard sets the end before it reads the list.
        if self.shared.runtime.check().is_err()
            && let Some(listener) = registered
        {
            listener.runtime_ended();
        }
    }

    /// The runtime of the client's tasks.
    pub(crate) fn runtime(&self) -> &Runtime {
        &self.shared.runtime
    }

    /// Requests a refresh of the topic, or of all topics in use, as soon as the backoff since the last one allows.
    /// Returns immediately. Requests during a refresh join it.
    pub(crate) fn request_refresh(&self, topic: Option<&str>) {
        self.request_refresh_for(topic, Cause::Topic);
    }

    fn request_refresh_for(&self, topic: Option<&str>, cause: Cause) {
        let now = Instant::now().into_std();
        let mut wanted = self.shared.wanted.lock();
        match topic {
            Some(topic) => wanted.refresh.want(topic, cause, now),
            None => wanted.refresh.want_all(cause, now),
        }
        drop(wanted);
        self.shared.wake.notify_one();
    }

    /// As [`Self::request_refresh`], but avoids `broker`, which may be unresponsive or unreachable. That broker is
    /// asked only if no other responds. The first request because of one broker does not wait for the backoff of
    /// another broker's.
    pub(crate) fn request_refresh_avoiding(&self, topic: Option<&str>, broker: i32) {
        self.shared.wanted.lock().avoid.insert(broker);
        self.shared.suspected.notify_one();
        self.request_refresh_for(topic, Cause::Broker(broker));
    }

    /// As [`Self::request_refresh`], from `broker`, whose response to another request has shown that its metadata is
    /// newer. Other brokers may lag.
    pub(crate) fn request_refresh_from(&self, topic: &str, broker: i32) {
        self.shared.wanted.lock().informed = Some(broker);
        self.request_refresh(Some(topic));
    }

    /// Returns the topic's leaders. Requests them if unknown, and waits until `deadline`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn topic(&self, name: &str, deadline: Instant) -> Result<Arc<Topic>> {
        let mut version = self.shared.version.subscribe();
        let started = Instant::now();
        loop {
            version.borrow_and_update();
            if let Some(topic) = self.snapshot().topic(name) {
                return Ok(topic.clone());
            }
            self.request_refresh(Some(name));
            if timeout_at(deadline, version.changed()).await.is_err() {
                return Err(self.why_not(name, started, deadline));
            }
            if let Some(error) = self.final_problem(name) {
                return Err(error);
            }
        }
    }

    /// Returns the topic. Requests it if unknown. `None` if the cluster does not know it either, or does not respond
    /// before `deadline`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn look(&self, name: &str, deadline: Instant) -> Option<Arc<Topic>> {
        let mut version = self.shared.version.subscribe();
        loop {
            version.borrow_and_update();
            if let Some(topic) = self.snapshot().topic(name) {
                return Some(topic.clone());
            }
            self.request_refresh(Some(name));
            timeout_at(deadline, version.changed()).await.ok()?.ok()?;
            if self.shared.problems.lock().topics.contains_key(name) {
                return self.snapshot().topic(name).cloned();
            }
        }
    }

    /// Waits until `look` finds something in a snapshot. Requests no refresh.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn find<T>(&self, look: impl Fn(&Snapshot) -> Option<T>) -> T {
        let mut version = self.shared.version.subscribe();
        loop {
            version.borrow_and_update();
            if let Some(found) = look(&self.snapshot()) {
                return found;
            }
            // The sender lives as long as `self`.
            let _ = version.changed().await;
        }
    }

    /// Applies the leaders named in error responses, in one step. Returns the hints that changed the snapshot.
    pub(crate) fn apply_hints(&self, hints: &[Hint], endpoints: &[Node]) -> Vec<Hint> {
        let mut turn = self.shared.writer.lock();
        let (next, taken) = self.shared.snapshot.load().apply_hints(hints, endpoints);
        if taken.is_empty() {
            return taken;
        }
        let mut topics: Vec<Arc<str>> = taken.iter().map(|hint| hint.topic.clone()).collect();
        topics.dedup();
        self.shared.publish(&mut turn, next, &topics);
        drop(turn);
        self.shared.version.send_modify(|v| *v += 1);
        // The driver frees the replaced snapshot.
        self.shared.wake.notify_one();
        taken
    }

    /// Connects to any broker that responds: known brokers first, then `bootstrap.servers`, unless
    /// `metadata.recovery.strategy` is `none`.
    pub(crate) async fn connect_any(&self) -> Result<Connection> {
        self.shared.connect_any().await
    }

    /// Applies a response, as if its topics had been requested.
    #[cfg(test)]
    pub(crate) fn learn(&self, response: &MetadataResponse) {
        let names = response.topics.iter().filter_map(|topic| topic.name.as_deref());
        self.shared.settle(response, &names.map(Arc::from).collect::<Vec<_>>());
    }

    pub(crate) fn final_problem(&self, topic: &str) -> Option<Error> {
        let problems = self.shared.problems.lock();
        if let Some(error) = &problems.unreachable
            && error.needs_other_settings()
        {
            return Some(error.clone());
        }
        let code = problems.topics.get(topic).copied()?;
        let fatal = matches!(
            code,
            ErrorCode::TOPIC_AUTHORIZATION_FAILED | ErrorCode::INVALID_TOPIC_EXCEPTION
        );
        fatal.then(|| topic_error(topic, code))
    }

    fn why_not(&self, topic: &str, started: Instant, deadline: Instant) -> Error {
        let problems = self.shared.problems.lock();
        if let Some(error) = &problems.unreachable {
            return error.clone();
        }
        match problems.topics.get(topic) {
            Some(&code) => topic_error(topic, code),
            None => Error::Timeout {
                what: "metadata of a topic",
                limit: deadline.saturating_duration_since(started),
                last: None,
            },
        }
    }
}

fn topic_error(topic: &str, code: ErrorCode) -> Error {
    match code {
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => Error::UnknownTopic(topic.into()),
        code => Error::Broker { what: format!("topic '{topic}'").into(), code, message: None },
    }
}

impl Shared {
    async fn connect_any(&self) -> Result<Connection> {
        let common = &self.common;
        let recovery = Recovery::new(common.metadata_recovery, common.metadata_rebootstrap_trigger);
        let known = self.snapshot.load().nodes().next().is_some();
        let source = recovery.source(known, Instant::now().into_std());
        // On the heap: the futures of callers would contain it, and the compiler limits how deep futures nest.
        Box::pin(dial(self, self.candidates(source), drop)).await
    }

    /// Applies a response. The writer's lock serializes updates, so that none is lost.
    fn settle(&self, answer: &MetadataResponse, group: &[Arc<str>]) {
        let mut turn = self.writer.lock();
        let (next, changes) = self.snapshot.load().apply(answer, Some(group));
        if changes.nodes || changes.cluster || !changes.topics.is_empty() {
            self.publish(&mut turn, next, &changes.topics);
        }
        drop(turn);
        let errors: BTreeMap<Arc<str>, ErrorCode> = changes.errors.into_iter().collect();
        let leaderless: BTreeSet<&Arc<str>> = changes.leaderless.iter().collect();
        let lacking: BTreeSet<&Arc<str>> = group.iter().filter(|topic| self.lacks(topic)).collect();
        let now = Instant::now().into_std();
        let mut wanted = self.wanted.lock();
        for topic in group {
            let said = if errors.contains_key(topic) {
                Said::Nothing
            } else if leaderless.contains(topic) || lacking.contains(topic) {
                Said::Leaderless
            } else {
                Said::Complete
            };
            wanted.refresh.answered(topic, said, now, self.env.entropy.unit());
        }
        if changes.cluster {
            wanted.refresh.want_all(Cause::Topic, now);
        }
        drop(wanted);
        // A record that arrived after the first look has joined this request.
        for topic in group.iter().filter(|topic| !lacking.contains(topic) && self.lacks(topic)) {
            self.wanted.lock().refresh.want(topic, Cause::Topic, now);
        }
        let mut problems = self.problems.lock();
        problems.unreachable = None;
        for topic in group {
            problems.topics.remove(topic);
        }
        problems.topics.extend(errors);
        drop(problems);
        self.version.send_modify(|v| *v += 1);
    }

    fn publish(&self, turn: &mut Retired<Snapshot>, next: Snapshot, topics: &[Arc<str>]) {
        let next = Arc::new(next);
        let replaced = self.snapshot.swap(next.clone());
        trace::published(&self.common.client_id, &replaced, &next, topics);
        turn.push(replaced);
        self.each_listener(|listener| listener.changed(&next, topics));
    }

    fn each_listener(&self, mut tell: impl FnMut(&dyn Listener)) {
        self.listeners.lock().retain(|listener| match listener.upgrade() {
            Some(listener) => {
                tell(&*listener);
                true
            }
            None => false,
        });
    }

    fn is_used(&self, topic: &str) -> bool {
        let mut used = false;
        // Every listener is called: each begins a new period.
        self.each_listener(|listener| used |= listener.uses(topic));
        used
    }

    /// Whether something waits for a partition of the topic that the snapshot does not name.
    fn lacks(&self, topic: &str) -> bool {
        let snapshot = self.snapshot.load_full();
        let mut lacks = false;
        self.each_listener(|listener| lacks = lacks || listener.lacks(&snapshot, topic));
        lacks
    }

    /// Removes unused topics from the snapshot and from the listeners' tables.
    fn forget(&self, topics: &[Arc<str>]) {
        let mut turn = self.writer.lock();
        let next = Arc::new(self.snapshot.load().without(topics));
        turn.push(self.snapshot.swap(next));
        self.each_listener(|listener| listener.expired(topics));
        drop(turn);
        let mut problems = self.problems.lock();
        for topic in topics {
            problems.topics.remove(topic);
        }
    }

    /// Frees replaced values that are no longer read.
    fn tidy(&self) {
        let unread = self.writer.lock().unread();
        drop(unread);
        self.each_listener(|listener| listener.tidy());
    }

    fn failed(&self, group: &[Arc<str>], error: Error) {
        self.wanted.lock().refresh.failed(group, Instant::now().into_std());
        self.problems.lock().unreachable = Some(error);
        self.version.send_modify(|v| *v += 1);
    }

    /// The error for a cluster without a responding broker, after this failure at the last broker tried.
    fn unreachable(&self, last: Option<Error>) -> Error {
        Error::Unreachable { bootstrap: self.bootstrap.clone(), last: last.map(Arc::new) }
    }

    /// Addresses of the brokers that the next request must avoid.
    fn take_avoided(&self) -> BTreeSet<String> {
        let avoided = self.suspects();
        self.wanted.lock().avoid.clear();
        avoided
    }

    /// Address of the broker for the next request, if one has newer metadata than the others.
    fn take_informed(&self) -> Option<String> {
        let snapshot = self.snapshot.load();
        let informed = snapshot.node(self.wanted.lock().informed.take()?)?;
        Some(format!("{}:{}", informed.host, informed.port))
    }

    fn suspects(&self) -> BTreeSet<String> {
        let snapshot = self.snapshot.load();
        let wanted = self.wanted.lock();
        let nodes = wanted.avoid.iter().filter_map(|id| snapshot.node(*id));
        nodes.map(|node| format!("{}:{}", node.host, node.port)).collect()
    }

    /// Addresses to try, in order.
    fn candidates(&self, source: Source) -> Vec<(String, u16)> {
        let mut candidates: Vec<(String, u16)> = Vec::new();
        if source != Source::Bootstrap {
            let snapshot = self.snapshot.load();
            candidates.extend(snapshot.nodes().map(|node| (node.host.clone(), node.port)));
        }
        // Clients start at different brokers instead of all at the first.
        if !candidates.is_empty() {
            let first = self.env.entropy.below(candidates.len() as u64) as usize;
            candidates.rotate_left(first);
        }
        if source == Source::Known {
            return candidates;
        }
        for server in &self.common.bootstrap_servers {
            if let Some((host, port)) = crate::conn::parse_address(server)
                && !candidates.iter().any(|(h, p)| h == host && *p == port)
            {
                candidates.push((host.into(), port));
            }
        }
        candidates
    }
}

/// Connects to the first of `candidates` that responds. Passes each address to `trying` before the attempt.
///
/// An unresponsive broker accepts connections and never responds. In a first round every broker has a short time, so
/// that a responsive one is found. In a second round the slow brokers have the full time.
async fn dial(
    shared: &Shared,
    candidates: Vec<(String, u16)>,
    trying: impl Fn(String),
) -> Result<Connection> {
    // Before any broker: the connection's time limit is not the token endpoint's, and every broker would receive the
    // same token.
    let bootstrap = shared.common.bootstrap_servers.join(",").into();
    let _login = match CredentialSource::prepare(&shared.env, &shared.common, &bootstrap).await {
        Ok(login) => login,
        Err(error) if error.needs_other_settings() => return Err(error),
        Err(error) => return Err(shared.unreachable(Some(error))),
    };
    let brief = shared.common.retry_backoff_max.min(shared.common.connection_setup_timeout);
    let (mut dialled, mut slow, mut last) = (Vec::new(), Vec::new(), None);
    for (host, port) in candidates {
        // Only now, so that a name service that does not respond delays no broker before this one.
        for name in canonical::names(shared, host, port).await {
            let at = (name, port);
            if dialled.contains(&at) {
                continue;
            }
            match open(shared, &at, &trying, Some(brief)).await {
                Some(Ok(connection)) => return Ok(connection),
                // Another broker of this cluster would refuse, too.
                Some(Err(error)) if error.needs_other_settings() => return Err(error),
                Some(Err(error)) => last = Some(error),
                None => slow.push(at.clone()),
            }
            dialled.push(at);
        }
    }
    // Here only the setup timeout of `Connection::open` applies, so its error is reported.
    for at in slow {
        match open(shared, &at, &trying, None).await {
            Some(Ok(connection)) => return Ok(connection),
            Some(Err(error)) if error.needs_other_settings() => return Err(error),
            Some(Err(error)) => last = Some(error),
            None => {}
        }
    }
    Err(shared.unreachable(last))
}

/// Connects to one broker; `None` at the end of `limit`.
async fn open(
    shared: &Shared,
    (host, port): &(String, u16),
    trying: impl Fn(String),
    limit: Option<Duration>,
) -> Option<Result<Connection>> {
    trying(format!("{host}:{port}"));
    let open = Connection::open(&shared.env, &shared.common, host, *port);
    match limit {
        Some(limit) => timeout(limit, open).await.ok(),
        None => Some(open.await),
    }
}
