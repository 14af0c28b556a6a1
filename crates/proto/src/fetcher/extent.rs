//! Extent of a partition's fetched records, from the batch headers alone.

use bytes::Bytes;
use curtail_wire::records::{RecordError, batches};

use crate::{
    plant::{Plant, planted},
    position::Spot,
};

/// Extent of a partition's fetched records.
#[derive(Debug)]
pub struct Extent {
    /// The offset after the last whole batch, and that batch's leader epoch.
    pub next: Spot,
    /// Whether there is a complete batch.
    has_batch: bool,
    /// Why no batch was found after it, if the bytes are no batches.
    pub damage: Option<RecordError>,
    /// First offset of the batch after that damage, if the response contains it.
    pub after_damage: Option<i64>,
}

impl Extent {
    /// Of records fetched from the offset `asked`.
    pub(super) fn of(records: &Bytes, asked: i64) -> Self {
        let next = Spot::without_epoch(asked);
        let mut extent = Self { next, has_batch: false, damage: None, after_damage: None };
        let mut rest = batches(records.clone());
        while let Some(batch) = rest.next() {
            match batch {
                Ok(batch) => {
                    extent.has_batch = true;
                    let is_empty = batch.header.record_count == 0;
                    if is_empty && planted(Plant::EmptiedBatchNotPassed) {
                        continue;
                    }
                    let after = batch.header.last_offset().saturating_add(1);
                    extent.next = Spot {
                        offset: extent.next.offset.max(after),
                        epoch: batch.header.partition_leader_epoch,
                    };
                }
                Err(error) => {
                    extent.damage = Some(error);
                    extent.after_damage = rest.offset_behind_next();
                    break;
                }
            }
        }
        extent
    }

    /// Returns the fault in records that do not move the position, if there is one. Since KIP-74 a broker returns the
    /// first batch complete, whatever its size.
    pub fn fault(&self, records: &Bytes) -> Option<String> {
        match &self.damage {
            Some(error) => Some(error.to_string()),
            None if !self.has_batch && !records.is_empty() => {
                Some(format!("the {} fetched bytes hold no complete batch", records.len()))
            }
            None => None,
        }
    }
}
