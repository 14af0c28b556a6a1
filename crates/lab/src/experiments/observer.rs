//! Watching the cluster's own metadata from outside, over connections that carry nothing else.

use std::{
    thread,
    time::{Duration, Instant},
};

use curtail::{Admin, AdminConfig, TopicDescription};
use tokio::{runtime::Builder, time::timeout};

use super::Testbed;
use crate::perf::{Error, Result};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// When the metadata of several brokers first said something, since a moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// In one of them.
    pub(super) first: Duration,
    /// In all of them.
    pub(super) all: Duration,
}

impl Seen {
    /// The longer time of each.
    pub(super) fn max(self, other: Self) -> Self {
        Self { first: self.first.max(other.first), all: self.all.max(other.all) }
    }
}

/// Asks each of these brokers about the topic until it says what is waited for.
///
/// # Errors
/// When one has not said it within `limit`.
pub(super) fn watch(
    testbed: &Testbed,
    brokers: &[i32],
    topic: &str,
    since: Instant,
    limit: Duration,
    said: impl Fn(&TopicDescription) -> bool + Sync,
) -> Result<Seen> {
    let said = &said;
    let seen: Vec<Result<Duration>> = thread::scope(|scope| {
        let watchers: Vec<_> = brokers
            .iter()
            .map(|&id| {
                scope.spawn(move || watch_one(&testbed.address(id)?, topic, since, limit, said))
            })
            .collect();
        let joined = |watcher: thread::ScopedJoinHandle<'_, _>| {
            watcher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        watchers.into_iter().map(joined).collect()
    });
    let seen: Vec<Duration> = seen.into_iter().collect::<Result<_>>()?;
    let first = seen.iter().min().copied().unwrap_or_default();
    let all = seen.iter().max().copied().unwrap_or_default();
    Ok(Seen { first, all })
}

fn watch_one(
    address: &str,
    topic: &str,
    since: Instant,
    limit: Duration,
    said: &impl Fn(&TopicDescription) -> bool,
) -> Result<Duration> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Error::Threads)?;
    runtime.block_on(async {
        let admin = Admin::new(AdminConfig::new(address))?;
        while since.elapsed() < limit {
            let described = timeout(limit, admin.describe_topics(&[topic])).await;
            let topic =
                described.ok().and_then(Result::ok).and_then(|topics| topics.into_iter().next());
            if topic.is_some_and(|(_, topic)| topic.is_ok_and(|topic| said(&topic))) {
                return Ok(since.elapsed());
            }
            tokio::time::sleep(PAUSE).await;
        }
        let text = format!("the metadata of {address} does not show the change after {limit:?}");
        Err(Error::Unexpected(text))
    })
}
