//! A network in memory, for tests in virtual time: every connection leads to one scripted broker.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    task::{Context, Poll, Waker},
};

use curtail::Env;
use curtail_net::{BoxFuture, Entropy, Listener, Net, Socket, SocketOptions};
use parking_lot::Mutex;
use tokio::io::ReadBuf;

use crate::broker::{Act, Broker, Call};

/// Capacity of one direction of a connection, in bytes.
const ROOM: usize = 4096;

/// One direction.
#[derive(Default)]
struct Pipe {
    bytes: VecDeque<u8>,
    is_closed: bool,
    /// The reader receives no bytes.
    is_shut: bool,
    /// The writer can write no bytes.
    is_jammed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    fn wake(&mut self) {
        [self.reader.take(), self.writer.take()].into_iter().flatten().for_each(Waker::wake);
    }
}

struct PipeSocket {
    incoming: Arc<Mutex<Pipe>>,
    outgoing: Arc<Mutex<Pipe>>,
}

impl Drop for PipeSocket {
    fn drop(&mut self) {
        for pipe in [&self.incoming, &self.outgoing] {
            let mut pipe = pipe.lock();
            pipe.is_closed = true;
            pipe.wake();
        }
    }
}

impl Socket for PipeSocket {
    fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut pipe = self.outgoing.lock();
        if pipe.is_closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let room = ROOM - pipe.bytes.len();
        if room == 0 || pipe.is_jammed {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let before = pipe.bytes.len();
        pipe.bytes.extend(bufs.iter().flat_map(|buf| buf.iter().copied()).take(room));
        pipe.reader.take().into_iter().for_each(Waker::wake);
        Ok(pipe.bytes.len() - before)
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut pipe = self.outgoing.lock();
        if pipe.is_closed || pipe.bytes.len() < ROOM && !pipe.is_jammed {
            return Poll::Ready(Ok(()));
        }
        pipe.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut pipe = self.incoming.lock();
        if (pipe.bytes.is_empty() || pipe.is_shut) && !pipe.is_closed {
            pipe.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let length = pipe.bytes.len().min(buf.remaining());
        let bytes: Vec<u8> = pipe.bytes.drain(..length).collect();
        buf.put_slice(&bytes);
        pipe.writer.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(()))
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(ADDRESS)
    }
}

/// Address of the broker.
pub(crate) const ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9092);

/// Behaviour of the network for new connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Open,
    Refused,
    /// Connection attempts get no response.
    BlackHole,
}

/// The network.
pub(crate) struct PipeNet {
    broker: Arc<Broker>,
    reach: Reach,
    /// Bytes that clients write, by connection.
    written: Arc<Mutex<Vec<Arc<Mutex<Pipe>>>>>,
}

/// Stops or passes bytes to the broker.
#[derive(Clone)]
pub(crate) struct Valve(Arc<Mutex<Vec<Arc<Mutex<Pipe>>>>>);

impl Valve {
    /// Stops all reads on the connections that are open now.
    pub(crate) fn shut(&self) {
        self.0.lock().iter().for_each(|pipe| pipe.lock().is_shut = true);
    }

    /// Makes the connections that are open now accept no more bytes.
    pub(crate) fn jam(&self) {
        self.0.lock().iter().for_each(|pipe| pipe.lock().is_jammed = true);
    }

    pub(crate) fn open(&self) {
        for pipe in self.0.lock().iter() {
            let mut pipe = pipe.lock();
            (pipe.is_shut, pipe.is_jammed) = (false, false);
            pipe.wake();
        }
    }
}

impl PipeNet {
    /// Creates a broker, and the environment that leads to it.
    pub(crate) fn with(
        reach: Reach,
        script: impl FnMut(&Call, Vec<u8>) -> Act + Send + 'static,
    ) -> (Arc<Broker>, Env, Valve) {
        let broker = Broker::without_listener(ADDRESS, script);
        let written = Arc::<Mutex<Vec<_>>>::default();
        let net = Arc::new(Self { broker: broker.clone(), reach, written: written.clone() });
        let env = Env { net, entropy: Entropy::from_seed(1), ..Env::real() };
        (broker, env, Valve(written))
    }
}

impl Net for PipeNet {
    fn connect(
        &self,
        _addr: SocketAddr,
        _options: SocketOptions,
    ) -> BoxFuture<'_, io::Result<Box<dyn Socket>>> {
        match self.reach {
            Reach::Refused => {
                return Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) });
            }
            Reach::BlackHole => return Box::pin(std::future::pending()),
            Reach::Open => {}
        }
        let (to, from) = (Arc::<Mutex<Pipe>>::default(), Arc::<Mutex<Pipe>>::default());
        self.written.lock().push(to.clone());
        let client = PipeSocket { incoming: from.clone(), outgoing: to.clone() };
        self.broker.accept(Box::new(PipeSocket { incoming: to, outgoing: from }));
        Box::pin(async move { Ok(Box::new(client) as Box<dyn Socket>) })
    }

    fn listen(&self, _addr: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        Box::pin(async { Err(io::ErrorKind::Unsupported.into()) })
    }

    fn resolve<'a>(
        &'a self,
        _host: &'a str,
        _port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async { Ok(vec![ADDRESS]) })
    }
}
