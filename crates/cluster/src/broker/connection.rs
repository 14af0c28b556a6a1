//! One connection: one request at a time is read, handled and answered, in the order they come, as Kafka does by
//! muting a connection while a request of it is in its hands.

use std::{
    future::poll_fn,
    io::{self, IoSlice},
    net::IpAddr,
    sync::Arc,
};

use bytes::{Buf, Bytes};
use curtail_net::Socket;
use curtail_wire::{frame::FrameSplitter, header::split_request};

use super::Broker;
use crate::handlers::{self, Answer, Call};

/// Room for one read. Larger frames make their own.
const READ: usize = 16 * 1024;

/// Serves a connection until it closes, breaks, or sends what is not a request.
pub(super) async fn serve(broker: Arc<Broker>, socket: Box<dyn Socket>, peer: IpAddr) {
    let mut frames = FrameSplitter::new(broker.config.socket_request_max_bytes);
    let mut out: Vec<Bytes> = Vec::new();
    loop {
        let frame = match frames.next_frame() {
            Ok(Some(frame)) => frame,
            Ok(None) => match fill(socket.as_ref(), &mut frames).await {
                Ok(0) => return,
                Ok(_) => continue,
                Err(error) => {
                    tracing::debug!(broker = broker.id, %error, "connection lost");
                    return;
                }
            },
            Err(error) => {
                tracing::warn!(broker = broker.id, %error, "connection closed");
                return;
            }
        };
        let Ok((header, body)) = split_request(&frame) else {
            tracing::warn!(broker = broker.id, "connection closed: malformed request header");
            return;
        };
        let call = Call { broker: &broker, header: &header, peer };
        if !answer(&call, socket.as_ref(), body, &mut out).await {
            return;
        }
    }
}

/// Handles one request and writes its answer; false when the connection is to be closed.
async fn answer(call: &Call<'_>, socket: &dyn Socket, body: Bytes, out: &mut Vec<Bytes>) -> bool {
    let Call { broker, header, .. } = *call;
    out.clear();
    match handlers::handle(call, body, out).await {
        Ok(Answer::Written) => {}
        Ok(Answer::None) => return true,
        Ok(Answer::Close) => return false,
        Err(reason) => {
            tracing::warn!(broker = broker.id, api = %header.api, version = header.version, %reason, "connection closed");
            return false;
        }
    }
    if let Some(delay) = broker.delays.of(header.api.0) {
        tokio::time::sleep(delay).await;
    }
    write_all(socket, out).await.is_ok()
}

/// Reads once into the splitter; 0 means the peer has closed.
pub(crate) async fn fill(socket: &dyn Socket, frames: &mut FrameSplitter) -> io::Result<usize> {
    use tokio::io::AsyncReadExt;
    ReadHalf(socket).read_buf(frames.spare(READ)).await
}

struct ReadHalf<'a>(&'a dyn Socket);

impl tokio::io::AsyncRead for ReadHalf<'_> {
    fn poll_read(
        self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        self.0.poll_read(cx, buf)
    }
}

/// Parts in one system call.
const MAX_PARTS: usize = 64;

/// Writes all parts; empties `parts`.
pub(crate) async fn write_all(socket: &dyn Socket, parts: &mut Vec<Bytes>) -> io::Result<()> {
    let mut first = 0;
    while first < parts.len() {
        if parts[first].is_empty() {
            first += 1;
            continue;
        }
        let slices: Vec<IoSlice<'_>> =
            parts[first..].iter().take(MAX_PARTS).map(|part| IoSlice::new(part)).collect();
        match socket.try_write_vectored(&slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(mut written) => {
                while written > 0 {
                    let part = &mut parts[first];
                    let taken = written.min(part.len());
                    part.advance(taken);
                    written -= taken;
                    if part.is_empty() {
                        first += 1;
                    }
                }
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                poll_fn(|cx| socket.poll_write_ready(cx)).await?;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    parts.clear();
    Ok(())
}
