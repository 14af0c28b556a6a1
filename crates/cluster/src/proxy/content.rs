//! Faults in responses: errors of Fetch and Metadata, damaged records and wrong leaders.
//!
//! Only a response that a fault concerns is encoded again. Fields that this version does not know are lost
//! in it.

use std::collections::BTreeSet;

use bytes::Bytes;
use curtail_wire::{
    ApiKey, ErrorCode, Uuid, Writer,
    fetch::{self, FetchPartitionResponse, FetchRequest, FetchResponse, FetchTopicResponse},
    header::{encode_response_header, response_body},
    metadata::{MetadataResponse, MetadataTopic},
    produce::{self, LeaderIdAndEpoch, NodeEndpoint, ProduceResponse},
};
use parking_lot::Mutex;

use super::{addresses::length, directory::Directory};
use crate::faults::{Faults, Item, Request, damaged, first_batch_end, names_leader};

/// First version of Produce and of Fetch with topic ids.
const TOPIC_IDS: i16 = 13;
/// First version of Produce with leaders in errors.
const PRODUCE_HINTS: i16 = 10;
/// First version of Fetch with leaders in errors.
const FETCH_HINTS: i16 = 16;

/// A partition in a request to Fetch: the topic as the response names it, its name, the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    name: String,
    topic_id: Uuid,
    index: i32,
}

impl Asked {
    /// Bytes of memory.
    pub(super) fn held(&self) -> usize {
        size_of::<Self>() + self.name.len()
    }
}

/// Returns the partitions that a request to Fetch names. The others of its session are in the response
/// when they have something new.
pub(super) fn asked(version: i16, body: &Bytes) -> Vec<Asked> {
    let Ok(request) = FetchRequest::decode(version, body) else { return Vec::new() };
    let topics = request.topics.into_iter().flat_map(|topic| {
        topic.partitions.into_iter().map(move |partition| Asked {
            name: topic.name.clone(),
            topic_id: topic.topic_id,
            index: partition.index,
        })
    });
    topics.collect()
}

/// A response and what decides about it.
pub(super) struct Content<'a> {
    pub(super) faults: &'a Faults,
    pub(super) directory: &'a Directory,
    pub(super) request: &'a Request<'a>,
    pub(super) named: &'a Mutex<Vec<String>>,
    pub(super) version: i16,
    pub(super) correlation_id: i32,
}

