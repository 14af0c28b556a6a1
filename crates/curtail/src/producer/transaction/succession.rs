//! Detection of a transaction's new coordinator while a leader is late.
//!
//! Before a leader appends the first batch of a transaction, it asks the coordinator whether the transaction is open
//! (KIP-890). If that broker no longer responds, the leader waits for its `request.timeout.ms` of 30 s, although the
//! transaction has another coordinator by then. The driver of the lane then closes the connection, and its batches are
//! sent again. The leader recognises those that it has appended, by their sequence numbers.

use std::{
    sync::Arc,
    time::{Duration, Instant as StdInstant},
};

use curtail_proto::{later::Later, path::policy::LEAST_SUCCESSION};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::Control;
use crate::{
    coordinator::{Coordinated, find},
    producer::shared::Shared,
};

/// How much later than other brokers a leader may learn of the new coordinator. A request that it has received by then
/// may wait for the replaced one as well.
const LAG: Duration = Duration::from_secs(1);

/// When the transaction's coordinator was looked up, and when it was another one.
#[derive(Debug, Default)]
pub(in crate::producer) struct Succession(Mutex<Lookups>);

#[derive(Debug, Default)]
struct Lookups {
    /// Earliest time of the next lookup.
    not_before: Option<StdInstant>,
    /// When a lookup last found another coordinator.
    found: Option<StdInstant>,
}

impl Succession {
    /// Whether a request written at this time may wait for a replaced coordinator.
    pub(in crate::producer) fn concerns(&self, written: StdInstant) -> bool {
        self.0.lock().found.is_some_and(|found| found.later(LAG) > written)
    }

    /// Whether a lookup is due. If so, the next one is due at `next`.
    fn is_due(&self, now: StdInstant, next: StdInstant) -> bool {
        let mut lookups = self.0.lock();
        let is_due = lookups.not_before.is_none_or(|at| at <= now);
        if is_due {
            lookups.not_before = Some(next);
        }
        is_due
    }

    fn found(&self, now: StdInstant) {
        self.0.lock().found = Some(now);
    }
}

/// Looks up the transaction's coordinator, at most once within `retry.backoff.max.ms`.
pub(in crate::producer) fn look_for_successor(shared: &Shared, control: &Arc<Control>) {
    let Some(former) = control.look(|machine| machine.coordinator()) else { return };
    let common = shared.config.common.clone();
    let pause = common.retry_backoff_max.max(LEAST_SUCCESSION);
    let now = Instant::now();
    if !control.succession.is_due(now.into_std(), now.later(pause).into_std()) {
        return;
    }
    let (metadata, control) = (shared.metadata.clone(), control.clone());
    shared.runtime.spawn(async move {
        let lookup = find(&metadata, &common, Coordinated::Transactions(control.id()));
        if let Ok(Ok(Ok(found))) = timeout(pause, lookup).await
            && found.id != former
        {
            control.succession.found(Instant::now().into_std());
            control.change(|machine| machine.coordinator_moved(former, found));
        }
    });
}
