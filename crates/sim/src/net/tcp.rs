//! Connections: two ends, each with what has arrived there.

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::{Buf, Bytes};
use parking_lot::Mutex;
use tokio::{
    io::ReadBuf,
    sync::{Notify, oneshot},
    time::{Instant, sleep},
};

use super::{
    Fabric,
    post::{Post, What},
};

/// Messages in flight to one end, and not read there, before the other one has to wait.
const WINDOW: usize = 1024;

/// How long a lost first message of a connection takes to be sent again.
const RETRANSMIT: Duration = Duration::from_secs(1);

/// What arrives at an end.
pub(super) enum Message {
    Data(Bytes),
    /// The peer has closed.
    Fin,
}

/// One end of a connection.
pub(super) struct End {
    local: SocketAddr,
    peer: SocketAddr,
    state: Mutex<State>,
}

struct State {
    arrived: VecDeque<Bytes>,
    /// Messages sent to this end and not read.
    unread: usize,
    /// When the last of them arrives.
    last: Instant,
    /// The peer's last message has arrived.
    closed: bool,
    /// A message was lost: later ones are not delivered.
    stalled: bool,
    /// The link was silent for too long.
    broken: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl End {
    fn new(local: SocketAddr, peer: SocketAddr) -> Arc<Self> {
        let state = State {
            arrived: VecDeque::new(),
            unread: 0,
            last: Instant::now(),
            closed: false,
            stalled: false,
            broken: false,
            reader: None,
            writer: None,
        };
        Arc::new(Self { local, peer, state: Mutex::new(state) })
    }

    pub(super) fn local(&self) -> SocketAddr {
        self.local
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The arrival of the next message, which does not overtake earlier ones.
    pub(super) fn in_order(&self, at: Instant) -> Instant {
        let mut state = self.state.lock();
        state.last = state.last.max(at);
        state.last
    }

    pub(super) fn arrive(&self, message: Message) {
        let mut state = self.state.lock();
        if state.stalled {
            return;
        }
        let writer = match message {
            Message::Data(bytes) => {
                state.arrived.push_back(bytes);
                None
            }
            Message::Fin => {
                state.closed = true;
                state.writer.take()
            }
        };
        let reader = state.reader.take();
        drop(state);
        wake([reader, writer]);
    }

    /// A message to this end was lost.
    pub(super) fn stall(&self) {
        self.state.lock().stalled = true;
    }

    /// The link was silent for too long.
    pub(super) fn fail(&self) {
        let mut state = self.state.lock();
        state.broken = true;
        let waiting = [state.reader.take(), state.writer.take()];
        drop(state);
        wake(waiting);
    }

    pub(super) fn is_broken(&self) -> bool {
        self.state.lock().broken
    }

    fn has_room(&self) -> bool {
        self.state.lock().unread < WINDOW
    }
}

fn wake(waiting: [Option<Waker>; 2]) {
    waiting.into_iter().flatten().for_each(Waker::wake);
}

/// A connection as one of its ends sees it. Closes when it is dropped.
pub(super) struct Connection {
    fabric: Fabric,
    here: Arc<End>,
    there: Arc<End>,
}

impl Connection {
    pub(super) fn end(&self) -> &Arc<End> {
        &self.here
    }

    /// Sends bytes, or refuses them while the peer has too much that is unread.
    pub(super) fn write(&self, bytes: Bytes) -> io::Result<()> {
        if self.here.state.lock().closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        {
            let mut there = self.there.state.lock();
            if there.unread >= WINDOW {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            there.unread += 1;
        }
        self.send(Message::Data(bytes));
        Ok(())
    }

    /// Fails this end. The peer receives the bytes sent before, then the end of the connection.
    pub(super) fn reset(&self) {
        self.here.fail();
        self.send(Message::Fin);
    }

    fn send(&self, message: Message) {
        let (from, to) = (self.here.local.ip(), self.here.peer.ip());
        let what = What::Segment(Arc::clone(&self.there), message);
        self.fabric.post().send(from, to, what);
    }

    /// Ready when a write may make progress, or fails.
    pub(super) fn poll_write_ready(&self, cx: &Context<'_>) -> Poll<()> {
        let mut here = self.here.state.lock();
        if here.broken || here.closed || self.there.has_room() {
            return Poll::Ready(());
        }
        here.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Reads what has arrived; nothing if the peer has closed.
    pub(super) fn poll_read(&self, cx: &Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<()> {
        let mut here = self.here.state.lock();
        let Some(first) = here.arrived.front_mut() else {
            if here.closed || here.broken {
                return Poll::Ready(());
            }
            here.reader = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let part = first.len().min(buf.remaining());
        buf.put_slice(&first[..part]);
        first.advance(part);
        let is_read = first.is_empty();
        if is_read {
            here.arrived.pop_front();
            here.unread -= 1;
        }
        drop(here);
        if is_read {
            let writer = self.there.state.lock().writer.take();
            wake([writer, None]);
        }
        Poll::Ready(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.fabric.is_over() && !self.here.is_broken() {
            self.send(Message::Fin);
        }
    }
}

/// Connections that no task has accepted.
#[derive(Default)]
pub(super) struct Backlog {
    waiting: Mutex<VecDeque<Connection>>,
    came: Notify,
}

impl Backlog {
    /// The next connection.
    ///
    /// # Cancel safety
    /// Cancel safe. One waiter at a time.
    pub(super) async fn next(&self) -> Connection {
        loop {
            let first = self.waiting.lock().pop_front();
            if let Some(connection) = first {
                return connection;
            }
            self.came.notified().await;
        }
    }
}

type Connected = io::Result<Connection>;

/// The first message of a connection.
pub(super) struct Syn {
    fabric: Fabric,
    from: SocketAddr,
    to: SocketAddr,
    reply: oneshot::Sender<Connected>,
}

/// The response to a [`Syn`].
pub(super) struct SynAck {
    connected: Connected,
    reply: oneshot::Sender<Connected>,
}

impl Syn {
    pub(super) fn arrive(self, post: &Post) {
        if self.reply.is_closed() {
            return;
        }
        let connected = match post.backlog(self.to) {
            None => Err(io::ErrorKind::ConnectionRefused.into()),
            Some(backlog) => {
                let (ours, theirs) = (End::new(self.from, self.to), End::new(self.to, self.from));
                [&ours, &theirs].into_iter().for_each(|end| post.add_end(end));
                let connect = |here: &Arc<End>, there: &Arc<End>| Connection {
                    fabric: self.fabric.clone(),
                    here: Arc::clone(here),
                    there: Arc::clone(there),
                };
                let accepted = connect(&theirs, &ours);
                backlog.waiting.lock().push_back(accepted);
                backlog.came.notify_one();
                Ok(connect(&ours, &theirs))
            }
        };
        let ack = SynAck { connected, reply: self.reply };
        post.send(self.to.ip(), self.from.ip(), What::SynAck(ack));
    }
}

impl SynAck {
    pub(super) fn arrive(self) {
        // A connection that no task waits for closes.
        let _ = self.reply.send(self.connected);
    }
}

/// Connects from a host to an address.
///
/// # Cancel safety
/// Cancel safe: a connection that no task waits for closes.
pub(super) async fn connect(fabric: &Fabric, from: SocketAddr, to: SocketAddr) -> Connected {
    loop {
        let (reply, connected) = oneshot::channel();
        let syn = Syn { fabric: fabric.clone(), from, to, reply };
        fabric.post().send(from.ip(), to.ip(), What::Syn(syn));
        match connected.await {
            Ok(connected) => return connected,
            // The message or its response was lost.
            Err(_) => sleep(RETRANSMIT).await,
        }
    }
}
