//! The application's control of its partitions: pauses and jumps, from the consumer or from a handle.

use std::collections::BTreeSet;

use curtail_proto::{
    plant::{Plant, planted},
    position::{Position, Reset, Spot, Version, Versions},
};

use super::{
    cursor::Cursor,
    shared::{Assigned, Shared, State},
};
use crate::{Error, Result, TopicPartition};

impl Shared {
    pub(super) fn assignment(&self) -> BTreeSet<TopicPartition> {
        self.state.lock().partitions.keys().cloned().collect()
    }

    pub(super) fn paused(&self) -> BTreeSet<TopicPartition> {
        let state = self.state.lock();
        let paused = state.partitions.iter().filter(|(_, assigned)| assigned.paused);
        paused.map(|(at, _)| at.clone()).collect()
    }

    pub(super) fn resume<'a>(&self, partitions: impl IntoIterator<Item = &'a TopicPartition>) {
        let mut state = self.state.lock();
        for at in partitions {
            state.resume(at);
        }
    }

    /// Moves a position.
    pub(super) fn jump(
        &self,
        at: &TopicPartition,
        jump: impl FnOnce(&mut Position, &mut Versions),
    ) -> Result<()> {
        let jumped = self.state.lock().jump(at, jump);
        self.settled.notify_waiters();
        jumped
    }

    /// Moves positions to offsets that must be looked up.
    pub(super) fn reset<'a>(
        &self,
        partitions: impl IntoIterator<Item = &'a TopicPartition>,
        to: Reset,
    ) -> Result<()> {
        let mut state = self.state.lock();
        let mut partitions = partitions.into_iter();
        partitions
            .try_for_each(|at| state.jump(at, |position, versions| position.reset(to, versions)))
    }
}

impl Assigned {
    /// As [`Position::rewind`], while the application may be ahead of the position: a handle cannot save the returned
    /// records.
    fn rewind_while_read(&mut self, versions: &mut Versions) {
        let before = self.position.version();
        self.position.rewind(versions);
        let from = self.rewound.filter(|(_, to)| *to == before).map_or(before, |(from, _)| from);
        self.rewound = Some((from, self.position.version()));
    }

    /// Moves the position after the returned records. Returns whether it was rewound since they were fetched. Its
    /// buffered records then no longer count.
    pub(super) fn consume(
        &mut self,
        version: Version,
        next: Spot,
        versions: &mut Versions,
    ) -> bool {
        if self.position.on_consumed(version, next) {
            return false;
        }
        let is_ahead = self.rewound == Some((version, self.position.version()))
            && self.position.consumed().is_some_and(|at| at.offset < next.offset);
        if is_ahead {
            self.position.seek_to(next, versions);
        }
        is_ahead
    }
}

impl State {
    /// Sets a paused partition's records aside: its queue, the records being read (`first`) and the records just
    /// fetched (`last`). If all paused partitions together exceed `limit` bytes, drops the records, and they are
    /// fetched again later. A paused partition therefore neither blocks others nor takes unbounded memory.
    pub(super) fn park(
        &mut self,
        at: &TopicPartition,
        first: Option<Cursor>,
        last: Option<Cursor>,
        limit: usize,
    ) {
        let Some(assigned) = self.partitions.get_mut(at) else { return };
        if !self.buffer.park(&mut assigned.queue, first, last, limit) {
            self.buffer.clear(&mut assigned.queue);
            assigned.halted = false;
            assigned.rewind_while_read(&mut self.versions);
        }
    }

    /// Pauses a partition, and sets aside its records that the application is reading.
    pub(super) fn pause(&mut self, at: &TopicPartition, reading: Option<Cursor>, limit: usize) {
        let Some(assigned) = self.partitions.get_mut(at) else { return };
        assigned.paused = true;
        if !planted(Plant::PauseLeaks) {
            self.park(at, reading, None, limit);
        }
        self.touch(at);
    }

    /// Resumes a paused partition: the records set aside are returned before all records fetched later.
    pub(super) fn resume(&mut self, at: &TopicPartition) {
        let Some(assigned) = self.partitions.get_mut(at) else { return };
        assigned.paused = false;
        self.buffer.unpark(at, &mut assigned.queue);
        assigned.seat.wake();
        self.wake_application();
        self.touch(at);
    }

    /// Moves a position: in-flight and buffered records of the partition no longer count.
    pub(super) fn jump(
        &mut self,
        at: &TopicPartition,
        jump: impl FnOnce(&mut Position, &mut Versions),
    ) -> Result<()> {
        let Some(assigned) = self.partitions.get_mut(at) else {
            return Err(Error::IllegalState("the partition is not assigned to this consumer"));
        };
        jump(&mut assigned.position, &mut self.versions);
        assigned.seat.jumped(&assigned.position);
        self.unplaced.remove(at);
        self.buffer.clear(&mut assigned.queue);
        assigned.halted = false;
        assigned.failures = 0;
        assigned.refused_since = None;
        assigned.retry_at = None;
        self.touch(at);
        Ok(())
    }
}
