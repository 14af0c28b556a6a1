//! One direction of a connection: bytes in flight, and bytes that have arrived and are unread.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::{Buf, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::ReadBuf;

use super::{
    clock::{Clock, Happening},
    net::{HostId, Links},
};

/// Bytes that travel as one message at most; a write of more takes several.
const MAX_MESSAGE: usize = 1 << 20;

/// One direction of a connection. See the module.
pub(super) struct Pipe {
    from: HostId,
    to: HostId,
    limit: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Written and unread bytes, with their arrival time.
    messages: VecDeque<(u64, Bytes)>,
    bytes: usize,
    last_arrival: u64,
    /// When the reader learns of the end of the stream.
    ended: Option<u64>,
    /// When the writer learns that the reader has closed.
    abandoned: Option<u64>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    /// A pipe that holds about `limit` bytes.
    pub(super) fn new(from: HostId, to: HostId, limit: usize) -> Arc<Self> {
        Arc::new(Self { from, to, limit, state: Mutex::default() })
    }

    /// Writes as many bytes as fit.
    pub(super) fn write(
        self: &Arc<Self>,
        bufs: &[IoSlice<'_>],
        clock: &Clock,
        links: &Links,
    ) -> io::Result<usize> {
        let mut state = self.state.lock();
        if state.abandoned.is_some_and(|at| at <= clock.now()) {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        let total: usize = bufs.iter().map(|buf| buf.len()).sum();
        let room = self.limit.saturating_sub(state.bytes).min(MAX_MESSAGE);
        let taken = total.min(room);
        if taken == 0 {
            return if total == 0 { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
        }
        let mut message = BytesMut::with_capacity(taken);
        for buf in bufs {
            let part = buf.len().min(taken - message.len());
            message.extend_from_slice(&buf[..part]);
        }
        // Bytes do not overtake each other.
        let arrival = links.carry(self.from, self.to, taken).max(state.last_arrival);
        state.last_arrival = arrival;
        state.bytes += taken;
        state.messages.push_back((arrival, message.freeze()));
        clock.plan(arrival, Happening::Arrival(Arc::clone(self)));
        Ok(taken)
    }

    /// Ready when there is space, or when the reader has closed.
    pub(super) fn poll_room(&self, cx: &Context<'_>, clock: &Clock) -> Poll<io::Result<()>> {
        let mut state = self.state.lock();
        if state.bytes < self.limit || state.abandoned.is_some_and(|at| at <= clock.now()) {
            return Poll::Ready(Ok(()));
        }
        state.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Reads the bytes that have arrived. Reads none at the end of the stream.
    pub(super) fn poll_read(
        &self,
        cx: &Context<'_>,
        buf: &mut ReadBuf<'_>,
        clock: &Clock,
    ) -> Poll<io::Result<()>> {
        let now = clock.now();
        let mut state = self.state.lock();
        let mut read = 0;
        while buf.remaining() > 0 {
            let Some((_, message)) = state.messages.front_mut().filter(|(at, _)| *at <= now) else {
                break;
            };
            let part = message.len().min(buf.remaining());
            buf.put_slice(&message[..part]);
            message.advance(part);
            read += part;
            if message.is_empty() {
                state.messages.pop_front();
            }
        }
        state.bytes -= read;
        if read > 0 {
            let writer = if state.bytes < self.limit { state.writer.take() } else { None };
            drop(state);
            if let Some(writer) = writer {
                writer.wake();
            }
            return Poll::Ready(Ok(()));
        }
        if buf.remaining() == 0 || state.ended.is_some_and(|at| at <= now) {
            return Poll::Ready(Ok(()));
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Ends the stream: the reader learns of it after the last byte.
    pub(super) fn end(self: &Arc<Self>, clock: &Clock, links: &Links) {
        let at = {
            let mut state = self.state.lock();
            let at = links.carry(self.from, self.to, 0).max(state.last_arrival);
            state.ended = Some(at);
            at
        };
        clock.plan(at, Happening::Arrival(Arc::clone(self)));
    }

    /// Closes the reader's end: the writer learns of it after the one-way delay.
    pub(super) fn abandon(self: &Arc<Self>, clock: &Clock, links: &Links) {
        let at = links.carry(self.to, self.from, 0);
        self.state.lock().abandoned = Some(at);
        clock.plan(at, Happening::Arrival(Arc::clone(self)));
    }

    /// Wakes the tasks of an end that something has arrived at.
    pub(super) fn arrived(&self) {
        let (reader, writer) = {
            let mut state = self.state.lock();
            let writer = if state.abandoned.is_some() { state.writer.take() } else { None };
            (state.reader.take(), writer)
        };
        for waker in [reader, writer].into_iter().flatten() {
            waker.wake();
        }
    }
}
