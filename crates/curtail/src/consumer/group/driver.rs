//! The task that carries out the steps of the membership machine, one request at a time, whether or not the
//! application polls.

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use curtail_proto::{
    assignor::{Assignor, Member, Topics, any_rack, wanted_topics},
    later::Later,
    membership::{GroupHeartbeat, Identity, Step, Trouble},
    metadata::{Node, Snapshot, Topic},
};
use curtail_wire::Uuid;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::{
    Group, partition,
    requests::{self, Who, lost},
};
use crate::{
    Error, Result, TopicPartition,
    config::GroupProtocol,
    conn::{Connection, Idle},
    consumer::{shared::Shared, topics},
    coordinator::{Coordinated, find},
    metrics::{GroupStats, Histogram},
};

/// Longest wait for the response to the first join of a member that has left. Brokers with KIP-394 respond at once; the
/// others keep the join until the rebalance.
const INTRODUCTION: Duration = Duration::from_secs(1);

/// How long a response is needed.
#[derive(Clone, Copy)]
enum Patience {
    Always,
    /// Until the member leaves, and then for [`INTRODUCTION`] if the response may have the id with which it must leave.
    WhileJoining,
}

/// Runs until the consumer aborts it.
pub(super) async fn run(shared: Arc<Shared>, group: Arc<Group>) {
    let now = Instant::now();
    let commit_at = now.later(shared.config.auto_commit_interval);
    let idle = Idle::new(&shared.runtime);
    let mut driver = Driver { shared, group, idle, commit_at, list_at: now, flushing: None };
    loop {
        driver.turn().await;
    }
}

struct Driver {
    shared: Arc<Shared>,
    group: Arc<Group>,
    /// The connection to the coordinator, while it works.
    idle: Idle<i32>,
    /// When auto-commit is due.
    commit_at: Instant,
    /// When a subscription by pattern is next resolved.
    list_at: Instant,
    /// Mark of the commits that must finish before the member rejoins. Later commits of the application must not
    /// delay it.
    flushing: Option<u64>,
}

impl Driver {
    /// Performs one request or one wait.
    async fn turn(&mut self) {
        self.notice_polls();
        self.call_for_commits();
        if self.group.pattern.lock().is_some() && Instant::now() >= self.list_at {
            self.apply_pattern().await;
        }
        let now = Instant::now().into_std();
        let step = self.group.look(|machine| machine.next(now));
        self.call_application();
        if !matches!(step, Step::Flush(_) | Step::Heartbeat(..)) {
            self.flushing = None;
        }
        match step {
            Step::Idle => self.wait(None).await,
            Step::Wait(until) => self.wait(Some(Instant::from_std(until))).await,
            Step::Flush(until) => self.flush(Instant::from_std(until)).await,
            Step::Find => self.find().await,
            Step::Assign(assignor, members) => self.assign(assignor, &members).await,
            Step::Join(node, join) => {
                let asked = Instant::now();
                let reply = self.ask(&node, Patience::WhileJoining, async |connection, who| {
                    requests::join(connection, who, &join).await
                });
                let reply = reply.await;
                answered(&self.group.stats.joins, asked, &reply);
                self.report(|machine, now, unit| machine.joined(reply, now, unit));
            }
            Step::Sync(node, sync) => {
                if sync.assignments.is_empty() {
                    self.check_topics();
                }
                let asked = Instant::now();
                let reply = self.ask(&node, Patience::WhileJoining, async |connection, who| {
                    requests::sync(connection, who, &sync).await
                });
                let reply = reply.await;
                answered(&self.group.stats.syncs, asked, &reply);
                self.report(|machine, now, unit| machine.synced(reply, now, unit));
            }
            Step::Heartbeat(node, identity) => {
                let asked = self.group.stats.beat();
                let reply = self.ask(&node, Patience::Always, async |connection, who| {
                    requests::heartbeat(connection, who, &identity).await
                });
                let reply = reply.await;
                answered(&self.group.stats.heartbeats, asked, &reply);
                self.report(|machine, now, unit| machine.beaten(reply, now, unit));
            }
            Step::GroupHeartbeat(node, heartbeat) => {
                self.want_topics(&heartbeat);
                let asked = self.group.stats.beat();
                let reply = self.ask(&node, Patience::Always, async |connection, who| {
                    requests::group_heartbeat(connection, who, heartbeat).await
                });
                let reply = reply.await;
                answered(&self.group.stats.heartbeats, asked, &reply);
                self.report(|machine, now, unit| machine.group_beaten(reply, now, unit));
            }
            Step::Resolve(ids, until) => self.resolve(&ids, Instant::from_std(until)).await,
            Step::Leave(node, identity) => self.leave(&node, &identity).await,
        }
    }

