//! TCP of the operating system.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead as _, ReadBuf},
    net::{
        TcpListener, TcpSocket, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

use crate::{BoxFuture, Listener, Net, Socket, SocketOptions};

/// The machine's own TCP stack.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealNet;

impl Net for RealNet {
    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }

    fn connect(
        &self,
        addr: SocketAddr,
        options: SocketOptions,
    ) -> BoxFuture<'_, io::Result<Box<dyn Socket>>> {
        Box::pin(async move {
            let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            apply(&SockRef::from(&socket), options)?;
            let stream = socket.connect(addr).await?;
            Ok(RealSocket::boxed(stream))
        })
    }

    fn listen(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let listener = TcpListener::bind(addr).await?;
            Ok(Box::new(RealListener(listener)) as Box<dyn Listener>)
        })
    }
}

fn apply(socket: &SockRef<'_>, options: SocketOptions) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    if let Some(bytes) = options.send_buffer {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = options.receive_buffer {
        socket.set_recv_buffer_size(bytes)?;
    }
    if let Some(idle) = options.keepalive {
        let keepalive = TcpKeepalive::new().with_time(idle).with_interval(Duration::from_secs(5));
        socket.set_tcp_keepalive(&keepalive)?;
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_user_timeout(options.user_timeout)?;
    Ok(())
}

/// The halves are kept apart for the read half's `poll_read`, which knows from a short read that the socket is
/// empty and spares the system call that would find it so.
struct RealSocket {
    /// One task reads; the lock is never contended.
    read: Mutex<OwnedReadHalf>,
    write: OwnedWriteHalf,
}

impl RealSocket {
    fn boxed(stream: TcpStream) -> Box<dyn Socket> {
        let (read, write) = stream.into_split();
        Box::new(Self { read: Mutex::new(read), write })
    }
}

impl Socket for RealSocket {
    fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write.try_write_vectored(bufs)
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write.as_ref().poll_write_ready(cx)
    }

    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        Pin::new(&mut *read).poll_read(cx, buf)
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.write.peer_addr()
    }
}

struct RealListener(TcpListener);

impl Listener for RealListener {
    fn accept(&self) -> BoxFuture<'_, io::Result<(Box<dyn Socket>, SocketAddr)>> {
        Box::pin(async move {
            let (stream, peer) = self.0.accept().await?;
            stream.set_nodelay(true)?;
            Ok((RealSocket::boxed(stream), peer))
        })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}
