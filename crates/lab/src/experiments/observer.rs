//! Observes the cluster's metadata from outside, over separate connections.

use std::{
    thread,
    time::{Duration, Instant},
};

use curtail::{Admin, AdminConfig, admin::TopicDescription};
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};

use super::Testbed;
use crate::perf::{Error, Result};

/// Pause between two requests.
const PAUSE: Duration = Duration::from_millis(10);

/// When the metadata of several brokers first met a condition, relative to a given time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// In the first broker.
    pub(super) first: Duration,
    /// In all brokers.
    pub(super) all: Duration,
}

impl Seen {
    fn of(each: Vec<Result<Duration>>) -> Result<Self> {
        let each: Vec<Duration> = each.into_iter().collect::<Result<_>>()?;
        let first = each.iter().min().copied().unwrap_or_default();
        let all = each.iter().max().copied().unwrap_or_default();
        Ok(Self { first, all })
    }

    /// The larger value of each.
    pub(super) fn max(self, other: Self) -> Self {
        Self { first: self.first.max(other.first), all: self.all.max(other.all) }
    }
}

/// Runs an action, and asks each of these brokers for the topic until its metadata meets a condition.
///
/// The connections are opened earlier, because that takes CPU time that the brokers need for the action.
/// Returns the start of the action, its result, and the observation.
///
/// # Errors
/// A broker whose metadata does not meet the condition within `limit`.
pub(super) fn watch<T>(
    testbed: &Testbed,
    brokers: &[i32],
    topic: &str,
    limit: Duration,
    said: impl Fn(&TopicDescription) -> bool + Sync,
    act: impl FnOnce(Instant) -> T,
) -> Result<(Instant, T, Result<Seen>)> {
    let watchers = brokers.iter().map(|&id| Watcher::connect(&testbed.address(id)?, topic));
    let watchers = watchers.collect::<Result<Vec<_>>>()?;
    let said = &said;
    let began = Instant::now();
    thread::scope(|scope| {
        let until = |watcher: Watcher| move || watcher.until(topic, began, limit, said);
        let watching: Vec<_> =
            watchers.into_iter().map(|watcher| scope.spawn(until(watcher))).collect();
        let done = act(began);
        let joined = |watcher: thread::ScopedJoinHandle<'_, _>| {
            watcher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let seen: Vec<Result<Duration>> = watching.into_iter().map(joined).collect();
        Ok((began, done, Seen::of(seen)))
    })
}

/// Connection to one broker.
struct Watcher {
    runtime: Runtime,
    admin: Admin,
    address: String,
}

impl Watcher {
    fn connect(address: &str, topic: &str) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(Error::Threads)?;
        let admin = runtime.block_on(async {
            let admin = Admin::new(AdminConfig::new(address))?;
            admin.describe_topics(&[topic]).await?;
            Ok::<_, Error>(admin)
        })?;
        Ok(Self { runtime, admin, address: address.to_owned() })
    }

    /// Repeats the request until the condition is met; returns how long that took.
    fn until(
        self,
        topic: &str,
        began: Instant,
        limit: Duration,
        said: &impl Fn(&TopicDescription) -> bool,
    ) -> Result<Duration> {
        let Self { runtime, admin, address } = self;
        runtime.block_on(async {
            while began.elapsed() < limit {
                let described = timeout(limit, admin.describe_topics(&[topic])).await;
                let topic = described
                    .ok()
                    .and_then(Result::ok)
                    .and_then(|topics| topics.into_iter().next());
                if topic.is_some_and(|(_, topic)| topic.is_ok_and(|topic| said(&topic))) {
                    return Ok(began.elapsed());
                }
                tokio::time::sleep(PAUSE).await;
            }
            let text =
                format!("the metadata of {address} does not show the change after {limit:?}");
            Err(Error::Unexpected(text))
        })
    }
}
