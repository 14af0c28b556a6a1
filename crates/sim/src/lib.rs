//! Deterministic simulation: the real client and the real embedded cluster on virtual time and a virtual network.
//!
//! A seed decides everything ([`Plan::from_seed`]): latencies, the workload, and its faults. [`run()`] carries out a
//! plan and checks the history ([`checker`]). The same seed gives the same run, down to every byte sent, which
//! [`Report::hash`] proves. A failing seed is replayed by its number alone.
//!
//! # Coverage
#![doc = include_str!("../COVERAGE.md")]

pub mod checker;
mod disk;
mod group_log;
pub mod history;
pub mod net;
mod payload;
pub mod plan;
mod readback;
mod run;
pub mod seeds;
pub mod trace;
pub mod world;

#[cfg(feature = "plants")]
pub use curtail::plant::Plant as ClientPlant;
pub use curtail_cluster::Plant;
pub use plan::{Plan, Scenario};
pub use run::{Counts, Report, run};
