//! `buffer.memory`: how much of it each broker may hold, and which waiter is next when it is exhausted.
//!
//! Every byte is held for one broker. While more than one broker is in use, a broker may hold only as much as is free
//! at the same time (a dynamic threshold, Choudhury and Hahne 1998). One broker that does not acknowledge holds at
//! most half of the memory, and two hold a third each; the rest stays available. A waiter that was refused because of
//! its own broker's share blocks no other waiter. Nor does one whose broker has a full window ([`crate::path`]): the
//! caller says of each broker whether it admits records.

use std::collections::BTreeMap;

/// The budget. `W` is the caller's handle for a waiter.
#[derive(Debug)]
pub struct Budget<W> {
    free: usize,
    /// Percentage of the free bytes that a broker may hold at most; `None` for no bound.
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

/// A place in one broker's queue; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    broker: i32,
    number: u64,
}

impl Ticket {
    /// Its number among all tickets, in the order of arrival.
    pub fn number(self) -> u64 {
        self.number
    }
}

impl<W> Default for Account<W> {
    fn default() -> Self {
        Self { held: 0, waiting: BTreeMap::new() }
    }
}

/// A waiter whose turn has come: its bytes are taken.
#[derive(Debug, PartialEq, Eq)]
pub struct Granted<W> {
    /// Broker for which the bytes are held.
    pub broker: i32,
    /// Bytes taken.
    pub bytes: usize,
    /// The waiter's handle.
    pub who: W,
}

impl<W> Budget<W> {
    /// Account of records that belong to no broker: their partition has no leader, or has not been chosen yet.
    pub const NOWHERE: i32 = -1;

    /// Account of records whose topic is not known yet. It is separate from [`Self::NOWHERE`], whose share these
    /// records would exhaust, so that they would wait for themselves when they leave.
    pub const WAITING_ROOM: i32 = -2;

    /// Account of batches that have ended, while the application has not taken their outcome. It is separate from
    /// [`Self::NOWHERE`], whose waiters would otherwise wait for the application.
    pub const ENDED: i32 = -3;

    /// `percent` is how much of the free bytes one broker may hold while others are in use; 0 for no bound.
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

    /// Bytes not held.
    pub fn free(&self) -> usize {
        self.free
    }

    /// Bytes held for a broker.
    pub fn held(&self, broker: i32) -> usize {
        self.accounts.get(&broker).map_or(0, |account| account.held)
    }

    /// Counts the broker as in use from now on.
    pub fn open(&mut self, broker: i32) {
        if self.accounts.contains_key(&broker) {
            return;
        }
        self.accounts.insert(broker, Account::default());
        self.brokers += usize::from(broker >= 0);
    }

    /// Takes bytes for a broker at once, unless a waiter comes first that does not wait for its broker's window.
    pub fn try_take(&mut self, broker: i32, need: usize, admits: impl Fn(i32) -> bool) -> bool {
        let queued = self.waiting(broker) > 0 && admits(broker);
        if queued || need > self.free || self.is_beyond_share(broker, need) {
            return false;
        }
        // The bytes that the next waiter needs are not for newcomers.
        let left = self.free - need;
        if self.next_in_line(admits).is_some_and(|(_, next)| next > left) {
            return false;
        }
        self.take(broker, need);
        true
    }

    /// Queues up; [`Self::grant`] returns the waiter when its turn has come. A waiter that stops waiting calls
    /// [`Self::leave`].
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

    /// Returns bytes to the budget.
    pub fn give_back(&mut self, broker: i32, bytes: usize) {
        if let Some(account) = self.accounts.get_mut(&broker) {
            account.held -= bytes;
            self.free += bytes;
        }
    }

    /// Moves bytes from one broker to another, beyond its share if necessary: their records have moved.
    pub fn transfer(&mut self, from: i32, to: i32, bytes: usize) {
        self.open(to);
        self.give_back(from, bytes);
        self.take(to, bytes);
    }

    /// Returns the next waiter whose turn has come: the longest waiting one that neither its broker's share nor its
    /// window blocks. Call it after every [`Self::give_back`] and [`Self::transfer`], and when a window opens, until it
    /// returns `None`.
    pub fn grant(&mut self, admits: impl Fn(i32) -> bool) -> Option<Granted<W>> {
        let (broker, need) = self.next_in_line(admits)?;
        if need > self.free {
            return None;
        }
        let (_, waiting) = self.accounts.get_mut(&broker)?.waiting.pop_first()?;
        self.waiting -= 1;
        self.take(broker, need);
        Some(Granted { broker, bytes: need, who: waiting.who })
    }

    /// Leaves the queue. Returns the waiter's handle, unless its turn has come. Costs the logarithm of the number of
    /// waiters.
    pub fn leave(&mut self, ticket: Ticket) -> Option<W> {
        let account = self.accounts.get_mut(&ticket.broker)?;
        let left = account.waiting.remove(&ticket.number)?;
        self.waiting -= 1;
        Some(left.who)
    }

    /// Removes and returns all waiters (close).
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

    /// Waiters of a broker.
    fn waiting(&self, broker: i32) -> usize {
        self.accounts.get(&broker).map_or(0, |account| account.waiting.len())
    }

    fn next_in_line(&self, admits: impl Fn(i32) -> bool) -> Option<(i32, usize)> {
        if self.waiting == 0 {
            return None;
        }
        let heads = self.accounts.iter().filter_map(|(broker, account)| {
            account.waiting.first_key_value().map(|(number, head)| (*number, *broker, head.need))
        });
        let in_line = heads
            .filter(|&(_, broker, need)| !self.is_beyond_share(broker, need) && admits(broker));
        in_line.min().map(|(_, broker, need)| (broker, need))
    }

    /// Whether the broker would hold more than its share. A broker that holds nothing may take any free bytes, so
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
