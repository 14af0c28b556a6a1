//! A TLS session over a socket.

use std::{
    fmt,
    future::poll_fn,
    io::{self, BufRead as _, IoSlice, Write},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use rustls::{
    ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection,
    pki_types::{CertificateDer, ServerName},
};
use tokio::{io::ReadBuf, time::timeout};

use super::TlsError;
use crate::Socket;

/// Bytes to read from the socket below at a time: two full records.
const INCOMING: usize = 32 * 1024;

/// A socket whose bytes are encrypted on the socket below it.
///
/// Bytes reported as written are completely with the socket below: none of them waits here for
/// another write. After `WouldBlock` or a partial write, the caller must retry with exactly the
/// remaining bytes, as with any stream.
///
/// The peer ends the stream with `close_notify`. A connection that ends without it is an
/// [`io::ErrorKind::UnexpectedEof`], since an attacker could have cut it. Dropping the socket sends
/// `close_notify`.
pub struct TlsSocket {
    inner: Box<dyn Socket>,
    state: Mutex<State>,
    peer_certificates: Vec<CertificateDer<'static>>,
}

struct State {
    session: Connection,
    /// Encrypted bytes from the socket below; `start..end` is not yet decrypted.
    incoming: Box<[u8]>,
    start: usize,
    end: usize,
    /// Whether the last byte taken from a writer is encrypted but unreported, because its record is
    /// not yet with the socket below.
    held_back: bool,
    /// A TLS error in the peer's bytes.
    failed: Option<rustls::Error>,
}

/// Whether a stream has more to read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    /// More bytes may follow.
    Open,
    /// The peer has ended the stream.
    Ended,
}

impl TlsSocket {
    /// Completes the handshake as the client within `limit`. The server must prove that it is
    /// `name`.
    ///
    /// # Errors
    /// See [`TlsError`]. With TLS 1.3 a server reports an unacceptable client certificate only
    /// after the handshake; see [`super::session_error`].
    ///
    /// # Cancel safety
    /// Not cancel safe: a dropped future drops the connection.
    pub async fn connect(
        socket: Box<dyn Socket>,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
        limit: Duration,
    ) -> Result<Self, TlsError> {
        let session = ClientConnection::new(config, name)?;
        Self::shake_hands(socket, session.into(), limit).await
    }

    /// Completes the handshake as the server within `limit`.
    ///
    /// # Errors
    /// See [`TlsError`].
    ///
    /// # Cancel safety
    /// Not cancel safe: a dropped future drops the connection.
    pub async fn accept(
        socket: Box<dyn Socket>,
        config: Arc<ServerConfig>,
        limit: Duration,
    ) -> Result<Self, TlsError> {
        let session = ServerConnection::new(config)?;
        Self::shake_hands(socket, session.into(), limit).await
    }

    async fn shake_hands(
        inner: Box<dyn Socket>,
        session: Connection,
        limit: Duration,
    ) -> Result<Self, TlsError> {
        let incoming = vec![0; INCOMING].into();
        let mut state =
            State { session, incoming, start: 0, end: 0, held_back: false, failed: None };
        match timeout(limit, state.shake_hands(&*inner)).await {
            Ok(done) => done?,
            Err(_) => return Err(TlsError::TimedOut(limit)),
        }
        let certificates = state.session.peer_certificates().unwrap_or_default();
        let peer_certificates =
            certificates.iter().map(|certificate| certificate.clone().into_owned()).collect();
        Ok(Self { inner, state: Mutex::new(state), peer_certificates })
    }

    /// The peer's certificates, its own first. Empty for a client without one.
    #[must_use]
    pub fn peer_certificates(&self) -> &[CertificateDer<'static>] {
        &self.peer_certificates
    }

