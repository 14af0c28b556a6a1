//! The engines of `curtail perf`: [`produce`], [`consume`] and [`e2e`], after Kafka's three tools.
//!
//! With a rate, load is open loop: record `i` is due at `start + i / rate`, and its latency counts from then.
//! A stall therefore counts for every record that it delays. The latency from the actual send, which Kafka's
//! tool reports, is reported as well.

pub mod consume;
pub mod e2e;
mod payload;
pub mod produce;
mod report;
mod target;

pub use payload::Payload;
pub use report::{Cost, Event, Interval, PhasesReport, Progress, Report, Window};
pub(crate) use target::application_runtime;
pub use target::{Embedded, Target, Topic};

pub use crate::error::{Error, Result};
pub(crate) use crate::{
    pacer::{Pacer, sleep_precisely},
    setup::client_runtime,
};
