//! Connections and listeners on turmoil's TCP.

use std::{
    future::Future,
    io::{self, IoSlice},
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};

use curtail_net::{BoxFuture, Listener, Socket};
use parking_lot::Mutex;
use tokio::io::{AsyncRead as _, ReadBuf};
use turmoil::net::{TcpListener, TcpStream};

use super::{
    fabric::{Fabric, Life},
    watch::{Client, Watch},
};

/// Bytes that travel as one message at most; a write of more takes several.
const MAX_SEGMENT: usize = 64 * 1024;

/// One end of a connection.
pub(super) struct SimSocket {
    stream: Mutex<TcpStream>,
    life: Arc<Life>,
    fabric: Fabric,
    host: Arc<str>,
    local: SocketAddr,
    peer: SocketAddr,
    /// Of the connections of clients.
    watch: Option<Mutex<Watch>>,
    /// Bytes that may still be written and read before the connection breaks.
    fuse: Mutex<(u64, u64)>,
}

impl Drop for SimSocket {
    fn drop(&mut self) {
        if let Some(watch) = self.watch.as_ref().filter(|_| !self.life.is_broken()) {
            watch.lock().closed(&self.fabric);
        }
    }
}

impl SimSocket {
    pub(super) fn new(
        stream: TcpStream,
        fabric: &Fabric,
        host: &Arc<str>,
        client: Option<&Client>,
    ) -> io::Result<Self> {
        let (local, peer) = (stream.local_addr()?, stream.peer_addr()?);
        Ok(Self {
            stream: Mutex::new(stream),
            life: fabric.join(local.ip(), peer.ip()),
            fabric: fabric.clone(),
            host: host.clone(),
            local,
            peer,
            watch: client.map(|client| {
                let name = fabric.name_of(peer.ip());
                let id = name.strip_prefix("broker-").and_then(|id| id.parse().ok());
                Mutex::new(Watch::new(client.clone(), name, id))
            }),
            fuse: Mutex::new(client.map_or((u64::MAX, u64::MAX), |_| fabric.fuse())),
        })
    }

    /// The connection has carried as much as it may.
    fn reset(&self) -> io::Error {
        self.life.kill();
        self.fabric.trace().event(&self.host, format_args!("reset {}", self.peer));
        io::ErrorKind::ConnectionReset.into()
    }

    fn watch(&self, note: impl FnOnce(&mut Watch)) {
        if let Some(watch) = &self.watch {
            note(&mut watch.lock());
        }
    }

    fn check(&self) -> io::Result<()> {
        if self.life.is_broken() {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "the link was silent for too long",
            ));
        }
        Ok(())
    }
}

impl Socket for SimSocket {
    fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.check()?;
        let total: usize = bufs.iter().map(|buf| buf.len()).sum();
        if total == 0 {
            return Ok(0);
        }
        let left = self.fuse.lock().0;
        if left == 0 {
            return Err(self.reset());
        }
        let limit = self.fabric.write_limit(total).min(MAX_SEGMENT);
        let limit = limit.min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut segment = Vec::with_capacity(limit);
        for buf in bufs {
            let room = limit - segment.len();
            segment.extend_from_slice(&buf[..buf.len().min(room)]);
        }
        let outcome = self.stream.lock().try_write(&segment);
        match &outcome {
            Ok(written) => {
                self.watch(|watch| self.fabric.add_stale(watch.wrote(&segment[..*written])));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.watch(Watch::failed),
        }
        let written = outcome?;
        self.fuse.lock().0 -= written as u64;
        let (local, peer) = (self.local.port(), self.peer);
        self.fabric.trace().write(
            &self.host,
            format_args!("write {local} -> {peer} {written}"),
            &segment[..written],
        );
        Ok(written)
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        // Dropped unready it leaves its waker registered; it keeps nothing else between polls.
        let ready = pin!(self.stream.lock().writable()).poll(cx);
        if ready.is_pending() {
            self.life.wait_write(cx);
        }
        ready
    }

    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        let before = buf.filled().len();
        let left = self.fuse.lock().1;
        if left == 0 {
            return Poll::Ready(Err(self.reset()));
        }
        let read = Pin::new(&mut *self.stream.lock()).poll_read(cx, buf);
        let most = before.saturating_add(usize::try_from(left).unwrap_or(usize::MAX));
        buf.set_filled(buf.filled().len().min(most));
        self.fuse.lock().1 -= (buf.filled().len() - before) as u64;
        match &read {
            Poll::Pending => self.life.wait_read(cx),
            Poll::Ready(outcome) => {
                let (local, peer, bytes) =
                    (self.local.port(), self.peer, buf.filled().len() - before);
                let failed = outcome.as_ref().err().map(io::Error::kind);
                match bytes {
                    0 => self.watch(Watch::failed),
                    _ => self.watch(|watch| watch.read(&buf.filled()[before..])),
                }
                self.fabric
                    .trace()
                    .event(&self.host, format_args!("read {peer} -> {local} {bytes} {failed:?}"));
            }
        }
        read
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }
}

/// A listening socket.
pub(super) struct SimListener {
    listener: TcpListener,
    fabric: Fabric,
    host: Arc<str>,
}

impl SimListener {
    pub(super) fn new(listener: TcpListener, fabric: Fabric, host: Arc<str>) -> Self {
        Self { listener, fabric, host }
    }
}

impl Listener for SimListener {
    fn accept(&self) -> BoxFuture<'_, io::Result<(Box<dyn Socket>, SocketAddr)>> {
        Box::pin(async move {
            let (stream, peer) = self.listener.accept().await?;
            self.fabric.trace().event(&self.host, format_args!("accept {peer}"));
            let socket = SimSocket::new(stream, &self.fabric, &self.host, None)?;
            Ok((Box::new(socket) as Box<dyn Socket>, peer))
        })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}
