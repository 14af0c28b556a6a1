//! The connections for sessionless fetches, opened on first use ([`Purpose`]).

use std::{future::Future, pin::Pin, sync::Arc, task::Poll};

use bytes::Bytes;
use curtail_proto::fetcher::Purpose;
use curtail_wire::{ApiKey, fetch::FetchRequest};
use tokio::time::Instant;

use crate::{Result, conn::Connection, consumer::shared::Shared};

type Exchange = Pin<Box<dyn Future<Output = Result<(Connection, i16, Bytes)>> + Send>>;

/// A connection for sessionless fetches.
#[expect(clippy::large_enum_variant, reason = "there are two for each broker")]
#[derive(Default)]
enum Aside {
    #[default]
    Closed,
    Idle(Connection),
    /// A fetch is in flight since this time.
    Running(Exchange, Instant),
}

/// Both connections.
#[derive(Default)]
pub(super) struct Asides {
    known: Aside,
    coming: Aside,
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
        let idle = match std::mem::take(aside) {
            Aside::Idle(connection) => Some(connection),
            Aside::Closed | Aside::Running(..) => None,
        };
        let exchange = async move {
            let mut connection = match idle {
                Some(connection) => connection,
                None => shared.connect(node).await?,
            };
            let encode = |version, writer: &mut _| request.encode(version, writer);
            let (version, frame) = connection.request_hot(ApiKey::FETCH, versions, encode).await?;
            Ok((connection, version, frame))
        };
        *aside = Aside::Running(Box::pin(exchange), Instant::now());
    }

    /// Returns the next finished fetch. Pending while none is in flight.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn done(&mut self) -> Done {
        std::future::poll_fn(|cx| {
            let both = [(Purpose::Known, &mut self.known), (Purpose::Coming, &mut self.coming)];
            for (purpose, aside) in both {
                let Aside::Running(running, begun) = aside else { continue };
                let Poll::Ready(result) = running.as_mut().poll(cx) else { continue };
                let begun = *begun;
                *aside = Aside::Closed;
                let answer = result.map(|(connection, version, frame)| {
                    *aside = Aside::Idle(connection);
                    (version, frame)
                });
                return Poll::Ready(Done { purpose, begun, answer });
            }
            Poll::Pending
        })
        .await
    }
}
