//! One HTTP request over one connection: HTTP/1.1, over TLS unless the service is part of this machine.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use curtail_net::{
    Env, Socket, SocketOptions,
    tls::{ServerName, TlsError, TlsSocket},
};
use hyper::{
    Request,
    body::{Body as _, Incoming},
    client::conn::http1,
    rt::{Read, ReadBufCursor, Write},
};
use tokio::{io::ReadBuf, time::timeout};
use zeroize::Zeroizing;

use super::{
    OidcConfig, SslConfig,
    oidc::Trouble,
    tls::{self, Peer},
};
use crate::{config::CommonConfig, conn::dial, error::Report};

/// Limit for a response's body, in bytes.
const MAX_BODY: usize = 1024 * 1024;
/// Limit for a response's head, in bytes.
const MAX_HEAD: usize = 64 * 1024;
const MAX_HEADERS: usize = 100;
/// Bytes per read.
const CHUNK: usize = 8 * 1024;

/// Time limits for connecting and reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) connect: Duration,
    pub(crate) read: Duration,
}

impl Limits {
    pub(crate) fn of(common: &CommonConfig, settings: &OidcConfig) -> Self {
        Self {
            connect: settings.connect_timeout.unwrap_or(common.connection_setup_timeout),
            read: settings.read_timeout.unwrap_or(common.request_timeout),
        }
    }
}

/// A server, and the trust in it if it speaks TLS.
pub(crate) struct Target<'a> {
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    pub(crate) tls: Option<(&'a SslConfig, Peer)>,
}

/// Sends a request and returns the status and the body of its response.
pub(crate) async fn exchange(
    env: &Env,
    target: &Target<'_>,
    request: Request<String>,
    limits: Limits,
) -> Result<(u16, Zeroizing<Vec<u8>>), Trouble> {
    let late = |what: &str, limit: Duration| {
        Trouble::Unreachable(format!("{what} within {} ms", limit.as_millis()).into())
    };
    let connected = timeout(limits.connect, connect(env, target, limits.connect)).await;
    let socket = connected.unwrap_or_else(|_| Err(late("no connection", limits.connect)))?;
    let answered = timeout(limits.read, send(socket, request)).await;
    answered.unwrap_or_else(|_| Err(late("no response", limits.read)))
}

/// Runs work with files and keys.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, Trouble> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|error| Trouble::Unreachable(error.to_string().into()))?;
    done.map_err(|reason| Trouble::Refused(reason.into()))
}

async fn connect(
    env: &Env,
    target: &Target<'_>,
    limit: Duration,
) -> Result<Box<dyn Socket>, Trouble> {
    let unreachable = |reason: String| Trouble::Unreachable(reason.into());
    let (socket, _) = dial(env, target.host, target.port, SocketOptions::default(), limit)
        .await
        .map_err(|failed| unreachable(failed.text()))?;
    let Some((ssl, peer)) = target.tls else { return Ok(socket) };
    let name = ServerName::try_from(target.host.to_owned())
        .map_err(|_| Trouble::Refused("its host is not a valid TLS server name".into()))?;
    let settings = ssl.clone();
    let config =
        tokio::task::spawn_blocking(move || tls::build(&settings).map(|built| built.config)).await;
    let config = config
        .map_err(|error| unreachable(error.to_string()))?
        .map_err(|reason| Trouble::Unusable(format!("{}{reason}", peer.settings()).into()))?;
    match TlsSocket::connect(socket, config, name, limit).await {
        Ok(socket) => Ok(Box::new(socket)),
        Err(TlsError::Session(error)) => {
            let reason = tls::session_problem(peer, target.host, ssl, &error);
            Err(Trouble::Refused(reason.into()))
        }
        Err(error) => Err(unreachable(Report::new(&error).to_string())),
    }
}

/// Sends the request and reads the response.
async fn send(
    socket: Box<dyn Socket>,
    request: Request<String>,
) -> Result<(u16, Zeroizing<Vec<u8>>), Trouble> {
    let stream = Stream(socket);
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .handshake(stream)
        .await
        .map_err(|error| broken(&error))?;
    let mut connection = std::pin::pin!(connection);
    let mut exchange = std::pin::pin!(async move {
        let answer = sender.send_request(request).await.map_err(|error| broken(&error))?;
        let status = answer.status().as_u16();
        collect(answer.into_body()).await.map(|body| (status, body))
    });
    tokio::select! {
        biased;
        answer = &mut exchange => answer,
        // The connection has ended; the bytes that it has read must still be collected.
        _ = &mut connection => exchange.await,
    }
}

/// Collects the body, up to the size limit.
async fn collect(mut body: Incoming) -> Result<Zeroizing<Vec<u8>>, Trouble> {
    let mut bytes = Zeroizing::new(Vec::new());
    loop {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        let Some(frame) = frame else { return Ok(bytes) };
        let frame = frame.map_err(|error| broken(&error))?;
        let Some(data) = frame.data_ref() else { continue };
        if bytes.len() + data.len() > MAX_BODY {
            return Err(Trouble::Refused(
                format!("its response is larger than {MAX_BODY} bytes").into(),
            ));
        }
        bytes.extend_from_slice(data);
    }
}

fn broken(error: &hyper::Error) -> Trouble {
    let report = Report::new(error);
    let reason = match error.is_parse() {
        true => format!("it does not respond in HTTP: {report}"),
        false => format!("its response is incomplete: {report}"),
    };
    Trouble::Unreachable(reason.into())
}

/// Adapts a socket of `curtail-net` to hyper.
struct Stream(Box<dyn Socket>);

impl Read for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut chunk = [0; CHUNK];
        let length = buf.remaining().min(CHUNK);
        let mut read = ReadBuf::new(&mut chunk[..length]);
        ready!(self.0.poll_read(cx, &mut read))?;
        buf.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }
}

impl Write for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.0.try_write_vectored(&[IoSlice::new(buf)]) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.0.poll_write_ready(cx))?;
                }
                done => return Poll::Ready(done),
            }
        }
    }

    /// The socket sends accepted bytes without a flush.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
