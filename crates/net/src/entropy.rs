//! Randomness that can be replayed.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use rand::{
    RngCore, SeedableRng, TryRngCore,
    rngs::{OsRng, SmallRng},
};

/// A shared source of randomness: from the operating system in production, from a seed in simulation.
///
/// Not for secrets. It serves jitter, ids and choices among equals.
#[derive(Clone)]
pub struct Entropy(Arc<Mutex<SmallRng>>);

impl Entropy {
    /// Seeds from the operating system.
    ///
    /// # Panics
    /// As [`secret_bytes`].
    pub fn from_os() -> Self {
        Self::from_seed(u64::from_ne_bytes(secret_bytes()))
    }

    /// The same seed gives the same sequence.
    pub fn from_seed(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(SmallRng::seed_from_u64(seed))))
    }

    /// A random 64-bit number.
    pub fn next_u64(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).next_u64()
    }

    /// A number below `bound`; 0 when `bound` is 0.
    pub fn below(&self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next_u64() % bound }
    }

    /// A number in `[0, 1)`.
    pub fn unit(&self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a separate source for one component, so that its draws do not shift another's.
    pub fn fork(&self) -> Self {
        Self::from_seed(self.next_u64())
    }
}

/// Random bytes for secrets, from the operating system.
///
/// # Panics
/// If the operating system has no randomness.
#[must_use]
pub fn secret_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    OsRng.unwrap_err().fill_bytes(&mut bytes);
    bytes
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy")
    }
}
