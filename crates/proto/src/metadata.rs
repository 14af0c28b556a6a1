//! An immutable snapshot of the cluster: its brokers, topics and leaders.
//!
//! Readers hold a snapshot and never wait. A new snapshot shares every unchanged topic with the old one, so an
//! update costs the size of the change (KAFKA-16259).
//!
//! While a topic id stays the same, no partition of it goes away and no leader epoch goes back: neither a stale
//! Metadata response nor a late hint can undo newer knowledge (KIP-951). Kafka cannot remove partitions, so a response
//! with fewer of them comes from a broker that lags behind the controller.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use curtail_wire::{
    ErrorCode, Uuid,
    metadata::{MetadataResponse, MetadataTopic},
    produce::NodeEndpoint,
};
use imbl::OrdMap;

use crate::{
    assignor::{Layout, Topics},
    plant::{Plant, planted},
};

mod racks;
pub mod recovery;
pub mod refresh;
mod replicas;
#[cfg(test)]
mod tests;

use racks::Racks;
pub use replicas::Replicas;

/// A broker's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Broker id.
    pub id: i32,
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Rack, where configured.
    pub rack: Option<String>,
}

impl Node {
    /// A broker listed with the leader hints of an error response; `None` if the port is invalid.
    pub fn from_endpoint(endpoint: &NodeEndpoint) -> Option<Self> {
        Some(Self {
            id: endpoint.node_id,
            host: endpoint.host.clone(),
            port: u16::try_from(endpoint.port).ok()?,
            rack: endpoint.rack.clone(),
        })
    }
}

/// A partition's leader: 8 bytes each, because there are hundreds of thousands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Broker id; -1 while there is none.
    pub id: i32,
    /// Leader epoch; -1 if the broker does not report it (Metadata before version 7).
    pub epoch: i32,
}

impl Leader {
    /// No leader known.
    pub const NONE: Self = Self { id: -1, epoch: -1 };

    /// Whether this leader is another one than `former`. A newer epoch is, even on the same broker; the same epoch is not
    /// (KIP-951). If brokers report no epochs, another broker is.
    pub fn is_new_since(self, former: Self) -> bool {
        match former.epoch >= 0 && self.epoch >= 0 {
            true => self.epoch > former.epoch,
            false => self.id != former.id,
        }
    }
}

/// A topic as last described by the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Name.
    pub name: Arc<str>,
    /// Id; zero if the broker has none.
    pub id: Uuid,
    /// Leaders by partition index.
    pub leaders: Box<[Leader]>,
    /// In-sync replicas by partition index.
    pub in_sync: Replicas,
    /// The other replicas by partition index.
    pub lagging: Replicas,
}

impl Topic {
    /// The partitions for an assignor that does not match racks.
    pub fn layout(&self) -> Layout {
        i32::try_from(self.leaders.len()).unwrap_or(i32::MAX).into()
    }
}

/// The cluster at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    nodes: Arc<BTreeMap<i32, Node>>,
    racks: Arc<Racks>,
    topics: OrdMap<Arc<str>, Arc<Topic>>,
    /// Topics with an id that the last response about them did not know. A lagging broker may have given it, so the
    /// partitions and epochs of that id stay known until [`Self::without`], or until a second response about all topics
    /// leaves them out.
    missing: OrdMap<Arc<str>, Arc<Topic>>,
    controller_id: i32,
    cluster_id: Option<Arc<str>>,
}

/// A leader named in an error response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// Topic name.
    pub topic: Arc<str>,
    /// Partition index.
    pub partition: i32,
    /// The leader as known to the responding broker.
    pub leader: Leader,
}

/// Elections that a hint may be ahead. Epochs never go back, so a hint far ahead would pin its leader indefinitely. A
/// client that has really missed more elections learns of them from Metadata.
const MAX_HINT_ADVANCE: i64 = 1000;

/// What an update changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Topics that are new or have other leaders, another id or other partitions, or a leader whose address was not
    /// known before.
    pub topics: Vec<Arc<str>>,
    /// Topics with an error in the response; `UNKNOWN_SERVER_ERROR` for a topic that it leaves out.
    pub errors: Vec<(Arc<str>, ErrorCode)>,
    /// Whether a broker was added, removed or moved.
    pub nodes: bool,
    /// Whether the response comes from another cluster than before. Every topic then is among `topics`; those not in
    /// the request are gone.
    pub cluster: bool,
    /// Topics in which at least one partition has no usable leader yet.
    pub leaderless: Vec<Arc<str>>,
}

impl Snapshot {
    /// A broker's address.
    pub fn node(&self, id: i32) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// Known brokers by id.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    /// A topic by name.
    pub fn topic(&self, name: &str) -> Option<&Arc<Topic>> {
        self.topics.get(name)
    }

