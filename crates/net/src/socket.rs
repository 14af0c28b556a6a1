//! The traits that a network implements.

use std::{
    future::{Future, poll_fn},
    io::{self, IoSlice},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::io::{AsyncRead, ReadBuf};

/// A boxed future, for object-safe traits.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A connected byte stream, shared by reference: any task may try to write, one task reads.
///
/// The contract includes non-blocking writes because a producer's caller writes to an idle socket
/// itself, which saves the switch to the driver task. Implementations may lock internally (TLS and
/// the simulation do).
pub trait Socket: Send + Sync {
    /// Writes as much as the socket accepts now. `WouldBlock` if it accepts nothing.
    fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Ready when a write may make progress. One waiting task at a time.
    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;

    /// Reads into the unfilled part of `buf`. An unchanged `buf` means that the peer has closed.
    /// One reading task at a time.
    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>>;

    /// Address of the peer.
    fn peer_addr(&self) -> io::Result<SocketAddr>;
}

/// Methods that every [`Socket`] has in addition.
pub trait SocketExt: Socket {
    /// Reads into `buf`; 0 means the peer has closed.
    ///
    /// # Cancel safety
    /// Cancel safe: a future that is dropped has read nothing.
    fn read<'a>(
        &'a self,
        buf: &'a mut [u8],
    ) -> impl Future<Output = io::Result<usize>> + Send + 'a {
        poll_fn(move |cx| {
            let mut read = ReadBuf::new(buf);
            match self.poll_read(cx, &mut read) {
                Poll::Ready(Ok(())) => Poll::Ready(Ok(read.filled().len())),
                Poll::Ready(Err(e)) => Poll::Ready(Err(e)),
                Poll::Pending => Poll::Pending,
            }
        })
    }

    /// Writes all of `buf`.
    ///
    /// # Cancel safety
    /// Not cancel safe: a dropped future may have written a part.
    fn write_all<'a>(
        &'a self,
        mut buf: &'a [u8],
    ) -> impl Future<Output = io::Result<()>> + Send + 'a {
        async move {
            while !buf.is_empty() {
                match self.try_write_vectored(&[IoSlice::new(buf)]) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(n) => buf = &buf[n..],
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                        poll_fn(|cx| self.poll_write_ready(cx)).await?;
                    }
                    Err(e) => return Err(e),
                }
            }
            Ok(())
        }
    }
}

impl<S: Socket + ?Sized> SocketExt for S {}

/// A shared socket as tokio's [`AsyncRead`], whose methods can read into uninitialized buffers.
pub struct ReadSide<'a>(pub &'a dyn Socket);

impl AsyncRead for ReadSide<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.0.poll_read(cx, buf)
    }
}

/// Options of a connection. All affect real TCP only.
#[derive(Clone, Copy, Debug)]
pub struct SocketOptions {
    /// `SO_SNDBUF` in bytes; `None` leaves it to the operating system.
    pub send_buffer: Option<usize>,
    /// `SO_RCVBUF` in bytes; `None` leaves it to the operating system.
    pub receive_buffer: Option<usize>,
    /// TCP keepalive probes; `None` switches them off.
    pub keepalive: Option<Keepalive>,
    /// `TCP_USER_TIMEOUT`: how long written data may stay unacknowledged by the peer's kernel, or wait for room in its
    /// receive window. Linux only.
    pub user_timeout: Option<Duration>,
}

/// TCP keepalive probes of an idle connection, in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Idle time before the first probe.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self { idle: Duration::from_secs(10), interval: Duration::from_secs(5) }
    }
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            send_buffer: None,
            receive_buffer: None,
            keepalive: Some(Keepalive::default()),
            user_timeout: Some(Duration::from_secs(2)),
        }
    }
}

/// A listening socket.
pub trait Listener: Send + Sync {
    /// Returns the next connection.
    ///
    /// # Cancel safety
    /// Cancel safe: no accepted connection is lost.
    fn accept(&self) -> BoxFuture<'_, io::Result<(Box<dyn Socket>, SocketAddr)>>;

    /// Returns the listening address, with the assigned port if port 0 was requested.
    fn local_addr(&self) -> io::Result<SocketAddr>;
}

/// A network: resolves names, connects, listens.
pub trait Net: Send + Sync {
    /// Returns all addresses of `host`, in the resolver's order.
    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;

    /// Returns the name of an address (a reverse lookup); `None` if it has none. A network without such names has none.
    fn canonical_name(&self, address: IpAddr) -> BoxFuture<'_, io::Result<Option<String>>> {
        let _ = address;
        Box::pin(async { Ok(None) })
    }

    /// Connects with `TCP_NODELAY` set.
    fn connect(
        &self,
        addr: SocketAddr,
        options: SocketOptions,
    ) -> BoxFuture<'_, io::Result<Box<dyn Socket>>>;

    /// Listens; accepted connections have `TCP_NODELAY` set. An unspecified address (`0.0.0.0`, `::`) means all addresses
    /// of its family only.
    fn listen(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>>;

    /// Listens on all addresses, IPv4 and IPv6, as far as the machine has them. A network without IPv6 listens on
    /// `0.0.0.0`.
    fn listen_everywhere(&self, port: u16) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        self.listen((Ipv4Addr::UNSPECIFIED, port).into())
    }
}
