//! What happens to the cluster of a workload.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use curtail_cluster::{Cluster, ClusterHandle};
use curtail_sim::world::Handle;
use tokio::task::JoinHandle;

use crate::{
    experiments::{Act, FaultSpan},
    perf::{Error, Result},
};

/// What has happened.
#[derive(Debug, Default)]
pub(super) struct Happened {
    /// When it began, counted from the start of the load.
    pub(super) first: Option<Duration>,
    /// Leaders that were moved.
    pub(super) leaders_moved: u64,
    /// A broker that was lost, and when the controller had given up on it, counted from the start of the load.
    pub(super) dropped: Option<(i32, Duration)>,
    /// The broker that was made slow.
    pub(super) slowed: Option<i32>,
    killed: BTreeSet<i32>,
    frozen: BTreeSet<i32>,
}

impl Happened {
    /// What was done when, for a picture of the run; after `known` every broker knows of a move.
    pub(super) fn spans(&self, script: &[(Duration, Act)], known: Duration) -> Vec<FaultSpan> {
        let ms = |at: Duration| at.as_secs_f64() * 1000.0;
        let end = script.last().map_or(Duration::ZERO, |(at, _)| *at);
        let mut spans = Vec::new();
        for &(at, act) in script {
            let (until, what) = match act {
                Act::RotateLeaders => {
                    (at + known, "all leaders move, until every broker knows".to_owned())
                }
                Act::Slow { broker, by } if by.is_zero() => {
                    (at, format!("broker {broker} is as before"))
                }
                Act::Slow { broker, by } => {
                    (end.max(at), format!("broker {broker} is {by:?} slower"))
                }
                Act::Kill { broker } => (
                    self.given_up(broker, at),
                    format!("broker {broker} is killed, until it is dropped"),
                ),
                Act::Freeze { broker } => {
                    let thawed = script.iter().find(|(_, act)| *act == Act::Thaw { broker });
                    (thawed.map_or(end, |(at, _)| *at), format!("broker {broker} hangs"))
                }
                Act::Thaw { .. } => continue,
            };
            spans.push(FaultSpan { from_ms: ms(at), until_ms: ms(until), what });
        }
        spans
    }

    fn given_up(&self, broker: i32, killed: Duration) -> Duration {
        self.dropped.filter(|(id, _)| *id == broker).map_or(killed, |(_, at)| at)
    }
}

/// Plays the script; returns when it is over and whoever was lost has been given up by the controller.
///
/// # Errors
/// A leader that cannot be moved.
pub(super) async fn run(
    script: &[(Duration, Act)],
    start: Duration,
    handle: &Handle,
    cluster: &Arc<Cluster>,
    topic: &'static str,
) -> Result<Happened> {
    let mut happened = Happened::default();
    let mut watch: Option<(i32, JoinHandle<Duration>)> = None;
    for &(at, act) in script {
        handle.until(start + at).await;
        happened.first.get_or_insert(at);
        match act {
            Act::RotateLeaders => happened.leaders_moved += rotate(cluster, topic)?,
            Act::Slow { broker, by } => {
                cluster.delay(Some(broker), Some(PRODUCE), by);
                happened.slowed = Some(broker);
            }
            Act::Kill { broker } => {
                cluster.kill(broker);
                happened.killed.insert(broker);
                watch = Some((broker, drop_of(broker, handle, cluster, topic)));
            }
            Act::Freeze { broker } => {
                cluster.freeze(broker);
                happened.frozen.insert(broker);
                watch = Some((broker, drop_of(broker, handle, cluster, topic)));
            }
            Act::Thaw { broker } => {
                cluster.thaw(broker);
                happened.frozen.remove(&broker);
            }
        }
    }
    if let Some((broker, dropped)) = watch {
        let dropped = dropped.await.map_err(|_| Error::Unexpected("the observer ended".into()))?;
        happened.dropped = Some((broker, dropped.saturating_sub(start)));
    }
    Ok(happened)
}

/// The key of the Produce API.
const PRODUCE: i16 = 0;

/// Makes the next in-sync replica the leader of every partition; how many there are.
fn rotate(cluster: &ClusterHandle, topic: &str) -> Result<u64> {
    let mut moved = 0;
    while let Some(mut in_sync) = cluster.isr(topic, moved) {
        let failed = |reason: String| Error::Unexpected(format!("{topic}-{moved}: {reason}"));
        let leader = cluster.leader(topic, moved).map(|(leader, _)| leader);
        let at = in_sync.iter().position(|id| Some(*id) == leader).filter(|_| in_sync.len() > 1);
        in_sync.rotate_left(at.ok_or_else(|| failed("no other replica is in sync".into()))? + 1);
        cluster.move_leader(topic, moved, in_sync[0]).map_err(|error| failed(error.to_string()))?;
        moved += 1;
    }
    Ok(moved.unsigned_abs().into())
}

/// When the controller has taken everything from a broker.
fn drop_of(
    broker: i32,
    handle: &Handle,
    cluster: &Arc<Cluster>,
    topic: &'static str,
) -> JoinHandle<Duration> {
    let (handle, cluster) = (handle.clone(), Arc::clone(cluster));
    tokio::spawn(async move {
        cluster
            .wait_until(|cluster| {
                (0..).map_while(|partition| Some((partition, cluster.isr(topic, partition)?))).all(
                    |(partition, isr)| {
                        let leader = cluster.leader(topic, partition);
                        !isr.contains(&broker) && leader.is_some_and(|(id, _)| id != broker)
                    },
                )
            })
            .await;
        handle.now()
    })
}

impl Happened {
    /// Starts what was killed, thaws what was frozen, and ends delays.
    ///
    /// # Errors
    /// A broker that does not start.
    pub(super) async fn set_right(&self, cluster: &Cluster) -> Result<()> {
        cluster.clear_delays();
        for &broker in &self.frozen {
            cluster.thaw(broker);
        }
        for &broker in &self.killed {
            let restarted = cluster.restart(broker).await;
            restarted.map_err(|error| Error::Cluster(error.to_string()))?;
        }
        Ok(())
    }
}
