//! A pair of sockets in memory.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, Waker},
};

use tokio::io::ReadBuf;

use crate::Socket;

/// One direction.
#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    fn close(&mut self) {
        self.closed = true;
        self.wake();
    }

    fn wake(&mut self) {
        let wakers = [self.reader.take(), self.writer.take()];
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

type Shared = Arc<Mutex<Pipe>>;

fn lock(pipe: &Shared) -> MutexGuard<'_, Pipe> {
    pipe.lock().expect("not poisoned")
}

/// Transfers at most `chunk` bytes per call and holds at most `room` in each direction.
pub(super) struct MemorySocket {
    incoming: Shared,
    outgoing: Shared,
    chunk: usize,
    room: usize,
}

/// Cuts the stream that a socket reads, or injects bytes into it.
pub(super) struct Scissors(Shared);

impl Scissors {
    pub(super) fn cut(&self) {
        lock(&self.0).close();
    }

    pub(super) fn inject(&self, bytes: &[u8]) {
        let mut pipe = lock(&self.0);
        pipe.bytes.extend(bytes);
        pipe.wake();
    }
}

impl MemorySocket {
    pub(super) fn pair(chunk: usize, room: usize) -> (Self, Self) {
        let (a, b) = (Shared::default(), Shared::default());
        let left = Self { incoming: a.clone(), outgoing: b.clone(), chunk, room };
        (left, Self { incoming: b, outgoing: a, chunk, room })
    }

    /// Scissors for the direction that this socket reads.
    pub(super) fn scissors(&self) -> Scissors {
        Scissors(self.incoming.clone())
    }
}

impl Drop for MemorySocket {
    fn drop(&mut self) {
        lock(&self.incoming).close();
        lock(&self.outgoing).close();
    }
}

impl Socket for MemorySocket {
    fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut pipe = lock(&self.outgoing);
        if pipe.closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let room = self.chunk.min(self.room - pipe.bytes.len());
        if room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let before = pipe.bytes.len();
        let bytes = bufs.iter().flat_map(|buf| buf.iter().copied()).take(room);
        pipe.bytes.extend(bytes);
        pipe.reader.take().into_iter().for_each(Waker::wake);
        Ok(pipe.bytes.len() - before)
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut pipe = lock(&self.outgoing);
        if pipe.closed || pipe.bytes.len() < self.room {
            return Poll::Ready(Ok(()));
        }
        pipe.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut pipe = lock(&self.incoming);
        if pipe.bytes.is_empty() && !pipe.closed {
            pipe.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let length = pipe.bytes.len().min(buf.remaining()).min(self.chunk);
        let bytes: Vec<u8> = pipe.bytes.drain(..length).collect();
        buf.put_slice(&bytes);
        pipe.writer.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(()))
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok((Ipv4Addr::LOCALHOST, 0).into())
    }
}
