//! TCP of the operating system.

use std::{
    io::{self, IoSlice},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    sync::{Mutex, PoisonError},
    task::{Context, Poll},
};

use dns_lookup::LookupErrorKind;
use socket2::{Domain, SockRef, TcpKeepalive, Type};
use tokio::{
    io::{AsyncRead as _, ReadBuf},
    net::{
        TcpListener, TcpSocket, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    task::spawn_blocking,
};

use crate::{BoxFuture, Keepalive, Listener, Net, Socket, SocketOptions};

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

    fn canonical_name(&self, address: IpAddr) -> BoxFuture<'_, io::Result<Option<String>>> {
        Box::pin(async move {
            // The system's resolver blocks.
            let found = spawn_blocking(move || dns_lookup::lookup_addr(&address)).await?;
            match found {
                Ok(name) => Ok(Some(name)),
                Err(error) if matches!(error.kind(), LookupErrorKind::NoName) => Ok(None),
                Err(error) => Err(error.into()),
            }
        })
    }

    fn connect(
        &self,
        addr: SocketAddr,
        options: SocketOptions,
    ) -> BoxFuture<'_, io::Result<Box<dyn Socket>>> {
        Box::pin(async move { Ok(RealSocket::boxed(stream(addr, options).await?)) })
    }

    fn listen(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        Box::pin(async move { open(addr, Ipv4::Separate) })
    }

    fn listen_everywhere(&self, port: u16) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            match open((Ipv6Addr::UNSPECIFIED, port).into(), Ipv4::Included) {
                Err(error) if lacks_ipv6(&error) => {
                    open((Ipv4Addr::UNSPECIFIED, port).into(), Ipv4::Separate)
                }
                opened => opened,
            }
        })
    }
}

/// Whether an IPv6 socket accepts IPv4, too. The system's default (`bindv6only`) varies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ipv4 {
    Included,
    Separate,
}

/// Connections that wait to be accepted, as many as Tokio's listeners hold.
const BACKLOG: i32 = 1024;

fn open(addr: SocketAddr, ipv4: Ipv4) -> io::Result<Box<dyn Listener>> {
    let socket = socket2::Socket::new(Domain::for_address(addr), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    // On Windows this option would let two listeners share a port.
    #[cfg(not(windows))]
    socket.set_reuse_address(true)?;
    if addr.is_ipv6() {
        socket.set_only_v6(ipv4 == Ipv4::Separate)?;
    }
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    Ok(Box::new(RealListener(TcpListener::from_std(socket.into())?)))
}

/// Returns whether the machine has no IPv6.
fn lacks_ipv6(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied)
}

/// Connects a stream that has the options.
async fn stream(addr: SocketAddr, options: SocketOptions) -> io::Result<TcpStream> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    apply(&SockRef::from(&socket), options)?;
    socket.connect(addr).await
}

fn apply(socket: &SockRef<'_>, options: SocketOptions) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    if let Some(bytes) = options.send_buffer {
        socket.set_send_buffer_size(bytes)?;
    }
    if let Some(bytes) = options.receive_buffer {
        socket.set_recv_buffer_size(bytes)?;
    }
    if let Some(Keepalive { idle, interval }) = options.keepalive {
        let keepalive = TcpKeepalive::new().with_time(idle).with_interval(interval);
        socket.set_tcp_keepalive(&keepalive)?;
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_user_timeout(options.user_timeout)?;
    Ok(())
}

/// Separate halves let the read half's `poll_read` infer from a short read that the socket is
/// empty. This saves the system call that would return `WouldBlock`.
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

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncReadExt as _;

    use super::*;
    use crate::SocketExt as _;

    #[tokio::test]
    async fn an_unspecified_address_is_of_one_family_and_everywhere_is_both() {
        let four = RealNet.listen((Ipv4Addr::UNSPECIFIED, 0).into()).await.unwrap();
        let port = four.local_addr().unwrap().port();
        let taken = RealNet.listen_everywhere(port).await.map(|_| ()).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        // A machine without IPv6 has nothing more to show.
        if std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
            RealNet.listen((Ipv6Addr::UNSPECIFIED, port).into()).await.unwrap();
        }
    }

    /// Connects to a peer with a small receive buffer, writes until the socket is full, and leaves
    /// the peer's window closed for `pause`. Returns the connection's error, if it has one by then.
    async fn after_a_closed_window(user_timeout: Duration, pause: Duration) -> Option<io::Error> {
        let listening = TcpSocket::new_v4().unwrap();
        listening.set_recv_buffer_size(4096).unwrap();
        listening.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = listening.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let options = SocketOptions {
            send_buffer: Some(4096),
            user_timeout: Some(user_timeout),
            ..SocketOptions::default()
        };
        let socket = RealNet.connect(address, options).await.unwrap();
        let (mut peer, _) = listener.accept().await.unwrap();
        let chunk = [7; 1024];
        while socket.try_write_vectored(&[IoSlice::new(&chunk)]).is_ok() {}
        tokio::time::sleep(pause).await;
        let reading = tokio::spawn(async move {
            let mut read = Vec::new();
            let _ = peer.read_to_end(&mut read).await;
        });
        let written = socket.write_all(&chunk).await;
        drop(socket);
        reading.await.unwrap();
        written.err()
    }

    #[tokio::test]
    async fn an_address_has_the_name_that_the_system_knows() {
        let name = RealNet.canonical_name([127, 0, 0, 1].into()).await.unwrap();
        assert!(name.as_deref().is_some_and(|name| name.starts_with("localhost")), "{name:?}");
        // Of a range for documentation (RFC 5737). A machine without a name service fails instead.
        let none = RealNet.canonical_name([192, 0, 2, 1].into()).await;
        assert!(!matches!(none, Ok(Some(_))), "{none:?}");
    }

    #[tokio::test]
    async fn keepalive_and_user_timeout_of_a_connected_socket_are_those_of_the_options() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seconds = Duration::from_secs;
        let keepalive = Keepalive { idle: seconds(77), interval: seconds(33) };
        let user_timeout = Some(Duration::from_millis(4321));
        let options =
            SocketOptions { keepalive: Some(keepalive), user_timeout, ..SocketOptions::default() };
        let on = stream(address, options).await.unwrap();
        let socket = SockRef::from(&on);
        assert!(socket.keepalive().unwrap() && socket.tcp_nodelay().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), keepalive.idle);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), keepalive.interval);
        assert_eq!(socket.tcp_user_timeout().unwrap(), user_timeout);
        let options =
            SocketOptions { keepalive: None, user_timeout: None, ..SocketOptions::default() };
        let off = stream(address, options).await.unwrap();
        let socket = SockRef::from(&off);
        assert!(!socket.keepalive().unwrap());
        assert_eq!(socket.tcp_user_timeout().unwrap(), None);
    }

    /// The closed window is the fault: the peer's kernel still acknowledges each probe.
    #[tokio::test]
    async fn a_closed_receive_window_outlasts_only_a_longer_user_timeout() {
        let pause = Duration::from_millis(1500);
        let (short, long) = tokio::join!(
            after_a_closed_window(Duration::from_millis(300), pause),
            after_a_closed_window(Duration::from_secs(30), pause),
        );
        assert_eq!(short.map(|error| error.kind()), Some(io::ErrorKind::TimedOut));
        assert!(long.is_none(), "{long:?}");
    }
}
