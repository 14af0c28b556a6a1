//! The laboratory: load, latencies and what they cost, through the public API only.
//!
//! [`perf`] holds the engines behind `curtail perf`, [`experiments`] and [`bench`] those behind `curtail lab`, [`kills`] that behind
//! `curtail lab kills`, [`doctor`] that behind `curtail doctor`; [`peers`] runs other clients beside Curtail. Nothing here prints; reports are values that the
//! caller shows, and [`perf::Progress`] tells how far a run is.

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
