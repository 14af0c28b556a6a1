//! A network in memory: streams without limits, and addresses in place of names.

use std::{
    collections::BTreeMap,
    io::{self, IoSlice},
    net::SocketAddr,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use curtail_net::{BoxFuture, Listener, Net, Socket, SocketOptions, WallClock};
use parking_lot::Mutex;
use tokio::{io::ReadBuf, sync::mpsc};

/// One direction of a stream.
#[derive(Default)]
struct Pipe {
    bytes: Vec<u8>,
    is_closed: bool,
    reader: Option<Waker>,
}

impl Pipe {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

/// One end of a stream. Dropped, it closes both directions.
struct End {
    incoming: Arc<Mutex<Pipe>>,
    outgoing: Arc<Mutex<Pipe>>,
    peer: SocketAddr,
}

impl Drop for End {
    fn drop(&mut self) {
        for pipe in [&self.incoming, &self.outgoing] {
            let mut pipe = pipe.lock();
            pipe.is_closed = true;
            pipe.wake();
        }
    }
}

impl Socket for End {
    fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut pipe = self.outgoing.lock();
        if pipe.is_closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let before = pipe.bytes.len();
        bufs.iter().for_each(|buf| pipe.bytes.extend_from_slice(buf));
        pipe.wake();
        Ok(pipe.bytes.len() - before)
    }

    fn poll_write_ready(&self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut pipe = self.incoming.lock();
        if pipe.bytes.is_empty() && !pipe.is_closed {
            pipe.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = pipe.bytes.len().min(buf.remaining());
        buf.put_slice(&pipe.bytes[..count]);
        pipe.bytes.drain(..count);
        Poll::Ready(Ok(()))
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.peer)
    }
}

type Arrival = (Box<dyn Socket>, SocketAddr);

/// The network. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Network(Arc<Mutex<BTreeMap<SocketAddr, mpsc::UnboundedSender<Arrival>>>>);

struct Port {
    addr: SocketAddr,
    arrivals: tokio::sync::Mutex<mpsc::UnboundedReceiver<Arrival>>,
}

impl Listener for Port {
    fn accept(&self) -> BoxFuture<'_, io::Result<Arrival>> {
        Box::pin(async move {
            let arrival = self.arrivals.lock().await.recv().await;
            arrival.ok_or_else(|| io::ErrorKind::ConnectionAborted.into())
        })
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.addr)
    }
}

impl Net for Network {
    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move {
            let address = host.parse().map_err(|_| io::Error::from(io::ErrorKind::NotFound))?;
            Ok(vec![SocketAddr::new(address, port)])
        })
    }

    fn connect(
        &self,
        addr: SocketAddr,
        _: SocketOptions,
    ) -> BoxFuture<'_, io::Result<Box<dyn Socket>>> {
        Box::pin(async move {
            let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
            let port = self.0.lock().get(&addr).cloned().ok_or_else(refused)?;
            let (there, back) = (Arc::<Mutex<Pipe>>::default(), Arc::<Mutex<Pipe>>::default());
            let server = End { incoming: there.clone(), outgoing: back.clone(), peer: addr };
            port.send((Box::new(server), addr)).map_err(|_| refused())?;
            Ok(Box::new(End { incoming: back, outgoing: there, peer: addr }) as Box<dyn Socket>)
        })
    }

    fn listen(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        Box::pin(async move {
            let (sender, arrivals) = mpsc::unbounded_channel();
            self.0.lock().insert(addr, sender);
            Ok(Box::new(Port { addr, arrivals: tokio::sync::Mutex::new(arrivals) })
                as Box<dyn Listener>)
        })
    }
}

/// A wall clock that stands still.
pub(crate) struct Still;

impl WallClock for Still {
    fn now_ms(&self) -> i64 {
        1_700_000_000_000
    }
}
