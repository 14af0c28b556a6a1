//! Deletion of records on request (KIP-107). The leader moves its log start immediately, and
//! followers move theirs with the next fetch response. The response follows once all in-sync
//! replicas have done so.

use std::sync::Arc;

use curtail_wire::{ErrorCode, Report};

use super::{Inner, NotServed, Partition, Reader, Wait};

/// A deletion that the leader has applied to its own log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deletion {
    /// The first remaining offset.
    to: i64,
    leader_epoch: i32,
}

/// The first offset remaining on all in-sync replicas once they have deleted, or an error; `None`
/// while pending.
type Deleted = Option<Result<i64, NotServed>>;

impl Partition {
    /// Deletes the records before `offset` as the leader, or all committed ones (-1).
    pub(crate) fn delete_records(&self, offset: i64) -> Result<Deletion, NotServed> {
        let mut inner = self.inner.lock();
        if inner.leading.is_none() {
            return Err(Self::not_led(&inner));
        }
        let to = if offset == -1 { inner.high_watermark } else { offset };
        if !(0..=inner.high_watermark).contains(&to) {
            return Err(NotServed::code(ErrorCode::OFFSET_OUT_OF_RANGE));
        }
        let deleted = inner.log.delete_before(to);
        deleted.map_err(|_| NotServed::code(ErrorCode::KAFKA_STORAGE_ERROR))?;
        inner.fetches.news_for(Reader::Follower);
        Ok(Deletion { to, leader_epoch: inner.image.leader_epoch })
    }

    /// Registers a wait for the deletion on all in-sync replicas, if it is still pending.
    pub(crate) fn wait_for_deletion(
        &self,
        deletion: Deletion,
        id: u64,
        wait: &Arc<Wait>,
    ) -> Deleted {
        let mut inner = self.inner.lock();
        let deleted = Self::deleted(&inner, self.owner.broker, deletion);
        if deleted.is_none() {
            inner.deletions.add(deletion.to, id, wait);
        }
        deleted
    }

    /// Returns the result of a deletion, if known, and removes the registration `id`.
    pub(crate) fn deletion(&self, deletion: Deletion, id: u64) -> Deleted {
        let mut inner = self.inner.lock();
        inner.deletions.remove(deletion.to, id);
        Self::deleted(&inner, self.owner.broker, deletion)
    }

    fn deleted(inner: &Inner, me: i32, deletion: Deletion) -> Deleted {
        if inner.leading.is_none() || inner.image.leader_epoch != deletion.leader_epoch {
            return Some(Err(Self::not_led(inner)));
        }
        let low = Self::low_watermark(inner, me)?;
        (low >= deletion.to).then_some(Ok(low))
    }

    /// Returns the low watermark: no in-sync replica has records before it. `None` while this
    /// replica does not lead.
    fn low_watermark(inner: &Inner, me: i32) -> Option<i64> {
        let progress = inner.leading.as_ref()?;
        Some(progress.low_watermark(me, inner.log.start_offset(), &inner.image.isr))
    }

    /// Completes the deletions that all in-sync replicas have applied.
    pub(super) fn answer_deletions(inner: &mut Inner, me: i32) {
        if let Some(low) = Self::low_watermark(inner, me) {
            inner.deletions.reached(low);
        }
    }

    /// Applies the leader's deletion, up to the end of this replica's log.
    pub(super) fn delete_as_leader(inner: &mut Inner, log_start: i64) {
        if log_start <= inner.log.start_offset() {
            return;
        }
        if let Err(error) = inner.log.delete_before(log_start.min(inner.high_watermark)) {
            tracing::error!(error = %Report::new(&error), "records deleted by the leader were not deleted");
        }
    }

    /// The size of the log in bytes.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.inner.lock().log.size_bytes()
    }

    /// Returns the number of committed offsets that the log lacks.
    pub(crate) fn offset_lag(&self) -> i64 {
        let inner = self.inner.lock();
        (inner.high_watermark - inner.log.end_offset()).max(0)
    }

    /// Applies changed settings of the topic.
    pub(crate) fn configure(&self, config: crate::log::LogConfig, min_isr: usize) {
        let mut inner = self.inner.lock();
        inner.log.set_config(config);
        inner.min_isr = min_isr;
        // A lower `min.insync.replicas` may allow the high watermark to advance.
        self.advance(&mut inner);
    }
}
