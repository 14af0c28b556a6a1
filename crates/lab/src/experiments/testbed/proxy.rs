//! A TCP proxy that delays a server's data, without reordering and without limiting throughput.

#[cfg(test)]
mod tests;

use std::{
    io,
    net::{Ipv4Addr, TcpListener as StdListener},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    runtime::Runtime,
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

use crate::perf::client_runtime;

/// Bytes of one read.
const CHUNK: usize = 64 * 1024;
/// Most delayed chunks of one connection; beyond that the server has to wait. With full chunks that is 64
/// MiB, enough for 3 GiB/s at 20 ms.
const HELD: usize = 1024;

/// A proxy on its own port. Its connections end when it is dropped.
pub(super) struct DelayingProxy {
    port: u16,
    delay: Arc<AtomicU64>,
    upstream: watch::Sender<Option<String>>,
    _runtime: Runtime,
}

impl DelayingProxy {
    /// Listens. Connections wait until their destination is set.
    pub(super) fn bind() -> io::Result<Self> {
        let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let runtime = client_runtime().map_err(io::Error::other)?;
        let context = runtime.enter();
        let listener = TcpListener::from_std(listener)?;
        drop(context);
        let delay = Arc::new(AtomicU64::new(0));
        let upstream = watch::Sender::new(None);
        runtime.spawn(accept(listener, upstream.subscribe(), delay.clone()));
        Ok(Self { port, delay, upstream, _runtime: runtime })
    }

    /// Listening port on 127.0.0.1.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Sets the address that the proxy forwards new connections to.
    pub(super) fn forward_to(&self, address: &str) {
        self.upstream.send_replace(Some(address.to_owned()));
    }

    /// Sets the delay of all data that the server sends from now on.
    pub(super) fn set_delay(&self, delay: Duration) {
        let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        self.delay.store(nanos, Ordering::Relaxed);
    }
}

async fn accept(
    listener: TcpListener,
    upstream: watch::Receiver<Option<String>>,
    delay: Arc<AtomicU64>,
) {
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        tokio::spawn(serve(client, upstream.clone(), delay.clone()));
    }
}

/// One connection, until either side ends it.
async fn serve(
    client: TcpStream,
    mut upstream: watch::Receiver<Option<String>>,
    delay: Arc<AtomicU64>,
) -> io::Result<()> {
    let known = upstream.wait_for(Option::is_some).await.map_err(io::Error::other)?.clone();
    let server = TcpStream::connect(known.unwrap_or_default()).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut said, mut asked) = (client.into_split(), server.into_split());
    let (held, due) = mpsc::channel(HELD);
    tokio::select! {
        biased;
        ended = tokio::io::copy(&mut said.0, &mut asked.1) => ended.map(drop),
        ended = hold(&mut asked.0, &held, &delay) => ended,
        ended = release(due, &mut said.1) => ended,
    }
}

/// Reads the server's data and records when each chunk is due.
async fn hold(
    server: &mut OwnedReadHalf,
    held: &mpsc::Sender<(Instant, Bytes)>,
    delay: &AtomicU64,
) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(CHUNK);
        if server.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
        let due = Instant::now() + Duration::from_nanos(delay.load(Ordering::Relaxed));
        held.send((due, buffer.split().freeze())).await.map_err(io::Error::other)?;
    }
}

/// Passes chunks on when they are due, in order.
async fn release(
    mut due: mpsc::Receiver<(Instant, Bytes)>,
    client: &mut OwnedWriteHalf,
) -> io::Result<()> {
    while let Some((at, bytes)) = due.recv().await {
        sleep_until(at).await;
        client.write_all(&bytes).await?;
    }
    Ok(())
}
