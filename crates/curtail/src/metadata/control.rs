//! The control connection outside of refreshes: requests that any broker serves and that need no separate connection.
//!
//! # Invariants
//! - A borrowed connection has one request in flight. A refresh that becomes due at that time does not wait for it: it
//!   opens another connection, which then stays.
//! - A refresh that is due already comes first.

use std::{
    sync::{Arc, Weak, atomic::Ordering::Acquire},
    time::Duration,
};

use curtail_net::Env;
use curtail_wire::{
    ApiKey, Uuid,
    cold::{Decodable, Message, Request},
};
use tokio::time::{Instant, timeout};

use super::{MetadataHandle, Shared};
use crate::{
    Error, Result,
    config::CommonConfig,
    conn::{Connection, connection_error},
    runtime::{Runtime, within},
    telemetry::{DISABLED, Source, Telemetry},
};

/// The client's control connection, for the task of a [`Telemetry`].
#[derive(Clone)]
pub(crate) struct ControlConnection {
    shared: Arc<Shared>,
}

impl ControlConnection {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: shared.clone() }
    }

    pub(crate) fn env(&self) -> &Env {
        &self.shared.env
    }

    pub(crate) fn common(&self) -> &CommonConfig {
        &self.shared.common
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.shared.runtime
    }

    /// Why no broker has responded to the last refresh, if none has.
    pub(crate) fn problem(&self) -> Option<Error> {
        self.shared.problems.lock().unreachable.clone()
    }

    /// Takes the connection for one request of `Q`. Opens one if there is none and `may_connect`. Waits for it up to
    /// `request.timeout.ms`. After an error no part of the request was sent.
    ///
    /// # Cancel safety
    /// Cancel safe: the connection closes.
    pub(crate) async fn borrow<Q: Request>(&self, may_connect: bool) -> Result<Borrowed> {
        let limit = self.shared.common.request_timeout;
        let ready = async {
            let mut connection = self.take(may_connect).await?;
            let api = ApiKey(Q::KEY);
            if let Err(error) = connection.negotiate(api, 0..=0) {
                self.put_back(connection);
                return Err(error);
            }
            // Authentication comes before the content of the request.
            connection.renew_session().await?;
            Ok(connection)
        };
        match timeout(limit, ready).await {
            Ok(connection) => Ok(Borrowed { control: self.clone(), connection: connection? }),
            Err(_) => {
                let what = "the control connection (request.timeout.ms)";
                Err(Error::Timeout { what, limit, last: self.problem().map(Arc::new) })
            }
        }
    }

    async fn take(&self, may_connect: bool) -> Result<Connection> {
        let shared = &self.shared;
        let open = shared.control.upgrade().ok_or(Error::Closed)?;
        let mut version = shared.version.subscribe();
        loop {
            version.borrow_and_update();
            match attempt(|| shared.needs_control(), || open.take(&())) {
                Attempt::Taken(connection) => return Ok(connection),
                Attempt::Unkept => break,
                Attempt::InUse => {
                    // The sender lives as long as `self`.
                    let _ = version.changed().await;
                }
            }
        }
        match may_connect {
            true => shared.connect_any().await,
            false => Err(connection_error(&shared.bootstrap, "there is no open connection")),
        }
    }

    fn put_back(&self, connection: Connection) {
        if let Some(open) = self.shared.control.upgrade() {
            open.put_spare((), connection);
        }
    }
}

/// The control connection, for one request.
pub(crate) struct Borrowed {
    control: ControlConnection,
    connection: Connection,
}

impl Borrowed {
    /// Sends a request in version 0 and waits for its response. After an error the request may have been sent.
    pub(crate) async fn request<Q, A>(mut self, request: Q) -> Result<A>
    where
        Q: Request<Response = A>,
        A: Decodable + Message + Throttled,
    {
        let answer = self.connection.request(0..=0, |_| request).await?;
        // A broker reads nothing from a throttled connection (KIP-219), and a refresh must not wait for that.
        if answer.throttle().is_zero() {
            self.control.put_back(self.connection);
        }
        Ok(answer)
    }
}

/// A response with a throttle time.
pub(crate) trait Throttled {
    fn throttle(&self) -> Duration;
}

/// Outcome of an attempt to take the connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Attempt<C> {
    Taken(C),
    /// A refresh has it, or is due.
    InUse,
    /// There is none.
    Unkept,
}

/// Takes the connection unless a refresh needs it.
pub(super) fn attempt<C>(
    is_needed: impl Fn() -> bool,
    take: impl FnOnce() -> Option<C>,
) -> Attempt<C> {
    if is_needed() {
        return Attempt::InUse;
    }
    match take() {
        Some(connection) => Attempt::Taken(connection),
        // A refresh may have taken it since the first look.
        None if is_needed() => Attempt::InUse,
        None => Attempt::Unkept,
    }
}

/// Whether the broker takes metrics of clients. Apache Kafka's do with a plugin that receives them.
pub(super) fn takes_metrics(connection: &Connection) -> bool {
    let apis = [ApiKey::GET_TELEMETRY_SUBSCRIPTIONS, ApiKey::PUSH_TELEMETRY];
    apis.iter().all(|api| connection.negotiate(*api, 0..=0).is_ok())
}

impl MetadataHandle {
    /// Pushes a client's metrics to brokers that ask for them, if `enable.metrics.push` is set.
    pub(crate) fn push_metrics(&self, source: Weak<dyn Source>) {
        if self.shared.common.enable_metrics_push {
            self.shared.telemetry.get_or_init(|| Arc::new(Telemetry::new(source)));
        }
    }

    /// Returns the id that a broker has assigned to the client. Waits for it up to `limit`.
    pub(crate) async fn client_instance_id(&self, limit: Duration) -> Result<Uuid> {
        let Some(telemetry) = self.shared.telemetry.get() else { return Err(DISABLED) };
        let control = ControlConnection::new(&self.shared);
        within(self.runtime(), telemetry.client_instance_id(&control, limit)).await?
    }

    /// Sends the last metrics, if brokers have asked for some. Waits up to `limit`, but at most a second.
    pub(crate) async fn close_telemetry(&self, limit: Duration) {
        if let Some(telemetry) = self.shared.telemetry.get() {
            // After the end of the runtime there is no task.
            let _ = within(self.runtime(), telemetry.close(limit)).await;
        }
    }

    /// Returns how much of a close's `limit` belongs to [`Self::close_telemetry`].
    pub(crate) fn telemetry_share(&self, limit: Duration) -> Duration {
        let telemetry = self.shared.telemetry.get();
        telemetry.map_or(Duration::ZERO, |telemetry| telemetry.share_of_close(limit))
    }

    /// Ends the push of metrics at once.
    pub(crate) fn end_telemetry(&self) {
        self.shared.end_telemetry();
    }
}

impl Shared {
    /// Whether a refresh has the control connection, or is about to take it.
    fn needs_control(&self) -> bool {
        let now = Instant::now().into_std();
        // A refresh that is no longer due has set the flag before.
        let is_due = self.wanted.lock().refresh.next_due(now).is_some_and(|due| due <= now);
        is_due || self.is_refreshing.load(Acquire)
    }

    pub(super) fn end_telemetry(&self) {
        if let Some(telemetry) = self.telemetry.get() {
            telemetry.end();
        }
    }
}
