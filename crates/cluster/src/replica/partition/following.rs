//! The replica as a follower: appending the leader's records, and truncation.

use bytes::Bytes;
use curtail_wire::fetch::EpochEndOffset;

use super::{Inner, Partition};
use crate::{config::Plant, log::AppendError, replica::purgatory::Reader};

/// A follower's fetch position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FollowerPosition {
    pub(crate) leader_epoch: i32,
    pub(crate) fetch_offset: i64,
    pub(crate) last_fetched_epoch: i32,
    pub(crate) log_start: i64,
}

impl Partition {
    /// Returns this replica's fetch position, if it follows in `leader_epoch`.
    pub(crate) fn follower_position(&self, leader_epoch: i32) -> Option<FollowerPosition> {
        let inner = self.inner.lock();
        if !Self::follows(&inner, leader_epoch) {
            return None;
        }
        // Without the epoch of the last record the leader cannot detect that the follower's log has
        // diverged.
        let last_fetched_epoch = match self.owner.plant {
            Some(Plant::NoTruncation) => -1,
            _ => inner.log.latest_epoch().unwrap_or(-1),
        };
        Some(FollowerPosition {
            leader_epoch,
            fetch_offset: inner.log.end_offset(),
            last_fetched_epoch,
            log_start: inner.log.start_offset(),
        })
    }

    fn follows(inner: &Inner, leader_epoch: i32) -> bool {
        inner.leading.is_none() && inner.gone.is_none() && inner.image.leader_epoch == leader_epoch
    }

    /// Appends the response of the leader of `leader_epoch` to a fetch from `fetch_offset`.
    pub(crate) fn append_from_leader(
        &self,
        leader_epoch: i32,
        fetch_offset: i64,
        records: Bytes,
        high_watermark: i64,
        log_start: i64,
    ) -> Result<(), AppendError> {
        let mut inner = self.inner.lock();
        if !Self::follows(&inner, leader_epoch) || inner.log.end_offset() != fetch_offset {
            return Ok(());
        }
        if !records.is_empty() {
            let appended = inner.log.append_as_follower(records)?;
            self.owner.observers.tell(|o, at| {
                o.replicated(
                    self.owner.broker,
                    &self.topic,
                    self.key.index,
                    appended.end_offset,
                    at,
                );
            });
        }
        let known = high_watermark.min(inner.log.end_offset());
        if known > inner.high_watermark {
            inner.high_watermark = known;
            inner.fetches.news_for(Reader::Consumer);
        }
        let high_watermark = inner.high_watermark;
        inner.log.committed_to(high_watermark);
        Self::delete_as_leader(&mut inner, log_start);
        Ok(())
    }

    /// Truncates the part of the log that the leader of `leader_epoch` does not have (KIP-101,
    /// KIP-595). The rest may still diverge from the leader's log in an older epoch; the next fetch
    /// detects that.
    pub(crate) fn truncate_to_leader(
        &self,
        leader_epoch: i32,
        diverging: EpochEndOffset,
    ) -> Result<(), AppendError> {
        let mut inner = self.inner.lock();
        if !Self::follows(&inner, leader_epoch) {
            return Ok(());
        }
        let end = inner.log.end_offset();
        let own = inner.log.end_offset_for_epoch(diverging.epoch);
        let to = match own {
            _ if diverging.epoch < 0 || diverging.end_offset < 0 => inner.high_watermark,
            (-1, _) => diverging.end_offset.min(end),
            (epoch, own_end) if epoch == diverging.epoch => {
                own_end.min(diverging.end_offset).min(end)
            }
            (_, own_end) => own_end.min(end),
        };
        let to = to.max(inner.log.start_offset());
        tracing::info!(topic = %self.topic, partition = self.key.index, from = end, to, "log diverged from the leader's; truncated");
        // In a log with gaps, or within a batch, the log ends before.
        let end = inner.log.truncate_to(to)?;
        inner.high_watermark = inner.high_watermark.min(end);
        Ok(())
    }

    /// Clears a log that ends before the leader's log start, and restarts it there.
    pub(crate) fn restart_at(&self, leader_epoch: i32, offset: i64) -> Result<(), AppendError> {
        let mut inner = self.inner.lock();
        if Self::follows(&inner, leader_epoch) && inner.log.end_offset() < offset {
            inner.log.truncate_fully_and_start_at(offset)?;
            inner.high_watermark = offset;
        }
        Ok(())
    }
}
