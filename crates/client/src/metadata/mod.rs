//! The client's picture of the cluster: a snapshot that readers load without waiting, and one task that keeps it
//! fresh over a connection of its own, so that control never queues behind data.

mod driver;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Weak},
};

use arc_swap::ArcSwap;
use curtail_net::Env;
use curtail_proto::metadata::{Changes, Hint, Node, Snapshot, Topic};
use curtail_wire::{ErrorCode, metadata::MetadataResponse};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, timeout, timeout_at},
};

use crate::{CommonConfig, Error, Result, conn::Connection};

/// Told of every change of the snapshot, on the task that made it, after the new snapshot is in place.
pub(crate) trait Listener: Send + Sync {
    /// Topics with other leaders, partitions or ids than before.
    fn changed(&self, snapshot: &Arc<Snapshot>, topics: &[Arc<str>]);
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
    /// Writers take turns; readers never come here.
    writer: Mutex<()>,
    listeners: Mutex<Vec<Weak<dyn Listener>>>,
    wanted: Mutex<Wanted>,
    wake: Notify,
    /// Counts answers, failed ones included, so that waiters look again.
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

#[derive(Default)]
struct Wanted {
    /// Topics in use: every refresh asks for them.
    topics: BTreeMap<Arc<str>, ()>,
    refresh: bool,
    /// Brokers not to ask.
    avoid: BTreeSet<i32>,
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
        let shared = Arc::new(Shared {
            env: env.clone(),
            common: common.clone(),
            bootstrap: common.bootstrap_servers.join(",").into(),
            auto_create,
            snapshot: ArcSwap::default(),
            writer: Mutex::default(),
            listeners: Mutex::default(),
            wanted: Mutex::default(),
            wake: Notify::new(),
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

    /// Asks for a refresh soon; returns at once. A topic named is kept fresh from now on.
    pub(crate) fn request_refresh(&self, topic: Option<&str>) {
        let mut wanted = self.shared.wanted.lock();
        if let Some(topic) = topic
            && !wanted.topics.contains_key(topic)
        {
            wanted.topics.insert(topic.into(), ());
        }
        wanted.refresh = true;
        drop(wanted);
        self.shared.wake.notify_one();
    }

    /// As [`Self::request_refresh`], asking another broker than `broker`, which is suspected to hang or to be cut
    /// off. Only where no other broker answers is that one asked.
    pub(crate) fn request_refresh_avoiding(&self, topic: Option<&str>, broker: i32) {
        self.shared.wanted.lock().avoid.insert(broker);
        self.request_refresh(topic);
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

    /// Takes the leaders that error answers named, all in one step, and gives those that were news.
    pub(crate) fn apply_hints(&self, hints: &[Hint], endpoints: &[Node]) -> Vec<Hint> {
        let _turn = self.shared.writer.lock();
        let (next, taken) = self.shared.snapshot.load().apply_hints(hints, endpoints);
        if taken.is_empty() {
            return taken;
        }
        let mut topics: Vec<Arc<str>> = taken.iter().map(|hint| hint.topic.clone()).collect();
        topics.dedup();
        self.shared.publish(next, &topics);
        taken
    }

    /// Connects to any broker that answers: known ones first, then `bootstrap.servers`.
    pub(crate) async fn connect_any(&self) -> Result<Connection> {
        self.shared.connect_any(&BTreeSet::new()).await
    }

    fn final_problem(&self, topic: &str) -> Option<Error> {
        let problems = self.shared.problems.lock();
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
    /// Takes an answer in. The caller's turn as the writer keeps two updates from losing one another.
    fn apply(&self, answer: &MetadataResponse, asked: &[Arc<str>]) -> Changes {
        let turn = self.writer.lock();
        let (next, changes) = self.snapshot.load().apply(answer, Some(asked));
        if changes.nodes || !changes.topics.is_empty() {
            self.publish(next, &changes.topics);
        }
        drop(turn);
        let mut problems = self.problems.lock();
        problems.unreachable = None;
        for topic in asked {
            problems.topics.remove(topic);
        }
        problems.topics.extend(changes.errors.iter().cloned());
        drop(problems);
        self.version.send_modify(|v| *v += 1);
        changes
    }

    fn publish(&self, next: Snapshot, topics: &[Arc<str>]) {
        let next = Arc::new(next);
        self.snapshot.store(next.clone());
        let mut listeners = self.listeners.lock();
        listeners.retain(|listener| match listener.upgrade() {
            Some(listener) => {
                listener.changed(&next, topics);
                true
            }
            None => false,
        });
    }

    fn failed(&self, error: Error) {
        self.problems.lock().unreachable = Some(error);
        self.version.send_modify(|v| *v += 1);
    }

    async fn connect_any(&self, avoid: &BTreeSet<i32>) -> Result<Connection> {
        let snapshot = self.snapshot.load_full();
        let (avoided, usable): (Vec<&Node>, Vec<&Node>) =
            snapshot.nodes().partition(|node| avoid.contains(&node.id));
        let address = |node: &Node| (node.host.clone(), node.port);
        let mut candidates: Vec<(String, u16)> = usable.into_iter().map(address).collect();
        let avoided: Vec<(String, u16)> = avoided.into_iter().map(address).collect();
        // Clients spread over the brokers instead of all asking the first.
        if !candidates.is_empty() {
            let first = self.env.entropy.below(candidates.len() as u64) as usize;
            candidates.rotate_left(first);
        }
        for server in &self.common.bootstrap_servers {
            if let Some((host, port)) = crate::conn::parse_address(server)
                && !candidates.iter().chain(&avoided).any(|(h, p)| h == host && *p == port)
            {
                candidates.push((host.into(), port));
            }
        }
        candidates.extend(avoided);
        // A broker that hangs accepts connections and says nothing. Every broker is first given a short time, so that
        // one that answers is found; then those that took longer have all the time there is.
        let full = self.common.connection_setup_timeout;
        let short = self.common.retry_backoff_max.min(full);
        let mut last = None;
        for limit in [short, full] {
            let mut slow = Vec::new();
            for (host, port) in candidates {
                let open = Connection::open(&self.env, &self.common, &host, port);
                match timeout(limit, open).await {
                    Ok(Ok(connection)) => return Ok(connection),
                    Ok(Err(error)) => last = Some(error),
                    Err(_) => slow.push((host, port)),
                }
            }
            candidates = slow;
        }
        Err(Error::Unreachable {
            bootstrap: self.bootstrap.clone(),
            reason: last.map_or_else(|| "no broker answers".into(), |e| e.to_string().into()),
        })
    }
}
