//! The proxy: one listener per broker; each client connection gets a connection to the broker.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use bytes::Bytes;
use curtail_net::{BoxFuture, Listener, Net, RealNet, Socket, SocketOptions};
use curtail_wire::{
    ApiKey,
    frame::FrameSplitter,
    header::{correlation_id, split_request},
    produce::ProduceRequest,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpSocket, TcpStream, tcp},
    sync::{mpsc, watch},
};

use super::{Reply, Request, Shared, Step};

/// A barrier that a case opens and closes.
#[derive(Clone)]
pub(crate) struct Gate(watch::Sender<bool>);

impl Gate {
    pub(crate) fn closed() -> Self {
        Self(watch::Sender::new(false))
    }

    pub(crate) fn open_at_first() -> Self {
        Self(watch::Sender::new(true))
    }

    pub(crate) fn open(&self) {
        self.set(true);
    }

    pub(crate) fn set(&self, open: bool) {
        self.0.send_replace(open);
    }

    /// Returns once the gate is open.
    async fn passed(&self) {
        let _ = self.0.subscribe().wait_for(|open| *open).await;
    }
}

/// A network in which a broker's address leads to its proxy.
pub(crate) struct Through(pub(crate) BTreeMap<SocketAddr, SocketAddr>);

impl Net for Through {
    fn connect(
        &self,
        addr: SocketAddr,
        options: SocketOptions,
    ) -> BoxFuture<'_, io::Result<Box<dyn Socket>>> {
        match self.0.get(&addr) {
            Some(proxy) => RealNet.connect(*proxy, options),
            None => Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) }),
        }
    }

    fn listen(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Listener>>> {
        RealNet.listen(addr)
    }

    fn resolve<'a>(
        &'a self,
        host: &'a str,
        port: u16,
    ) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        RealNet.resolve(host, port)
    }
}

/// Listens with a small receive buffer, so that a proxy that stops reading stalls the client's writes.
pub(crate) fn listen() -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(16 * 1024)?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    socket.listen(64)
}

pub(crate) async fn serve(listener: TcpListener, id: i32, broker: SocketAddr, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let Ok(upstream) = TcpStream::connect(broker).await else { return };
            if client.set_nodelay(true).and(upstream.set_nodelay(true)).is_err() {
                return;
            }
            let (read, mut write) = client.into_split();
            let (queue, requests) = mpsc::unbounded_channel();
            // When either ends, both connections close.
            tokio::select! {
                biased;
                _ = handle(requests, &mut write, upstream, &shared) => {}
                _ = receive(read, id, &queue, &shared) => {}
            }
        });
    }
}

/// Reads the client's requests and records them, until the client closes.
async fn receive(
    mut client: tcp::OwnedReadHalf,
    broker: i32,
    queue: &mpsc::UnboundedSender<(Bytes, Request)>,
    shared: &Shared,
) -> io::Result<()> {
    let mut splitter = FrameSplitter::default();
    loop {
        shared.reading.passed().await;
        let Some(frame) = splitter.next_frame().map_err(io::Error::other)? else {
            if client.read_buf(splitter.spare(4096)).await? == 0 {
                return Ok(());
            }
            continue;
        };
        let (header, body) = split_request(&frame).map_err(io::Error::other)?;
        let request = Request {
            broker,
            api: header.api,
            version: header.version,
            correlation_id: header.correlation_id,
            body,
        };
        shared.seen.lock().push(request.clone());
        shared.arrivals.send_modify(|count| *count += 1);
        queue.send((frame, request)).map_err(io::Error::other)?;
    }
}

/// Takes the requests of a connection one by one through the script.
async fn handle(
    mut requests: mpsc::UnboundedReceiver<(Bytes, Request)>,
    client: &mut tcp::OwnedWriteHalf,
    mut upstream: TcpStream,
    shared: &Shared,
) -> io::Result<()> {
    let mut splitter = FrameSplitter::default();
    let mut silent = false;
    while let Some((frame, request)) = requests.recv().await {
        // Brokers respond in order, so no response follows one that is missing.
        if silent {
            continue;
        }
        let step = (shared.script.lock())(&request);
        let mut steps = VecDeque::from([step]);
        while let Some(step) = steps.pop_front() {
            let reply = match step {
                Step::Hold(gate, then) => {
                    gate.passed().await;
                    steps.push_back(*then);
                    continue;
                }
                Step::Answer(mut bytes) => {
                    translate(request.api, &mut bytes, shared);
                    client.write_all(&bytes).await?;
                    continue;
                }
                Step::Swallow => {
                    silent = true;
                    continue;
                }
                Step::Cut => return Ok(()),
                Step::Pass => Reply::Send,
                Step::PassThen(reply) => reply,
            };
            upstream.write_all(&with_length(&frame)).await?;
            if expects_no_response(&request) {
                continue;
            }
            let response = response_to(&request, &mut upstream, &mut splitter).await?;
            let mut bytes = match reply {
                Reply::Send => with_length(&response),
                Reply::Hold(gate) => {
                    gate.passed().await;
                    with_length(&response)
                }
                Reply::Edit(edit) => edit(response),
                Reply::Cut => return Ok(()),
            };
            translate(request.api, &mut bytes, shared);
            client.write_all(&bytes).await?;
        }
    }
    Ok(())
}

/// Replaces the brokers' addresses in a response by those of their proxies.
///
/// Every response has an address as the host and right after it the port, and all hosts here are the same.
fn translate(api: ApiKey, response: &mut [u8], shared: &Shared) {
    if ![ApiKey::METADATA, ApiKey::FIND_COORDINATOR, ApiKey::PRODUCE, ApiKey::FETCH].contains(&api)
    {
        return;
    }
    let bytes = |addr: &SocketAddr| {
        [addr.ip().to_string().as_bytes(), &i32::from(addr.port()).to_be_bytes()].concat()
    };
    let table: Vec<_> =
        shared.addresses.iter().map(|(from, to)| (bytes(from), bytes(to))).collect();
    let mut at = 0;
    while at < response.len() {
        let found = table.iter().find(|(from, _)| response[at..].starts_with(from));
        if let Some((from, to)) = found {
            assert_eq!(from.len(), to.len(), "hosts have one length");
            response[at..at + to.len()].copy_from_slice(to);
        }
        at += 1;
    }
}

fn with_length(frame: &Bytes) -> Vec<u8> {
    [&(frame.len() as u32).to_be_bytes()[..], frame].concat()
}

fn expects_no_response(request: &Request) -> bool {
    request.api == ApiKey::PRODUCE
        && ProduceRequest::decode(request.version, &request.body).is_ok_and(|r| r.acks == 0)
}

async fn response_to(
    request: &Request,
    upstream: &mut TcpStream,
    splitter: &mut FrameSplitter,
) -> io::Result<Bytes> {
    loop {
        if let Some(frame) = splitter.next_frame().map_err(io::Error::other)? {
            let id = correlation_id(&frame).map_err(io::Error::other)?;
            assert_eq!(id, request.correlation_id, "brokers answer in order");
            return Ok(frame);
        }
        if upstream.read_buf(splitter.spare(4096)).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
