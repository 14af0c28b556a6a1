//! Fetches beside the session.
//!
//! A session's fetch reads every partition of the session. While one of them must not be read on, because its records
//! wait in the buffer, the others are asked for by requests without a session, over connections of their own: the
//! partition stays in the session, the session's slot at the broker stays ours, and nobody waits (decision 0021).
//! There are two such connections, opened when first needed: one for what is known to be there, which is answered at
//! once, and one that waits for what comes.

use std::{collections::BTreeMap, future::Future, pin::Pin, sync::Arc, task::Poll, time::Duration};

use bytes::Bytes;
use curtail_proto::later::Later;
use curtail_wire::{ApiKey, fetch::FetchRequest};
use tokio::time::{Instant, sleep_until};

use super::Reading;
use crate::{Result, TopicPartition, conn::Connection, consumer::shared::Shared};

/// What a request beside the session is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// Records that are known to be there.
    Known,
    /// Records that may come.
    Coming,
}

type Exchange = Pin<Box<dyn Future<Output = Result<(Connection, i16, Bytes)>> + Send>>;

/// A connection beside the session's.
#[derive(Default)]
struct Aside {
    idle: Option<Connection>,
    running: Option<Exchange>,
    asked: BTreeMap<TopicPartition, Reading>,
    begun: Option<Instant>,
}

/// Both of them.
#[derive(Default)]
pub(super) struct Asides {
    known: Aside,
    coming: Aside,
}

/// A request that has been answered, or has failed.
pub(super) struct Done {
    /// What it asked for.
    pub(super) asked: BTreeMap<TopicPartition, Reading>,
    /// When it was begun.
    pub(super) begun: Instant,
    /// Version and body of the answer.
    pub(super) answer: Result<(i16, Bytes)>,
}

impl Asides {
    fn of(&mut self, purpose: Purpose) -> &mut Aside {
        match purpose {
            Purpose::Known => &mut self.known,
            Purpose::Coming => &mut self.coming,
        }
    }

    /// Whether a request for this is under way.
    pub(super) fn is_busy(&self, purpose: Purpose) -> bool {
        match purpose {
            Purpose::Known => self.known.running.is_some(),
            Purpose::Coming => self.coming.running.is_some(),
        }
    }

    /// Whether a request under way asks for the partition just like this.
    pub(super) fn asks(&self, at: &TopicPartition, reading: &Reading) -> bool {
        [&self.known, &self.coming].iter().any(|aside| {
            aside.running.is_some() && aside.asked.get(at).is_some_and(|a| a.from == reading.from)
        })
    }

    /// Gives a request up that is under way, with its connection.
    pub(super) fn give_up_if_busy(&mut self, purpose: Purpose) {
        if self.is_busy(purpose) {
            *self.of(purpose) = Aside::default();
        }
    }

    /// Gives everything up.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Sends a request. `versions` are those that fit how it names topics.
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

    /// The next request that is answered. Pending while none is under way.
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
            // A broker that hangs says nothing. Whether somebody else leads by now is asked of the others.
            () = sleep_until(suspect_at) => {
                shared.metadata.request_refresh(None);
                suspect_at = suspect_at.later(patience);
            }
        }
    }
}
