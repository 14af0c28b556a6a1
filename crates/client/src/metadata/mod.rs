//! The client's picture of the cluster: a snapshot that readers load without waiting, and one task that keeps it
//! fresh over a connection of its own, so that control never queues behind data.

mod driver;
mod retired;
#[cfg(test)]
mod tests;
mod trace;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
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

pub(crate) use self::retired::Retired;
use crate::{CommonConfig, Error, Result, conn::Connection, security::sasl::CredentialSource};

/// Topics in one request, and the partitions they may have together: what an answer of that size costs to parse
/// and to take in stays well below a millisecond.
const GROUP_TOPICS: usize = 100;
const GROUP_PARTITIONS: usize = 2_000;

/// Told of every change of the snapshot, on the task that made it, after the new snapshot is in place.
pub(crate) trait Listener: Send + Sync {
    /// Topics with other leaders, partitions or ids than before.
    fn changed(&self, snapshot: &Arc<Snapshot>, topics: &[Arc<str>]);

    /// Whether the topic was used since the last time this was asked.
    fn uses(&self, topic: &str) -> bool;

    /// Whether something waits for a partition of the topic that `snapshot` does not name.
    fn lacks(&self, snapshot: &Snapshot, topic: &str) -> bool;

    /// Topics that nobody has used for `metadata.max.idle.ms`: they are not kept up to date any more. Whoever needs
    /// one again has to ask for it.
    fn expired(&self, topics: &[Arc<str>]);

    /// Called on the control task after updates, to free what readers may have held.
    fn tidy(&self);
}

/// Whether asking for a topic may create it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AutoCreate {
    /// The broker may, if it is set so.
    Allowed,
    /// It must not.
    Never,
}

/// The client's picture of the cluster. Clones share it; the driver's task ends with the last one.
#[derive(Clone)]
pub(crate) struct MetadataHandle {
    shared: Arc<Shared>,
    _driver: Arc<DriverGuard>,
}

struct Shared {
    env: Env,
    common: CommonConfig,
    bootstrap: Arc<str>,
    auto_create: AutoCreate,
    snapshot: ArcSwap<Snapshot>,
    /// Writers take turns; readers never come here. Guards the snapshots that were replaced.
    writer: Mutex<Retired<Snapshot>>,
    listeners: Mutex<Vec<Weak<dyn Listener>>>,
    wanted: Mutex<Wanted>,
    wake: Notify,
    /// Told when a broker comes under suspicion.
    suspected: Notify,
    /// Counts answers, failed ones and hints included, so that waiters look again.
    version: watch::Sender<u64>,
    /// The last failure of a topic or of the whole refresh, for those who wait in vain.
    problems: Mutex<Problems>,
}

#[derive(Default)]
struct Problems {
    /// No broker could be asked.
    unreachable: Option<Error>,
    topics: BTreeMap<Arc<str>, ErrorCode>,
}

struct Wanted {
    refresh: Refresh,
    /// Brokers not to ask.
    avoid: BTreeSet<i32>,
    /// A broker that is known to know more than we do, to be asked first.
    informed: Option<i32>,
}

/// Ends the driver's task when the last handle goes.
struct DriverGuard(tokio::task::AbortHandle);

impl Drop for DriverGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl MetadataHandle {
    /// Starts the driver on the current tokio runtime. Nothing is asked before the first topic is wanted.
    pub(crate) fn start(env: &Env, common: &CommonConfig, auto_create: AutoCreate) -> Self {
        Self::start_expiring(env, common, auto_create, None)
    }

    /// As [`Self::start`], with topics expiring when no listener has used them for `max_idle`.
    pub(crate) fn start_expiring(
        env: &Env,
        common: &CommonConfig,
        auto_create: AutoCreate,
        max_idle: Option<Duration>,
    ) -> Self {
        let policy = RefreshPolicy {
            max_age: common.metadata_max_age,
            max_idle,
            backoff: Backoff { initial: common.retry_backoff, max: common.retry_backoff_max },
            group_topics: GROUP_TOPICS,
            group_partitions: GROUP_PARTITIONS,
        };
        let wanted =
            Wanted { refresh: Refresh::new(policy), avoid: BTreeSet::new(), informed: None };
        let shared = Arc::new(Shared {
            env: env.clone(),
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
        });
        let driver = tokio::spawn(driver::run(shared.clone()));
        Self { shared, _driver: Arc::new(DriverGuard(driver.abort_handle())) }
    }

