//! The log cleaner of a broker: one task that compacts its logs one after the other.

use std::sync::Arc;

use tokio::time::sleep;

use super::Broker;

/// Compacts logs every `log.cleaner.backoff.ms`, for the broker's lifetime.
pub(super) async fn run(broker: Arc<Broker>) {
    loop {
        sleep(broker.config.log_cleaner_backoff).await;
        for partition in broker.partitions() {
            partition.clean(broker.env.wall.now_ms()).await;
        }
    }
}
