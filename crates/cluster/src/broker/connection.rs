//! One connection: its requests are read, handled and answered one at a time, in order. Kafka has
//! the same effect by muting a connection while it handles a request.

use std::{
    future::poll_fn,
    io::{self, IoSlice},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use bytes::{Buf, Bytes};
use curtail_net::Socket;
use curtail_wire::{frame::FrameSplitter, header::split_request};
use tokio::time::{Instant, sleep};

use super::{Broker, connections::Ticket};
use crate::{
    admission::{Admission, Authentication, Now, Verdict},
    handlers::{self, Answer, Call},
};

/// Bytes per read. A larger frame allocates its own buffer.
const READ: usize = 16 * 1024;

/// Serves a connection until it closes, breaks, or sends something that is not a request.
pub(super) async fn serve(
    broker: Arc<Broker>,
    socket: Box<dyn Socket>,
    peer: IpAddr,
    admission: Arc<Admission>,
    ticket: Ticket,
) {
    if let Err(reason) = converse(&broker, socket, peer, admission, &ticket).await {
        tracing::warn!(broker = broker.id, %peer, reason, "connection closed");
    }
}

async fn converse(
    broker: &Arc<Broker>,
    socket: Box<dyn Socket>,
    peer: IpAddr,
    admission: Arc<Admission>,
    ticket: &Ticket,
) -> Result<(), String> {
    let failure_delay = admission.failure_delay();
    let (socket, principal) = match admission.shake_hands(socket).await {
        Ok(connected) => connected,
        Err(error) => {
            sleep(failure_delay).await;
            return Err(error.to_string());
        }
    };
    let socket = socket.as_ref();
    let limit = broker.config.socket_request_max_bytes;
    let mut authentication = Authentication::new(admission, principal);
    if authentication.is_over() {
        ticket.authenticated();
    }
    let mut frames = FrameSplitter::new(authentication.frame_limit(limit));
    let mut out: Vec<Bytes> = Vec::new();
    loop {
        let Some(frame) = frames.next_frame().map_err(|error| error.to_string())? else {
            ticket.idle(Instant::now());
            match fill(socket, &mut frames).await {
                Ok(0) => return Ok(()),
                Ok(_) => continue,
                Err(error) => {
                    tracing::debug!(broker = broker.id, %error, "connection lost");
                    return Ok(());
                }
            }
        };
        let Ok((header, body)) = split_request(&frame) else {
            return Err("malformed request header".into());
        };
        out.clear();
        ticket.busy();
        let now = Now { instant: Instant::now(), wall_ms: broker.env.wall.now_ms() };
        let verdict = authentication.receive(&header, &body, &broker.image().credentials, now);
        match verdict {
            Verdict::Serve => {
                let principal = authentication.principal();
                let size = frame.len();
                let call = Call::new(broker, &header, peer, principal, size);
                if !answer(&call, socket, body, &mut out).await? {
                    return Ok(());
                }
            }
            Verdict::Answer(step) => {
                out.push(step);
                if write_all(socket, &mut out).await.is_err() {
                    return Ok(());
                }
                if authentication.is_over() {
                    ticket.authenticated();
                }
                frames.set_limit(authentication.frame_limit(limit));
            }
            Verdict::Refuse { answer, reason } => {
                sleep(failure_delay).await;
                out.push(answer);
                // The connection is refused whether the write succeeds or not.
                let _ = write_all(socket, &mut out).await;
                return Err(reason);
            }
            Verdict::Close(reason) => return Err(reason.into()),
        }
    }
}

/// Handles one request and writes its response. Returns false if the connection must be closed.
///
/// # Errors
/// Why the connection must be closed, if the client caused it.
async fn answer(
    call: &Call<'_>,
    socket: &dyn Socket,
    body: Bytes,
    out: &mut Vec<Bytes>,
) -> Result<bool, String> {
    let Call { broker, header, .. } = *call;
    let handled = handlers::handle(call, body, out).await;
    let answer =
        handled.map_err(|reason| format!("{} {}: {reason}", header.api, header.version))?;
    let silence = match answer {
        Answer::Written => Duration::ZERO,
        Answer::Mute(silence) => silence,
        Answer::None => return Ok(true),
        Answer::Close => return Ok(false),
    };
    if let Some(delay) = broker.delays.of(header.api.0) {
        sleep(delay).await;
    }
    if write_all(socket, out).await.is_err() {
        return Ok(false);
    }
    if !silence.is_zero() {
        sleep(silence).await;
    }
    Ok(true)
}

/// Reads once into the splitter; 0 means that the peer has closed.
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

/// Maximum parts per system call.
const MAX_PARTS: usize = 64;

/// Writes all parts and clears `parts`.
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
