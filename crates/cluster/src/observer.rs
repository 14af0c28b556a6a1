//! Observation of the brokers' events from outside.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use curtail_wire::ApiKey;
use parking_lot::RwLock;
use tokio::time::Instant;

use crate::telemetry::Receivers;

/// Receives the brokers' events, for measurements.
///
/// Brokers call it from their tasks while a partition is locked: an observer must be quick, must
/// not block and must not call the cluster. Times are those of the broker's runtime.
pub trait Observer: Send + Sync {
    /// A leader has appended a producer's batch.
    fn appended(
        &self,
        broker: i32,
        topic: &str,
        partition: i32,
        base_offset: i64,
        last_offset: i64,
        at: Instant,
    );

    /// A leader's high watermark has advanced: everything below it is committed.
    fn committed(&self, broker: i32, topic: &str, partition: i32, high_watermark: i64, at: Instant);

    /// A broker has learned that it leads a partition in this epoch. Later appends by the leader of
    /// an earlier epoch, which does not know of the election yet, will be truncated.
    fn leads(&self, _broker: i32, _topic: &str, _partition: i32, _leader_epoch: i32, _at: Instant) {
    }

    /// A follower has appended fetched records; its log now ends at `end_offset`.
    fn replicated(
        &self,
        _broker: i32,
        _topic: &str,
        _partition: i32,
        _end_offset: i64,
        _at: Instant,
    ) {
    }

    /// A broker has handled a request of a client or of another broker. No partition is locked.
    fn handled(&self, _request: &HandledRequest<'_>) {}

    /// A proxy has closed a connection, because it cannot reach the broker or one side breaks the protocol.
    fn disconnected(&self, _broker: i32, _peer: IpAddr, _reason: &str) {}
}

/// A request that a broker has handled.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HandledRequest<'a> {
    /// The broker.
    pub broker: i32,
    /// The address of the client, or of the other broker.
    pub peer: IpAddr,
    /// The client id; empty if the client has none.
    pub client_id: &'a str,
    /// The API.
    pub api: ApiKey,
    /// Version of the request.
    pub version: i16,
    /// Bytes of the request, without its length.
    pub received: usize,
    /// Bytes of the response that were written; 0 without a response.
    pub sent: usize,
    /// From the end of the request to the end of its response, with the delays of faults.
    pub time: Duration,
    /// Whether the connection closes.
    pub closes: bool,
}

/// Holds the observer, which costs nothing while there is none, and the receiver of clients' metrics.
#[derive(Default)]
pub(crate) struct Observers {
    pub(crate) metrics: Receivers,
    present: AtomicBool,
    observer: RwLock<Option<Arc<dyn Observer>>>,
}

impl Observers {
    pub(crate) fn set(&self, observer: Arc<dyn Observer>) {
        *self.observer.write() = Some(observer);
        self.present.store(true, Ordering::Release);
    }

    pub(crate) fn clear(&self) {
        self.present.store(false, Ordering::Release);
        *self.observer.write() = None;
    }

    /// Returns whether there is an observer.
    pub(crate) fn is_present(&self) -> bool {
        self.present.load(Ordering::Relaxed)
    }

    pub(crate) fn tell(&self, call: impl FnOnce(&dyn Observer, Instant)) {
        if !self.present.load(Ordering::Acquire) {
            return;
        }
        if let Some(observer) = self.observer.read().as_deref() {
            call(observer, Instant::now());
        }
    }
}
