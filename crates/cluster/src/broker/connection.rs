//! One connection: its requests are read, handled and answered one at a time, in order. Kafka has
//! the same effect by muting a connection while it handles a request.

use std::{
    future::poll_fn,
    io::{self, IoSlice},
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
    faults::{Fate, LineSocket, Then},
    handlers::{self, Answer, Call},
    observer::HandledRequest,
    telemetry::Origin,
};

/// Bytes per read. A larger frame allocates its own buffer.
const READ: usize = 16 * 1024;

/// Serves a connection until it closes, breaks, or sends something that is not a request.
pub(super) async fn serve(
    broker: Arc<Broker>,
    socket: Box<dyn Socket>,
    origin: Origin,
    admission: Arc<Admission>,
    ticket: Ticket,
) {
    let _departure = Departure { broker: &broker, connection: origin.connection };
    if let Err(reason) = converse(&broker, socket, &origin, admission, &ticket).await {
        tracing::warn!(broker = broker.id, peer = %origin.ip, reason, "connection closed");
    }
}

/// Forgets a connection's client, also if the connection's task is stopped.
struct Departure<'a> {
    broker: &'a Broker,
    connection: u64,
}

impl Drop for Departure<'_> {
    fn drop(&mut self) {
        self.broker.telemetry.lock().disconnected(self.connection);
    }
}

async fn converse(
    broker: &Arc<Broker>,
    socket: Box<dyn Socket>,
    origin: &Origin,
    admission: Arc<Admission>,
    ticket: &Ticket,
) -> Result<(), String> {
    let failure_delay = admission.failure_delay();
    let line = broker.faults.lines().line(broker.id);
    let socket: Box<dyn Socket> = Box::new(LineSocket { socket, line: Arc::clone(&line) });
    let (socket, principal) = match admission.shake_hands(socket).await {
        Ok(connected) => connected,
        Err(error) => {
            sleep(failure_delay).await;
            return Err(error.to_string());
        }
    };
    let socket = socket.as_ref();
    let limit = broker.config.socket_request_max_bytes;
    let listener = admission.listener().clone();
    let mut authentication = Authentication::new(admission, principal);
    if authentication.is_over() {
        ticket.authenticated();
    }
    let mut frames = FrameSplitter::new(authentication.frame_limit(limit));
    let mut out: Vec<Bytes> = Vec::new();
    // A fault has silenced the connection: requests are handled, and nothing is written.
    let mut silent = false;
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
        line.identify(header.client_id.unwrap_or_default());
        line.arrived().await;
        out.clear();
        ticket.busy();
        let now = Now { instant: Instant::now(), wall_ms: broker.env.wall.now_ms() };
        let verdict = authentication.receive(&header, &body, &broker.image().credentials, now);
        match verdict {
            Verdict::Serve => {
                let principal = authentication.principal();
                let size = frame.len();
                let call = Call::new(broker, &header, origin, &listener, principal, size);
                match observed(&call, socket, body, &mut out, silent).await? {
                    Next::Continue => {}
                    Next::Silence => silent = true,
                    Next::Close => return Ok(()),
                }
            }
            Verdict::Answer(step) => {
                out.push(step);
                if !silent && write_all(socket, &mut out).await.is_err() {
                    return Ok(());
                }
                if authentication.is_over() {
                    ticket.authenticated();
                }
                frames.set_limit(authentication.frame_limit(limit));
            }
            Verdict::Refuse { answer, reason } => {
                sleep(failure_delay).await;
                if !silent {
                    out.push(answer);
                    // The connection is refused whether the write succeeds or not.
                    let _ = write_all(socket, &mut out).await;
                }
                return Err(reason);
            }
            Verdict::Close(reason) => return Err(reason.into()),
        }
    }
}

/// The consequence of a request for its connection.
pub(crate) enum Next {
    Continue,
    /// Nothing is written any longer.
    Silence,
    Close,
}

/// Like [`answer`], and tells the observer.
async fn observed(
    call: &Call<'_>,
    socket: &dyn Socket,
    body: Bytes,
    out: &mut Vec<Bytes>,
    silent: bool,
) -> Result<Next, String> {
    let observers = &call.broker.owner.observers;
    if !observers.is_present() {
        return answer(call, socket, body, out, silent, &mut 0).await;
    }
    let (begun, mut sent) = (Instant::now(), 0);
    let next = answer(call, socket, body, out, silent, &mut sent).await;
    let header = call.header;
    let handled = HandledRequest {
        broker: call.broker.id,
        peer: call.peer,
        client_id: header.client_id.unwrap_or_default(),
        api: header.api,
        version: header.version,
        received: call.size(),
        sent,
        time: begun.elapsed(),
        closes: matches!(next, Ok(Next::Close) | Err(_)),
    };
    observers.tell(|observer, _| observer.handled(&handled));
    next
}

/// Handles one request and writes its response, unless the connection is silent.
///
/// # Errors
/// Why the connection must be closed, if the client caused it.
async fn answer(
    call: &Call<'_>,
    socket: &dyn Socket,
    body: Bytes,
    out: &mut Vec<Bytes>,
    silent: bool,
    sent: &mut usize,
) -> Result<Next, String> {
    let Call { broker, header, .. } = *call;
    let asked = call.as_faults_see_it();
    if broker.faults.closes(&asked) {
        return Ok(Next::Close);
    }
    let handled = handlers::handle(call, body, out).await;
    let answer =
        handled.map_err(|reason| format!("{} {}: {reason}", header.api, header.version))?;
    let silence = match answer {
        Answer::Written => Duration::ZERO,
        Answer::Mute(silence) => silence,
        Answer::None => return Ok(Next::Continue),
        Answer::Close => return Ok(Next::Close),
    };
    if silent {
        return Ok(Next::Continue);
    }
    let fate = broker.faults.fate(&asked, &call.named);
    let Ok((next, bytes)) = deliver(socket, out, fate).await else { return Ok(Next::Close) };
    *sent = bytes;
    if matches!(next, Next::Continue) && !silence.is_zero() {
        sleep(silence).await;
    }
    Ok(next)
}

/// Writes a response as faults have it. Returns the consequence and the number of bytes written.
pub(crate) async fn deliver(
    socket: &dyn Socket,
    out: &mut Vec<Bytes>,
    Fate { delay, then }: Fate,
) -> io::Result<(Next, usize)> {
    if !delay.is_zero() {
        sleep(delay).await;
    }
    let next = match then {
        Then::Write => Next::Continue,
        Then::Silence => return Ok((Next::Silence, 0)),
        Then::Close(bytes) => {
            truncate(out, bytes);
            Next::Close
        }
    };
    let bytes = out.iter().map(Bytes::len).sum();
    write_all(socket, out).await?;
    Ok((next, bytes))
}

/// Keeps the first bytes of a response.
fn truncate(parts: &mut [Bytes], bytes: u64) {
    let mut left = usize::try_from(bytes).unwrap_or(usize::MAX);
    for part in parts {
        part.truncate(left);
        left -= part.len();
    }
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
