//! Reads by consumers, followers and coordinators, and lookups of offsets.

use bytes::Bytes;
use curtail_wire::{
    ErrorCode,
    fetch::{AbortedTransaction, EpochEndOffset, IsolationLevel},
    records::batches,
};
use tokio::time::Instant;

use super::{Inner, NotServed, Partition};
use crate::config::Plant;

/// A read request for a partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadSpec {
    pub(crate) current_leader_epoch: i32,
    pub(crate) fetch_offset: i64,
    pub(crate) last_fetched_epoch: i32,
    /// The follower's log start offset.
    pub(crate) log_start: i64,
    pub(crate) max_bytes: usize,
    /// Return the first batch even if it is larger than `max_bytes`.
    pub(crate) at_least_one: bool,
    /// Only for consumers: followers read everything.
    pub(crate) isolation: IsolationLevel,
}

/// The reader.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReadBy {
    Consumer {
        /// Whether a follower may serve it (KIP-392).
        anywhere: bool,
    },
    Follower {
        id: i32,
        broker_epoch: Option<i64>,
        /// Whether the request has just arrived, so that its information about the follower is
        /// current. A long poll's later reads carry outdated information: the follower may have
        /// lost its end since.
        arrived: bool,
    },
}

/// The result of a read.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    pub(crate) records: Bytes,
    pub(crate) high_watermark: i64,
    pub(crate) last_stable: i64,
    pub(crate) log_start: i64,
    pub(crate) diverging: Option<EpochEndOffset>,
    /// Aborted transactions whose records must be skipped; only for `read_committed` readers.
    pub(crate) aborted: Option<Vec<AbortedTransaction>>,
}

/// The lookup that ListOffsets requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OffsetSpec {
    Earliest,
    Latest,
    MaxTimestamp,
    Timestamp(i64),
}

impl Partition {
    /// Reads as the leader of this epoch only, committed or not, from `offset` or the log start.
    /// Returns the offset and the records; none at the end of the log.
    pub(crate) fn read_in_epoch(
        &self,
        leader_epoch: i32,
        offset: Option<i64>,
        max_bytes: usize,
    ) -> Result<(i64, Bytes), NotServed> {
        let inner = self.inner.lock();
        Self::check_epoch(&inner, leader_epoch)?;
        if inner.leading.is_none() {
            return Err(Self::not_led(&inner));
        }
        let offset = offset.unwrap_or(inner.log.start_offset());
        let records = inner.log.read(offset, max_bytes, i64::MAX, true);
        Ok((offset, records.map_err(|error| NotServed::code(error.code()))?))
    }

    /// Reads for a consumer or a follower. A follower's fetch also updates its progress.
    pub(crate) fn read(
        &self,
        spec: &ReadSpec,
        by: ReadBy,
        now: Instant,
    ) -> Result<Slice, NotServed> {
        let mut inner = self.inner.lock();
        Self::check_epoch(&inner, spec.current_leader_epoch)?;
        let anywhere = matches!(by, ReadBy::Consumer { anywhere: true }) && inner.gone.is_none();
        if inner.leading.is_none() && !anywhere {
            return Err(Self::not_led(&inner));
        }
        if let ReadBy::Follower { id, .. } = by
            && !inner.image.replicas.contains(&id)
        {
            return Err(NotServed::code(ErrorCode::REPLICA_NOT_AVAILABLE));
        }
        if let Some(diverging) = Self::diverges(&inner, spec) {
            return Ok(Slice { diverging: Some(diverging), ..Self::nothing(&inner) });
        }
        let end = inner.log.end_offset();
        let up_to = match by {
            ReadBy::Consumer { .. }
                if inner.leading.is_none() && self.owner.plant == Some(Plant::ServeUncommitted) =>
            {
                end
            }
            ReadBy::Consumer { .. } => Self::visible_to(&inner, spec.isolation),
            ReadBy::Follower { .. } => end,
        };
        if spec.fetch_offset > end || spec.fetch_offset < inner.log.start_offset() {
            return Err(NotServed::code(ErrorCode::OFFSET_OUT_OF_RANGE));
        }
        let mut slice = Self::nothing(&inner);
        if spec.fetch_offset < up_to && (spec.max_bytes > 0 || spec.at_least_one) {
            let read = inner.log.read(spec.fetch_offset, spec.max_bytes, up_to, spec.at_least_one);
            slice.records = read.map_err(|error| NotServed::code(error.code()))?;
        }
        if matches!(by, ReadBy::Consumer { .. }) && spec.isolation == IsolationLevel::ReadCommitted
        {
            let last = batches(slice.records.clone()).map_while(Result::ok).last();
            let end = last.map_or(spec.fetch_offset, |last| last.header.last_offset() + 1);
            slice.aborted = Some(match self.owner.plant {
                Some(Plant::HideAborted) => Vec::new(),
                _ => inner.log.aborted_in(spec.fetch_offset, end),
            });
        }
        if let ReadBy::Follower { id, broker_epoch, arrived: true } = by {
            self.follower_fetched(&mut inner, id, spec, broker_epoch, now);
            slice.high_watermark = inner.high_watermark;
            slice.last_stable = Self::last_stable(&inner);
        }
        Ok(slice)
    }