    async fn leave(&mut self, node: &Node, identity: &Identity) {
        // Commits as a member must arrive before it leaves.
        let limit = self.shared.config.common.default_api_timeout;
        let _ = timeout(limit, self.group.commits.flushed()).await;
        let protocol = self.group.protocol;
        let left = self.ask(node, Patience::Always, async |connection, who| match protocol {
            GroupProtocol::Classic => requests::leave(connection, who, identity).await,
            GroupProtocol::Consumer => {
                let farewell = GroupHeartbeat::farewell(identity);
                requests::group_heartbeat(connection, who, farewell).await.map(drop)
            }
        });
        if let Err(trouble) = left.await {
            tracing::debug!(group = &*self.group.id, ?trouble, "leaving");
        }
        self.group.change(|machine, _| machine.left());
    }

    /// Requests metadata of unknown topics. This may create them, and it reveals their ids.
    fn want_topics(&self, heartbeat: &GroupHeartbeat) {
        let known = self.shared.metadata.snapshot();
        for topic in heartbeat.topics.iter().flatten() {
            if known.topic(topic).is_none() {
                self.shared.metadata.request_refresh(Some(topic));
            }
        }
    }

    /// Reports subscribed topics that a member other than the leader may not describe. The leader learns of them when
    /// it runs the assignor. In Java every member requests the metadata of its topics, and its `poll` throws.
    fn check_topics(&self) {
        let (shared, metadata) = (Arc::downgrade(&self.shared), self.shared.metadata.clone());
        let known = metadata.snapshot();
        let topics = self.group.topics().into_iter().filter(|topic| known.topic(topic).is_none());
        let unknown: Vec<Arc<str>> = topics.collect();
        if unknown.is_empty() {
            return;
        }
        let deadline = Instant::now().later(self.shared.config.common.request_timeout);
        // All topics are requested before the first wait.
        for topic in &unknown {
            metadata.request_refresh(Some(topic));
        }
        self.shared.watch(async move {
            for topic in unknown {
                if metadata.look(&topic, deadline).await.is_none()
                    && let Some(error) = metadata.final_problem(&topic)
                    && let Some(shared) = shared.upgrade()
                {
                    shared.report(error);
                }
            }
        });
    }

    /// Finds topic names: in the metadata, or else by their ids from a broker.
    async fn resolve(&self, ids: &[Uuid], until: Instant) {
        let snapshot = self.shared.metadata.snapshot();
        let known = snapshot.topic_names().filter_map(|name| snapshot.topic(name));
        let known = known.filter(|topic| ids.contains(&topic.id));
        let mut names: BTreeMap<Uuid, Arc<str>> =
            known.map(|topic| (topic.id, topic.name.clone())).collect();
        let missing: Vec<Uuid> =
            ids.iter().filter(|id| !names.contains_key(*id)).copied().collect();
        if !missing.is_empty() {
            match timeout_at(until, topics::names_of(&self.shared, &missing)).await {
                Ok(Ok(found)) => names.extend(found),
                failed => tracing::debug!(group = &*self.group.id, ?failed, "names of topics"),
            }
        }
        self.group.change(|machine, now| machine.resolved(names, now));
    }

