//! The periodic sync of a broker's logs: `flush.ms`, checked every `log.flush.scheduler.interval.ms`.

use std::sync::Arc;

use tokio::{task::yield_now, time::sleep};

use super::Broker;
use crate::config::NEVER;

/// Syncs the logs that are due, for the broker's lifetime.
pub(super) async fn run(broker: Arc<Broker>) {
    let interval = broker.config.log_flush_scheduler_interval;
    if interval >= NEVER {
        return;
    }
    loop {
        sleep(interval).await;
        for partition in broker.partitions() {
            partition.flush_if_due(broker.env.wall.now_ms());
            yield_now().await;
        }
    }
}
