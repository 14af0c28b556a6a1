//! The laboratory: load, latencies and what they cost, through the public API only.
//!
//! [`perf`] holds the engines behind `curtail perf`. Nothing here prints; reports are values that the caller
//! shows, and [`perf::Progress`] tells how far a run is.

pub mod cpu;
pub mod latency;
pub mod perf;
