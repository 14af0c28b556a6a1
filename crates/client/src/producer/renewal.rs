//! Renewing a lane's SASL session in place (KIP-368), between two of its requests.
//!
//! The broker answers in order: what was written before the renewal is answered before it, and nothing is written until it
//! is over. That takes two or three round trips, without a connection being lost.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use curtail_net::{Socket, SocketExt as _};
use curtail_wire::header;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};

use crate::{
    Result,
    conn::{Session, connection_error, protocol_error, unanswered},
    security::sasl::{Carrier, RenewAt},
};

/// The renewals of one connection.
pub(super) struct Renewal {
    session: Session,
    socket: Arc<dyn Socket>,
    peer: Arc<str>,
    limit: Duration,
    running: Option<Running>,
}

struct Running {
    outcome: Pin<Box<dyn Future<Output = Result<RenewAt>> + Send>>,
    answers: mpsc::UnboundedSender<Bytes>,
}

impl Renewal {
    pub(super) fn new(
        session: Session,
        socket: Arc<dyn Socket>,
        peer: Arc<str>,
        limit: Duration,
    ) -> Self {
        Self { session, socket, peer, limit, running: None }
    }

    /// When the session is to be renewed.
    pub(super) fn at(&self) -> Option<Instant> {
        self.session.renew_at
    }

    /// Whether it is time, and nothing has been done about it yet.
    pub(super) fn is_due(&self) -> bool {
        self.running.is_none() && self.at().is_some_and(|at| at <= Instant::now())
    }

    /// Begins. From here on nothing else is written to the socket.
    pub(super) fn begin(&mut self) {
        let (answers, receiver) = mpsc::unbounded_channel();
        let mut carrier = SharedSocket {
            socket: self.socket.clone(),
            answers: receiver,
            peer: self.peer.clone(),
            limit: self.limit,
            next_correlation_id: 0,
        };
        let authenticator = self.session.authenticator.clone();
        let outcome = Box::pin(async move { authenticator.run(&mut carrier).await });
        self.running = Some(Running { outcome, answers });
    }

    /// Takes an answer that is no other request's.
    pub(super) fn answered(&self, frame: &Bytes) {
        if let Some(running) = &self.running {
            // One that nobody waits for any more is of no use.
            let _ = running.answers.send(frame.clone());
        }
    }

    /// Ready when it is over. Pending while nothing is under way.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let Some(running) = &mut self.running else { return Poll::Pending };
        let renewed = ready!(running.outcome.as_mut().poll(cx));
        self.running = None;
        self.session.renew_at = renewed?;
        Poll::Ready(Ok(()))
    }
}

/// The lane's socket for writing, and what the lane has read.
struct SharedSocket {
    socket: Arc<dyn Socket>,
    answers: mpsc::UnboundedReceiver<Bytes>,
    peer: Arc<str>,
    limit: Duration,
    next_correlation_id: i32,
}

impl Carrier for SharedSocket {
    async fn exchange(&mut self, frame: &[u8], correlation_id: i32) -> Result<Bytes> {
        let exchange = async {
            let written = self.socket.write_all(frame).await;
            written.map_err(|error| connection_error(&self.peer, error))?;
            let closed = || connection_error(&self.peer, "closed by the broker");
            self.answers.recv().await.ok_or_else(closed)
        };
        let answer = match timeout(self.limit, exchange).await {
            Ok(answer) => answer?,
            Err(_) => return Err(unanswered(&self.peer, self.limit)),
        };
        match header::correlation_id(&answer) {
            Ok(id) if id == correlation_id => Ok(answer),
            _ => Err(protocol_error(&self.peer, "an answer to none of the renewal's requests")),
        }
    }

    fn next_correlation_id(&mut self) -> i32 {
        self.next_correlation_id += 1;
        self.next_correlation_id
    }
}
