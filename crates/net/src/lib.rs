//! The seam between Curtail and the world: sockets, the wall clock and randomness.
//!
//! The client and the cluster reach all three only through this crate. The simulation can therefore
//! run the same code on a virtual network, in virtual time, from a seed. Elapsed time needs no
//! seam: both sides read it through `tokio::time`, whose clock the simulation drives.
//!
//! This crate does not know the Kafka protocol.

// `Instant + Duration` panics for durations that a caller may pass; see `curtail_proto::later`.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod choices;
mod entropy;
mod real;
mod socket;
#[cfg(feature = "tls")]
pub mod tls;

pub use choices::{HostCheck, SigningAlgorithm};
pub use entropy::{Entropy, secret_bytes};
pub use real::RealNet;
pub use socket::{BoxFuture, Keepalive, Listener, Net, ReadSide, Socket, SocketExt, SocketOptions};

use std::{
    fmt,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

/// Milliseconds since the Unix epoch, as records and logs carry them.
pub trait WallClock: Send + Sync {
    /// The current wall-clock time in milliseconds since 1970-01-01 UTC.
    fn now_ms(&self) -> i64;
}

/// The machine's own clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl WallClock for SystemClock {
    fn now_ms(&self) -> i64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64)
    }
}

/// The environment of a client or a broker: a network, a wall clock, a source of randomness.
#[derive(Clone)]
pub struct Env {
    /// Sockets and name resolution.
    pub net: Arc<dyn Net>,
    /// Wall-clock time.
    pub wall: Arc<dyn WallClock>,
    /// Randomness; derive one [`Entropy`] per component.
    pub entropy: Entropy,
}

impl Env {
    /// The real world: TCP, the system clock, randomness from the operating system.
    pub fn real() -> Self {
        Self { net: Arc::new(RealNet), wall: Arc::new(SystemClock), entropy: Entropy::from_os() }
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Env").finish_non_exhaustive()
    }
}
