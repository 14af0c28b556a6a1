//! The follower's side of its fetch session: sends only the changes since the last request.

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

/// A session, or the request to open one.
#[derive(Default)]
pub(super) struct LaneSession {
    /// 0 without a session.
    id: i32,
    /// Epoch of the next request. 0 opens a session and closes the one with this id.
    epoch: i32,
    /// The content of the leader's session.
    sent: BTreeMap<PartitionKey, FetchPartition>,
}

impl LaneSession {
    /// Reopens the session with the next request, after which the leader drops the old one.
    pub(super) fn reconnected(&mut self) {
        self.epoch = 0;
        self.sent.clear();
    }

    /// Handles a session that the leader does not know.
    pub(super) fn lost(&mut self) {
        *self = Self::default();
    }

    /// Records a successful response.
    pub(super) fn answered(&mut self, session_id: i32) {
        if session_id == 0 {
            return self.lost();
        }
        self.id = session_id;
        self.epoch = if self.epoch == i32::MAX { 1 } else { self.epoch + 1 };
    }

    /// Returns the content of the next request, so that the leader fetches exactly `positions`.
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
