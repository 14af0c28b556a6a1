//! Reads a topic back with a consumer, committed records only.

use std::time::Duration;

use curtail::{Consumer, config::IsolationLevel};

use super::number;
use crate::{
    experiments::{Found, Testbed, read_found},
    perf::{Result, client_runtime},
};

/// How long the topic may take to show what was acknowledged.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn read(testbed: &Testbed, topic: &str, wanted: usize) -> Result<Found> {
    let runtime = client_runtime()?;
    let _context = runtime.enter();
    let config = testbed.consumer().isolation_level(IsolationLevel::ReadCommitted);
    let mut consumer = Consumer::new(config)?;
    let found = runtime.block_on(read_found(&mut consumer, topic, wanted, PATIENCE, number));
    runtime.block_on(consumer.close());
    found
}
