//! Whether a broker can be expected to acknowledge.

use std::sync::atomic::{AtomicU8, Ordering};

/// Whether a broker can be expected to acknowledge; greater is worse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Trouble {
    /// No trouble is known.
    #[default]
    Fine = 0,
    /// Its oldest request in flight is older than the limit. The broker is unresponsive, or waits for a replica that
    /// is.
    Suspect = 1,
    /// It completes no handshake: it refused, closed or reset the connection, or is unresponsive, and no new
    /// connection stands yet.
    Unreachable = 2,
}

impl Trouble {
    fn of(code: u8) -> Self {
        match code {
            0 => Self::Fine,
            1 => Self::Suspect,
            _ => Self::Unreachable,
        }
    }
}

/// A [`Trouble`] for lock-free access from any task, with relaxed ordering.
#[derive(Debug, Default)]
pub struct AtomicTrouble(AtomicU8);

impl AtomicTrouble {
    /// Returns the current trouble.
    pub fn load(&self) -> Trouble {
        Trouble::of(self.0.load(Ordering::Relaxed))
    }

    /// Sets the trouble and returns the previous one.
    pub fn swap(&self, trouble: Trouble) -> Trouble {
        Trouble::of(self.0.swap(trouble as u8, Ordering::Relaxed))
    }
}
