//! A broker's host: the process that the faults kill and start again.

use curtail_cluster::{ClusterError, disk::MemDisk};
use tokio::{
    sync::watch,
    time::{Duration, sleep},
};

use super::Shared;
use crate::plan::Crash;

/// Whether a broker's process should run. The faults set it; the host follows it.
pub(crate) struct Switch {
    on: watch::Sender<Power>,
}

/// State of a [`Switch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Power {
    /// Runs.
    On,
    /// Is dead, after a crash that did this to its disk.
    Off(Crash),
}

impl Default for Switch {
    fn default() -> Self {
        Self { on: watch::Sender::new(Power::On) }
    }
}

impl Switch {
    pub(crate) fn set(&self, power: Power) {
        self.on.send_replace(power);
    }
}

/// Runs incarnations of a broker while its switch is on.
pub(super) async fn run(shared: Shared, broker: i32, disk: MemDisk) -> turmoil::Result {
    let mut power = shared.switch(broker).on.subscribe();
    let handle = shared.cluster.broker(broker).ok_or("no such broker")?;
    loop {
        power.wait_for(|power| *power == Power::On).await?;
        let crash = tokio::select! {
            biased;
            off = power.wait_for(|power| *power != Power::On) => *off?,
            ended = handle.run() => match ended {
                // Its disk failed: an operator starts it again on one that works.
                Err(ClusterError::Storage { .. }) => {
                    shared.machine(broker).ended().await;
                    continue;
                }
                Err(error) => return Err(error.into()),
                Ok(()) => return Err("a broker ended".into()),
            }
        };
        // The incarnation's tasks are aborted, and end with their next turn.
        sleep(Duration::from_millis(1)).await;
        if crash == Power::Off(Crash::LosesUnsynced) {
            let entropy = shared.entropy.fork();
            // Some files lose everything unsynced, some a part, some nothing.
            disk.crash_with(|_, unsynced| match entropy.below(3) {
                0 => 0,
                1 => entropy.below(unsynced + 1),
                _ => unsynced,
            });
        }
        if crash == Power::Off(Crash::Torn) {
            let entropy = shared.entropy.fork();
            disk.crash_torn(|n| entropy.below(n));
        }
    }
}
