//! Plays the script of a workload.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use curtail::error::Report;
use curtail_cluster::{Cluster, ClusterHandle};
use curtail_sim::world::Handle;
use tokio::task::JoinHandle;

use super::{TOPIC, is_whole};
use crate::{
    experiments::{Act, FaultSpan, When, Workload, testbed::Sessions},
    perf::{Error, Result},
};

/// Acts that were played. Times count from the start of the load.
#[derive(Debug, Default)]
pub(super) struct Happened {
    done: Vec<Done>,
    /// Leaders that were moved.
    pub(super) leaders_moved: u64,
    /// A lost broker, and when the controller had removed it from all partitions.
    pub(super) dropped: Option<(i32, Duration)>,
    /// The broker that is slow at the end.
    pub(super) slowed: Option<i32>,
    /// Fetch session counters, and when they were read.
    pub(super) sessions: Vec<(Duration, Sessions)>,
    down: BTreeSet<i32>,
    frozen: BTreeSet<i32>,
}

#[derive(Clone, Copy, Debug)]
struct Done {
    act: Act,
    from: Duration,
    until: Duration,
}

impl Happened {
    /// Time of the first act on the cluster.
    pub(super) fn first(&self) -> Option<Duration> {
        self.done.iter().find(|done| disturbs(done.act)).map(|done| done.from)
    }

    /// End of the script, if it has restarted every broker.
    pub(super) fn rolled(&self, brokers: &[i32]) -> Option<Duration> {
        let restarted = |id: &i32| {
            let restart = Act::Restart { broker: *id };
            self.done.iter().any(|done| done.act == restart)
        };
        let last = self.done.last().map(|done| done.until);
        last.filter(|_| brokers.iter().all(restarted))
    }

    /// Downtime of a broker, if exactly one was down.
    pub(super) fn gone(&self) -> Option<Duration> {
        let stops = self.done.iter().filter(|done| matches!(done.act, Act::Stop { .. }));
        let [Done { act: Act::Stop { broker }, until, .. }] = stops.collect::<Vec<_>>()[..] else {
            return None;
        };
        let back = self.next(Act::Restart { broker: *broker }, *until)?;
        Some(back.from - *until)
    }

    /// Acts and their times, for a chart of the run. A move of leaders lasts `known`, until every broker
    /// knows of it.
    pub(super) fn spans(&self, known: Duration) -> Vec<FaultSpan> {
        let ms = |at: Duration| at.as_secs_f64() * 1000.0;
        let end = self.done.last().map_or(Duration::ZERO, |done| done.from);
        let mut spans = Vec::new();
        for &Done { act, from, .. } in &self.done {
            let (until, what) = match act {
                Act::RotateLeaders => {
                    (from + known, "all leaders move, until every broker knows".to_owned())
                }
                Act::Slow { by, .. } if by.is_zero() => continue,
                Act::Slow { broker, by } => {
                    let over = self.next(Act::Slow { broker, by: Duration::ZERO }, from);
                    (
                        over.map_or(end, |done| done.from),
                        format!("broker {broker} is {by:?} slower"),
                    )
                }
                Act::Kill { broker } => (
                    self.given_up(broker, from),
                    format!("broker {broker} is killed, until the controller has removed it"),
                ),
                Act::Freeze { broker } => {
                    let thawed = self.next(Act::Thaw { broker }, from);
                    (thawed.map_or(end, |done| done.from), format!("broker {broker} is frozen"))
                }
                Act::Stop { broker } => {
                    let serves = self.next(Act::Restart { broker }, from);
                    (serves.map_or(end, |done| done.until), format!("broker {broker} is stopped"))
                }
                Act::Thaw { .. }
                | Act::Restart { .. }
                | Act::AwaitInSync
                | Act::CountSessions
                | Act::GoOn => continue,
            };
            spans.push(FaultSpan { from_ms: ms(from), until_ms: ms(until), what });
        }
        spans
    }

    fn given_up(&self, broker: i32, killed: Duration) -> Duration {
        self.dropped.filter(|(id, _)| *id == broker).map_or(killed, |(_, at)| at)
    }

    fn next(&self, act: Act, after: Duration) -> Option<&Done> {
        self.done.iter().find(|done| done.act == act && done.from >= after)
    }

    /// Starts stopped brokers, resumes frozen ones and ends delays.
    ///
    /// # Errors
    /// A broker that does not start.
    pub(super) async fn set_right(&self, cluster: &Cluster) -> Result<()> {
        cluster.clear_delays();
        for &broker in &self.frozen {
            cluster.thaw(broker);
        }
        for &broker in &self.down {
            restart(cluster, broker).await?;
        }
        Ok(())
    }
}

/// Whether the act can affect the load.
fn disturbs(act: Act) -> bool {
    match act {
        Act::RotateLeaders
        | Act::Slow { .. }
        | Act::Kill { .. }
        | Act::Freeze { .. }
        | Act::Thaw { .. }
        | Act::Stop { .. }
        | Act::Restart { .. } => true,
        Act::AwaitInSync | Act::CountSessions | Act::GoOn => false,
    }
}

