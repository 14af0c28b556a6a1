//! Renewal of a lane's SASL session in place (KIP-368), between two requests.
//!
//! The broker responds in order, so requests written before the renewal have their responses first. No request is
//! written until it ends. It takes two or three round trips and loses no connection. The application provides its
//! token before the renewal begins, so a slow token source delays no request.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use curtail_net::{Socket, SocketExt as _};
use curtail_proto::sasl::Credentials;
use curtail_wire::header;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};

use crate::{
    Result,
    conn::{Session, connection_error, protocol_error, socket_error, unanswered},
    security::sasl::{Carrier, RenewAt},
};

/// The renewals of one connection.
pub(super) struct Renewal {
    session: Session,
    socket: Arc<dyn Socket>,
    peer: Arc<str>,
    limit: Duration,
    phase: Phase,
}

enum Phase {
    Rest,
    /// The credentials are being fetched.
    Preparing(Pin<Box<dyn Future<Output = Result<Credentials>> + Send>>),
    /// The credentials are ready; the connection must be held.
    Prepared(Credentials),
    Running {
        outcome: Pin<Box<dyn Future<Output = Result<RenewAt>> + Send>>,
        answers: mpsc::UnboundedSender<Bytes>,
    },
}

impl Renewal {
    pub(super) fn new(
        session: Session,
        socket: Arc<dyn Socket>,
        peer: Arc<str>,
        limit: Duration,
    ) -> Self {
        Self { session, socket, peer, limit, phase: Phase::Rest }
    }

    /// Time of the next renewal, unless it has begun.
    pub(super) fn at(&self) -> Option<Instant> {
        self.session.renew_at.filter(|_| matches!(self.phase, Phase::Rest))
    }

    /// Ready when a renewal is due and has its credentials. The caller must hold the connection and call
    /// [`Self::begin`].
    pub(super) fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if self.at().is_some_and(|at| at <= Instant::now()) {
            let authenticator = self.session.authenticator.clone();
            let credentials = async move { authenticator.credentials().await };
            self.phase = Phase::Preparing(Box::pin(credentials));
        }
        if let Phase::Preparing(credentials) = &mut self.phase {
            self.phase = Phase::Prepared(ready!(credentials.as_mut().poll(cx))?);
        }
        match &self.phase {
            Phase::Prepared(_) => Poll::Ready(Ok(())),
            _ => Poll::Pending,
        }
    }

    /// Begins the prepared renewal. From here on no other task may write to the socket.
    pub(super) fn begin(&mut self) {
        let credentials = match std::mem::replace(&mut self.phase, Phase::Rest) {
            Phase::Prepared(credentials) => credentials,
            other => {
                self.phase = other;
                return;
            }
        };
        let (answers, receiver) = mpsc::unbounded_channel();
        let mut carrier = SharedSocket {
            socket: self.socket.clone(),
            answers: receiver,
            peer: self.peer.clone(),
            limit: self.limit,
            next_correlation_id: 0,
        };
        let authenticator = self.session.authenticator.clone();
        let outcome =
            Box::pin(async move { authenticator.run_with(&mut carrier, &credentials).await });
        self.phase = Phase::Running { outcome, answers };
    }

    /// Receives a response that belongs to no other request.
    pub(super) fn answered(&self, frame: &Bytes) {
        if let Phase::Running { answers, .. } = &self.phase {
            // A response without a receiver can be dropped.
            let _ = answers.send(frame.clone());
        }
    }

    /// Ready when the renewal has ended. Pending while none is in progress.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let Phase::Running { outcome, .. } = &mut self.phase else { return Poll::Pending };
        let renewed = ready!(outcome.as_mut().poll(cx));
        self.phase = Phase::Rest;
        self.session.renew_at = renewed?;
        Poll::Ready(Ok(()))
    }
}

/// The lane's socket for writing, and the responses that the lane has read.
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
            written.map_err(|error| socket_error(&self.peer, error))?;
            let closed = || connection_error(&self.peer, "closed by the broker");
            self.answers.recv().await.ok_or_else(closed)
        };
        let answer = match timeout(self.limit, exchange).await {
            Ok(answer) => answer?,
            Err(_) => return Err(unanswered(&self.peer, self.limit)),
        };
        match header::correlation_id(&answer) {
            Ok(id) if id == correlation_id => Ok(answer),
            _ => {
                Err(protocol_error(&self.peer, "the response matches no re-authentication request"))
            }
        }
    }

    fn next_correlation_id(&mut self) -> i32 {
        self.next_correlation_id += 1;
        self.next_correlation_id
    }
}
