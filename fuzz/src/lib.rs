//! Fuzz targets: functions from arbitrary bytes to a verdict.
//!
//! A target panics when an invariant fails. The same targets run in two ways: `cargo test -p curtail-fuzz` replays the
//! corpus and a fixed number of mutated inputs with fixed seeds; `fuzz/run TARGET SECONDS` runs libFuzzer on the stable
//! toolchain, guided by coverage (decision 0042).
//!
//! # Invariants
//! - A target depends on its input only: no clock, no OS randomness, no state kept between inputs.
//! - A target that decodes does so inside [`memory::within`], which proves its memory cap.

mod input;
pub mod memory;
pub mod mutate;
mod network;
pub mod targets;

pub use input::Input;

/// One fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Name, also of its directory in `fuzz/corpus`.
    pub name: &'static str,
    /// Runs one input; panics when an invariant fails.
    pub run: fn(&[u8]),
    /// Valid inputs that the short run mutates and the long run starts from.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Mutated inputs in the short run.
    pub cases: u32,
}

/// Every target, by name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    targets::ALL.iter().find(|target| target.name == name)
}
