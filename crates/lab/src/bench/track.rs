//! In-flight records and their outcomes.

use std::{collections::VecDeque, time::Instant};

use curtail::{Delivery, Record};
use tokio::runtime::Runtime;

use crate::{
    latency::Latencies,
    perf::{Result, produce::client::Door},
};

/// Outcomes of records.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// From the actual send to the acknowledgement.
    pub(super) sent: Latencies,
    /// From the intended send time to the acknowledgement.
    pub(super) intended: Latencies,
    /// From the intended send time to the actual send.
    pub(super) delay: Latencies,
    /// Bytes of acknowledged keys and values.
    pub(super) bytes: u64,
    /// Records that were not acknowledged.
    pub(super) errors: u64,
    pub(super) first_error: Option<String>,
}

impl Tally {
    /// Records acknowledged.
    pub(super) fn acknowledged(&self) -> u64 {
        self.sent.count()
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.sent.add(&other.sent);
        self.intended.add(&other.intended);
        self.delay.add(&other.delay);
        self.bytes += other.bytes;
        self.errors += other.errors;
        self.first_error = self.first_error.take().or_else(|| other.first_error.clone());
    }

    fn failed(&mut self, error: &curtail::Error) {
        self.errors += 1;
        self.first_error.get_or_insert_with(|| error.report().to_string());
    }
}

struct Sent {
    delivery: Delivery,
    due: Instant,
    at: Instant,
    bytes: u64,
}

/// Records in the order of their sends.
#[derive(Default)]
pub(super) struct Track {
    sent: VecDeque<Sent>,
    tally: Tally,
}

impl Track {
    /// Sends a record that was due at a given time, and waits for memory if necessary. Errors of the record
    /// are counted.
    ///
    /// # Errors
    /// Errors that affect every send: a producer that is closed or fenced, a missing topic.
    pub(super) fn send(
        &mut self,
        runtime: &Runtime,
        door: &Door<'_>,
        record: Record<'_>,
        due: Instant,
    ) -> Result<()> {
        let bytes =
            record.key_bytes().map_or(0, <[u8]>::len) + record.value_bytes().map_or(0, <[u8]>::len);
        let at = Instant::now();
        let delivery = match door.try_send(record) {
            Err(curtail::Error::BufferFull { .. } | curtail::Error::IllegalState(_)) => {
                self.settle();
                runtime.block_on(door.send(record))
            }
            other => other,
        };
        match delivery {
            Ok(delivery) => {
                self.sent.push_back(Sent { delivery, due, at, bytes: bytes as u64 });
            }
            Err(error @ (curtail::Error::BufferFull { .. } | curtail::Error::Timeout { .. })) => {
                self.tally.failed(&error);
            }
            Err(error) => return Err(error.into()),
        }
        if self.sent.len().is_multiple_of(16) {
            self.settle();
        }
        Ok(())
    }

    /// Settles records from the front while their outcome is known.
    pub(super) fn settle(&mut self) {
        while let Some(first) = self.sent.front() {
            let Some(outcome) = first.delivery.outcome() else { return };
            match (outcome, first.delivery.timing()) {
                (Ok(_), Some(timing)) => {
                    let acknowledged = timing.acknowledged.into_std();
                    let tally = &mut self.tally;
                    tally.sent.record(acknowledged.saturating_duration_since(first.at));
                    tally.intended.record(acknowledged.saturating_duration_since(first.due));
                    tally.delay.record(first.at.saturating_duration_since(first.due));
                    tally.bytes += first.bytes;
                }
                (Err(error), _) => self.tally.failed(&error),
                // An acknowledged record has its times.
                (Ok(_), None) => self.tally.errors += 1,
            }
            self.sent.pop_front();
        }
    }

    /// Takes the outcomes since the last call.
    pub(super) fn take(&mut self) -> Tally {
        self.settle();
        std::mem::take(&mut self.tally)
    }
}