    /// Names of the topics held.
    pub fn topic_names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.topics.keys()
    }

    /// Broker id of the controller, -1 if unknown.
    pub fn controller_id(&self) -> i32 {
        self.controller_id
    }

    /// The cluster's id, once a broker has named it.
    pub fn cluster_id(&self) -> Option<&Arc<str>> {
        self.cluster_id.as_ref()
    }

    /// A partition's leader, [`Leader::NONE`] if unknown.
    pub fn leader(&self, topic: &str, partition: i32) -> Leader {
        let Ok(index) = usize::try_from(partition) else { return Leader::NONE };
        self.topics.get(topic).and_then(|t| t.leaders.get(index)).copied().unwrap_or(Leader::NONE)
    }

    /// A partition's in-sync replicas as last reported; empty if unknown.
    pub fn in_sync(&self, topic: &str, partition: i32) -> &[i32] {
        let Ok(index) = usize::try_from(partition) else { return &[] };
        self.topics.get(topic).map_or(&[], |topic| topic.in_sync.of_partition(index))
    }

    /// The partitions of topics, with the racks of their replicas. Replicas out of sync count, as in the Java client:
    /// they usually catch up soon. A broker that is down counts with its last known rack.
    pub fn layouts_with_racks<'a>(
        &self,
        topics: impl IntoIterator<Item = &'a Arc<Topic>>,
    ) -> Topics {
        let mut sets = self.racks.sets();
        topics.into_iter().map(|topic| (topic.name.clone(), sets.layout(topic))).collect()
    }

    /// Applies a Metadata response. `asked` names the requested topics; others in the response are ignored. It is
    /// `None` if the request was for all topics, so that a topic that the response leaves out is gone.
    pub fn apply(&self, answer: &MetadataResponse, asked: Option<&[Arc<str>]>) -> (Self, Changes) {
        let mut next = self.clone();
        let mut changes = Changes::default();
        next.apply_nodes(answer, &mut changes);
        let asked: Option<BTreeSet<&str>> =
            asked.map(|asked| asked.iter().map(|name| &**name).collect());
        let is_asked = |name: &str| asked.as_ref().is_none_or(|asked| asked.contains(name));
        let mut answered = BTreeSet::new();
        for topic in &answer.topics {
            let Some(name) = topic.name.as_deref().filter(|name| is_asked(name)) else { continue };
            if answered.insert(name) {
                next.apply_topic(name, topic, &mut changes);
            }
        }
        match asked {
            Some(asked) => {
                let silent = asked.difference(&answered);
                changes.errors.extend(silent.map(|&n| (n.into(), ErrorCode::UNKNOWN_SERVER_ERROR)));
            }
            None => {
                let left_out = |name: &&Arc<str>| !answered.contains(&***name);
                // Topics left out twice are forgotten: otherwise short-lived topics accumulate.
                let twice: Vec<Arc<str>> = next.missing.keys().filter(left_out).cloned().collect();
                let gone: Vec<Arc<str>> = next.topics.keys().filter(left_out).cloned().collect();
                for name in &twice {
                    next.missing.remove(name);
                }
                gone.iter().for_each(|name| next.set_aside(name));
                changes.topics.extend(gone);
            }
        }
        if changes.nodes {
            let seen: BTreeSet<Arc<str>> = changes.topics.iter().cloned().collect();
            let reachable = next.topics_led_by(|id| !self.nodes.contains_key(&id));
            changes.topics.extend(reachable.into_iter().filter(|name| !seen.contains(name)));
        }
        (next, changes)
    }

    /// The snapshot without these topics, which are no longer in use.
    #[must_use]
    pub fn without(&self, topics: &[Arc<str>]) -> Self {
        let mut next = self.clone();
        for name in topics {
            next.topics.remove(name);
            next.missing.remove(name);
        }
        next
    }

    /// Removes a topic that a response does not know. Without an id it is unknown whether a later topic of that name
    /// is the same one.
    fn set_aside(&mut self, name: &Arc<str>) {
        if let Some(topic) = self.topics.remove(name).filter(|topic| topic.id != Uuid::ZERO) {
            self.missing.insert(name.clone(), topic);
        }
    }

    fn apply_nodes(&mut self, answer: &MetadataResponse, changes: &mut Changes) {
        // A response without brokers comes from a broker that is still starting; its contents are ignored.
        if answer.brokers.is_empty() {
            return;
        }
        let nodes: BTreeMap<i32, Node> = answer
            .brokers
            .iter()
            .filter_map(|b| {
                let port = u16::try_from(b.port).ok()?;
                let node = Node { id: b.node_id, host: b.host.clone(), port, rack: b.rack.clone() };
                Some((b.node_id, node))
            })
            .collect();
        if *self.nodes != nodes {
            self.racks = Arc::new(self.racks.after(&nodes));
            self.nodes = Arc::new(nodes);
            changes.nodes = true;
        }
        self.controller_id = answer.controller_id;
        let Some(id) = answer.cluster_id.as_deref() else { return };
        if self.cluster_id.as_deref() == Some(id) {
            return;
        }
        if self.cluster_id.is_some() {
            // Another cluster responds at the same addresses: its epochs are unrelated to the old ones.
            changes.cluster = true;
            changes.topics.extend(self.topics.keys().cloned());
            self.topics = OrdMap::new();
            self.missing = OrdMap::new();
            self.racks = Arc::new(Racks::default().after(&self.nodes));
        }
        self.cluster_id = Some(id.into());
    }

    /// Topics with a leader among the brokers that are `new`: before, no request could reach that leader.
    fn topics_led_by(&self, new: impl Fn(i32) -> bool) -> Vec<Arc<str>> {
        let new: BTreeSet<i32> = self.nodes.keys().copied().filter(|&id| new(id)).collect();
        if new.is_empty() {
            return Vec::new();
        }
        let is_led = |topic: &Arc<Topic>| topic.leaders.iter().any(|l| new.contains(&l.id));
        self.topics.values().filter(|topic| is_led(topic)).map(|topic| topic.name.clone()).collect()
    }

    fn apply_topic(&mut self, name: &str, answered: &MetadataTopic, changes: &mut Changes) {
        let known = self.topics.get(name).cloned();
        if answered.error != ErrorCode::NONE {
            let name = known.as_ref().map_or_else(|| name.into(), |t| t.name.clone());
            // The topic is gone only if the broker reports that; any other error keeps the known topic.
            if answered.error == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION && known.is_some() {
                self.set_aside(&name);
                changes.topics.push(name.clone());
            }
            changes.errors.push((name, answered.error));
            return;
        }
        let name = known.as_ref().map_or_else(|| name.into(), |t| t.name.clone());
        let before = known.clone().or_else(|| {
            self.missing.remove(&name).filter(|missing| missing.id == answered.topic_id)
        });
        let before = before.filter(|before| may_be_same(before.id, answered.topic_id));
        // An older broker leaves the id out.
        let id = match answered.topic_id {
            Uuid::ZERO => before.as_ref().map_or(Uuid::ZERO, |before| before.id),
            id => id,
        };
        let leaders = merged_leaders(answered, id, before.as_deref());
        if leaders.iter().any(|l| l.id < 0) {
            changes.leaderless.push(name.clone());
        }
        let (in_sync, lagging) = (Replicas::in_sync(answered), Replicas::lagging(answered));
        let topic = Topic { name: name.clone(), id, leaders, in_sync, lagging };
        if known.as_deref() == Some(&topic) {
            return;
        }
        self.topics.insert(name.clone(), Arc::new(topic));
        changes.topics.push(name);
    }

    /// Applies the leaders named in error responses, all in one step. Only a hint with a newer epoch counts, and only
    /// within `MAX_HINT_ADVANCE`. Returns the hints that counted.
    pub fn apply_hints(&self, hints: &[Hint], endpoints: &[Node]) -> (Self, Vec<Hint>) {
        let mut taken = Vec::new();
        let mut next = self.clone();
        for hint in hints {
            let Ok(index) = usize::try_from(hint.partition) else { continue };
            let Some(topic) = next.topics.get_mut(&hint.topic) else { continue };
            let Some(known) = topic.leaders.get(index) else { continue };
            let advance = i64::from(hint.leader.epoch) - i64::from(known.epoch);
            let goes_back = advance < 0 && planted(Plant::EpochHintBackwards);
            let counts = (1..=MAX_HINT_ADVANCE).contains(&advance) || goes_back;
            if hint.leader.id < 0 || !counts {
                continue;
            }
            Arc::make_mut(topic).leaders[index] = hint.leader;
            taken.push(hint.clone());
        }
        if taken.iter().any(|h| !next.nodes.contains_key(&h.leader.id)) {
            let nodes = Arc::make_mut(&mut next.nodes);
            for node in endpoints {
                nodes.entry(node.id).or_insert_with(|| node.clone());
            }
        }
        (next, taken)
    }
}

