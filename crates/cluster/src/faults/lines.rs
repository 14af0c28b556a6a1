//! Connections to a broker, which faults slow down or cut.
//!
//! A broker wraps each connection that it accepts in a [`Line`], below TLS. Faults are read at every
//! operation, so that they concern open connections, too. The client id is that of the last request;
//! before the first one, a connection has no faults.
//!
//! # Locks
//! `Line::reading` or `Line::writing`, then `Line::client_id`, then `Lines::state`.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    future::poll_fn,
    io::{self, IoSlice},
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::{Buf, Bytes, BytesMut};
use curtail_net::Socket;
use parking_lot::Mutex;
use tokio::{
    io::ReadBuf,
    time::{Instant, Sleep, sleep_until},
};

use super::{Fault, Sender, rules::Peer};

/// The faults of connections.
#[derive(Default)]
pub(crate) struct Lines {
    /// Whether there is one. Without one, an operation costs a relaxed load.
    any: AtomicBool,
    next: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Oldest first.
    faults: Vec<Fault>,
    /// Tasks that wait for a line, by the id of the waiting direction.
    waiting: BTreeMap<u64, Waker>,
}

/// A direction of a connection, seen from the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    In,
    Out,
}

/// The effect of the faults on one direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Open,
    /// At most this many bytes per second.
    Limited(u64),
    /// No bytes arrive.
    Cut,
}

impl Lines {
    /// Replaces the faults, oldest first.
    pub(super) fn set(&self, faults: Vec<Fault>) {
        let mut state = self.state.lock();
        self.any.store(!faults.is_empty(), Ordering::SeqCst);
        state.faults = faults;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        // Tasks whose line still has a fault wait again.
        waiting.into_values().for_each(Waker::wake);
    }

    /// Begins a line. Its socket is [`LineSocket`].
    pub(crate) fn line(self: &Arc<Self>, broker: i32) -> Arc<Line> {
        // One id per direction.
        let id = self.next.fetch_add(2, Ordering::Relaxed);
        Arc::new(Line {
            lines: Arc::clone(self),
            broker,
            id,
            client_id: Mutex::default(),
            touched: AtomicBool::new(false),
            reading: Mutex::default(),
            writing: Mutex::default(),
        })
    }
}

/// Returns the effect of faults, oldest first, on one direction of a connection. Of several
/// throttles the newest applies.
pub(super) fn flow(faults: &[Fault], peer: &Peer<'_>, way: Way) -> Flow {
    let cuts = |fault: &Fault| match fault {
        Fault::CutClients(cut) => {
            cut.direction.has(way)
                && peer.is(Sender::Clients)
                && peer.is_of(cut.broker, cut.client_id.as_deref())
        }
        _ => false,
    };
    if faults.iter().any(cuts) {
        return Flow::Cut;
    }
    let newest = faults.iter().rev().find_map(|fault| match fault {
        Fault::Throttle(throttle)
            if throttle.direction.has(way)
                && peer.is(throttle.from)
                && peer.is_of(throttle.broker, throttle.client_id.as_deref()) =>
        {
            Some(throttle.bytes_per_second)
        }
        _ => None,
    });
    newest.map_or(Flow::Open, Flow::Limited)
}

/// One connection as faults see it.
pub(crate) struct Line {
    lines: Arc<Lines>,
    broker: i32,
    /// Of the incoming direction; the outgoing one has the next.
    id: u64,
    client_id: Mutex<Option<String>>,
    /// Whether faults have concerned it, so that bytes may be held.
    touched: AtomicBool,
    reading: Mutex<Reading>,
    writing: Mutex<Writing>,
}

/// Bytes that have arrived at the machine and travel to the broker.
#[derive(Default)]
struct Reading {
    held: Bytes,
    pace: Pace,
}

#[derive(Default)]
struct Writing {
    /// Bytes written during a cut. As with lost packets, the broker does not notice until the
    /// buffer is full.
    held: BytesMut,
    /// Bytes that may be written at the time of the pace.
    granted: usize,
    pace: Pace,
}

