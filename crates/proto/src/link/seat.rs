//! Seats of partitions at a link, and the link's lists of those that wait.
//!
//! A partition keeps its [`Seat`] under its own lock, and a link keeps entries in its lists. The [`Ticket`] that both
//! have connects them: an entry counts only while the partition still holds the seat with that ticket. A partition
//! leaves its link by giving up the seat. It needs no lock of the link for that, and the entry is dropped at its turn.
//!
//! # Invariants
//! - At most one entry of a partition counts, over all links: each new seat has a new ticket, and the link that takes
//!   an entry out of a list puts it back at most once.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Instant,
};

use crate::{
    accumulator::Readiness,
    plant::{Plant, planted},
};

/// Connects a partition's seat with its entry in a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticket(u32);

/// Tickets before they repeat: an entry would have to outlast four million seats of its partition to count again.
const TICKETS: u32 = 1 << 22;

/// Where a partition waits to be sent. Three bytes, because there may be hundreds of thousands of partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seat([u8; 3]);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
enum List {
    /// In no list: nothing to send, or waiting for an outcome, an identity or a leader.
    #[default]
    Idle = 0,
    /// In the timed list of its link, for linger or backoff.
    Timed = 1,
    /// In the ready list of its link.
    Ready = 2,
}

impl Seat {
    fn new(list: List, ticket: Ticket) -> Self {
        let [low, middle, high, _] = (ticket.0 << 2 | list as u32).to_le_bytes();
        Self([low, middle, high])
    }

    fn list(self) -> List {
        match self.0[0] & 3 {
            0 => List::Idle,
            1 => List::Timed,
            _ => List::Ready,
        }
    }

    fn ticket(self) -> Ticket {
        let [low, middle, high] = self.0;
        Ticket(u32::from_le_bytes([low, middle, high, 0]) >> 2)
    }

    fn moves_to(&mut self, list: List) {
        *self = Self::new(list, self.ticket());
    }

    /// Takes the seat for a batch of this readiness. Returns the ticket of a new entry, or `None` if the partition has
    /// a seat that serves as well.
    pub fn take(&mut self, readiness: Readiness) -> Option<Ticket> {
        let list = match (readiness, self.list()) {
            (_, List::Ready) | (Readiness::At(_), List::Timed) => return None,
            (Readiness::Now, _) => List::Ready,
            (Readiness::At(_), List::Idle) => List::Timed,
        };
        let is_new = u32::from(!planted(Plant::TicketKept));
        let ticket = Ticket((self.ticket().0 + is_new) % TICKETS);
        *self = Self::new(list, ticket);
        Some(ticket)
    }

    /// Gives up the seat. An entry no longer counts.
    pub fn leave(&mut self) {
        self.moves_to(List::Idle);
    }

    /// Whether an entry with this ticket counts.
    pub fn holds(&self, ticket: Ticket) -> bool {
        self.list() != List::Idle && self.ticket() == ticket
    }

    /// The link moves the entry to its ready list. Returns whether it counts.
    pub fn falls_due(&mut self, ticket: Ticket) -> bool {
        let counts = self.holds(ticket);
        if counts {
            self.moves_to(List::Ready);
        }
        counts
    }

    /// The link moves the entry, which counts, to its timed list.
    pub fn is_put_off(&mut self) {
        self.moves_to(List::Timed);
    }

    /// Whether the partition is in a ready list.
    pub fn is_ready(&self) -> bool {
        self.list() == List::Ready
    }

    /// Whether the partition is in a timed list.
    pub fn is_timed(&self) -> bool {
        self.list() == List::Timed
    }
}

/// A partition in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<P> {
    /// The partition.
    pub partition: P,
    /// The ticket of its seat when the entry was made.
    pub ticket: Ticket,
}

/// The partitions that wait at a link.
#[derive(Debug)]
pub(super) struct Lists<P> {
    ready: VecDeque<Entry<P>>,
    /// By due time. The number orders entries with the same time.
    timed: BTreeMap<(Instant, u64), Entry<P>>,
    entries: u64,
}

impl<P> Default for Lists<P> {
    fn default() -> Self {
        Self { ready: VecDeque::new(), timed: BTreeMap::new(), entries: 0 }
    }
}

impl<P> Lists<P> {
    pub(super) fn add(&mut self, entry: Entry<P>, readiness: Readiness) {
        match readiness {
            Readiness::Now => self.ready.push_back(entry),
            Readiness::At(at) => {
                self.timed.insert((at, self.entries), entry);
                self.entries += 1;
            }
        }
    }