    /// Describes protocol version and cipher suite, such as `TLSv1_3, TLS13_AES_256_GCM_SHA384`.
    #[must_use]
    pub fn describe(&self) -> String {
        let state = self.lock();
        let version = state.session.protocol_version().and_then(|version| version.as_str());
        let suite = state.session.negotiated_cipher_suite();
        let suite = suite.and_then(|suite| suite.suite().as_str());
        format!("{}, {}", version.unwrap_or("?"), suite.unwrap_or("?"))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    async fn shake_hands(&mut self, inner: &dyn Socket) -> Result<(), TlsError> {
        loop {
            self.drain(inner).await.map_err(TlsError::Io)?;
            if !self.session.is_handshaking() {
                return Ok(());
            }
            poll_fn(|cx| self.poll_incoming(inner, cx)).await.map_err(TlsError::of)?;
            if self.start == self.end {
                return Err(TlsError::Closed);
            }
            while self.start < self.end && self.session.is_handshaking() {
                if self.decrypt(inner).map_err(TlsError::of)? == 0 {
                    return Err(TlsError::Closed);
                }
            }
        }
    }

    /// Writes all encrypted bytes to the socket below and waits until it has accepted them.
    async fn drain(&mut self, inner: &dyn Socket) -> io::Result<()> {
        loop {
            match self.flush(inner) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    poll_fn(|cx| inner.poll_write_ready(cx)).await?;
                }
                done => return done,
            }
        }
    }

    /// Writes encrypted bytes to the socket below. `WouldBlock` if it does not accept all of them.
    fn flush(&mut self, inner: &dyn Socket) -> io::Result<()> {
        while self.session.wants_write() {
            if self.session.write_tls(&mut Below(inner))? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Encrypts and writes. If the socket below does not accept everything at once, the last byte
    /// is not reported as written. The caller therefore calls again, which flushes the rest.
    fn write(&mut self, inner: &dyn Socket, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush(inner)?;
        if self.held_back && bufs.iter().any(|buf| !buf.is_empty()) {
            self.held_back = false;
            return Ok(1);
        }
        let taken = self.session.writer().write_vectored(bufs)?;
        match self.flush(inner) {
            Ok(()) => Ok(taken),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                self.held_back = true;
                if taken > 1 { Ok(taken - 1) } else { Err(e) }
            }
            Err(e) => Err(e),
        }
    }

    /// Reads from the socket below. If nothing is left to decrypt afterwards, that socket has
    /// ended. Call only when nothing is left to decrypt.
    fn poll_incoming(&mut self, inner: &dyn Socket, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut read = ReadBuf::new(&mut self.incoming);
        ready!(inner.poll_read(cx, &mut read))?;
        (self.start, self.end) = (0, read.filled().len());
        if self.end == 0 {
            // An empty read tells the session that the stream has ended.
            self.session.read_tls(&mut io::empty())?;
        }
        Poll::Ready(Ok(()))
    }

    /// Decrypts some of the bytes read; 0 if the session takes no more.
    fn decrypt(&mut self, inner: &dyn Socket) -> io::Result<usize> {
        let taken = self.session.read_tls(&mut &self.incoming[self.start..self.end])?;
        self.start += taken;
        let outcome = self.session.process_new_packets();
        // The session may have an alert or a handshake response to send. The next write flushes the
        // remainder.
        let answered = self.flush(inner);
        if let Err(error) = outcome {
            self.failed = Some(error.clone());
            return Err(invalid(error));
        }
        match answered {
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => Err(e),
            _ => Ok(taken),
        }
    }

    /// Moves decrypted bytes into `buf` and returns whether the stream has ended.
    fn give_out(&mut self, buf: &mut ReadBuf<'_>) -> io::Result<Stream> {
        let mut reader = self.session.reader();
        while buf.remaining() > 0 {
            let chunk = match reader.fill_buf() {
                Ok([]) => return Ok(Stream::Ended),
                Ok(chunk) => chunk,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => match &self.failed {
                    Some(error) => return Err(invalid(error.clone())),
                    None => break,
                },
                Err(e) => return Err(e),
            };
            let length = chunk.len().min(buf.remaining());
            buf.put_slice(&chunk[..length]);
            reader.consume(length);
        }
        Ok(Stream::Open)
    }

    fn poll_read(
        &mut self,
        inner: &dyn Socket,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        loop {
            // An error after some bytes is left for the next call, which hits it again.
            match self.give_out(buf) {
                Ok(Stream::Open) => {}
                Err(e) if buf.filled().len() == before => return Poll::Ready(Err(e)),
                Ok(Stream::Ended) | Err(_) => return Poll::Ready(Ok(())),
            }
            if buf.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            if self.start < self.end {
                match self.decrypt(inner) {
                    // Bytes after the end of the stream are discarded.
                    Ok(0) => self.start = self.end,
                    Ok(_) => {}
                    Err(_) if buf.filled().len() > before => return Poll::Ready(Ok(())),
                    Err(e) => return Poll::Ready(Err(e)),
                }
                continue;
            }
            if buf.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_incoming(inner, cx))?;
        }
    }
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// The socket below, as the session's writer.
struct Below<'a>(&'a dyn Socket);

impl Write for Below<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.try_write_vectored(&[IoSlice::new(buf)])
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Socket for TlsSocket {
    fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.lock().write(&*self.inner, bufs)
    }

    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner.poll_write_ready(cx)
    }

    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.lock().poll_read(&*self.inner, cx, buf)
    }

    fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.inner.peer_addr()
    }
}

impl Drop for TlsSocket {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        state.session.send_close_notify();
        // Without waiting: a peer that does not read must not delay the drop.
        let _ = state.flush(&*self.inner);
    }
}

impl fmt::Debug for TlsSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSocket").finish_non_exhaustive()
    }
}
