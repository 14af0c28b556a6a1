//! `buffer.memory`: who may take how much of it, and who is next when there is none.
//!
//! Every byte is held for one broker. While more than one broker is in use, a broker may hold only as much as is
//! free at the same time (a dynamic threshold, Choudhury and Hahne 1998): one broker that does not acknowledge ends
//! up with half of the memory, two with a third each, and the rest always finds room. Whoever is refused because of
//! its own broker waits without being in anybody's way.

use std::collections::BTreeMap;

/// The budget. `W` is the caller's handle of one who waits.
#[derive(Debug)]
pub struct Budget<W> {
    free: usize,
    /// A broker may hold at most this percentage of what is free; `None` for no bound.
    percent: Option<usize>,
    accounts: BTreeMap<i32, Account<W>>,
    /// Accounts of real brokers.
    brokers: usize,
    next_ticket: u64,
    waiting: usize,
}

#[derive(Debug)]
struct Account<W> {
    held: usize,
    /// In the order of the tickets.
    waiting: BTreeMap<u64, Waiting<W>>,
}

#[derive(Debug)]
struct Waiting<W> {
    need: usize,
    who: W,
}

/// A place in the queue of one broker; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    broker: i32,
    number: u64,
}

impl<W> Default for Account<W> {
    fn default() -> Self {
        Self { held: 0, waiting: BTreeMap::new() }
    }
}

/// One whose turn has come: the bytes are taken.
#[derive(Debug, PartialEq, Eq)]
pub struct Granted<W> {
    /// For which broker.
    pub broker: i32,
    /// How much.
    pub bytes: usize,
    /// Whose turn it is.
    pub who: W,
}

impl<W> Budget<W> {
    /// Account of records that belong to no broker: their partition has no leader, or is still to be chosen.
    pub const NOWHERE: i32 = -1;

    /// Account of records whose topic is not known yet. Apart from [`Self::NOWHERE`], whose share these records would
    /// use up, so that they would wait for themselves when they leave.
    pub const WAITING_ROOM: i32 = -2;

    /// `percent` of what is free is what one broker may hold while others are in use; 0 for no bound.
    pub fn new(total: usize, percent: u32) -> Self {
        Self {
            free: total,
            percent: Some(percent as usize).filter(|&percent| percent > 0),
            accounts: BTreeMap::new(),
            brokers: 0,
            next_ticket: 0,
            waiting: 0,
        }
    }

    /// Bytes that nobody holds.
    pub fn free(&self) -> usize {
        self.free
    }

    /// Bytes held for a broker.
    pub fn held(&self, broker: i32) -> usize {
        self.accounts.get(&broker).map_or(0, |account| account.held)
    }

    /// From now on the broker is in use.
    pub fn open(&mut self, broker: i32) {
        if self.accounts.contains_key(&broker) {
            return;
        }
        self.accounts.insert(broker, Account::default());
        self.brokers += usize::from(broker >= 0);
    }

    /// Takes bytes for a broker at once, unless somebody else is to have them first.
    pub fn try_take(&mut self, broker: i32, need: usize) -> bool {
        let queued = self.accounts.get(&broker).is_some_and(|a| !a.waiting.is_empty());
        if queued || need > self.free || self.is_beyond_share(broker, need) || self.is_starved() {
            return false;
        }
        self.take(broker, need);
        true
    }

    /// Queues up; [`Self::grant`] returns it when its turn has come. A waiter that stops waiting calls [`Self::leave`].
    pub fn wait(&mut self, broker: i32, need: usize, who: W) -> Ticket {
        let number = self.next_ticket;
        self.next_ticket += 1;
        self.open(broker);
        if let Some(account) = self.accounts.get_mut(&broker) {
            account.waiting.insert(number, Waiting { need, who });
            self.waiting += 1;
        }
        Ticket { broker, number }
    }

    /// Gives bytes back.
    pub fn give_back(&mut self, broker: i32, bytes: usize) {
        if let Some(account) = self.accounts.get_mut(&broker) {
            account.held -= bytes;
            self.free += bytes;
        }
    }

    /// Bytes that one broker held now count for another, whatever its share: their records have moved.
    pub fn transfer(&mut self, from: i32, to: i32, bytes: usize) {
        self.open(to);
        self.give_back(from, bytes);
        self.take(to, bytes);
    }

    /// The next whose turn has come: the longest waiting one that is not kept waiting by its own broker. Call it after
    /// every [`Self::give_back`] and [`Self::transfer`] until there is none.
    pub fn grant(&mut self) -> Option<Granted<W>> {
        let (broker, need) = self.next_in_line()?;
        if need > self.free {
            return None;
        }
        let (_, waiting) = self.accounts.get_mut(&broker)?.waiting.pop_first()?;
        self.waiting -= 1;
        self.take(broker, need);
        Some(Granted { broker, bytes: need, who: waiting.who })
    }

    /// Leaves the queue. No effect if its turn has come. Costs the logarithm of those who wait.
    pub fn leave(&mut self, ticket: Ticket) {
        let Some(account) = self.accounts.get_mut(&ticket.broker) else { return };
        if account.waiting.remove(&ticket.number).is_some() {
            self.waiting -= 1;
        }
    }

    /// Lets go of everybody who waits (close).
    pub fn dismiss(&mut self) -> Vec<W> {
        self.waiting = 0;
        let accounts = self.accounts.values_mut();
        let waiting = accounts.flat_map(|account| std::mem::take(&mut account.waiting));
        waiting.map(|(_, waiting)| waiting.who).collect()
    }

    fn take(&mut self, broker: i32, bytes: usize) {
        self.open(broker);
        if let Some(account) = self.accounts.get_mut(&broker) {
            account.held += bytes;
            self.free -= bytes;
        }
    }

    /// Whether somebody waits for bytes that are merely not there, so that newcomers must not take them.
    fn is_starved(&self) -> bool {
        self.next_in_line().is_some()
    }

    fn next_in_line(&self) -> Option<(i32, usize)> {
        if self.waiting == 0 {
            return None;
        }
        let heads = self.accounts.iter().filter_map(|(broker, account)| {
            account.waiting.first_key_value().map(|(number, head)| (*number, *broker, head.need))
        });
        let in_line = heads.filter(|&(_, broker, need)| !self.is_beyond_share(broker, need));
        in_line.min().map(|(_, broker, need)| (broker, need))
    }

    /// Whether the broker would hold more than its share. One that holds nothing may always take what is free, so
    /// that the largest record can be sent.
    fn is_beyond_share(&self, broker: i32, need: usize) -> bool {
        let held = self.held(broker);
        let Some(percent) = self.percent.filter(|_| self.brokers > 1 && held > 0) else {
            return false;
        };
        let left = self.free.saturating_sub(need);
        (held + need).saturating_mul(100) > left.saturating_mul(percent)
    }
}

#[cfg(test)]
mod tests;
