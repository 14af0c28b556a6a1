//! The connections for sessionless fetches, opened on first use ([`Purpose`]).

use std::{future::Future, pin::Pin, sync::Arc, task::Poll};

use bytes::Bytes;
use curtail_proto::fetcher::Purpose;
use curtail_wire::{ApiKey, fetch::FetchRequest};
use tokio::time::Instant;

use crate::{
    Result,
    conn::{Connection, Idle},
    consumer::shared::Shared,
    runtime::Runtime,
};

type Exchange = Pin<Box<dyn Future<Output = Result<(Connection, i16, Bytes)>> + Send>>;

/// A fetch in flight since this time.
type Running = Option<(Exchange, Instant)>;

/// Both connections.
pub(super) struct Asides {
    known: Running,
    coming: Running,
    /// Those without a fetch in flight. The key is whether the purpose is [`Purpose::Known`].
    idle: Idle<bool>,
}

/// A fetch that has succeeded or failed.
pub(super) struct Done {
    pub(super) purpose: Purpose,
    /// Start of the exchange.
    pub(super) begun: Instant,
    /// Version and body of the response.
    pub(super) answer: Result<(i16, Bytes)>,
}

impl Asides {
    pub(super) fn new(runtime: &Runtime) -> Self {
        Self { known: None, coming: None, idle: Idle::new(runtime) }
    }

    /// Closes both connections. Abandons fetches in flight.
    pub(super) fn close(&mut self) {
        (self.known, self.coming) = (None, None);
        self.idle.clear();
    }

    /// Sends a fetch. A fetch in flight for the same purpose is abandoned with its connection. `versions` are
    /// those whose topic naming (by name or id) matches the request.
    pub(super) fn start(
        &mut self,
        purpose: Purpose,
        shared: Arc<Shared>,
        node: i32,
        versions: std::ops::RangeInclusive<i16>,
        request: FetchRequest,
    ) {
        let aside = match purpose {
            Purpose::Known => &mut self.known,
            Purpose::Coming => &mut self.coming,
        };
        *aside = None;
        let idle = self.idle.take(&(purpose == Purpose::Known));
        let exchange = async move {
            let mut connection = match idle {
                Some(connection) => connection,
                None => shared.connect(node).await?,
            };
            let encode = |version, writer: &mut _| request.encode(version, writer);
            let (version, frame) = connection.request_hot(ApiKey::FETCH, versions, encode).await?;
            Ok((connection, version, frame))
        };
        *aside = Some((Box::pin(exchange), Instant::now()));
    }

    /// Returns the next finished fetch. Pending while none is in flight.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn done(&mut self) -> Done {
        std::future::poll_fn(|cx| {
            let both = [(Purpose::Known, &mut self.known), (Purpose::Coming, &mut self.coming)];
            for (purpose, aside) in both {
                let Some((running, begun)) = aside else { continue };
                let Poll::Ready(result) = running.as_mut().poll(cx) else { continue };
                let begun = *begun;
                *aside = None;
                let answer = result.map(|(connection, version, frame)| {
                    self.idle.put(purpose == Purpose::Known, connection);
                    (version, frame)
                });
                return Poll::Ready(Done { purpose, begun, answer });
            }
            Poll::Pending
        })
        .await
    }
}
