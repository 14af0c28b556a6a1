//! One broker's load from this client, readable from any task without a lock.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

/// One broker's load. The holder of the lock of the broker's connection writes it. The values are independent of each
/// other and of everything else, so loads and stores are relaxed.
#[derive(Debug, Default)]
pub struct Load {
    /// Bytes of `buffer.memory` that records for the broker hold, sent or not.
    held: AtomicUsize,
    /// Bytes held by requests without a response.
    sent: AtomicUsize,
    /// Whether no further request can be sent before a response arrives.
    full: AtomicBool,
    /// When the oldest request without a response was written, in microseconds of the producer's life plus one; 0 if
    /// every request has its response.
    waiting_since: AtomicU64,
}

impl Load {
    /// Bytes of `buffer.memory` that records for the broker hold.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Bytes held by records that are not in flight.
    pub fn waiting(&self) -> usize {
        self.held().saturating_sub(self.sent.load(Ordering::Relaxed))
    }

    /// Sets [`Self::held`]. Callers must not run concurrently.
    pub fn set_held(&self, bytes: usize) {
        self.held.store(bytes, Ordering::Relaxed);
    }

    /// Records a change of the requests in flight: the bytes that they hold, whether no more can be sent, and when
    /// the oldest was written, counted from the producer's start.
    pub fn set_sent(&self, bytes: usize, full: bool, oldest: Option<Duration>) {
        self.sent.store(bytes, Ordering::Relaxed);
        self.full.store(full, Ordering::Relaxed);
        let since = oldest.map_or(0, |at| micros(at).saturating_add(1));
        self.waiting_since.store(since, Ordering::Relaxed);
    }

    /// Whether no further request can be sent before a response arrives.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Whether records for the broker are in flight or waiting.
    pub fn is_busy(&self) -> bool {
        self.waiting_since.load(Ordering::Relaxed) != 0 || self.held() != 0
    }

    /// Age of the oldest request without a response. `now` counts from the producer's start.
    pub fn unanswered(&self, now: Duration) -> Option<Duration> {
        match self.waiting_since.load(Ordering::Relaxed) {
            0 => None,
            since => Some(Duration::from_micros(micros(now).saturating_sub(since - 1))),
        }
    }

    /// Time until a record added now is acknowledged, with `usual` the broker's response time.
    ///
    /// While more can be sent, that is the response time, or the age of a response that is overdue. Otherwise waiting
    /// records go first, at the pace of the bytes in flight: by Little's law the broker takes `sent` bytes in one
    /// response time. Records that merely linger while more can be sent delay nothing.
    pub fn expected_wait(&self, usual: Option<Duration>, now: Duration) -> Duration {
        let answer = usual.unwrap_or_default().max(self.unanswered(now).unwrap_or_default());
        if !self.is_full() {
            return answer;
        }
        let sent = self.sent.load(Ordering::Relaxed).max(1);
        let turns = (self.held().max(sent) / sent).min(1 << 20);
        answer.saturating_mul(turns as u32)
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn an_idle_broker_takes_its_usual_time() {
        let load = Load::default();
        assert_eq!(load.expected_wait(None, ms(5)), Duration::ZERO);
        assert_eq!(load.expected_wait(Some(ms(3)), ms(5)), ms(3));
        assert!(!load.is_busy());
    }

    #[test]
    fn an_overdue_response_counts_from_its_request() {
        let load = Load::default();
        load.set_sent(100, false, Some(Duration::ZERO));
        assert!(load.is_busy());
        assert_eq!(load.expected_wait(Some(ms(3)), ms(2)), ms(3));
        assert_eq!(load.expected_wait(Some(ms(3)), ms(70)), ms(70));
        load.set_sent(0, false, None);
        assert_eq!(load.expected_wait(Some(ms(3)), ms(70)), ms(3));
    }

    #[test]
    fn a_queue_counts_only_while_no_more_can_be_sent() {
        let load = Load::default();
        load.set_held(10_000);
        load.set_sent(1_000, false, Some(ms(10)));
        assert_eq!(load.expected_wait(Some(ms(4)), ms(10)), ms(4));
        load.set_sent(1_000, true, Some(ms(10)));
        assert_eq!(load.expected_wait(Some(ms(4)), ms(10)), ms(40));
        assert_eq!(load.waiting(), 9_000);
    }
}
