//! The follower's side of its fetch session: sends only what has changed since the last request.

use std::collections::BTreeMap;

use curtail_wire::{
    Uuid,
    fetch::{FetchPartition, FetchTopic, ForgottenTopic},
};

use super::{FollowerPosition, PartitionKey};

/// The part of a Fetch request that depends on the session.
pub(super) struct SessionPart {
    pub(super) session_id: i32,
    pub(super) session_epoch: i32,
    pub(super) topics: Vec<FetchTopic>,
    pub(super) forgotten: Vec<ForgottenTopic>,
}

/// A session, or the wish for one.
#[derive(Default)]
pub(super) struct LaneSession {
    /// 0 without a session.
    id: i32,
    /// Epoch of the next request; 0 opens a session, and closes the one named.
    epoch: i32,
    /// What the leader's session holds.
    sent: BTreeMap<PartitionKey, FetchPartition>,
}

impl LaneSession {
    /// The next request starts the session anew; the leader drops the old one when it comes.
    pub(super) fn reconnected(&mut self) {
        self.epoch = 0;
        self.sent.clear();
    }

    /// The leader does not know the session.
    pub(super) fn lost(&mut self) {
        *self = Self::default();
    }

    /// Takes note of a good answer.
    pub(super) fn answered(&mut self, session_id: i32) {
        if session_id == 0 {
            return self.lost();
        }
        self.id = session_id;
        self.epoch = if self.epoch == i32::MAX { 1 } else { self.epoch + 1 };
    }

    /// What to send so that the leader fetches exactly `positions`.
    pub(super) fn next(
        &mut self,
        positions: impl Iterator<Item = (PartitionKey, FollowerPosition)>,
        max_bytes: i32,
    ) -> SessionPart {
        let wanted: BTreeMap<PartitionKey, FetchPartition> = positions
            .map(|(key, position)| {
                let fetch = FetchPartition {
                    index: key.index,
                    current_leader_epoch: position.leader_epoch,
                    fetch_offset: position.fetch_offset,
                    last_fetched_epoch: position.last_fetched_epoch,
                    log_start_offset: position.log_start,
                    max_bytes,
                };
                (key, fetch)
            })
            .collect();
        let mut topics: Vec<FetchTopic> = Vec::new();
        for (key, fetch) in &wanted {
            if self.epoch != 0 && self.sent.get(key) == Some(fetch) {
                continue;
            }
            match topics.last_mut().filter(|topic| topic.topic_id == key.topic) {
                Some(topic) => topic.partitions.push(*fetch),
                None => topics.push(FetchTopic {
                    name: String::new(),
                    topic_id: key.topic,
                    partitions: vec![*fetch],
                }),
            }
        }
        let mut forgotten: Vec<ForgottenTopic> = Vec::new();
        for key in self.sent.keys().filter(|key| !wanted.contains_key(key)) {
            forget(&mut forgotten, key.topic, key.index);
        }
        self.sent = wanted;
        SessionPart { session_id: self.id, session_epoch: self.epoch, topics, forgotten }
    }
}

fn forget(forgotten: &mut Vec<ForgottenTopic>, topic: Uuid, index: i32) {
    match forgotten.last_mut().filter(|last| last.topic_id == topic) {
        Some(last) => last.partitions.push(index),
        None => forgotten.push(ForgottenTopic {
            name: String::new(),
            topic_id: topic,
            partitions: vec![index],
        }),
    }
}