impl Line {
    /// Sets the client id, which decides about the faults of the connection.
    pub(crate) fn identify(&self, client_id: &str) {
        let mut known = self.client_id.lock();
        if known.as_deref() != Some(client_id) {
            *known = Some(client_id.to_owned());
        }
    }

    /// Waits until the request that was read last may be handled. During a cut of the incoming
    /// direction it has not arrived.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn arrived(&self) {
        poll_fn(|cx| match self.flow(Way::In, Some(cx)) {
            Flow::Cut => Poll::Pending,
            Flow::Open | Flow::Limited(_) => Poll::Ready(()),
        })
        .await;
    }

    /// Returns the effect of the faults now. Unless it is open, a change of the faults wakes the
    /// task of `watching`.
    fn flow(&self, way: Way, watching: Option<&Context<'_>>) -> Flow {
        if !self.lines.any.load(Ordering::Relaxed) {
            return Flow::Open;
        }
        let client_id = self.client_id.lock();
        let Some(client_id) = client_id.as_deref() else { return Flow::Open };
        let peer = Peer { broker: self.broker, client_id };
        let mut state = self.lines.state.lock();
        let flow = flow(&state.faults, &peer, way);
        if let Some(cx) = watching.filter(|_| flow != Flow::Open) {
            let id = self.id + u64::from(way == Way::Out);
            state.waiting.insert(id, cx.waker().clone());
        }
        flow
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let waiting = &mut self.lines.state.lock().waiting;
        waiting.remove(&self.id);
        waiting.remove(&(self.id + 1));
    }
}

/// The socket of a line.
pub(crate) struct LineSocket {
    pub(crate) socket: Box<dyn Socket>,
    pub(crate) line: Arc<Line>,
}

/// Bytes that a cut connection takes before writes wait, like a send buffer of TCP.
const SEND_BUFFER: usize = 1 << 20;

