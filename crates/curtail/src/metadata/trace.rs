//! Trace events of metadata, for the timeline of slow records (`crate::producer::trace` has those of requests).

use std::{fmt, sync::Arc, time::Duration};

use curtail_proto::metadata::Snapshot;

use crate::TRACE_TARGET;

/// A response was read from `broker` (`host:port`) after `took`.
pub(super) fn answered(broker: &str, took: Duration) {
    let took_us = took.as_micros();
    tracing::trace!(target: TRACE_TARGET, event = "metadata", peer = broker, took_us);
}

/// The client's snapshot was replaced: names the partitions of these topics whose leader or leader epoch has changed.
pub(super) fn published(client: &str, old: &Snapshot, new: &Snapshot, topics: &[Arc<str>]) {
    let leaders = Changed { old, new, topics };
    tracing::trace!(target: TRACE_TARGET, event = "leaders", client, %leaders);
}

/// `topic-partition leader leader-epoch`, separated by semicolons.
struct Changed<'a> {
    old: &'a Snapshot,
    new: &'a Snapshot,
    topics: &'a [Arc<str>],
}

impl fmt::Display for Changed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for topic in self.topics.iter().filter_map(|name| self.new.topic(name)) {
            let before = self.old.topic(&topic.name).map_or(&[][..], |topic| &topic.leaders);
            for (index, leader) in topic.leaders.iter().enumerate() {
                if before.get(index) != Some(leader) {
                    write!(f, "{separator}{}-{index} {} {}", topic.name, leader.id, leader.epoch)?;
                    separator = ";";
                }
            }
        }
        Ok(())
    }
}
