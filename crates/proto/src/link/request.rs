//! Requests of a connection, from their making to their responses.

use std::time::Instant;

/// A batch, as far as a link needs to know it.
pub trait Carried {
    /// When its first record arrived.
    fn created(&self) -> Instant;
    /// Encoded bytes.
    fn bytes(&self) -> usize;
    /// Bytes of `buffer.memory` that it holds.
    fn reserved(&self) -> usize;
    /// Bytes of its records, as [`crate::path::Gate::charge`] counts them.
    fn record_bytes(&self) -> usize;
}

/// A request. `E` is what the caller keeps with it.
#[derive(Debug)]
pub struct Request<B, E> {
    /// Batches whose outcome the request decides. Batches that expired or moved to another leader are taken out.
    pub batches: Vec<B>,
    /// When it was built. `request.timeout.ms` counts from here, or from the write if the socket was full.
    pub written: Instant,
    /// Requests in flight when it was built.
    pub ahead: usize,
    /// What the caller keeps with the request.
    pub envelope: E,
    /// Bytes of `buffer.memory` that its batches held when it was built.
    pub(super) reserved: usize,
    /// Bytes of its records.
    pub(super) record_bytes: usize,
    /// Batches when it was built.
    pub(super) width: usize,
    /// Whether it was small enough to measure the round trip.
    pub(super) is_small: bool,
}

/// The newest request, until the socket has accepted all of it.
#[derive(Debug)]
pub(super) struct Unsent<B, E> {
    pub(super) built: Instant,
    /// Whether the socket has accepted bytes of it.
    pub(super) is_begun: bool,
    /// Whether the socket was full since the request was built.
    pub(super) was_blocked: bool,
    /// With acks=0: the request, which is never in flight, and the deadline that closes the connection.
    pub(super) unanswered: Option<(Request<B, E>, Instant)>,
}

/// A request whose bytes the socket has accepted.
#[derive(Debug)]
pub struct Written<B, E> {
    /// When it was built.
    pub built: Instant,
    /// The request, if it has no response (acks=0).
    pub unanswered: Option<Request<B, E>>,
}