impl LineSocket {
    /// Writes what was held during a cut. Pending while it lasts.
    fn poll_flush(&self, writing: &mut Writing, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !writing.held.is_empty() {
            if self.line.flow(Way::Out, Some(cx)) == Flow::Cut {
                return Poll::Pending;
            }
            match self.flush(writing) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.socket.poll_write_ready(cx))?;
                }
                done => return Poll::Ready(done),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn flush(&self, writing: &mut Writing) -> io::Result<()> {
        while !writing.held.is_empty() {
            match self.socket.try_write_vectored(&[IoSlice::new(&writing.held)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => writing.held.advance(written),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn hold(&self, writing: &mut Writing, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let room = SEND_BUFFER - writing.held.len().min(SEND_BUFFER);
        if room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let before = writing.held.len();
        first(bufs, room).iter().for_each(|part| writing.held.extend_from_slice(part));
        Ok(writing.held.len() - before)
    }

    fn write_paced(
        &self,
        writing: &mut Writing,
        bufs: &[IoSlice<'_>],
        rate: u64,
    ) -> io::Result<usize> {
        let now = Instant::now();
        if writing.granted == 0 {
            let bytes = bufs.iter().map(|part| part.len()).sum::<usize>().min(portion(rate));
            writing.granted = bytes;
            writing.pace.take(bytes, rate, now);
        }
        if writing.pace.free_at.is_some_and(|free_at| free_at > now) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let written = self.socket.try_write_vectored(&first(bufs, writing.granted))?;
        writing.granted -= written;
        Ok(written)
    }

    fn poll_read_paced(
        &self,
        reading: &mut Reading,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
        rate: u64,
    ) -> Poll<io::Result<()>> {
        if reading.held.is_empty() {
            let mut room = vec![0; portion(rate).min(buf.remaining())];
            let mut part = ReadBuf::new(&mut room);
            ready!(self.socket.poll_read(cx, &mut part))?;
            let bytes = part.filled().len();
            if bytes == 0 {
                return Poll::Ready(Ok(()));
            }
            reading.pace.take(bytes, rate, Instant::now());
            room.truncate(bytes);
            reading.held = room.into();
        }
        ready!(reading.pace.poll(cx));
        reading.deliver(buf);
        Poll::Ready(Ok(()))
    }
}

impl Reading {
    fn deliver(&mut self, buf: &mut ReadBuf<'_>) {
        let arrived = self.held.len().min(buf.remaining());
        buf.put_slice(&self.held[..arrived]);
        self.held.advance(arrived);
    }
}

impl Socket for LineSocket {
    fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let flow = self.line.flow(Way::Out, None);
        if flow == Flow::Open && !self.line.touched.load(Ordering::Relaxed) {
            return self.socket.try_write_vectored(bufs);
        }
        self.line.touched.store(true, Ordering::Relaxed);
        let mut writing = self.line.writing.lock();
        if flow == Flow::Cut {
            return self.hold(&mut writing, bufs);
        }
        self.flush(&mut writing)?;
        match flow {
            Flow::Limited(rate) => self.write_paced(&mut writing, bufs, rate),
            Flow::Open | Flow::Cut => self.socket.try_write_vectored(bufs),
        }
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flow = self.line.flow(Way::Out, Some(cx));
        if flow == Flow::Open && !self.line.touched.load(Ordering::Relaxed) {
            return self.socket.poll_write_ready(cx);
        }
        let mut writing = self.line.writing.lock();
        if flow == Flow::Cut && writing.held.len() < SEND_BUFFER {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_flush(&mut writing, cx))?;
        if flow != Flow::Open {
            ready!(writing.pace.poll(cx));
        }
        self.socket.poll_write_ready(cx)
    }

    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let flow = self.line.flow(Way::In, Some(cx));
        if flow == Flow::Open && !self.line.touched.load(Ordering::Relaxed) {
            return self.socket.poll_read(cx, buf);
        }
        self.line.touched.store(true, Ordering::Relaxed);
        // The task that reads is the one that writes: what a cut has held leaves while it waits.
        let mut writing = self.line.writing.lock();
        let flushed = self.poll_flush(&mut writing, cx)?;
        drop(writing);
        let mut reading = self.line.reading.lock();
        match flow {
            Flow::Cut => Poll::Pending,
            Flow::Limited(rate) => self.poll_read_paced(&mut reading, cx, buf, rate),
            Flow::Open if reading.held.is_empty() => {
                if flushed.is_ready() {
                    self.line.touched.store(false, Ordering::Relaxed);
                }
                self.socket.poll_read(cx, buf)
            }
            Flow::Open => {
                reading.deliver(buf);
                Poll::Ready(Ok(()))
            }
        }
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }
}

/// The first bytes of the parts.
fn first<'a>(bufs: &'a [IoSlice<'_>], bytes: usize) -> Vec<IoSlice<'a>> {
    let mut left = bytes;
    let mut taken = Vec::with_capacity(bufs.len());
    for part in bufs {
        let len = part.len().min(left);
        taken.push(IoSlice::new(&part[..len]));
        left -= len;
        if left == 0 {
            break;
        }
    }
    taken
}

/// Time that one portion of bytes takes. Shorter ones would need a finer clock than tokio's.
const PORTION: Duration = Duration::from_millis(20);
/// Maximum bytes of a portion.
const MAX_PORTION: usize = 16 * 1024;

/// Returns the bytes that travel together at a rate: one, or as many as take [`PORTION`].
fn portion(rate: u64) -> usize {
    let bytes = rate / (1000 / PORTION.as_millis() as u64);
    usize::try_from(bytes).unwrap_or(MAX_PORTION).clamp(1, MAX_PORTION)
}

/// The time at which the bytes so far have passed.
#[derive(Default)]
struct Pace {
    free_at: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Pace {
    /// Adds bytes. They begin after the previous ones, also if a timer was a little late: otherwise
    /// each portion would lose that time.
    fn take(&mut self, bytes: usize, rate: u64, now: Instant) {
        let recent =
            self.free_at.filter(|free_at| now.saturating_duration_since(*free_at) < PORTION);
        let time = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        self.free_at = recent.unwrap_or(now).checked_add(time);
    }

    /// Ready once the bytes have passed.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(free_at) = self.free_at.filter(|free_at| *free_at > Instant::now()) else {
            return Poll::Ready(());
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(free_at)));
        if timer.deadline() != free_at {
            timer.as_mut().reset(free_at);
        }
        timer.as_mut().poll(cx)
    }
}
