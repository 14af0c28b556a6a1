//! Client metrics push (KIP-714): when a client requests its subscription, and when it pushes its metrics.
//!
//! The machine follows Java's `ClientTelemetryReporter`. The subscription comes first, with the zero id until a broker has
//! assigned one. The first push follows after 0.5 to 1.5 times the push interval, so that clients that start together
//! spread out. Errors lead back to the subscription: at once, at the next interval, or never.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use curtail_wire::{ErrorCode, Uuid, compression::Codec};

use crate::later::Later;

/// The push interval while the brokers have named none.
pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(300);

/// The shortest push interval, which is also the shortest that Kafka's brokers accept as a setting.
pub const LEAST_INTERVAL: Duration = Duration::from_millis(100);

/// The largest payload while a broker names no limit: the default of the brokers' `telemetry.max.bytes`.
pub const DEFAULT_MAX_BYTES: usize = 1 << 20;

/// The first push follows the subscription after this share of the push interval, and up to one interval more.
const EARLIEST_PUSH: f64 = 0.5;

/// Metrics that a subscription requests, by prefixes of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    prefixes: Vec<String>,
}

impl Selector {
    /// Creates the selector for `RequestedMetrics`. A single `*` requests all metrics, as does an empty prefix.
    #[must_use]
    pub fn new(requested: Vec<String>) -> Self {
        match requested.as_slice() {
            [all] if all == "*" => Self { prefixes: vec![String::new()] },
            _ => Self { prefixes: requested },
        }
    }

    /// Whether no metric is requested.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// Whether a metric of this name is requested.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()))
    }
}

/// A subscription, as a broker has sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// The client's id.
    pub client_instance_id: Uuid,
    /// Identifies the subscription; sent with each push.
    pub id: i32,
    /// Time between pushes.
    pub interval: Duration,
    /// Codecs that the broker accepts, the preferred one first.
    pub codecs: Vec<Codec>,
    /// The largest payload that the broker accepts, in bytes.
    pub max_bytes: usize,
    /// Whether counters are pushed as differences.
    pub delta: bool,
    /// The requested metrics.
    pub metrics: Selector,
}

impl Subscription {
    /// Returns the interval for `PushIntervalMs`. Zero and negative values stand for the default.
    #[must_use]
    pub fn interval_of(ms: i32) -> Duration {
        match u64::try_from(ms) {
            Ok(ms) if ms > 0 => Duration::from_millis(ms).max(LEAST_INTERVAL),
            _ => DEFAULT_INTERVAL,
        }
    }

    /// Returns the limit for `TelemetryMaxBytes`. Zero and negative values stand for the default. Java ignores the field.
    #[must_use]
    pub fn max_bytes_of(bytes: i32) -> usize {
        usize::try_from(bytes).ok().filter(|bytes| *bytes > 0).unwrap_or(DEFAULT_MAX_BYTES)
    }
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing before this time.
    Wait(Instant),
    /// Send GetTelemetrySubscriptions with this id, then report the outcome.
    Subscribe(Uuid),
    /// Send PushTelemetry for [`Telemetry::subscription`], then report the outcome.
    Push {
        /// Whether it is the last one.
        terminating: bool,
    },
    /// Nothing, ever.
    End,
}

/// The states of KIP-714.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    SubscriptionNeeded,
    SubscriptionInProgress,
    PushNeeded,
    PushInProgress,
    TerminatingPushNeeded,
    TerminatingPushInProgress,
    Terminated,
}

/// The time at which an error allows the next request for the subscription.
enum Again {
    AtOnce,
    NextInterval,
    Never,
}

fn after(error: ErrorCode) -> Again {
    match error {
        ErrorCode::UNKNOWN_SUBSCRIPTION_ID | ErrorCode::UNSUPPORTED_COMPRESSION_TYPE => {
            Again::AtOnce
        }
        ErrorCode::TELEMETRY_TOO_LARGE | ErrorCode::THROTTLING_QUOTA_EXCEEDED => {
            Again::NextInterval
        }
        // The request itself is wrong: INVALID_REQUEST, INVALID_RECORD, UNSUPPORTED_VERSION.
        _ => Again::Never,
    }
}

/// One client's subscription and pushes.
#[derive(Clone, Debug)]
pub struct Telemetry {
    state: State,
    /// The newest one. It stays while a newer one is requested, for its id.
    subscription: Option<Subscription>,
    /// When the state's request is due.
    due: Instant,
    /// Whether payloads are compressed. A broker that has refused a codec receives none.
    compresses: bool,
    /// Requests without a response since the last push that had one.
    failures: u32,
}

