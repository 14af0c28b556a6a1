//! Connections and listeners as the client and the brokers use them, observed and traced.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::BytesMut;
use curtail_net::{BoxFuture, Listener, Socket};
use parking_lot::Mutex;
use tokio::io::ReadBuf;

use super::{
    fabric::Fabric,
    tcp::{Backlog, Connection},
    watch::{Client, Watch},
};

/// Bytes that travel as one message at most; a write of more takes several.
const MAX_SEGMENT: usize = 64 * 1024;

/// One end of a connection.
pub(super) struct SimSocket {
    connection: Connection,
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
        let closes = !self.fabric.is_over() && !self.is_broken();
        if let Some(watch) = self.watch.as_ref().filter(|_| closes) {
            watch.lock().closed(&self.fabric);
        }
    }
}

impl SimSocket {
    pub(super) fn new(
        connection: Connection,
        fabric: &Fabric,
        host: &Arc<str>,
        client: Option<&Client>,
    ) -> Self {
        let (local, peer) = (connection.end().local(), connection.end().peer());
        Self {
            connection,
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
        }
    }

    fn is_broken(&self) -> bool {
        self.connection.end().is_broken()
    }

    /// The connection has carried as much as it may.
    fn reset(&self) -> io::Error {
        self.connection.reset();
        self.fabric.trace().event(&self.host, format_args!("reset {}", self.peer));
        io::ErrorKind::ConnectionReset.into()
    }

    fn watch(&self, note: impl FnOnce(&mut Watch)) {
        if let Some(watch) = &self.watch {
            note(&mut watch.lock());
        }
    }

    fn check(&self) -> io::Result<()> {
        if self.is_broken() {
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
        let mut segment = BytesMut::with_capacity(limit);
        for buf in bufs {
            let room = limit - segment.len();
            segment.extend_from_slice(&buf[..buf.len().min(room)]);
        }
        let segment = segment.freeze();
        let outcome = self.connection.write(segment.clone());
        match &outcome {
            Ok(()) => self.watch(|watch| self.fabric.add_stale(watch.wrote(&segment))),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.watch(Watch::failed),
        }
        outcome?;
        let written = segment.len();
        self.fuse.lock().0 -= written as u64;
        let (local, peer) = (self.local.port(), self.peer);
        self.fabric.trace().write(
            &self.host,
            format_args!("write {local} -> {peer} {written}"),
            &segment,
        );
        Ok(written)
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        self.connection.poll_write_ready(cx).map(Ok)
    }

    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check()?;
        let before = buf.filled().len();
        let left = self.fuse.lock().1;
        if left == 0 {
            return Poll::Ready(Err(self.reset()));
        }
        let read = self.connection.poll_read(cx, buf);
        if read.is_pending() {
            return Poll::Pending;
        }
        let most = before.saturating_add(usize::try_from(left).unwrap_or(usize::MAX));
        buf.set_filled(buf.filled().len().min(most));
        let bytes = buf.filled().len() - before;
        self.fuse.lock().1 -= bytes as u64;
        match bytes {
            0 => self.watch(Watch::failed),
            _ => self.watch(|watch| watch.read(&buf.filled()[before..])),
        }
        let (local, peer) = (self.local.port(), self.peer);
        self.fabric.trace().event(&self.host, format_args!("read {peer} -> {local} {bytes}"));
        Poll::Ready(Ok(()))
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }
}

/// A listening socket.
pub(super) struct SimListener {
    addr: SocketAddr,
    backlog: Arc<Backlog>,
    fabric: Fabric,
    host: Arc<str>,
}

impl SimListener {
    /// Listens at an address of `host`.
    ///
    /// # Errors
    /// `AddrInUse` if another listener does.
    pub(super) fn bind(addr: SocketAddr, fabric: &Fabric, host: &Arc<str>) -> io::Result<Self> {
        let backlog = Arc::new(Backlog::default());
        if !fabric.post().add_listener(addr, &backlog) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        Ok(Self { addr, backlog, fabric: fabric.clone(), host: Arc::clone(host) })
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        self.fabric.post().remove_listener(self.addr);
    }
}

impl Listener for SimListener {
    fn accept(&self) -> BoxFuture<'_, io::Result<(Box<dyn Socket>, SocketAddr)>> {
        Box::pin(async move {
            let connection = self.backlog.next().await;
            let peer = connection.end().peer();
            self.fabric.trace().event(&self.host, format_args!("accept {peer}"));
            let socket = SimSocket::new(connection, &self.fabric, &self.host, None);
            Ok((Box::new(socket) as Box<dyn Socket>, peer))
        })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.addr)
    }
}