/// A running script.
pub(super) struct Script<'a> {
    workload: &'a Workload,
    start: Duration,
    handle: Handle,
    cluster: Arc<Cluster>,
    happened: Happened,
    /// A lost broker, and the task that waits for the controller to remove it from all partitions.
    lost: Option<(i32, JoinHandle<Duration>)>,
}

impl<'a> Script<'a> {
    /// The script of a load whose first record is due at `start`.
    pub(super) fn new(
        workload: &'a Workload,
        start: Duration,
        handle: Handle,
        cluster: Arc<Cluster>,
    ) -> Self {
        Self { workload, start, handle, cluster, happened: Happened::default(), lost: None }
    }

    /// Plays the script. Returns when it has ended and the controller has removed any lost broker.
    ///
    /// # Errors
    /// A leader that cannot be moved, a broker that does not start.
    pub(super) async fn run(mut self) -> Result<Happened> {
        for &(when, act) in &self.workload.script {
            let at = match when {
                When::At(at) => self.start + at,
                When::After(pause) => self.handle.now().max(self.start) + pause,
            };
            self.handle.until(at).await;
            let from = self.since_start();
            self.act(act).await?;
            let until = self.since_start();
            self.happened.done.push(Done { act, from, until });
        }
        if let Some((broker, dropped)) = self.lost {
            let dropped =
                dropped.await.map_err(|_| Error::Unexpected("the observer ended".into()))?;
            self.happened.dropped = Some((broker, dropped.saturating_sub(self.start)));
        }
        Ok(self.happened)
    }

    fn since_start(&self) -> Duration {
        self.handle.now().saturating_sub(self.start)
    }

    async fn act(&mut self, act: Act) -> Result<()> {
        let Self { cluster, happened, .. } = self;
        match act {
            Act::RotateLeaders => happened.leaders_moved += rotate(cluster)?,
            Act::Slow { broker, by } => {
                cluster.delay(Some(broker), Some(PRODUCE), by);
                happened.slowed = (!by.is_zero()).then_some(broker);
            }
            Act::Kill { broker } => {
                cluster.kill(broker);
                happened.down.insert(broker);
                self.watch(broker);
            }
            Act::Freeze { broker } => {
                cluster.freeze(broker);
                happened.frozen.insert(broker);
                self.watch(broker);
            }
            Act::Thaw { broker } => {
                cluster.thaw(broker);
                happened.frozen.remove(&broker);
                // A broker that is back before the controller fenced it was not lost.
                let lost =
                    self.lost.take_if(|(id, dropped)| *id == broker && !dropped.is_finished());
                if let Some((_, dropped)) = lost {
                    dropped.abort();
                }
            }
            Act::Stop { broker } => {
                cluster.stop(broker).await;
                happened.down.insert(broker);
            }
            Act::Restart { broker } => {
                restart(cluster, broker).await?;
                happened.down.remove(&broker);
            }
            Act::AwaitInSync => {
                cluster.wait_until(|cluster| is_whole(self.workload, cluster)).await;
                cluster.settled().await;
            }
            Act::CountSessions => {
                let counted = Sessions::of(cluster);
                let at = self.since_start();
                self.happened.sessions.push((at, counted));
            }
            Act::GoOn => {}
        }
        Ok(())
    }

    /// Starts a task that waits until the controller has removed a broker from all partitions.
    fn watch(&mut self, broker: i32) {
        let (handle, cluster) = (self.handle.clone(), Arc::clone(&self.cluster));
        let dropped = tokio::spawn(async move {
            cluster.wait_until(|cluster| is_dropped(broker, cluster)).await;
            handle.now()
        });
        self.lost = Some((broker, dropped));
    }
}

/// The key of the Produce API.
const PRODUCE: i16 = 0;

async fn restart(cluster: &Cluster, broker: i32) -> Result<()> {
    cluster.restart(broker).await.map_err(|error| Error::Cluster(Report::new(&error).to_string()))
}

/// Moves the leadership of every partition to its next in-sync replica; returns the number of moves.
fn rotate(cluster: &ClusterHandle) -> Result<u64> {
    let mut moved = 0;
    while let Some(mut in_sync) = cluster.isr(TOPIC, moved) {
        let failed = |reason: String| Error::Unexpected(format!("{TOPIC}-{moved}: {reason}"));
        let leader = cluster.leader(TOPIC, moved).map(|(leader, _)| leader);
        let at = in_sync.iter().position(|id| Some(*id) == leader).filter(|_| in_sync.len() > 1);
        in_sync.rotate_left(at.ok_or_else(|| failed("no other replica is in sync".into()))? + 1);
        cluster
            .move_leader(TOPIC, moved, in_sync[0])
            .map_err(|error| failed(Report::new(&error).to_string()))?;
        moved += 1;
    }
    Ok(moved.unsigned_abs().into())
}

/// Whether the controller has removed a broker from all partitions.
fn is_dropped(broker: i32, cluster: &ClusterHandle) -> bool {
    (0..).map_while(|partition| Some((partition, cluster.isr(TOPIC, partition)?))).all(
        |(partition, isr)| {
            let leader = cluster.leader(TOPIC, partition);
            !isr.contains(&broker) && leader.is_some_and(|(id, _)| id != broker)
        },
    )
}