    /// The picture as it is now.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.shared.snapshot.load_full()
    }

    /// Tells `listener` of changes from now on.
    pub(crate) fn listen(&self, listener: Weak<dyn Listener>) {
        self.shared.listeners.lock().push(listener);
    }

    /// Asks for a refresh of the topic, or of all topics in use, as soon as the pause since the last one allows;
    /// returns at once. Requests that come while one is under way join it.
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

    /// As [`Self::request_refresh`], asking another broker than `broker`, which is suspected to hang or to be cut
    /// off. Only where no other broker answers is that one asked. The first request for one broker's sake waits for no pause
    /// after those for another's.
    pub(crate) fn request_refresh_avoiding(&self, topic: Option<&str>, broker: i32) {
        self.shared.wanted.lock().avoid.insert(broker);
        self.shared.suspected.notify_one();
        self.request_refresh_for(topic, Cause::Broker(broker));
    }

    /// As [`Self::request_refresh`], asking `broker`, whose answer to something else has shown that it knows more than we do.
    /// Others may be late to learn of it.
    pub(crate) fn request_refresh_from(&self, topic: &str, broker: i32) {
        self.shared.wanted.lock().informed = Some(broker);
        self.request_refresh(Some(topic));
    }

    /// The topic's leaders, asked for if not known yet. Waits until `deadline`.
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

    /// The topic as it is known, asked for if it is not. `None` if the cluster does not know it either, or does not say
    /// so before `deadline`.
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

    /// Takes the leaders that error answers named, all in one step, and gives those that were news.
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
        // It frees what was replaced.
        self.shared.wake.notify_one();
        taken
    }

    /// Connects to any broker that answers: known ones first, then `bootstrap.servers`, unless
    /// `metadata.recovery.strategy` is `none`.
    pub(crate) async fn connect_any(&self) -> Result<Connection> {
        let shared = &self.shared;
        let common = &shared.common;
        let recovery = Recovery::new(common.metadata_recovery, common.metadata_rebootstrap_trigger);
        let known = shared.snapshot.load().nodes().next().is_some();
        let source = recovery.source(known, Instant::now().into_std());
        dial(shared, shared.candidates(source), drop).await
    }

    /// Applies a response, as if its topics had been requested.
    #[cfg(test)]
    pub(crate) fn learn(&self, response: &MetadataResponse) {
        let names = response.topics.iter().filter_map(|topic| topic.name.as_deref());
        self.shared.settle(response, &names.map(Arc::from).collect::<Vec<_>>());
    }

    fn final_problem(&self, topic: &str) -> Option<Error> {
        let problems = self.shared.problems.lock();
        if let Some(refused @ Error::Authentication { .. }) = &problems.unreachable {
            return Some(refused.clone());
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
    /// Takes an answer in. The turn as the writer keeps two updates from losing one another.
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
        // A record that waits since the first look has joined the request that is answered.
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
        trace::published(&replaced, &next, topics);
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
        // Every listener is asked: each begins a new count.
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

    /// Topics nobody uses: out of the snapshot, and out of the listeners' tables.
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

    /// Frees what was replaced and is not read any more.
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

    fn unreachable(&self, reason: impl Into<Arc<str>>) -> Error {
        Error::Unreachable { bootstrap: self.bootstrap.clone(), reason: reason.into() }
    }

    /// Addresses of the brokers that the next request is to avoid.
    fn take_avoided(&self) -> BTreeSet<String> {
        let avoided = self.suspects();
        self.wanted.lock().avoid.clear();
        avoided
    }

    /// The address of the broker that the next request is to be sent to, if there is one that knows more than others.
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
        // Clients spread over the brokers instead of all asking the first.
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

/// Connects to the first of `candidates` that answers; tells `trying` whom it is about to dial.
///
/// A broker that hangs accepts connections and says nothing. Every broker is first given a short time, so that one
/// that answers is found; then those that took longer have all the time there is.
async fn dial(
    shared: &Shared,
    mut candidates: Vec<(String, u16)>,
    trying: impl Fn(String),
) -> Result<Connection> {
    // Before any broker: the time to dial is not the token endpoint's, and every broker would be shown the same token.
    let bootstrap = shared.common.bootstrap_servers.join(",").into();
    let _login = match CredentialSource::prepare(&shared.env, &shared.common, &bootstrap).await {
        Ok(login) => login,
        Err(error @ Error::Authentication { .. }) => return Err(error),
        Err(error) => return Err(shared.unreachable(error.to_string())),
    };
    let brief = shared.common.retry_backoff_max.min(shared.common.connection_setup_timeout);
    let mut last = None;
    // The second time is bounded by the setup time-out of `open` alone: its error is the one to tell.
    for limit in [Some(brief), None] {
        let mut slow = Vec::new();
        for (host, port) in candidates {
            trying(format!("{host}:{port}"));
            let open = Connection::open(&shared.env, &shared.common, &host, port);
            let opened = match limit {
                Some(limit) => timeout(limit, open).await.ok(),
                None => Some(open.await),
            };
            match opened {
                Some(Ok(connection)) => return Ok(connection),
                // Another broker of this cluster would say the same.
                Some(Err(error @ Error::Authentication { .. })) => return Err(error),
                Some(Err(error)) => last = Some(error),
                None => slow.push((host, port)),
            }
        }
        candidates = slow;
    }
    Err(shared.unreachable(last.map_or_else(|| "no broker answers".into(), |e| e.to_string())))
}
