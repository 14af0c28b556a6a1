//! The end of a consumer.

use std::time::Duration;

use curtail_proto::membership::Departure;
use tokio::time::{Instant, timeout};

use super::Consumer;
use crate::runtime::within;

/// How [`Consumer::close_with`] ends (KIP-1092).
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CloseOptions {
    /// Longest wait for the brokers; `None` is `default.api.timeout.ms`.
    pub timeout: Option<Duration>,
    /// Whether a member leaves its group.
    pub membership: GroupMembership,
}

impl CloseOptions {
    /// The options of [`Consumer::close`].
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the longest wait for the brokers.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets whether a member leaves its group.
    #[must_use]
    #[doc(alias = "groupMembershipOperation")]
    pub fn membership(mut self, membership: GroupMembership) -> Self {
        self.membership = membership;
        self
    }
}

/// Whether a member that closes leaves its group at once, which starts a rebalance, or keeps its partitions until
/// `session.timeout.ms`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum GroupMembership {
    /// A dynamic member leaves, and a static one (`group.instance.id`) remains.
    #[default]
    Default,
    /// It leaves, also if it is static.
    LeaveGroup,
    /// It remains, also if it is dynamic. A consumer that restarts within the session timeout avoids a rebalance only if
    /// it is static: a dynamic one joins as another member.
    RemainInGroup,
}

impl GroupMembership {
    fn departure(self) -> Departure {
        match self {
            Self::Default => Departure::ByKind,
            Self::LeaveGroup => Departure::Leave,
            Self::RemainInGroup => Departure::Remain,
        }
    }
}

impl Consumer {
    /// Closes the consumer: auto-commit commits the positions, a dynamic member leaves its group, and the brokers
    /// free the fetch sessions. If brokers have asked for the consumer's metrics, they receive them a last time. Waits
    /// for the brokers up to `default.api.timeout.ms`.
    ///
    /// # Cancel safety
    /// Cancel safe: the background tasks still shut down.
    pub async fn close(self) {
        self.close_with(CloseOptions::new()).await;
    }

    /// As [`Consumer::close`], with another limit or another end of the membership.
    ///
    /// # Cancel safety
    /// Cancel safe: the background tasks still shut down.
    ///
    /// ```
    /// # async fn example(consumer: curtail::Consumer) {
    /// use std::time::Duration;
    /// use curtail::consumer::{CloseOptions, GroupMembership};
    ///
    /// // A static member that is retired: its partitions go to others at once.
    /// let options = CloseOptions::new().membership(GroupMembership::LeaveGroup).timeout(Duration::from_secs(5));
    /// consumer.close_with(options).await;
    /// # }
    /// ```
    pub async fn close_with(mut self, options: CloseOptions) {
        let limit = options.timeout.unwrap_or(self.shared.config.common.default_api_timeout);
        self.unsubscribe_with(options.membership.departure());
        self.commit_positions();
        let tasks = self.shared.state.lock().close();
        let group = self.shared.group.clone();
        let farewell = async {
            if let Some(group) = group {
                group.gone().await;
            }
            for task in tasks {
                // A lane that panicked has nothing left to close.
                let _ = task.await;
            }
        };
        let began = Instant::now();
        // An unresponsive coordinator must leave time for the last metrics.
        let for_group = limit.saturating_sub(self.shared.metadata.telemetry_share(limit));
        let closing = async { timeout(for_group, farewell).await };
        let _ = within(&self.shared.runtime, closing).await;
        // After the commits and the departure, which belong to the last metrics.
        let left = limit.saturating_sub(began.elapsed());
        self.shared.metadata.close_telemetry(left).await;
    }
}