    /// Puts an entry back that was first in the ready list.
    pub(super) fn put_back(&mut self, entry: Entry<P>) {
        self.ready.push_front(entry);
    }

    pub(super) fn pop_ready(&mut self) -> Option<Entry<P>> {
        self.ready.pop_front()
    }

    /// Takes out the earliest entry of the timed list, if it is due at `now`.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Entry<P>> {
        self.next_due().filter(|at| *at <= now)?;
        self.pop_timed()
    }

    /// Takes out the earliest entry of the timed list.
    pub(super) fn pop_timed(&mut self) -> Option<Entry<P>> {
        self.timed.pop_first().map(|(_, entry)| entry)
    }

    /// When the earliest entry of the timed list is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.timed.first_key_value().map(|((at, _), _)| *at)
    }

    /// The ready partitions, in their order.
    pub(super) fn ready(&self) -> impl ExactSizeIterator<Item = &P> {
        self.ready.iter().map(|entry| &entry.partition)
    }

    /// Every entry.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry<P>> {
        self.ready.iter().chain(self.timed.values())
    }

    /// Every entry, taken out.
    pub(super) fn into_entries(self) -> impl Iterator<Item = Entry<P>> {
        self.ready.into_iter().chain(self.timed.into_values())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.timed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seat_changes_and_new_entries_follow_the_table() {
        let at = Readiness::At(Instant::now());
        let seats = [List::Idle, List::Timed, List::Ready];
        let table = [
            (List::Idle, at, Some(List::Timed)),
            (List::Timed, at, None),
            (List::Ready, at, None),
            (List::Idle, Readiness::Now, Some(List::Ready)),
            (List::Timed, Readiness::Now, Some(List::Ready)),
            (List::Ready, Readiness::Now, None),
        ];
        assert_eq!(table.len(), 2 * seats.len());
        for (list, readiness, expected) in table {
            let before = Seat::new(list, Ticket(4));
            let mut seat = before;
            let ticket = seat.take(readiness);
            assert_eq!(ticket, expected.map(|_| Ticket(5)), "{list:?} {readiness:?}");
            assert_eq!(seat.list(), expected.unwrap_or(list), "{list:?} {readiness:?}");
            assert_eq!(seat.holds(Ticket(4)), expected.is_none() && list != List::Idle);
            assert_eq!(seat.holds(Ticket(5)), expected.is_some());
        }
    }

    #[test]
    fn an_entry_counts_until_the_partition_leaves_or_takes_another_seat() {
        let mut seat = Seat::default();
        assert!(!seat.holds(Ticket::default()), "it has no seat yet");
        let linger = seat.take(Readiness::At(Instant::now())).expect("a new entry");
        assert!(seat.is_timed() && seat.falls_due(linger) && seat.is_ready());
        seat.is_put_off();
        assert!(
            seat.is_timed() && seat.holds(linger),
            "a partition that is put off keeps its entry"
        );
        let full = seat.take(Readiness::Now).expect("a new entry");
        assert!(!seat.falls_due(linger) && seat.holds(full));
        seat.leave();
        assert!(!seat.holds(full) && !seat.falls_due(full) && !seat.is_ready());
        let again = seat.take(Readiness::Now).expect("a new entry");
        assert!(seat.holds(again) && !seat.holds(full), "an entry of a previous seat");
    }

    #[test]
    fn tickets_repeat_only_after_all_others() {
        let mut seat = Seat::new(List::Idle, Ticket(TICKETS - 1));
        assert_eq!(seat.take(Readiness::Now), Some(Ticket(0)));
        assert!(seat.is_ready() && !seat.holds(Ticket(TICKETS - 1)));
    }

    #[test]
    fn timed_entries_come_out_by_time_and_then_in_their_order() {
        let now = Instant::now();
        let at = |ms| Readiness::At(now + std::time::Duration::from_millis(ms));
        let mut lists = Lists::default();
        for (partition, ms) in [('a', 3), ('b', 2), ('c', 3), ('d', 9)] {
            lists.add(Entry { partition, ticket: Ticket(1) }, at(ms));
        }
        let due = now + std::time::Duration::from_millis(3);
        let out = std::iter::from_fn(|| lists.pop_due(due)).map(|entry| entry.partition);
        assert_eq!(out.collect::<String>(), "bac");
        assert!(!lists.is_empty() && lists.pop_due(due).is_none());
    }
}