    /// Returns, as the leader, the replica that a consumer in `rack` should read from instead. It
    /// is the in-sync replica in that rack with the largest end offset, and it has the requested
    /// offset (KIP-392).
    pub(crate) fn nearer_replica<'a>(
        &self,
        fetch_offset: i64,
        rack: &str,
        rack_of: impl Fn(i32) -> Option<&'a str>,
    ) -> Option<i32> {
        let inner = self.inner.lock();
        let progress = inner.leading.as_ref()?;
        let near = |id: &i32| rack_of(*id) == Some(rack);
        if near(&self.owner.broker) || fetch_offset < inner.log.start_offset() {
            return None;
        }
        let in_sync = inner.image.isr.iter().copied().filter(near);
        let having = in_sync.filter(|id| progress.end_offset(*id) >= fetch_offset);
        having.max_by_key(|id| (progress.end_offset(*id), *id))
    }

    fn nothing(inner: &Inner) -> Slice {
        Slice {
            records: Bytes::new(),
            high_watermark: inner.high_watermark,
            last_stable: Self::last_stable(inner),
            log_start: inner.log.start_offset(),
            diverging: None,
            aborted: None,
        }
    }

    /// Returns where the reader's log diverges from this one, according to the epoch of its last
    /// record (KIP-595).
    fn diverges(inner: &Inner, spec: &ReadSpec) -> Option<EpochEndOffset> {
        if spec.last_fetched_epoch < 0 {
            return None;
        }
        let (epoch, end_offset) = Self::epoch_end(inner, spec.last_fetched_epoch);
        let same = epoch == spec.last_fetched_epoch && end_offset >= spec.fetch_offset;
        (!same).then_some(EpochEndOffset { epoch, end_offset })
    }

    /// Returns the largest epoch up to `asked` and its end offset; -1 and -1 if there is none.
    fn epoch_end(inner: &Inner, asked: i32) -> (i32, i64) {
        if inner.leading.is_some() && asked == inner.image.leader_epoch {
            return (asked, inner.log.end_offset());
        }
        match (inner.log.end_offset_for_epoch(asked), &inner.leading) {
            // Only the current epoch is later and it has no record yet, so it starts at the end of
            // the log.
            ((-1, _), Some(progress)) if (0..inner.image.leader_epoch).contains(&asked) => {
                (inner.log.latest_epoch().unwrap_or(asked), progress.epoch_start)
            }
            (known, _) => known,
        }
    }

    /// Handles ListOffsets as the leader. Returns the offset, its timestamp (or -1) and its epoch
    /// (or -1). A `consumer` sees the offsets that its isolation level allows, a follower all.
    pub(crate) fn offset_for(
        &self,
        spec: OffsetSpec,
        current_leader_epoch: i32,
        consumer: Option<IsolationLevel>,
    ) -> Result<(i64, i64, i32), NotServed> {
        let inner = self.inner.lock();
        Self::check_epoch(&inner, current_leader_epoch)?;
        let Some(progress) = &inner.leading else { return Err(Self::not_led(&inner)) };
        let epoch = inner.image.leader_epoch;
        if spec == OffsetSpec::Earliest {
            return Ok((inner.log.start_offset(), -1, epoch));
        }
        if consumer.is_none() && spec == OffsetSpec::Latest {
            return Ok((inner.log.end_offset(), -1, epoch));
        }
        // A newly elected leader does not know yet which earlier records were committed (KIP-207).
        if inner.high_watermark < progress.epoch_start {
            return Err(NotServed::code(ErrorCode::OFFSET_NOT_AVAILABLE));
        }
        let isolation = consumer.unwrap_or(IsolationLevel::ReadUncommitted);
        let visible = Self::visible_to(&inner, isolation);
        let found = match spec {
            OffsetSpec::Latest => return Ok((visible, -1, epoch)),
            OffsetSpec::MaxTimestamp => inner.log.max_timestamp_offset(),
            OffsetSpec::Timestamp(at) => inner.log.offset_for_timestamp(at),
            OffsetSpec::Earliest => return Ok((inner.log.start_offset(), -1, epoch)),
        };
        let found = found.map_err(|error| NotServed::code(error.code()))?;
        match found.filter(|(_, offset)| *offset < visible) {
            Some((timestamp, offset)) => {
                Ok((offset, timestamp, inner.log.epoch_for_offset(offset).unwrap_or(-1)))
            }
            None => Ok((-1, -1, -1)),
        }
    }

    /// Handles OffsetsForLeaderEpoch as the leader.
    pub(crate) fn end_of_epoch(
        &self,
        asked: i32,
        current_leader_epoch: i32,
    ) -> Result<(i32, i64), NotServed> {
        let inner = self.inner.lock();
        Self::check_epoch(&inner, current_leader_epoch)?;
        if inner.leading.is_none() {
            return Err(Self::not_led(&inner));
        }
        Ok(Self::epoch_end(&inner, asked))
    }
}
