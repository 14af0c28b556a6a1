//! Fetched records that were not returned yet. Each partition has a queue, and the queues are served in turns, so
//! that no partition's backlog delays the others.

use std::collections::VecDeque;

use curtail_proto::position::Version;

use super::cursor::Cursor;
use crate::{Error, TopicPartition};

/// An item for the application.
#[expect(clippy::large_enum_variant, reason = "nearly all are of the large kind")]
#[derive(Debug)]
pub(super) enum Chunk {
    /// Records to read.
    Records(Cursor),
    /// An error to return after everything before it.
    Failure {
        /// Version of the partition's position.
        version: Version,
        /// The error.
        error: Error,
    },
}

impl Chunk {
    fn version(&self) -> Version {
        match self {
            Self::Records(cursor) => cursor.version,
            Self::Failure { version, .. } => *version,
        }
    }
}

/// One partition's queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    chunks: VecDeque<Chunk>,
    /// Whether the partition is in the list of ready partitions.
    listed: bool,
    /// Whether the partition has no turn: a claim reads it.
    alone: bool,
    /// Bytes set aside while the partition is paused.
    parked: usize,
}

impl Queue {
    /// Takes the partition out of the turns, from now on.
    pub(super) fn read_alone(&mut self) {
        self.alone = true;
    }

    fn may_be_listed(&mut self) -> bool {
        !self.alone && !self.chunks.is_empty() && !std::mem::replace(&mut self.listed, true)
    }
}

/// The order of turns, and the bytes set aside.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    ready: VecDeque<TopicPartition>,
    /// Bytes of paused partitions. No lane's share counts them.
    parked: usize,
}

/// The result of a partition's turn.
#[expect(clippy::large_enum_variant, reason = "nearly all are of the large kind")]
pub(super) enum Taken {
    Chunk(Chunk),
    /// A failure that the caller does not want now. It stays in the queue.
    Unwanted,
    Nothing,
}

impl Buffer {
    /// Removes and returns the partition whose turn it is.
    pub(super) fn next_ready(&mut self) -> Option<TopicPartition> {
        self.ready.pop_front()
    }

    /// Takes the first chunk of the partition whose turn it is, and lists the partition again if there is more. Drops
    /// chunks of other versions.
    pub(super) fn take(
        &mut self,
        at: TopicPartition,
        queue: &mut Queue,
        version: Version,
        failures: bool,
    ) -> Taken {
        queue.listed = false;
        queue.chunks.retain(|chunk| chunk.version() == version);
        if !failures && matches!(queue.chunks.front(), Some(Chunk::Failure { .. })) {
            self.list_first(at, queue);
            return Taken::Unwanted;
        }
        let Some(chunk) = queue.chunks.pop_front() else { return Taken::Nothing };
        self.list_last(at, queue);
        Taken::Chunk(chunk)
    }

    /// Skips a paused partition at its turn. It is listed again when it is resumed.
    pub(super) fn pass_over(&mut self, queue: &mut Queue) {
        queue.listed = false;
    }

    /// Appends a chunk to the partition's queue.
    pub(super) fn push(&mut self, at: &TopicPartition, queue: &mut Queue, chunk: Chunk) {
        queue.chunks.push_back(chunk);
        self.list_last(at.clone(), queue);
    }

    /// Sets a paused partition's chunks aside, with `first` before and `last` after its queue. Returns `false` if
    /// all paused partitions together exceed `limit` bytes.
    pub(super) fn park(
        &mut self,
        queue: &mut Queue,
        first: Option<Cursor>,
        last: Option<Cursor>,
        limit: usize,
    ) -> bool {
        queue.chunks.extend(last.map(Chunk::Records));
        if let Some(cursor) = first {
            queue.chunks.push_front(Chunk::Records(cursor));
        }
        let mut bytes = 0;
        for chunk in &mut queue.chunks {
            if let Chunk::Records(cursor) = chunk {
                cursor.give_share_back();
                bytes += cursor.bytes();
            }
        }
        self.parked = self.parked - queue.parked + bytes;
        queue.parked = bytes;
        self.parked <= limit
    }

    /// Lists a resumed partition first, so that its records are returned next.
    pub(super) fn unpark(&mut self, at: &TopicPartition, queue: &mut Queue) {
        self.parked -= std::mem::take(&mut queue.parked);
        self.list_first(at.clone(), queue);
    }

    /// Drops a partition's chunks.
    pub(super) fn clear(&mut self, queue: &mut Queue) {
        self.parked -= std::mem::take(&mut queue.parked);
        queue.chunks.clear();
    }

    fn list_first(&mut self, at: TopicPartition, queue: &mut Queue) {
        if queue.may_be_listed() {
            self.ready.push_front(at);
        }
    }

    fn list_last(&mut self, at: TopicPartition, queue: &mut Queue) {
        if queue.may_be_listed() {
            self.ready.push_back(at);
        }
    }
}
