//! The log cleaner of a broker: one task that compacts its logs one after the other.

use std::sync::Arc;

use tokio::time::sleep;

use super::Broker;

/// Compacts logs every `log.cleaner.backoff.ms`, for the broker's lifetime. A changed interval takes effect after the
/// present one.
pub(super) async fn run(broker: Arc<Broker>) {
    loop {
        let backoff = broker.settings().config.log_cleaner_backoff;
        sleep(backoff).await;
        for partition in broker.partitions() {
            partition.clean(broker.env.wall.now_ms()).await;
        }
    }
}
