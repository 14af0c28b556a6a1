//! Connections between brokers, which faults cut.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::poll_fn,
    io::{self, IoSlice},
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

use curtail_net::Socket;
use parking_lot::Mutex;
use tokio::io::ReadBuf;

/// Which brokers are disconnected from each other.
#[derive(Default)]
pub(crate) struct Links {
    any: AtomicBool,
    next: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Pairs with the smaller id first.
    cut: BTreeSet<(i32, i32)>,
    /// Tasks that wait for a link, by the id of the waiting direction.
    waiting: BTreeMap<u64, Waker>,
}

/// The link between two brokers, as one direction of one connection uses it.
struct Link {
    links: Arc<Links>,
    pair: (i32, i32),
    id: u64,
}

impl Links {
    /// Replaces the cut links.
    pub(super) fn set(&self, cut: BTreeSet<(i32, i32)>) {
        let mut state = self.state.lock();
        self.any.store(!cut.is_empty(), Ordering::SeqCst);
        state.cut = cut;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        // Those whose link is still cut wait again.
        waiting.into_values().for_each(Waker::wake);
    }

    fn link(self: &Arc<Self>, pair: (i32, i32)) -> Link {
        Link { links: Arc::clone(self), pair, id: self.next.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Link {
    fn is_cut(&self) -> bool {
        self.links.any.load(Ordering::Relaxed) && self.links.state.lock().cut.contains(&self.pair)
    }

    /// Ready while the link is not cut.
    fn poll_open(&self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.links.any.load(Ordering::Relaxed) {
            return Poll::Ready(());
        }
        let mut state = self.links.state.lock();
        if !state.cut.contains(&self.pair) {
            return Poll::Ready(());
        }
        state.waiting.insert(self.id, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.links.state.lock().waiting.remove(&self.id);
    }
}

/// The pair of two brokers.
pub(super) fn pair(one: i32, other: i32) -> (i32, i32) {
    (one.min(other), one.max(other))
}

/// Connects one broker to another, once the link between them is not cut. The connection stalls
/// while it is.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn cuttable(
    links: &Arc<Links>,
    between: [i32; 2],
    connect: impl Future<Output = io::Result<Box<dyn Socket>>>,
) -> io::Result<Box<dyn Socket>> {
    let pair = pair(between[0], between[1]);
    let reads = links.link(pair);
    poll_fn(|cx| reads.poll_open(cx)).await;
    let socket = connect.await?;
    let writes = links.link(pair);
    Ok(Box::new(Cuttable { socket, reads, writes }))
}

/// A socket between two brokers.
struct Cuttable {
    socket: Box<dyn Socket>,
    reads: Link,
    writes: Link,
}

impl Socket for Cuttable {
    fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.writes.is_cut() {
            true => Err(io::ErrorKind::WouldBlock.into()),
            false => self.socket.try_write_vectored(bufs),
        }
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.writes.poll_open(cx) {
            Poll::Ready(()) => self.socket.poll_write_ready(cx),
            Poll::Pending => Poll::Pending,
        }
    }

    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.reads.poll_open(cx) {
            Poll::Ready(()) => self.socket.poll_read(cx, buf),
            Poll::Pending => Poll::Pending,
        }
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }
}
