//! Records deleted on request (KIP-107): the leader moves the start of its log at once, followers do so with the next
//! answer to their fetch, and the request is answered when all in-sync replicas have done it.

use std::sync::Arc;

use curtail_wire::ErrorCode;

use super::{Inner, NotServed, Partition, Reader, Wait};

/// A deletion that the leader has carried out on its own log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deletion {
    /// The first offset that is left.
    to: i64,
    leader_epoch: i32,
}

/// The first offset left on all in-sync replicas once they have deleted, or why it is not known to be.
type Deleted = Option<Result<i64, NotServed>>;

impl Partition {
    /// Deletes what lies before `offset` as the leader, or all that is committed (-1).
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

    /// Registers a wait for the deletion on all in-sync replicas, if it is not decided yet.
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

    /// Whether a deletion is done by now; takes back the registration `id`.
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

    /// Before which offset no in-sync replica has records; `None` while this one does not lead.
    fn low_watermark(inner: &Inner, me: i32) -> Option<i64> {
        let progress = inner.leading.as_ref()?;
        Some(progress.low_watermark(me, inner.log.start_offset(), &inner.image.isr))
    }

    /// Answers deletions that are done on all in-sync replicas.
    pub(super) fn answer_deletions(inner: &mut Inner, me: i32) {
        if let Some(low) = Self::low_watermark(inner, me) {
            inner.deletions.reached(low);
        }
    }

    /// Follows the leader's deletion, as far as this replica has what is deleted.
    pub(super) fn delete_as_leader(inner: &mut Inner, log_start: i64) {
        if log_start <= inner.log.start_offset() {
            return;
        }
        if let Err(error) = inner.log.delete_before(log_start.min(inner.high_watermark)) {
            tracing::error!(%error, "records that the leader has deleted stay behind");
        }
    }

    /// Bytes of the log.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.inner.lock().log.size_bytes()
    }

    /// How far the log ends before what is committed.
    pub(crate) fn offset_lag(&self) -> i64 {
        let inner = self.inner.lock();
        (inner.high_watermark - inner.log.end_offset()).max(0)
    }

    /// Takes on changed settings of the topic.
    pub(crate) fn configure(&self, config: crate::log::LogConfig, min_isr: usize) {
        let mut inner = self.inner.lock();
        inner.log.set_config(config);
        inner.min_isr = min_isr;
        // Fewer may be enough.
        self.advance(&mut inner);
    }
}
