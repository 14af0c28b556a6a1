//! Deadlines of a group's members: of their sessions, and for the revocation of what they must give back.

use std::time::Duration;

use imbl::OrdMap;
use tokio::time::Instant;

/// The deadlines of one group's members, by member id.
#[derive(Clone, Debug, Default)]
pub(super) struct Deadlines {
    /// When members are removed unless they send a heartbeat.
    sessions: OrdMap<String, Instant>,
    /// When members are removed unless they have advanced from this epoch.
    rebalances: OrdMap<String, (Instant, i32)>,
}

impl Deadlines {
    /// Returns the next deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        let rebalances = self.rebalances.values().map(|(at, _)| at);
        self.sessions.values().chain(rebalances).min().copied()
    }

    /// Extends a member's session.
    pub(super) fn extend(&mut self, id: &str, until: Instant) {
        self.sessions.insert(id.to_owned(), until);
    }

    /// Sets the time within which a member must advance from an epoch, in milliseconds; without an epoch it has no
    /// deadline.
    pub(super) fn set_rebalance(
        &mut self,
        now: Instant,
        id: &str,
        timeout_ms: i32,
        from: Option<i32>,
    ) {
        let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        match from {
            Some(epoch) => self.rebalances.insert(id.to_owned(), (now + timeout, epoch)),
            None => self.rebalances.remove(id),
        };
    }

    pub(super) fn forget(&mut self, id: &str) {
        self.sessions.remove(id);
        self.rebalances.remove(id);
    }

    /// Returns the members to remove, and forgets the deadlines of rebalances that have passed.
    pub(super) fn expire(
        &mut self,
        now: Instant,
        epoch_of: impl Fn(&str) -> Option<i32>,
    ) -> Vec<String> {
        let silent = self.sessions.iter().filter(|(_, at)| **at <= now).map(|(id, _)| id.clone());
        let mut gone: Vec<String> = silent.collect();
        let due = self.rebalances.iter().filter(|(_, (at, _))| *at <= now);
        let due: Vec<_> = due.map(|(id, (_, since))| (id.clone(), *since)).collect();
        for (id, since) in due {
            self.rebalances.remove(&id);
            if epoch_of(&id) == Some(since) && !gone.contains(&id) {
                gone.push(id);
            }
        }
        gone
    }

    /// Postpones everything due now, after storing it has failed.
    pub(super) fn postpone(&mut self, now: Instant, until: Instant) {
        let due = self.sessions.iter().filter(|(_, at)| **at <= now).map(|(id, _)| id.clone());
        for id in due.collect::<Vec<_>>() {
            self.sessions.insert(id, until);
        }
        let due = self.rebalances.iter().filter(|(_, (at, _))| *at <= now);
        let due: Vec<_> = due.map(|(id, (_, epoch))| (id.clone(), *epoch)).collect();
        for (id, epoch) in due {
            self.rebalances.insert(id, (until, epoch));
        }
    }
}
