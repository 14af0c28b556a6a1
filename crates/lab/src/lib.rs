//! The laboratory: load, latencies and their cost, through the public API only.
//!
//! [`perf`] holds the engines of `curtail perf`, [`experiments`] and [`mod@bench`] those of `curtail lab`, [`kills`] that of
//! `curtail lab kills`, and [`doctor`] that of `curtail doctor`. [`peers`] runs other clients under the same load. Nothing here
//! prints: reports are values that the caller shows, and [`perf::Progress`] receives the progress of a run.

pub mod bench;
pub mod cpu;
pub mod doctor;
pub mod experiments;
pub mod kills;
pub mod latency;
pub mod over_time;
pub mod page;
pub mod peers;
pub mod perf;
pub mod phases;
pub mod results;
pub mod scripted;
pub mod timeline;
