//! Detection of a transaction's new coordinator while a broker waits for the replaced one.
//!
//! Before a leader appends the first batch of a transaction, it asks the coordinator whether the transaction is open,
//! and so does a group's coordinator before it adds offsets (KIP-890). If that broker no longer responds, they wait for
//! their `request.timeout.ms` of 30 s, although the transaction has another coordinator by then. The request is then
//! sent again, on a new connection. A leader recognises batches that it has appended by their sequence numbers.

use std::{
    sync::Arc,
    time::{Duration, Instant as StdInstant},
};

use curtail_proto::{later::Later, metadata::Node, path::policy};
use parking_lot::Mutex;
use tokio::{
    task::AbortHandle,
    time::{Instant, timeout},
};

use super::Control;
use crate::{
    coordinator::{Coordinated, find},
    producer::shared::Shared,
};

/// How much later than other brokers one may learn of the new coordinator. A request that it has received by then may
/// wait for the replaced one. Responses that still name that one are ignored for as long.
const LAG: Duration = Duration::from_secs(1);

/// Coordinators of the transaction, as brokers have named them.
#[derive(Debug, Default)]
pub(in crate::producer) struct Succession(Mutex<Named>);

#[derive(Debug, Default)]
struct Named {
    coordinator: Option<i32>,
    /// The coordinator before that one, and when another was named.
    replaced: Option<(i32, StdInstant)>,
    lookup: Lookup,
}

/// The lookup that late requests cause.
#[derive(Debug, Default)]
struct Lookup {
    running: Option<AbortHandle>,
    not_before: Option<StdInstant>,
    failures: u32,
}

impl Drop for Named {
    fn drop(&mut self) {
        if let Some(running) = self.lookup.running.take() {
            running.abort();
        }
    }
}

impl Succession {
    /// A broker has named the coordinator. Returns the replaced one, if it is another.
    pub(super) fn name(&self, coordinator: i32, now: StdInstant) -> Option<i32> {
        let mut named = self.0.lock();
        let is_old = |(replaced, since): (i32, StdInstant)| {
            replaced == coordinator && since.later(LAG) > now
        };
        if named.replaced.is_some_and(is_old) {
            return None;
        }
        let replaced = named.coordinator.replace(coordinator).filter(|known| *known != coordinator);
        if let Some(replaced) = replaced {
            named.replaced = Some((replaced, now));
        }
        replaced
    }

    /// The broker that was last named.
    pub(super) fn coordinator(&self) -> Option<i32> {
        self.0.lock().coordinator
    }

    /// A lookup has ended. The next one waits for `pause`.
    fn looked_up(&self, has_found: bool, pause: Duration) {
        let lookup = &mut self.0.lock().lookup;
        let failures = if has_found { 0 } else { lookup.failures + 1 };
        let not_before = Some(Instant::now().into_std().later(pause));
        *lookup = Lookup { running: None, not_before, failures };
    }

    /// Whether a broker that received a request at this time may wait for a replaced coordinator.
    pub(in crate::producer) fn concerns(&self, written: StdInstant) -> bool {
        self.0.lock().replaced.is_some_and(|(_, since)| since.later(LAG) > written)
    }
}

/// Looks up the transaction's coordinator, unless a lookup is running or the last one was less than
/// `retry.backoff.max.ms` ago.
pub(in crate::producer) fn look_for_successor(shared: &Shared, control: &Arc<Control>) {
    let now = Instant::now().into_std();
    let mut named = control.succession.0.lock();
    let lookup = &mut named.lookup;
    if lookup.running.is_some() || lookup.not_before.is_some_and(|at| at > now) {
        return;
    }
    let common = shared.config.common.clone();
    let limit = policy::attempt(common.retry_backoff_max, lookup.failures, common.request_timeout);
    let (metadata, id) = (shared.metadata.clone(), control.id().to_owned());
    let control = Arc::downgrade(control);
    let task = shared.runtime.spawn(async move {
        let asked = find(&metadata, &common, Coordinated::Transactions(&id));
        let found = timeout(limit, asked).await;
        let Some(control) = control.upgrade() else { return };
        let found = if let Ok(Ok(Ok(node))) = found { Some(node) } else { None };
        control.succession.looked_up(found.is_some(), common.retry_backoff_max);
        if let Some(node) = found {
            control.coordinator_is(node);
        }
    });
    lookup.running = Some(task.abort_handle());
}

impl Control {
    /// A broker has named the coordinator. If it is another one, the next request goes there.
    pub(super) fn coordinator_is(&self, node: Node) {
        if let Some(replaced) = self.succession.name(node.id, Instant::now().into_std()) {
            self.change(|machine| machine.coordinator_moved(replaced, node));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_before_the_news_and_shortly_after_it_are_concerned() {
        let succession = Succession::default();
        let start = StdInstant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        assert_eq!(succession.name(1, at(0)), None, "the first");
        assert_eq!(succession.name(1, at(1)), None);
        assert!(!succession.concerns(at(0)));
        assert_eq!(succession.name(2, at(5000)), Some(1));
        assert_eq!([4000, 5500, 6500].map(|ms| succession.concerns(at(ms))), [true, true, false]);
    }

    #[test]
    fn a_late_response_that_names_the_replaced_coordinator_is_ignored() {
        let succession = Succession::default();
        let start = StdInstant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        succession.name(1, at(0));
        assert_eq!(succession.name(2, at(5000)), Some(1));
        assert_eq!(succession.name(1, at(5500)), None);
        assert_eq!(succession.coordinator(), Some(2));
        assert_eq!(succession.name(1, at(7000)), Some(2), "it is the coordinator again");
    }
}
