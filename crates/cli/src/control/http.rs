//! HTTP/1.1 on a TCP socket, both sides, with bodies that are whole.

use std::{
    convert::Infallible,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use hyper::{
    body::{Body, Bytes, Frame, Incoming, SizeHint},
    rt::{Read, ReadBufCursor, Write},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// Bytes per read.
const CHUNK: usize = 8 * 1024;

/// Adapts a socket of tokio to hyper.
pub(crate) struct Stream(pub(crate) TcpStream);

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut chunk = [0; CHUNK];
        let length = buf.remaining().min(CHUNK);
        let mut read = ReadBuf::new(&mut chunk[..length]);
        ready!(Pin::new(&mut self.0).poll_read(cx, &mut read))?;
        buf.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }
}

impl Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// A body of which all bytes are known.
#[derive(Debug, Default)]
pub(crate) struct Whole(Option<Bytes>);

impl From<String> for Whole {
    fn from(text: String) -> Self {
        Self(Some(text.into()).filter(|bytes: &Bytes| !bytes.is_empty()))
    }
}

impl Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

/// Why a body was not read.
#[derive(Debug)]
pub(crate) enum Unread {
    /// It has more bytes than allowed.
    TooLarge,
    /// The connection broke.
    Broken(hyper::Error),
}

/// Collects a body of at most `most` bytes.
pub(crate) async fn collect(mut body: Incoming, most: usize) -> Result<Vec<u8>, Unread> {
    let mut bytes = Vec::new();
    loop {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        let Some(frame) = frame else { return Ok(bytes) };
        let frame = frame.map_err(Unread::Broken)?;
        let Some(data) = frame.data_ref() else { continue };
        if bytes.len() + data.len() > most {
            return Err(Unread::TooLarge);
        }
        bytes.extend_from_slice(data);
    }
}
