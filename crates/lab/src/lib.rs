//! The laboratory: load, latencies and their cost, through the public API only.
//!
//! [`perf`] holds the engines of `curtail perf`, [`experiments`] and [`mod@bench`] those of `curtail lab`, [`kills`] that of
//! `curtail lab kills`, and [`doctor`] that of `curtail doctor`. [`peers`] runs other clients under the same load. Nothing here
//! prints: reports are values that the caller shows, and [`perf::Progress`] receives the progress of a run.
//!
//! The feature `perf` adds the engines of `curtail perf`, `experiments` (on by default) everything else. Without both the crate is
//! [`doctor`] alone, as in the Python package.

#[cfg(feature = "experiments")]
pub mod bench;
pub mod cpu;
pub mod doctor;
pub mod error;
#[cfg(feature = "experiments")]
pub mod experiments;
#[cfg(feature = "experiments")]
pub mod kills;
pub mod latency;
mod letters;
#[cfg(feature = "perf")]
pub mod over_time;
mod pacer;
#[cfg(feature = "experiments")]
pub mod page;
#[cfg(feature = "experiments")]
pub mod peers;
#[cfg(feature = "perf")]
#[cfg_attr(
    not(feature = "experiments"),
    expect(dead_code, unused_imports, reason = "the experiments use more")
)]
pub mod perf;
#[cfg(feature = "perf")]
#[cfg_attr(not(feature = "experiments"), expect(dead_code, reason = "the experiments use more"))]
pub mod phases;
#[cfg(feature = "experiments")]
pub mod results;
#[cfg(feature = "experiments")]
pub mod scripted;
mod setup;
pub mod text;
#[cfg(feature = "experiments")]
pub mod timeline;
