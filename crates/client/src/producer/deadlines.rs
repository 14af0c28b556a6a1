//! Delivery deadlines: one task per producer expires records, wherever they wait.
//!
//! A record waits in its partition's queue, as bytes for the socket, or in flight; its lane may be connecting, muted,
//! renewing its session, blocked, or there may be none. None of them keeps deadlines: this task looks at all of them when
//! the oldest batch is due. A batch sent after a look expires a whole `delivery.timeout.ms` after it at the earliest, so
//! most of the time one look per timeout is enough.
//!
//! # Invariants
//! - Code that puts a batch into a place that a look may already have passed calls [`Deadlines::no_later_than`]: a batch that
//!   comes back, is split, moves to another partition, or was opened by a record that waited for its topic.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant as StdInstant},
};

use curtail_proto::later::Later;
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::{settle, shared::Shared};

/// Time that a look may cost per partition: with hundreds of thousands of them, looks are that far apart.
const PAUSE_PER_PARTITION: Duration = Duration::from_micros(1);

/// When the next look is due.
pub(super) struct Deadlines {
    began: StdInstant,
    /// In nanoseconds since then; [`NEVER`] during a look.
    next: AtomicU64,
    is_sooner: Notify,
}

const NEVER: u64 = u64::MAX;

impl Deadlines {
    /// The first look is due at once.
    pub(super) fn new(began: Instant) -> Self {
        let began = began.into_std();
        Self { began, next: AtomicU64::new(0), is_sooner: Notify::new() }
    }

    /// Schedules a look at this time at the latest.
    pub(super) fn no_later_than(&self, at: StdInstant) {
        let since = at.saturating_duration_since(self.began).as_nanos();
        let since = u64::try_from(since).unwrap_or(NEVER - 1);
        if self.next.fetch_min(since, Ordering::AcqRel) > since {
            self.is_sooner.notify_one();
        }
    }

    /// A look begins: whatever comes to wait from here on counts for the next one.
    fn begin(&self) {
        self.next.store(NEVER, Ordering::Release);
    }

    /// Waits until a look is due.
    ///
    /// # Cancel safety
    /// Cancel safe.
    async fn due(&self) {
        loop {
            let next = Duration::from_nanos(self.next.load(Ordering::Acquire));
            let at = Instant::from_std(self.began).later(next);
            tokio::select! {
                biased;
                () = sleep_until(at) => return,
                () = self.is_sooner.notified() => {}
            }
        }
    }
}

/// Expires batches until the producer stops.
pub(super) async fn keep(shared: Arc<Shared>) {
    loop {
        shared.deadlines.due().await;
        shared.deadlines.begin();
        let now = Instant::now();
        let looked = look(&shared, now.into_std());
        let youngest = now.later(shared.config.delivery_timeout);
        let next = looked.next.map_or(youngest, |next| youngest.min(Instant::from_std(next)));
        let soonest = now.later(PAUSE_PER_PARTITION.saturating_mul(looked.partitions));
        shared.deadlines.no_later_than(next.max(soonest).into_std());
    }
}

/// What a look has found.
#[derive(Default)]
struct Looked {
    partitions: u32,
    /// When the oldest batch that is left expires.
    next: Option<StdInstant>,
}

impl Looked {
    fn add(&mut self, next: Option<StdInstant>) {
        self.next = [self.next, next].into_iter().flatten().min();
    }
}

/// Fails every batch past `delivery.timeout.ms`.
fn look(shared: &Shared, now: StdInstant) -> Looked {
    let mut looked = Looked::default();
    for topic in shared.topics.load().values() {
        for partition in &topic.partitions {
            looked.partitions += 1;
            let next = partition.state.lock().queue.next_expiry(&shared.policy);
            let Some(at) = next else { continue };
            if at > now {
                looked.add(next);
                continue;
            }
            shared.expire(partition, None);
            looked.add(partition.state.lock().queue.next_expiry(&shared.policy));
        }
    }
    // After the queues: a batch that was taken in the meantime is found here.
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
    async fn a_batch_that_comes_back_during_a_look_is_looked_at_in_time() {
        let began = Instant::now();
        let at = |seconds| (began + Duration::from_secs(seconds)).into_std();
        let deadlines = Deadlines::new(began);
        assert_eq!(waits(&deadlines).await, Duration::ZERO, "the first look is due at once");
        deadlines.begin();
        deadlines.no_later_than(at(3));
        deadlines.no_later_than(at(120));
        assert_eq!(waits(&deadlines).await, Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn an_earlier_deadline_ends_the_wait_for_a_later_one() {
        let began = Instant::now();
        let deadlines = Arc::new(Deadlines::new(began));
        deadlines.begin();
        deadlines.no_later_than((began + Duration::from_secs(120)).into_std());
        let waiting = deadlines.clone();
        let waiting = tokio::spawn(async move { waits(&waiting).await });
        tokio::task::yield_now().await;
        deadlines.no_later_than((began + Duration::from_secs(5)).into_std());
        assert_eq!(waiting.await.expect("it ends"), Duration::from_secs(5));
    }
}
