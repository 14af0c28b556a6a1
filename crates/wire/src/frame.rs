//! Reassembly of frames: four bytes of length, then as many bytes.

use bytes::{Buf, Bytes, BytesMut};
use thiserror::Error;

#[cfg(test)]
mod tests;

/// Default limit of a frame, the same as Kafka's for requests.
pub const DEFAULT_LIMIT: usize = 100 * 1024 * 1024;

/// Limit of a frame from a peer that has not authenticated.
pub const UNAUTHENTICATED_LIMIT: usize = 64 * 1024;

const PREFIX: usize = 4;

/// Buffer space for a frame is reserved at once up to this size. Beyond it, the buffer grows with the received bytes,
/// so that a peer cannot claim memory with four bytes.
const EAGER: usize = 2 * 1024 * 1024;

/// A read into less than this is not worth its system call.
const LOW_WATER: usize = 2 * 1024;

/// Why a stream of bytes is not a stream of frames. No further frame can be read from it.
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
    #[error("the peer does not speak the Kafka protocol in plaintext: {hint}")]
    NotKafka {
        /// Protocol that the peer seems to use, and what to check.
        hint: &'static str,
    },
}

const SPEAKS_TLS: &str = "it speaks TLS";

impl FrameError {
    /// Whether the peer uses TLS where plaintext was expected.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        matches!(self, Self::NotKafka { hint } if *hint == SPEAKS_TLS)
    }
}

/// Cuts a stream of bytes into frames, without copying and without doing any I/O:
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
    /// No byte has been read: the peer may not use Kafka's protocol.
    Start,
    /// Between frames, or inside a length.
    Length,
    /// The length has been read and `0` more bytes belong to the frame.
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

    /// Changes the limit for frames whose length has not been read yet, for example after authentication.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Returns the buffer to append received bytes to. It always has some space: about `hint` bytes if a new buffer
    /// is needed, and all the space of a large frame once its length is known.
    pub fn spare(&mut self, hint: usize) -> &mut BytesMut {
        let buffered = self.buffer.len();
        let missing = match self.state {
            State::Body(length) => length.saturating_sub(buffered),
            _ => PREFIX,
        };
        // Up to EAGER bytes of a frame get their space at once. Beyond them the buffer doubles whenever it is full.
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

    /// Bytes received but not returned in frames yet.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Whether the stream may end here: no frame has begun.
    #[must_use]
    pub fn is_between_frames(&self) -> bool {
        self.buffer.is_empty() && !matches!(self.state, State::Body(_))
    }

    /// Returns the next whole frame, without its length; `None` until more bytes have arrived.
    ///
    /// After an error every further call returns the same error.
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
        // Otherwise a buffer this large would be kept for the small frames that follow.
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

/// Recognizes the first four bytes of other protocols. As lengths all of these are beyond 300 MB.
fn foreign(prefix: [u8; PREFIX]) -> Option<&'static str> {
    match &prefix {
        b"HTTP" => Some("it responds in HTTP; check the host and port"),
        b"GET " | b"POST" | b"PUT " | b"HEAD" | b"OPTI" => {
            Some("it sends an HTTP request; check the port it is meant for")
        }
        b"SSH-" => Some("it is an SSH server; check the host and port"),
        [0x15 | 0x16, 0x03, ..] => Some(SPEAKS_TLS),
        _ => None,
    }
}
