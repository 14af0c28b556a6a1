//! Delivery deadlines: one task per producer expires records, wherever they wait.
//!
//! A record waits in its partition's queue, as bytes for the socket, or in flight. Its lane may be connecting,
//! throttled, renewing its session or blocked, or the record may have no lane. None of these keeps deadlines: this
//! task looks at all records when the oldest batch is due. A batch that is sent after a look expires a whole
//! `delivery.timeout.ms` after it at the earliest, so usually one look per timeout is enough.
//!
//! # Invariants
//! - Code that puts a batch into a queue that a look may already have passed calls [`Deadlines::announce`] under the
//!   lock of that queue. That covers a batch that is retried, split or moved, and one opened by a record that waited
//!   for its topic. **Was a bug:** a split announced its deadline before it took the lock. A look between the two
//!   missed the parts, which expired up to `delivery.timeout.ms` late.

use std::{
    sync::Arc,
    time::{Duration, Instant as StdInstant},
};

use curtail_proto::later::Later;
use tokio::time::{Instant, sleep_until};

use super::{
    partition::PartitionState,
    schedule::{NEVER, Schedule},
    settle,
    shared::Shared,
};

/// Time between looks per partition: many partitions make looks rarer.
const PAUSE_PER_PARTITION: Duration = Duration::from_micros(1);

/// Partitions visited before other tasks of the runtime run.
const PARTITIONS_PER_TURN: u32 = 1024;

/// The time of the next look.
pub(super) struct Deadlines {
    began: StdInstant,
    /// In nanoseconds since `began`.
    schedule: Schedule,
}

impl Deadlines {
    /// The first look is due immediately.
    pub(super) fn new(began: Instant) -> Self {
        Self { began: began.into_std(), schedule: Schedule::new() }
    }

    /// Schedules a look at this time at the latest, for a batch about to enter the queue of `_state`.
    pub(super) fn announce(&self, at: StdInstant, _state: &PartitionState) {
        self.no_later_than(at);
    }

    fn no_later_than(&self, at: StdInstant) {
        let since = at.saturating_duration_since(self.began).as_nanos();
        self.schedule.no_later_than(u64::try_from(since).unwrap_or(NEVER - 1));
    }

    /// Waits until a look is due.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn due(&self) {
        let began = Instant::from_std(self.began);
        self.schedule.due(|next| sleep_until(began.later(Duration::from_nanos(next)))).await;
    }
}

/// Expires batches until the producer stops.
pub(super) async fn keep(shared: Arc<Shared>) {
    loop {
        shared.deadlines.due().await;
        shared.deadlines.schedule.begin();
        let now = Instant::now();
        let looked = look(&shared, now.into_std()).await;
        let youngest = now.later(shared.config.delivery_timeout);
        let next = looked.next.map_or(youngest, |next| youngest.min(Instant::from_std(next)));
        let soonest = now.later(PAUSE_PER_PARTITION.saturating_mul(looked.partitions));
        shared.deadlines.no_later_than(next.max(soonest).into_std());
    }
}

/// Result of a look.
#[derive(Default)]
struct Looked {
    partitions: u32,
    /// Expiry of the oldest remaining batch.
    next: Option<StdInstant>,
}

impl Looked {
    fn add(&mut self, next: Option<StdInstant>) {
        self.next = [self.next, next].into_iter().flatten().min();
    }
}

/// Fails every batch past `delivery.timeout.ms` at `now`, the start of the look.
async fn look(shared: &Shared, now: StdInstant) -> Looked {
    let mut looked = Looked::default();
    // Batches of partitions added during the look are younger, or announced.
    let topics = shared.topics.load_full();
    for partition in topics.values().flat_map(|topic| &topic.partitions) {
        looked.partitions += 1;
        if looked.partitions.is_multiple_of(PARTITIONS_PER_TURN) {
            tokio::task::yield_now().await;
        }
        let next = partition.state.lock().queue.next_expiry(&shared.policy);
        let Some(at) = next else { continue };
        if at > now {
            looked.add(next);
            continue;
        }
        shared.expire(partition, None);
        looked.add(partition.state.lock().queue.next_expiry(&shared.policy));
    }
    drop(topics);
    // After the queues: a batch that a lane has taken since is found here.
    for lane in shared.all_lanes() {
        let overdue = lane.take_overdue(shared, now);
        looked.add(overdue.next);
        settle::overdue(shared, overdue);
    }
    looked
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn waits(deadlines: &Deadlines) -> Duration {
        let began = Instant::now();
        deadlines.due().await;
        began.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn deadline_of_a_batch_retried_during_a_look_is_kept() {
        let began = Instant::now();
        let at = |seconds| (began + Duration::from_secs(seconds)).into_std();
        let deadlines = Deadlines::new(began);
        assert_eq!(waits(&deadlines).await, Duration::ZERO, "the first look is due at once");
        deadlines.schedule.begin();
        deadlines.no_later_than(at(3));
        deadlines.no_later_than(at(120));
        assert_eq!(waits(&deadlines).await, Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_deadline_ends_the_wait_for_a_later_one() {
        let began = Instant::now();
        let deadlines = Arc::new(Deadlines::new(began));
        deadlines.schedule.begin();
        deadlines.no_later_than((began + Duration::from_secs(120)).into_std());
        let waiting = deadlines.clone();
        let waiting = tokio::spawn(async move { waits(&waiting).await });
        tokio::task::yield_now().await;
        deadlines.no_later_than((began + Duration::from_secs(5)).into_std());
        assert_eq!(waiting.await.expect("it ends"), Duration::from_secs(5));
    }
}
