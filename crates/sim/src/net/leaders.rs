//! Leaders that a client has read of in Metadata and Produce responses.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use curtail_wire::{
    ApiKey, Uuid, header,
    metadata::MetadataResponse,
    produce::{ProduceRequest, ProduceResponse},
};

use crate::{history::StaleSend, trace::now};

/// How long a client may take to act on a response that it has read.
const TO_ACT: Duration = Duration::from_millis(100);

/// A leader, and when the client has read of it.
#[derive(Debug)]
struct Known {
    leader: i32,
    epoch: i32,
    since: Duration,
}

/// The newest leader epoch that a client knows, by topic id and partition.
#[derive(Debug, Default)]
pub(super) struct Leaders {
    known: BTreeMap<(Uuid, i32), Known>,
    /// By topic id, partition and broker: the newest epoch in which any response has named it the leader. A client
    /// may follow a hint, and ignores a hint in the response to a batch that it has taken back.
    named: BTreeMap<(Uuid, i32, i32), i32>,
    ids: BTreeMap<String, Uuid>,
}

impl Leaders {
    /// Applies a Metadata response. A frame that cannot be decoded is ignored.
    pub(super) fn learn(&mut self, version: i16, frame: &Bytes) {
        let Ok(body) = header::response_body(frame, ApiKey::METADATA, version) else { return };
        let Ok(response) = MetadataResponse::decode(version, &body) else { return };
        // A broker that is still starting; the client ignores it.
        if response.brokers.is_empty() {
            return;
        }
        for topic in response.topics.iter().filter(|topic| !topic.error.is_error()) {
            if let Some(name) = &topic.name {
                self.ids.insert(name.clone(), topic.topic_id);
            }
            for partition in &topic.partitions {
                let (leader, epoch) = (partition.leader_id, partition.leader_epoch);
                let at = (topic.topic_id, partition.index);
                self.name(at, leader, epoch);
                let unknown = Known { leader: -1, epoch: -1, since: Duration::ZERO };
                let known = self.known.entry(at).or_insert(unknown);
                if epoch > known.epoch {
                    *known = Known { leader, epoch, since: now() };
                }
            }
        }
    }

    /// Takes in the leaders that a Produce response names (KIP-951).
    pub(super) fn learn_hints(&mut self, version: i16, frame: &Bytes) {
        let Ok(body) = header::response_body(frame, ApiKey::PRODUCE, version) else { return };
        let Ok(response) = ProduceResponse::decode(version, &body) else { return };
        for topic in &response.topics {
            let Some(id) = self.id_of(&topic.name, topic.topic_id) else { continue };
            for partition in &topic.partitions {
                if let Some(leader) = &partition.current_leader {
                    self.name((id, partition.index), leader.leader_id, leader.leader_epoch);
                }
            }
        }
    }

    /// Requests name topics by name in old versions, and by id in new ones.
    fn id_of(&self, name: &str, id: Uuid) -> Option<Uuid> {
        if name.is_empty() { Some(id) } else { self.ids.get(name).copied() }
    }

    fn name(&mut self, at: (Uuid, i32), leader: i32, epoch: i32) {
        let newest = self.named.entry((at.0, at.1, leader)).or_insert(epoch);
        *newest = epoch.max(*newest);
    }

    /// Batches of a Produce request to broker `to` for which the client knows a newer leader.
    pub(super) fn check(&self, to: i32, frame: &Bytes, client: &str) -> Vec<StaleSend> {
        let Ok((head, body)) = header::split_request(frame) else { return Vec::new() };
        let Ok(request) = ProduceRequest::decode(head.version, &body) else { return Vec::new() };
        let at = now();
        let mut stale = Vec::new();
        for topic in &request.topics {
            let Some(id) = self.id_of(&topic.name, topic.topic_id) else { continue };
            for partition in &topic.partitions {
                let Some(known) = self.known.get(&(id, partition.index)) else { continue };
                let named = self.named.get(&(id, partition.index, to));
                let is_current = named.is_some_and(|epoch| *epoch >= known.epoch);
                if known.leader < 0 || is_current || known.since + TO_ACT > at {
                    continue;
                }
                stale.push(StaleSend {
                    at,
                    client: client.to_owned(),
                    partition: partition.index,
                    to,
                    known: (known.leader, known.epoch),
                });
            }
        }
        stale
    }
}
