//! The arm `locked`: metadata as Java's producer kept it before KAFKA-16226 and KAFKA-16259, one cache behind
//! one lock that readers take as well.
//!
//! An update of any size merges the response with all known metadata and rebuilds every index while it holds
//! the lock. `Metadata.update` did so: it is `synchronized` and calls `MetadataCache.mergeWith` and
//! `computeClusterView`. A send waits for the lock in `Metadata.fetch`, which is `synchronized` as well.
//!
//! Every difference favours the lock. A send takes it once (Java twice, to read and to mark the topic as
//! used). There is one index less, and nothing is freed or collected under the lock. There are two updates
//! per second, each a whole refresh, instead of one per expired topic that is used again. The cache's content
//! is not used: the producer behind it is the same in all arms.

use std::{
    collections::HashMap,
    io::{self, Write as _},
    net::TcpStream,
    sync::Arc,
};

use parking_lot::Mutex;

use crate::scripted::{Input, ScriptedCluster, put, put_count, put_string, read_frame};

/// A partition as described by a response.
#[derive(Clone, Debug)]
pub(super) struct PartitionInfo {
    topic: Arc<str>,
    index: i32,
    leader: i32,
    epoch: i32,
}

/// Indexes that readers use.
#[derive(Debug, Default)]
struct Indices {
    partitions: HashMap<(Arc<str>, i32), PartitionInfo>,
    by_topic: HashMap<Arc<str>, Vec<PartitionInfo>>,
    by_node: HashMap<i32, Vec<PartitionInfo>>,
}

/// The cache.
#[derive(Debug, Default)]
pub(super) struct LockedCache {
    indices: Mutex<Indices>,
}

impl LockedCache {
    /// Returns the partition count of the topic and the leader of a partition, as a send needs them.
    pub(super) fn look_up(&self, topic: &str, index: usize) -> Option<(usize, i32)> {
        let indices = self.indices.lock();
        let partitions = indices.by_topic.get(topic)?;
        let leader = partitions.get(index)?.leader;
        indices.by_node.contains_key(&leader).then_some((partitions.len(), leader))
    }

    /// Merges a response.
    pub(super) fn update(&self, answered: Vec<PartitionInfo>) {
        let mut indices = self.indices.lock();
        let mut partitions = indices.partitions.clone();
        for new in answered {
            let key = (new.topic.clone(), new.index);
            if partitions.get(&key).is_none_or(|known| known.epoch <= new.epoch) {
                partitions.insert(key, new);
            }
        }
        let mut by_topic: HashMap<Arc<str>, Vec<PartitionInfo>> = HashMap::new();
        let mut by_node: HashMap<i32, Vec<PartitionInfo>> = HashMap::new();
        for partition in partitions.values() {
            by_topic.entry(partition.topic.clone()).or_default().push(partition.clone());
            by_node.entry(partition.leader).or_default().push(partition.clone());
        }
        for partitions in by_topic.values_mut() {
            partitions.sort_by_key(|partition| partition.index);
        }
        let former = std::mem::replace(&mut *indices, Indices { partitions, by_topic, by_node });
        drop(indices);
        drop(former);
    }
}

/// A connection that fetches metadata and bypasses the client.
pub(super) struct Fetcher {
    stream: TcpStream,
    request: Vec<u8>,
    names: HashMap<String, Arc<str>>,
}

impl Fetcher {
    pub(super) fn new(cluster: &ScriptedCluster, topics: &[Arc<str>]) -> io::Result<Self> {
        let mut request = vec![0; 4];
        for field in [3i16, 8] {
            put(&mut request, &field.to_be_bytes());
        }
        put(&mut request, &1i32.to_be_bytes());
        put(&mut request, &(-1i16).to_be_bytes());
        put_count(&mut request, topics.len());
        for topic in topics {
            put_string(&mut request, topic);
        }
        put(&mut request, &[0; 3]);
        let length = (request.len() - 4) as u32;
        request[..4].copy_from_slice(&length.to_be_bytes());
        let names = topics.iter().map(|topic| (topic.to_string(), topic.clone())).collect();
        Ok(Self { stream: cluster.connect()?, request, names })
    }

    /// One full refresh.
    pub(super) fn fetch(&mut self) -> io::Result<Vec<PartitionInfo>> {
        self.stream.write_all(&self.request)?;
        let mut body = Vec::new();
        read_frame(&mut self.stream, &mut body)?;
        let mut input = Input(&body);
        input.take(8)?;
        for _ in 0..input.i32()? {
            input.take(4)?;
            input.nullable_string()?;
            input.take(4)?;
            input.nullable_string()?;
        }
        input.nullable_string()?;
        input.take(4)?;
        let mut partitions = Vec::new();
        for _ in 0..input.i32()? {
            input.take(2)?;
            let name = input.nullable_string()?.unwrap_or_default();
            let topic = self.names.get(name).cloned().ok_or(io::ErrorKind::InvalidData)?;
            input.take(1)?;
            for _ in 0..input.i32()? {
                input.take(2)?;
                let (index, leader, epoch) = (input.i32()?, input.i32()?, input.i32()?);
                for _ in 0..3 {
                    let replicas = input.i32()?.max(0) as usize;
                    input.take(4 * replicas)?;
                }
                partitions.push(PartitionInfo { topic: topic.clone(), index, leader, epoch });
            }
            input.take(4)?;
        }
        Ok(partitions)
    }
}
