//! Reassembly of frames: four bytes of length, then as many bytes.

use bytes::{Buf, Bytes, BytesMut};
use thiserror::Error;

#[cfg(test)]
mod tests;

/// Largest frame accepted unless told otherwise: Kafka's own default for requests is the same.
pub const DEFAULT_LIMIT: usize = 100 * 1024 * 1024;

/// Largest frame to accept from a peer that has not authenticated.
pub const UNAUTHENTICATED_LIMIT: usize = 64 * 1024;

const PREFIX: usize = 4;

/// Room is made for a whole frame at once up to this size. Beyond it, room grows with what has arrived, so
/// that a peer cannot claim memory with four bytes.
const EAGER: usize = 2 * 1024 * 1024;

/// A read into less than this is not worth its system call.
const LOW_WATER: usize = 2 * 1024;

/// Why a stream of bytes is not a stream of frames. The stream cannot be read further.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum FrameError {
    /// The frame is larger than the limit.
    #[error("frame of {length} bytes is larger than the limit of {limit}")]
    TooLarge {
        /// Bytes claimed.
        length: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// The length is negative.
    #[error("frame of negative length {length}")]
    NegativeLength {
        /// Length found.
        length: i32,
    },
    /// The peer speaks another protocol.
    #[error("the peer does not speak the Kafka protocol in clear text: {hint}")]
    NotKafka {
        /// What it seems to speak and what to check.
        hint: &'static str,
    },
}

const SPEAKS_TLS: &str =
    "it speaks TLS; one side has TLS enabled for this listener and the other has not";

impl FrameError {
    /// Whether the peer speaks TLS where clear text was expected.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        matches!(self, Self::NotKafka { hint } if *hint == SPEAKS_TLS)
    }
}

/// Cuts a stream of bytes into frames, without copying and without input or output of its own:
///
/// ```
/// # use curtail_wire::frame::FrameSplitter;
/// let mut splitter = FrameSplitter::default();
/// splitter.spare(64).extend_from_slice(b"\0\0\0\x05hello\0\0");
/// assert_eq!(splitter.next_frame().unwrap().unwrap(), "hello");
/// assert_eq!(splitter.next_frame().unwrap(), None);
/// ```
#[derive(Debug)]
pub struct FrameSplitter {
    buffer: BytesMut,
    limit: usize,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Nothing has been read: what comes may not be Kafka at all.
    Start,
    /// Between frames, or inside a length.
    Length,
    /// The length has been read and `0` bytes have to follow.
    Body(usize),
    /// The stream is broken.
    Failed(FrameError),
}

impl Default for FrameSplitter {
    fn default() -> Self {
        Self::new(DEFAULT_LIMIT)
    }
}

impl FrameSplitter {
    /// Accepts frames of up to `limit` bytes, not counting the length itself.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { buffer: BytesMut::new(), limit, state: State::Start }
    }

    /// Changes the limit for the frames whose length has not been read yet, such as after authentication.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Where to append what the socket has: at least some room, about `hint` bytes when a new buffer is
    /// needed anyway, and all the room a large frame needs once its length is known.
    pub fn spare(&mut self, hint: usize) -> &mut BytesMut {
        let buffered = self.buffer.len();
        let missing = match self.state {
            State::Body(length) => length.saturating_sub(buffered),
            _ => PREFIX,
        };
        // Up to EAGER bytes of a frame get their room at once. Beyond them the buffer doubles, once it is full.
        let (enough, more) = if buffered < EAGER {
            let rest = missing.min(EAGER - buffered).max(LOW_WATER);
            (rest, rest)
        } else {
            (LOW_WATER, missing.min(buffered).max(LOW_WATER))
        };
        if self.buffer.capacity() - buffered < enough {
            self.buffer.reserve(more.max(hint));
        }
        &mut self.buffer
    }

    /// Bytes received and not given out as frames yet.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Whether the stream may end here: no frame has begun.
    #[must_use]
    pub fn is_between_frames(&self) -> bool {
        self.buffer.is_empty() && !matches!(self.state, State::Body(_))
    }

    /// The next whole frame, without its length; `None` until more bytes have arrived.
    ///
    /// After an error every further call answers the same error.
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, FrameError> {
        let length = match self.state {
            State::Body(length) => length,
            State::Failed(error) => return Err(error),
            State::Start | State::Length => {
                let Some(prefix) = self.buffer.first_chunk::<PREFIX>() else { return Ok(None) };
                let length = match self.length(*prefix) {
                    Ok(length) => length,
                    Err(error) => {
                        self.state = State::Failed(error);
                        self.buffer = BytesMut::new();
                        return Err(error);
                    }
                };
                self.buffer.advance(PREFIX);
                self.state = State::Body(length);
                length
            }
        };
        if self.buffer.len() < length {
            return Ok(None);
        }
        self.state = State::Length;
        let frame = self.buffer.split_to(length).freeze();
        // A buffer this large would otherwise be kept for the small frames that follow.
        if length > EAGER && self.buffer.len() <= length {
            self.buffer = BytesMut::from(&self.buffer[..]);
        }
        Ok(Some(frame))
    }

    fn length(&self, prefix: [u8; PREFIX]) -> Result<usize, FrameError> {
        let length = i32::from_be_bytes(prefix);
        let fits = usize::try_from(length).ok().filter(|length| *length <= self.limit);
        if let Some(hint) = foreign(prefix)
            && (fits.is_none() || matches!(self.state, State::Start))
        {
            return Err(FrameError::NotKafka { hint });
        }
        match fits {
            Some(length) => Ok(length),
            None if length < 0 => Err(FrameError::NegativeLength { length }),
            None => Err(FrameError::TooLarge { length: length as usize, limit: self.limit }),
        }
    }
}

/// What another protocol's first four bytes look like. As lengths all of these are beyond 300 MB.
fn foreign(prefix: [u8; PREFIX]) -> Option<&'static str> {
    match &prefix {
        b"HTTP" => Some("it answers in HTTP; check the host and port"),
        b"GET " | b"POST" | b"PUT " | b"HEAD" | b"OPTI" => {
            Some("it sends an HTTP request; check the port it is meant for")
        }
        b"SSH-" => Some("it is an SSH server; check the host and port"),
        [0x15 | 0x16, 0x03, ..] => Some(SPEAKS_TLS),
        _ => None,
    }
}