/// Whether two responses may describe the same topic. Metadata before version 10 has no ids.
fn may_be_same(a: Uuid, b: Uuid) -> bool {
    a == b || a == Uuid::ZERO || b == Uuid::ZERO
}

/// The leaders of a response, except where the known one of the same topic has a newer epoch. A partition without an
/// epoch in the response, or left out of it, is no newer than one whose epoch is known: brokers that once reported
/// epochs always do.
fn merged_leaders(answered: &MetadataTopic, id: Uuid, known: Option<&Topic>) -> Box<[Leader]> {
    // Without an id, a smaller topic may be another one of that name, as the Java client assumes.
    let least = known.filter(|known| known.id == id && id != Uuid::ZERO);
    let count = answered.partitions.len().max(least.map_or(0, |known| known.leaders.len()));
    let mut leaders = vec![Leader::NONE; count].into_boxed_slice();
    for partition in &answered.partitions {
        // Partition indexes are dense in Kafka; one beyond the count is garbage.
        let Some(slot) =
            usize::try_from(partition.index).ok().and_then(|index| leaders.get_mut(index))
        else {
            continue;
        };
        *slot = Leader { id: partition.leader_id, epoch: partition.leader_epoch };
    }
    for (slot, old) in leaders.iter_mut().zip(known.iter().flat_map(|known| &known.leaders)) {
        if old.epoch > slot.epoch {
            *slot = *old;
        }
    }
    leaders
}
