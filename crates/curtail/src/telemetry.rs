//! Client metrics push (KIP-714): brokers ask for a client's metrics, and receive them in OpenTelemetry's format.
//!
//! The decisions are those of [`curtail_proto::telemetry`]. One task carries them out, on the control connection. It starts
//! once a broker offers the APIs, or when the application asks for the client instance id: with other clusters the client
//! has no such task.

mod driver;
mod names;
mod payload;
#[cfg(test)]
pub(crate) mod tests;

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use curtail_proto::{backoff::Backoff, later::Later, telemetry::Telemetry as Machine};
use curtail_wire::Uuid;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, watch},
    task::AbortHandle,
    time::{Instant, sleep, timeout, timeout_at},
};

pub(crate) use self::payload::Snapshot;
use crate::{Error, Result, config::CommonConfig, metadata::ControlConnection};

/// How long a close waits for the terminating push.
const FAREWELL: Duration = Duration::from_secs(1);

/// With a short limit, the terminating push has one part in this many.
const CLOSE_SHARE: u32 = 4;

/// The error without `enable.metrics.push`, which is Java's.
pub(crate) const DISABLED: Error =
    Error::IllegalState("client metrics are not pushed; set enable.metrics.push=true");

/// A client whose metrics are pushed.
pub(crate) trait Source: Send + Sync {
    /// Returns the client's metrics since its creation.
    fn snapshot(&self) -> Snapshot;

    /// Attributes of all metrics, such as `group_id`, as Java's clients have them.
    fn attributes(&self) -> Vec<(&'static str, String)>;
}

/// One client's push.
pub(crate) struct Telemetry {
    source: Weak<dyn Source>,
    machine: Mutex<Machine>,
    /// Notified when the machine may have another step.
    changed: Notify,
    client_instance_id: watch::Sender<Option<Uuid>>,
    /// Set when the task has no further step.
    ended: watch::Sender<bool>,
    /// Why the last request has failed.
    problem: Mutex<Option<Error>>,
    task: Mutex<Option<AbortHandle>>,
}

impl Telemetry {
    pub(crate) fn new(source: Weak<dyn Source>) -> Self {
        Self {
            source,
            machine: Mutex::new(Machine::new(Instant::now().into_std())),
            changed: Notify::new(),
            client_instance_id: watch::Sender::new(None),
            ended: watch::Sender::new(false),
            problem: Mutex::default(),
            task: Mutex::default(),
        }
    }

    /// Starts the task, unless it has been started or the client has closed.
    pub(crate) fn start(self: &Arc<Self>, control: &ControlConnection) {
        let mut task = self.task.lock();
        if task.is_none() && !self.machine.lock().has_ended() {
            let run = driver::run(self.clone(), control.clone());
            *task = Some(control.runtime().spawn(run).abort_handle());
        }
    }

    /// Returns the id that a broker has assigned. Waits for it up to `limit`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn client_instance_id(
        self: &Arc<Self>,
        control: &ControlConnection,
        limit: Duration,
    ) -> Result<Uuid> {
        let mut id = self.client_instance_id.subscribe();
        if let Some(id) = *id.borrow_and_update() {
            return Ok(id);
        }
        self.start(control);
        let asking = async {
            let (common, mut failures) = (control.common(), 0);
            let backoff = Backoff { initial: common.retry_backoff, max: common.retry_backoff_max };
            loop {
                self.machine.lock().hurry(Instant::now().into_std());
                self.changed.notify_one();
                failures += 1;
                let pause = backoff.after(failures, control.env().entropy.unit());
                tokio::select! {
                    biased;
                    // The sender lives as long as `self`.
                    _ = id.changed() => return id.borrow().ok_or(Error::Closed),
                    _ = self.has_ended() => return Err(self.problem().unwrap_or(Error::Closed)),
                    () = sleep(pause) => {}
                }
            }
        };
        match timeout_at(Instant::now().later(limit), asking).await {
            Ok(answered) => answered,
            Err(_) => Err(Error::Timeout {
                what: "the client instance id",
                limit,
                // A request that waits for the connection has recorded no problem yet.
                last: self.problem().or_else(|| control.problem()).map(Arc::new),
            }),
        }
    }

    /// Sends the terminating push, if there is a subscription, and ends the task. Waits up to [`FAREWELL`] and up to
    /// `limit`.
    ///
    /// # Cancel safety
    /// Cancel safe: the task ends with the client.
    pub(crate) async fn close(&self, limit: Duration) {
        let is_due = self.machine.lock().close();
        self.changed.notify_one();
        if is_due {
            let _ = timeout(limit.min(FAREWELL), self.has_ended()).await;
        }
        self.end();
    }

    /// Returns how much of a close's `limit` belongs to the terminating push; zero if none is due.
    pub(crate) fn share_of_close(&self, limit: Duration) -> Duration {
        match self.machine.lock().would_push() {
            true => FAREWELL.min(limit / CLOSE_SHARE),
            false => Duration::ZERO,
        }
    }

    /// Ends the task at once.
    pub(crate) fn end(&self) {
        // Also for calls that would start the task after this.
        self.machine.lock().end();
        if let Some(task) = &*self.task.lock() {
            task.abort();
        }
        self.ended.send_replace(true);
    }

    async fn has_ended(&self) {
        // The sender lives as long as `self`.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    fn problem(&self) -> Option<Error> {
        self.problem.lock().clone()
    }
}

/// Attributes of every client.
pub(crate) fn common_attributes(common: &CommonConfig) -> Vec<(&'static str, String)> {
    match common.client_rack.as_str() {
        "" => Vec::new(),
        rack => vec![("client_rack", rack.to_owned())],
    }
}