    /// Counts a poll since the last look. A kept waker does not count: its future may have been dropped, or its task
    /// may be busy. The waker is woken instead, and a poll that still waits for records polls again.
    fn notice_polls(&self) {
        if self.group.attention.was_polled() {
            let now = Instant::now().into_std();
            self.group.look(|machine| machine.polled(now));
        }
        let waker = self.shared.state.lock().take_waker();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn call_for_commits(&mut self) {
        let now = Instant::now();
        if !self.shared.config.enable_auto_commit || now < self.commit_at {
            return;
        }
        self.commit_at = now.later(self.shared.config.auto_commit_interval);
        self.group.attention.call_for_commit();
        self.shared.state.lock().wake_application();
    }

    fn call_application(&self) {
        self.end_lost_queues();
        let needed = self.group.look(|machine| {
            machine.wants_application()
                || machine.failure().is_some()
                || machine.has_ended_in_handover()
        });
        if needed && !self.group.wants_attention() {
            self.group.call_application(&self.shared);
        }
    }

    /// Ends the queues of lost partitions at once: an application that does not poll must not read on. It may have been
    /// called before for another reason, for example a commit that is due.
    fn end_lost_queues(&self) {
        let lost: Vec<TopicPartition> =
            self.group.look(|machine| machine.lost().into_iter().map(partition).collect());
        if !lost.is_empty() {
            self.shared.state.lock().end_queues(&lost);
        }
    }

    fn report(
        &self,
        report: impl FnOnce(&mut curtail_proto::membership::Membership<Error>, std::time::Instant, f64),
    ) {
        let unit = self.shared.env.entropy.unit();
        self.group.change(|machine, now| report(machine, now, unit));
    }

    /// When the auto-commit or the pattern is due.
    fn tick(&self) -> Option<Instant> {
        let commit = self.shared.config.enable_auto_commit.then_some(self.commit_at);
        let list = self.group.pattern.lock().is_some().then_some(self.list_at);
        commit.into_iter().chain(list).min()
    }

    async fn wait(&self, until: Option<Instant>) {
        let woken = self.group.wake.notified();
        match until.into_iter().chain(self.tick()).min() {
            None => woken.await,
            Some(until) => tokio::select! {
                biased;
                () = woken => {}
                () = sleep_until(until) => {}
            },
        }
    }

    async fn flush(&mut self, until: Instant) {
        let mark = *self.flushing.get_or_insert_with(|| self.group.commits.mark());
        tokio::select! {
            biased;
            () = self.group.commits.flushed_to(mark) => {
                self.group.change(|machine, _| machine.flushed());
            }
            () = self.wait(Some(until)) => {}
        }
    }

    async fn find(&mut self) {
        let what = Coordinated::Group(&self.group.id);
        let found = match find(&self.shared.metadata, &self.shared.config.common, what).await {
            Ok(found) => found.map_err(|code| Trouble::Refused(code, None)),
            Err(error) => {
                self.shared.report_refusal(&error);
                Err(lost(error))
            }
        };
        self.report(|machine, now, unit| machine.found(found, now, unit));
    }

    /// Sends a request to the coordinator. Abandons it when the coordinator moves or the response is no longer
    /// needed.
    async fn ask<T>(
        &mut self,
        node: &Node,
        patience: Patience,
        request: impl AsyncFnOnce(&mut Connection, Who<'_>) -> Result<T, Trouble<Error>>,
    ) -> Result<T, Trouble<Error>> {
        let (shared, group) = (self.shared.clone(), self.group.clone());
        let config = &shared.config;
        let who = Who {
            group: &group.id,
            instance: group.instance.as_deref(),
            session_timeout: config.session_timeout,
            rebalance_timeout: config.max_poll_interval,
            request_timeout: config.common.request_timeout,
        };
        let open = self.idle.take(&node.id);
        let is_sent = AtomicBool::new(false);
        let exchange = async {
            let mut connection = match open {
                Some(open) => open,
                None => {
                    let (host, port) = (&node.host, node.port);
                    Connection::open(&shared.env, &config.common, host, port).await.map_err(lost)?
                }
            };
            is_sent.store(true, Ordering::Relaxed);
            let reply = request(&mut connection, who).await;
            Ok((reply, connection))
        };
        let reply = tokio::select! {
            biased;
            () = self.of_no_use(patience, &is_sent) => Err(Trouble::Lost(Error::Closed)),
            answered = exchange => match answered {
                Ok((reply, connection)) => {
                    if !matches!(reply, Err(Trouble::Lost(_))) {
                        self.idle.put_alone(node.id, connection);
                    }
                    reply
                }
                Err(trouble) => Err(trouble),
            },
            error = group.moved_from(&shared, node) => Err(Trouble::Lost(error)),
        };
        if let Err(trouble) = &reply {
            if let Trouble::Lost(error) = trouble {
                shared.report_refusal(error);
            }
            tracing::debug!(group = &*group.id, broker = node.id, ?trouble, "coordinator");
        }
        reply
    }

    /// Resolves when the response is no longer needed. The member may have left since the machine requested the step.
    async fn of_no_use(&self, patience: Patience, is_sent: &AtomicBool) {
        if matches!(patience, Patience::Always) {
            return std::future::pending().await;
        }
        self.left().await;
        let may_have_id = self.group.look(|machine| machine.awaits_id());
        if may_have_id && is_sent.load(Ordering::Relaxed) {
            sleep(INTRODUCTION).await;
        }
    }

    /// Resolves when a member that waits for a rebalance has left.
    async fn left(&self) {
        while self.group.look(|machine| machine.awaits_group()) {
            self.group.wake.notified().await;
        }
    }

    /// Runs the assignor, as the leader.
    async fn assign(&self, assignor: Assignor, members: &[Member]) {
        let deadline = Instant::now().later(self.shared.config.common.request_timeout);
        let wanted = wanted_topics(members);
        // All topics are requested before the first wait.
        let known = self.shared.metadata.snapshot();
        for topic in wanted.iter().filter(|topic| known.topic(topic).is_none()) {
            self.shared.metadata.request_refresh(Some(topic));
        }
        let looked_up = async {
            let mut found = Vec::new();
            for topic in wanted {
                if let Some(known) = self.shared.metadata.look(&topic, deadline).await {
                    found.push(known);
                } else if let Some(error) = self.shared.metadata.final_problem(&topic) {
                    // As in Java's `poll`. Otherwise the group would wait for partitions that it cannot have.
                    self.shared.report(error);
                }
            }
            found
        };
        let Some(found) = or_when(looked_up, self.left()).await else { return };
        let snapshot = self.shared.metadata.snapshot();
        // The snapshot may have lost a topic since.
        let newest = found.iter().map(|known| snapshot.topic(&known.name).unwrap_or(known));
        let layouts = layouts(&snapshot, newest, any_rack(members));
        let assignments = assignor.assign(&layouts, members);
        self.group.change(|machine, _| machine.assigned(&assignments, layouts));
        // Changes that came while the topics were looked up one by one.
        self.group.look_at_topics(&self.shared.metadata.snapshot());
    }

    /// Lists the topics, and subscribes to those that match the pattern.
    async fn apply_pattern(&mut self) {
        let common = &self.shared.config.common;
        let Some(pattern) = self.group.pattern.lock().clone() else { return };
        let listed = timeout(common.request_timeout, topics::list(&self.shared)).await;
        let Ok(Ok(answer)) = listed else {
            tracing::debug!(group = &*self.group.id, "no list of topics for the pattern");
            self.list_at =
                Instant::now().later(common.retry_backoff_max.max(Duration::from_millis(1)));
            return;
        };
        self.list_at = Instant::now().later(common.metadata_max_age);
        let hidden = self.shared.config.exclude_internal_topics;
        let topics = answer
            .topics
            .into_iter()
            .filter(|topic| topic.error.is_none() && !(hidden && topic.is_internal))
            .filter_map(|topic| topic.name)
            .filter(|name| pattern(name))
            .map(Arc::from)
            .collect();
        // The application may have changed the subscription since.
        let current = self.group.pattern.lock();
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, &pattern)) {
            self.group.change(|machine, now| machine.subscribe(topics, now));
        }
    }
}

/// The partitions of topics, by topic.
pub(super) fn layouts<'a>(
    snapshot: &Snapshot,
    topics: impl Iterator<Item = &'a Arc<Topic>>,
    with_racks: bool,
) -> Topics {
    match with_racks {
        true => snapshot.layouts_with_racks(topics),
        false => topics.map(|topic| (topic.name.clone(), topic.layout())).collect(),
    }
}

/// Records the coordinator's response time, if it has responded.
fn answered<T>(histogram: &Histogram, asked: Instant, reply: &Result<T, Trouble<Error>>) {
    if !matches!(reply, Err(Trouble::Lost(_))) {
        GroupStats::took(histogram, asked);
    }
}

async fn or_when<T>(work: impl Future<Output = T>, end: impl Future<Output = ()>) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = end => None,
    }
}
