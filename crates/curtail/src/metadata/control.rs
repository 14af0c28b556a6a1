//! The control connection outside of refreshes: requests that any broker serves and that need no separate connection.
//!
//! # Invariants
//! - A borrowed connection has one request in flight. A refresh that is due at that time does not wait for it: it opens
//!   another connection, which then stays.

use std::{
    sync::{Arc, Weak, atomic::Ordering::Relaxed},
    time::Duration,
};

use curtail_net::Env;
use curtail_wire::{
    ApiKey, Uuid,
    cold::{Decodable, Message, Request},
};
use tokio::time::timeout;

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

    /// Sends a request in version 0 and waits for its response. Opens the connection if there is none and `may_connect`.
    pub(crate) async fn request<Q, A>(&self, may_connect: bool, request: Q) -> Result<A>
    where
        Q: Request<Response = A>,
        A: Decodable + Message,
    {
        let limit = self.shared.common.request_timeout;
        let mut connection = match timeout(limit, self.borrow(may_connect)).await {
            Ok(connection) => connection?,
            Err(_) => {
                let what = "the control connection (request.timeout.ms)";
                return Err(Error::Timeout { what, limit, last: None });
            }
        };
        let answer = connection.request(0..=0, |_| request).await;
        // Without the API nothing was sent.
        if matches!(answer, Ok(_) | Err(Error::UnsupportedVersion(_)))
            && let Some(open) = self.shared.control.upgrade()
        {
            open.put_spare((), connection);
        }
        answer
    }

    async fn borrow(&self, may_connect: bool) -> Result<Connection> {
        let shared = &self.shared;
        let open = shared.control.upgrade().ok_or(Error::Closed)?;
        let mut version = shared.version.subscribe();
        loop {
            version.borrow_and_update();
            // Looked at before the connection: a refresh puts it back first.
            let is_refreshing = shared.is_refreshing.load(Relaxed);
            if let Some(connection) = open.take(&()) {
                return Ok(connection);
            }
            if !is_refreshing {
                break;
            }
            // The sender lives as long as `self`.
            let _ = version.changed().await;
        }
        match may_connect {
            true => shared.connect_any().await,
            false => Err(connection_error(&shared.bootstrap, "there is no open connection")),
        }
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

    /// Ends the push of metrics at once.
    pub(crate) fn end_telemetry(&self) {
        self.shared.end_telemetry();
    }
}

impl Shared {
    pub(super) fn end_telemetry(&self) {
        if let Some(telemetry) = self.telemetry.get() {
            telemetry.end();
        }
    }
}