impl Telemetry {
    /// Starts without a subscription, which is due.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        Self {
            state: State::SubscriptionNeeded,
            subscription: None,
            due: now,
            compresses: true,
            failures: 0,
        }
    }

    /// Returns the newest subscription.
    #[must_use]
    pub fn subscription(&self) -> Option<&Subscription> {
        self.subscription.as_ref()
    }

    /// Returns the id that a broker has assigned.
    #[must_use]
    pub fn client_instance_id(&self) -> Option<Uuid> {
        self.subscription.as_ref().map(|subscription| subscription.client_instance_id)
    }

    /// Whether no further request will be sent.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.state == State::Terminated
    }

    /// Returns the codec of the next payload: the first one accepted that this build has.
    #[must_use]
    pub fn codec(&self) -> Codec {
        let accepted = self.subscription.iter().flat_map(|subscription| &subscription.codecs);
        accepted.copied().find(|codec| self.compresses && codec.is_built()).unwrap_or_default()
    }

    /// Returns the next step. A request that it returns is in progress until its outcome is reported.
    #[must_use]
    pub fn step(&mut self, now: Instant) -> Step {
        let (next, step) = match self.state {
            State::SubscriptionNeeded if self.due <= now => {
                let id = self.client_instance_id().unwrap_or(Uuid::ZERO);
                (State::SubscriptionInProgress, Step::Subscribe(id))
            }
            State::PushNeeded if self.due <= now => {
                (State::PushInProgress, Step::Push { terminating: false })
            }
            State::TerminatingPushNeeded => {
                (State::TerminatingPushInProgress, Step::Push { terminating: true })
            }
            State::SubscriptionNeeded | State::PushNeeded => return Step::Wait(self.due),
            State::SubscriptionInProgress
            | State::PushInProgress
            | State::TerminatingPushInProgress
            | State::Terminated => return Step::End,
        };
        self.state = next;
        step
    }

    /// Makes a first request for the subscription due. Has no effect if there is one.
    pub fn hurry(&mut self, now: Instant) {
        if self.state == State::SubscriptionNeeded && self.subscription.is_none() {
            self.due = self.due.min(now);
        }
    }

    /// Reports a subscription. `unit`, from 0 to 1, is a random draw; `throttle` the broker's throttle time.
    pub fn subscribed(
        &mut self,
        subscription: Subscription,
        throttle: Duration,
        now: Instant,
        unit: f64,
    ) {
        let wait = match subscription.metrics.is_empty() {
            true => subscription.interval,
            false => subscription.interval.mul_f64(EARLIEST_PUSH + unit.clamp(0.0, 1.0)),
        };
        let next = match subscription.metrics.is_empty() {
            true => State::SubscriptionNeeded,
            false => State::PushNeeded,
        };
        // With metrics, only a push shows that the broker takes them.
        if subscription.metrics.is_empty() {
            self.failures = 0;
        }
        // Without the id there is nothing to push for.
        if subscription.client_instance_id.is_zero() {
            self.end_unless_closing();
            return;
        }
        // While the client closes, the terminating push belongs to the newest subscription, too.
        self.subscription = Some(subscription);
        if self.state == State::SubscriptionInProgress {
            self.state = next;
            self.due = now.later(wait.max(throttle));
        }
    }

    /// Reports an error in the response to GetTelemetrySubscriptions.
    pub fn refused(&mut self, error: ErrorCode, throttle: Duration, now: Instant) {
        match after(error) {
            Again::Never => self.end_unless_closing(),
            // At once could repeat indefinitely.
            Again::AtOnce | Again::NextInterval => {
                self.subscribe_after(self.interval().max(throttle), now);
            }
        }
    }

    /// Reports the response to PushTelemetry.
    pub fn pushed(&mut self, error: ErrorCode, throttle: Duration, now: Instant) {
        self.failures = 0;
        if self.state == State::TerminatingPushInProgress {
            self.state = State::Terminated;
            return;
        }
        if error == ErrorCode::UNSUPPORTED_COMPRESSION_TYPE {
            self.compresses = false;
        }
        if !error.is_error() {
            if self.state == State::PushInProgress {
                self.state = State::PushNeeded;
                self.due = now.later(self.interval().max(throttle));
            }
            return;
        }
        match after(error) {
            Again::Never => self.end_unless_closing(),
            Again::AtOnce => self.subscribe_after(throttle, now),
            Again::NextInterval => self.subscribe_after(self.interval().max(throttle), now),
        }
    }

    /// Reports that a request has no response: the connection was lost, or there was none. Another broker may know a
    /// different subscription. The wait for it doubles with each failure, up to [`DEFAULT_INTERVAL`].
    pub fn failed(&mut self, now: Instant, unit: f64) {
        if self.state == State::TerminatingPushInProgress {
            self.state = State::Terminated;
            return;
        }
        let interval = self.interval();
        let doubled = interval.saturating_mul(1 << self.failures.min(20));
        self.failures = self.failures.saturating_add(1);
        // All clients of a broker lose their connections at once.
        let wait = doubled.min(DEFAULT_INTERVAL.max(interval));
        self.subscribe_after(wait.mul_f64(EARLIEST_PUSH + unit.clamp(0.0, 1.0)), now);
    }

    /// Ends the regular pushes. Returns whether a terminating push is due or in progress: never without a subscription to
    /// metrics. Later calls change nothing.
    pub fn close(&mut self) -> bool {
        if self.is_closing() {
            return true;
        }
        self.state = match self.would_push() {
            true => State::TerminatingPushNeeded,
            false => State::Terminated,
        };
        !self.has_ended()
    }

    /// Whether a close would lead to a terminating push, or has done so.
    #[must_use]
    pub fn would_push(&self) -> bool {
        let pushes = matches!(self.state, State::PushNeeded | State::PushInProgress);
        let renews = self.state == State::SubscriptionInProgress;
        let subscribed = self.subscription.as_ref().is_some_and(|s| !s.metrics.is_empty());
        self.is_closing() || (pushes || renews) && subscribed
    }

    /// Ends all pushes at once, including a terminating one.
    pub fn end(&mut self) {
        self.state = State::Terminated;
    }

    fn is_closing(&self) -> bool {
        matches!(self.state, State::TerminatingPushNeeded | State::TerminatingPushInProgress)
    }

    fn interval(&self) -> Duration {
        self.subscription.as_ref().map_or(DEFAULT_INTERVAL, |subscription| subscription.interval)
    }

    fn subscribe_after(&mut self, wait: Duration, now: Instant) {
        if matches!(self.state, State::SubscriptionInProgress | State::PushInProgress) {
            self.state = State::SubscriptionNeeded;
            self.due = now.later(wait);
        }
    }

    fn end_unless_closing(&mut self) {
        if self.state != State::TerminatingPushNeeded {
            self.state = State::Terminated;
        }
    }
}
