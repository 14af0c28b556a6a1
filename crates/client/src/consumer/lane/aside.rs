//! Sessionless fetches.
//!
//! A session's fetch reads every partition of the session. While the buffered records of a partition forbid another
//! fetch of it, sessionless fetches read the other partitions. This way the partition stays in the session, the
//! session keeps its slot on the broker, and no other partition waits (decision 0021).
//!
//! Two connections, opened on first use, serve these fetches. One fetches records known to exist, with an immediate
//! response. The other waits for new records.

use std::{collections::BTreeMap, future::Future, pin::Pin, sync::Arc, task::Poll, time::Duration};

use bytes::Bytes;
use curtail_proto::later::Later;
use curtail_wire::{ApiKey, fetch::FetchRequest};
use tokio::time::{Instant, sleep_until};

use super::Reading;
use crate::{Result, TopicPartition, conn::Connection, consumer::shared::Shared};

/// The purpose of a sessionless fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// Records known to exist.
    Known,
    /// Records that may arrive.
    Coming,
}

type Exchange = Pin<Box<dyn Future<Output = Result<(Connection, i16, Bytes)>> + Send>>;

/// A connection for sessionless fetches.
#[derive(Default)]
struct Aside {
    idle: Option<Connection>,
    running: Option<Exchange>,
    asked: BTreeMap<TopicPartition, Reading>,
    begun: Option<Instant>,
}

/// Both connections.
#[derive(Default)]
pub(super) struct Asides {
    known: Aside,
    coming: Aside,
}

/// A fetch that has succeeded or failed.
pub(super) struct Done {
    /// The partitions requested.
    pub(super) asked: BTreeMap<TopicPartition, Reading>,
    /// Start of the exchange.
    pub(super) begun: Instant,
    /// Version and body of the response.
    pub(super) answer: Result<(i16, Bytes)>,
}

impl Asides {
    fn of(&mut self, purpose: Purpose) -> &mut Aside {
        match purpose {
            Purpose::Known => &mut self.known,
            Purpose::Coming => &mut self.coming,
        }
    }

    /// Whether a fetch for this purpose is in flight.
    pub(super) fn is_busy(&self, purpose: Purpose) -> bool {
        match purpose {
            Purpose::Known => self.known.running.is_some(),
            Purpose::Coming => self.coming.running.is_some(),
        }
    }

    /// Whether a fetch in flight names the partition with the same position.
    pub(super) fn asks(&self, at: &TopicPartition, reading: &Reading) -> bool {
        [&self.known, &self.coming].iter().any(|aside| {
            aside.running.is_some() && aside.asked.get(at).is_some_and(|a| a.from == reading.from)
        })
    }

    /// Abandons the fetch in flight for this purpose, with its connection.
    pub(super) fn give_up_if_busy(&mut self, purpose: Purpose) {
        if self.is_busy(purpose) {
            *self.of(purpose) = Aside::default();
        }
    }

    /// Abandons both fetches and closes both connections.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Sends a fetch. `versions` are those whose topic naming (by name or id) matches the request.
    pub(super) fn start(
        &mut self,
        purpose: Purpose,
        shared: Arc<Shared>,
        node: i32,
        versions: std::ops::RangeInclusive<i16>,
        request: FetchRequest,
        asked: BTreeMap<TopicPartition, Reading>,
    ) {
        let aside = self.of(purpose);
        let idle = aside.idle.take();
        aside.asked = asked;
        aside.begun = Some(Instant::now());
        aside.running = Some(Box::pin(async move {
            let mut connection = match idle {
                Some(connection) => connection,
                None => shared.connect(node).await?,
            };
            let (version, frame) = exchange(&shared, &mut connection, versions, &request).await?;
            Ok((connection, version, frame))
        }));
    }

    /// Returns the next finished fetch. Pending while none is in flight.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn done(&mut self) -> Done {
        std::future::poll_fn(|cx| {
            for aside in [&mut self.known, &mut self.coming] {
                let Some(running) = &mut aside.running else { continue };
                let Poll::Ready(result) = running.as_mut().poll(cx) else { continue };
                aside.running = None;
                let answer = result.map(|(connection, version, frame)| {
                    aside.idle = Some(connection);
                    (version, frame)
                });
                let begun = aside.begun.take().unwrap_or_else(Instant::now);
                let asked = std::mem::take(&mut aside.asked);
                return Poll::Ready(Done { asked, begun, answer });
            }
            Poll::Pending
        })
        .await
    }
}

async fn exchange(
    shared: &Shared,
    connection: &mut Connection,
    versions: std::ops::RangeInclusive<i16>,
    request: &FetchRequest,
) -> Result<(i16, Bytes)> {
    let patience = shared.patience();
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let mut suspect_at = Instant::now().later(wait).later(patience);
    let encode = |version, writer: &mut _| request.encode(version, writer);
    let mut exchange = std::pin::pin!(connection.request_hot(ApiKey::FETCH, versions, encode));
    loop {
        tokio::select! {
            biased;
            answer = &mut exchange => return answer,
            // An unresponsive broker reports no leader change, so the other brokers are asked.
            () = sleep_until(suspect_at) => {
                shared.metadata.request_refresh(None);
                suspect_at = suspect_at.later(patience);
            }
        }
    }
}