impl Content<'_> {
    /// Appends the parts of the changed response, its length first. Appends nothing if no fault concerns it.
    /// A response that cannot be decoded stays as it is; the client judges it.
    pub(super) fn change(&self, frame: &Bytes, asked: &[Asked], out: &mut Vec<Bytes>) {
        let Ok(body) = response_body(frame, self.request.api, self.version) else { return };
        match self.request.api {
            ApiKey::FETCH if fetch::VERSIONS.contains(&self.version) => {
                self.fetch(&body, asked, out);
            }
            ApiKey::METADATA => self.metadata(&body, out),
            ApiKey::PRODUCE
                if (PRODUCE_HINTS..=*produce::VERSIONS.end()).contains(&self.version) =>
            {
                self.produce(&body, out);
            }
            _ => {}
        }
    }

    fn error(&self, item: Item<'_>) -> Option<ErrorCode> {
        self.faults.error(self.request, item, self.named)
    }

    fn topic(&self, name: &str, id: Uuid) -> String {
        match self.version >= TOPIC_IDS {
            true => self.directory.topic_name(id).map(|name| name.to_string()).unwrap_or_default(),
            false => name.to_owned(),
        }
    }

    fn fetch(&self, body: &Bytes, asked: &[Asked], out: &mut Vec<Bytes>) {
        let Ok(mut response) = FetchResponse::decode(self.version, body) else { return };
        let mut endpoints = Vec::new();
        let mut changed = false;
        let missing = match response.error.is_none() {
            true => missing(&response, asked),
            false => Vec::new(),
        };
        for topic in &mut response.topics {
            let name = self.topic(&topic.name, topic.topic_id);
            for partition in &mut topic.partitions {
                changed |= self.fetched(&name, partition, &mut endpoints);
            }
        }
        for Asked { name, topic_id, index } in missing {
            let mut partition = FetchPartitionResponse { index, ..Default::default() };
            let topic = self.topic(&name, topic_id);
            if self.fetched(&topic, &mut partition, &mut endpoints) {
                changed = true;
                let partitions = vec![partition];
                response.topics.push(FetchTopicResponse { name, topic_id, partitions });
            }
        }
        add_endpoints(&mut response.node_endpoints, endpoints);
        if changed {
            response.encode_frame(self.version, self.correlation_id, out);
        }
    }

    /// Applies the faults of one partition. Returns whether they changed it.
    fn fetched(
        &self,
        topic: &str,
        partition: &mut FetchPartitionResponse,
        endpoints: &mut Vec<NodeEndpoint>,
    ) -> bool {
        let index = partition.index;
        let item = Item::Partition(topic, index);
        let mut changed = false;
        if let Some(error) = self.error(item) {
            *partition = FetchPartitionResponse { index, error, ..Default::default() };
            changed = true;
        } else if let Some(end) = first_batch_end(&partition.records)
            && self.faults.corrupts(self.request, item)
        {
            partition.records = damaged(&partition.records, end);
            changed = true;
        }
        if self.version >= FETCH_HINTS {
            let leader = &mut partition.current_leader;
            changed |= self.misname(partition.error, topic, index, leader, endpoints);
        }
        changed
    }

    fn produce(&self, body: &Bytes, out: &mut Vec<Bytes>) {
        let Ok(mut response) = ProduceResponse::decode(self.version, body) else { return };
        let mut endpoints = Vec::new();
        let mut changed = false;
        for topic in &mut response.topics {
            let name = self.topic(&topic.name, topic.topic_id);
            for partition in &mut topic.partitions {
                let leader = &mut partition.current_leader;
                changed |=
                    self.misname(partition.error, &name, partition.index, leader, &mut endpoints);
            }
        }
        add_endpoints(&mut response.node_endpoints, endpoints);
        if changed {
            self.encode(out, |w| response.encode(self.version, w));
        }
    }

    /// Names a wrong leader of a refused partition, if a fault says so. Returns whether it did.
    fn misname(
        &self,
        error: ErrorCode,
        topic: &str,
        index: i32,
        named: &mut Option<LeaderIdAndEpoch>,
        endpoints: &mut Vec<NodeEndpoint>,
    ) -> bool {
        if !names_leader(error) {
            return false;
        }
        let item = Item::Partition(topic, index);
        let Some(wrong) = self.faults.wrong_leader(self.request, item) else { return false };
        // An injected error comes without the leader.
        let known = named.filter(|leader| leader.leader_epoch >= 0);
        let Some(right) = known.or_else(|| self.directory.leader(topic, index)) else {
            return false;
        };
        let (leader, endpoint) = wrong.misname(right);
        *named = Some(leader);
        endpoints.extend(endpoint.or_else(|| self.directory.endpoint(leader.leader_id)));
        true
    }

    fn metadata(&self, body: &Bytes, out: &mut Vec<Bytes>) {
        let Ok(mut response) = MetadataResponse::decode(self.version, body) else { return };
        let mut changed = false;
        for topic in &mut response.topics {
            let Some(name) = topic.name.clone() else { continue };
            if let Some(error) = self.error(Item::Topic(&name)) {
                let topic_id = topic.topic_id;
                *topic = MetadataTopic { error, name: Some(name), topic_id, ..Default::default() };
                changed = true;
            }
        }
        if changed {
            self.encode(out, |w| response.encode(self.version, w));
        }
    }

    fn encode(&self, out: &mut Vec<Bytes>, body: impl FnOnce(&mut Writer)) {
        let mut w = Writer::with_capacity(256);
        encode_response_header(self.request.api, self.version, self.correlation_id, &mut w);
        body(&mut w);
        out.extend([length(w.len()), w.into_bytes()]);
    }
}

/// Returns the partitions of the request that are not in the response: in a session those without anything
/// new.
fn missing(response: &FetchResponse, asked: &[Asked]) -> Vec<Asked> {
    let present: BTreeSet<(&str, Uuid, i32)> = response
        .topics
        .iter()
        .flat_map(|topic| {
            let indices = topic.partitions.iter().map(|partition| partition.index);
            indices.map(|index| (topic.name.as_str(), topic.topic_id, index))
        })
        .collect();
    let is_missing =
        |asked: &&Asked| !present.contains(&(asked.name.as_str(), asked.topic_id, asked.index));
    asked.iter().filter(is_missing).cloned().collect()
}

/// Adds endpoints in place of others of the same nodes.
fn add_endpoints(known: &mut Vec<NodeEndpoint>, new: Vec<NodeEndpoint>) {
    for endpoint in new {
        known.retain(|known| known.node_id != endpoint.node_id);
        known.push(endpoint);
    }
}
