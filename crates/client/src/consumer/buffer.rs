//! What was fetched and not given out: a queue for each partition, served in turns, so that the backlog of one does not
//! come before what the others have.

use std::collections::VecDeque;

use curtail_proto::position::Version;

use super::cursor::Cursor;
use crate::{Error, TopicPartition};

/// Something for the application.
#[expect(clippy::large_enum_variant, reason = "nearly all are of the large kind")]
#[derive(Debug)]
pub(super) enum Chunk {
    /// Records to read.
    Records(Cursor),
    /// What the application is told after everything before it.
    Failure {
        /// Version of the partition's position.
        version: Version,
        /// What happened.
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

/// One partition's part.
#[derive(Debug, Default)]
pub(super) struct Queue {
    chunks: VecDeque<Chunk>,
    /// Whether it has a place among those that are ready.
    listed: bool,
    /// Bytes set aside while the partition is paused.
    parked: usize,
}

/// Whose turn it is, and what is set aside.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    ready: VecDeque<TopicPartition>,
    /// Bytes of paused partitions. They take no part in any lane's share.
    parked: usize,
}

/// What a partition has at its turn.
#[expect(clippy::large_enum_variant, reason = "nearly all are of the large kind")]
pub(super) enum Taken {
    Chunk(Chunk),
    /// A failure that is not wanted now; it stays where it is.
    Unwanted,
    Nothing,
}

impl Buffer {
    /// The partition whose turn it is. It has no place any more.
    pub(super) fn next_ready(&mut self) -> Option<TopicPartition> {
        self.ready.pop_front()
    }

    /// Takes the first chunk of the partition whose turn it is, and gives it another turn if there is more.
    /// Chunks of other versions are dropped.
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

    /// The partition whose turn it is is paused: it gets a place again when it is resumed.
    pub(super) fn pass_over(&mut self, queue: &mut Queue) {
        queue.listed = false;
    }

    /// Puts a chunk behind what the partition has.
    pub(super) fn push(&mut self, at: &TopicPartition, queue: &mut Queue, chunk: Chunk) {
        queue.chunks.push_back(chunk);
        self.list_last(at.clone(), queue);
    }

    /// Puts a chunk of a paused partition behind, or before, what it has, and sets everything it has aside.
    /// `false` says that this would be more than `limit` bytes of all paused partitions together.
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

    /// Gives what was set aside out next.
    pub(super) fn unpark(&mut self, at: &TopicPartition, queue: &mut Queue) {
        self.parked -= std::mem::take(&mut queue.parked);
        self.list_first(at.clone(), queue);
    }

    /// Drops what a partition has.
    pub(super) fn clear(&mut self, queue: &mut Queue) {
        self.parked -= std::mem::take(&mut queue.parked);
        queue.chunks.clear();
    }

    fn list_first(&mut self, at: TopicPartition, queue: &mut Queue) {
        if !queue.chunks.is_empty() && !std::mem::replace(&mut queue.listed, true) {
            self.ready.push_front(at);
        }
    }

    fn list_last(&mut self, at: TopicPartition, queue: &mut Queue) {
        if !queue.chunks.is_empty() && !std::mem::replace(&mut queue.listed, true) {
            self.ready.push_back(at);
        }
    }
}
