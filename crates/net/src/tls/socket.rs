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
/// What a write has reported as written is with the socket below, all of it: nothing waits in here for another write.
/// Whoever was told `WouldBlock`, or that a part was written, goes on with the very bytes that were left, as with any
/// stream.
///
/// The peer ends the stream by saying so (`close_notify`). A connection that ends without it is an
/// [`io::ErrorKind::UnexpectedEof`]: whoever is in between could have cut it. Dropping the socket says so to the peer.
pub struct TlsSocket {
    inner: Box<dyn Socket>,
    state: Mutex<State>,
    peer_certificates: Vec<CertificateDer<'static>>,
}

struct State {
    session: Connection,
    /// Encrypted bytes from the socket below; those in `start..end` are still to be decrypted.
    incoming: Box<[u8]>,
    start: usize,
    end: usize,
    /// The last byte that was taken from a writer is encrypted, but was not reported as written, because what it is
    /// in is not with the socket below yet.
    held_back: bool,
    /// What the peer sent is not TLS, or not meant for this session.
    failed: Option<rustls::Error>,
}

/// How far a stream can be read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    /// There may be more.
    Open,
    /// The peer has said that this is the end.
    Ended,
}

impl TlsSocket {
    /// Shakes hands as the client, with a server that has to prove that it is `name`, within `limit`.
    ///
    /// # Errors
    /// See [`TlsError`]. With TLS 1.3 a server that does not accept the client's certificate says so only after this;
    /// see [`super::session_error`].
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

    /// Shakes hands as the server, within `limit`.
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

    /// The certificates that the peer has proved itself with, its own first. Empty for a client without one.
    #[must_use]
    pub fn peer_certificates(&self) -> &[CertificateDer<'static>] {
        &self.peer_certificates
    }

    /// Protocol version and cipher suite, such as `TLSv1_3, TLS13_AES_256_GCM_SHA384`.
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

    /// Gives everything encrypted to the socket below, however long that takes.
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

    /// Gives what is encrypted to the socket below. `WouldBlock` if it does not take all.
    fn flush(&mut self, inner: &dyn Socket) -> io::Result<()> {
        while self.session.wants_write() {
            if self.session.write_tls(&mut Below(inner))? == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Encrypts and writes. Of what the socket below does not take at once the last byte is not reported as written:
    /// that brings the caller back to have the rest flushed.
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

    /// Reads from the socket below; nothing to be decrypted afterwards means that it has ended. Only to be called with
    /// nothing left to decrypt.
    fn poll_incoming(&mut self, inner: &dyn Socket, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut read = ReadBuf::new(&mut self.incoming);
        ready!(inner.poll_read(cx, &mut read))?;
        (self.start, self.end) = (0, read.filled().len());
        if self.end == 0 {
            // So the session knows that nothing more comes.
            self.session.read_tls(&mut io::empty())?;
        }
        Poll::Ready(Ok(()))
    }

    /// Decrypts some of what was read; 0 if the session takes no more.
    fn decrypt(&mut self, inner: &dyn Socket) -> io::Result<usize> {
        let taken = self.session.read_tls(&mut &self.incoming[self.start..self.end])?;
        self.start += taken;
        let outcome = self.session.process_new_packets();
        // An alert, or an answer of the session's own. What is not taken now goes before the next write.
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

    /// Moves decrypted bytes into `buf`. Whether the stream has ended.
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
            // An error after some bytes is left for the next call, which meets it again.
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
                    // What follows the end does not count.
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

/// The socket below, for the session to write to.
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
        // As far as the socket takes it without waiting: a peer that does not read is not waited for.
        let _ = state.flush(&*self.inner);
    }
}

impl fmt::Debug for TlsSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSocket").finish_non_exhaustive()
    }
}
