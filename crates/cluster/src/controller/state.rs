//! The controller's state machine: registration, fencing, elections, topics. Pure: no clock, no I/O.

mod administration;
mod reassignment;

pub(crate) use self::{
    administration::{Election, MorePartitions},
    reassignment::{Move, Moving},
};

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
};

use curtail_wire::{ErrorCode, Uuid};

use super::{
    journal::Change,
    placement::{self, TopicSpec},
};
use crate::{
    config::ClusterConfig,
    image::{BrokerImage, Endpoints, Image, NO_LEADER, PartitionImage, PartitionKey, TopicImage},
    settings::Whose,
    topic_config::{TopicConfig, UNCLEAN_ELECTION, is_true},
};

/// Producer ids per block; a block is journaled before its first id is used.
const PRODUCER_ID_BLOCK: i64 = 1000;

/// The addresses of a broker.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    /// For clients.
    pub(crate) endpoints: Arc<Endpoints>,
    /// For other brokers.
    pub(crate) inner: SocketAddr,
}

/// A refusal: the error code for the response and the reason.
pub(crate) type Refusal = (ErrorCode, String);

/// A leader's request to change its in-sync replicas.
#[derive(Clone, Debug)]
pub(crate) struct AlterPartition {
    pub(crate) broker: i32,
    pub(crate) broker_epoch: i64,
    pub(crate) key: PartitionKey,
    pub(crate) leader_epoch: i32,
    pub(crate) partition_epoch: i32,
    /// Ids and, if the leader knows them, epochs of the incarnations.
    pub(crate) isr: Vec<(i32, Option<i64>)>,
}

/// The controller's state.
#[derive(Clone)]
pub(super) struct State {
    pub(super) image: Image,
    /// Brokers known from an earlier run without a heartbeat in this one. They keep their
    /// leaderships until they register or their session times out.
    expected: BTreeSet<i32>,
    /// Brokers in controlled shutdown: a late heartbeat must not unfence them.
    leaving: BTreeSet<i32>,
    next_producer_id: i64,
    producer_ids_end: i64,
    next_placement: usize,
    changes: Vec<Change>,
    /// Unclean elections of each partition since this process started.
    pub(super) unclean: BTreeMap<PartitionKey, u64>,
    /// Whether topics without an override may elect uncleanly, as the brokers were started.
    pub(super) elects_uncleanly: bool,
}

impl State {
    pub(super) fn new(cluster_id: &str) -> Self {
        Self {
            image: Image::empty(cluster_id),
            expected: BTreeSet::new(),
            leaving: BTreeSet::new(),
            next_producer_id: 0,
            producer_ids_end: 0,
            next_placement: 0,
            changes: Vec::new(),
            unclean: BTreeMap::new(),
            elects_uncleanly: false,
        }
    }

    /// Rebuilds the state of an earlier run from its journal.
    pub(super) fn replayed(cluster_id: &str, changes: Vec<Change>) -> Self {
        let mut state = Self::new(cluster_id);
        for change in changes {
            state.replay(change);
        }
        state
    }

    /// Continues after a crash of the controller alone. Registrations of running brokers stay
    /// valid. Brokers whose registration is not in the journal keep their leaderships until they
    /// register or their session times out.
    pub(super) fn restarted(mut self, brokers: &[i32]) -> Self {
        let leads = |id| !self.partition_keys(|partition| partition.leader == id).is_empty();
        let unknown = |id: &i32| !self.image.brokers.contains_key(id) && leads(*id);
        self.expected = brokers.iter().copied().filter(unknown).collect();
        // Brokers accept only newer versions, and topics may have been created in any version up to
        // this one.
        self.image.version += 1;
        self.image.topics_created = self.image.version;
        self
    }

    /// Returns all durable state as text, for comparing two states.
    pub(super) fn text(&self) -> String {
        let image = &self.image;
        let brokers: Vec<_> = image.brokers.values().collect();
        format!(
            "topics {:?}\nacls {:?}\nquotas {:?}\nsettings {:?}\nbrokers {brokers:?}\nproducer ids below {}",
            image.topics, image.acls, image.quotas, image.settings, self.producer_ids_end
        )
    }

    /// Continues an earlier run with these brokers. Leader epochs advance, so that requests from
    /// the earlier run are fenced.
    pub(super) fn resume(mut self, brokers: &[i32]) -> Self {
        self.expected = brokers.iter().copied().collect();
        // The previously registered processes have ended.
        self.image.brokers = Arc::default();
        let keys = self.partition_keys(|_| true);
        for key in keys {
            self.change_partition(key, |p| p.leader_epoch += 1);
        }
        for id in self.known_brokers() {
            if !self.expected.contains(&id) {
                self.fence_partitions(id);
            }
        }
        self
    }

    /// Returns the brokers with a replica.
    pub(super) fn known_brokers(&self) -> BTreeSet<i32> {
        let partitions = self.image.topics.values().flat_map(|t| t.partitions.iter());
        partitions.flat_map(|p| p.replicas.iter().copied()).collect()
    }

    fn replay(&mut self, change: Change) {
        match change {
            Change::Cluster { .. } => {}
            Change::Topic(topic) => self.insert_topic(&Arc::new(topic)),
            Change::Partition { key, partition } => self.put_partition(key, partition),
            Change::DeleteTopic(id) => {
                self.remove_topic(id);
            }
            Change::ProducerIds { end } => {
                self.next_producer_id = end;
                self.producer_ids_end = end;
            }
            Change::Acl(acl) => self.create_acls(vec![acl]),
            Change::DeleteAcl(acl) => {
                self.image.acls.remove(&acl);
            }
            Change::Quota { entity, limit, value } => self.alter_quota(&entity, limit, value),
            Change::Credential { user, mechanism, credential } => {
                self.set_credential(user, mechanism, credential);
            }
            Change::Settings { whose, given } => self.set_settings(whose, given),
            Change::Broker(broker) => self.set_broker(broker),
            Change::RemoveBroker(id) => self.remove_broker(id),
            Change::Version(version) => self.image.version = self.image.version.max(version),
        }
        self.changes.clear();
    }

    /// Returns the changes that rebuild the whole state.
    pub(super) fn snapshot(&self, brokers: u32) -> Vec<Change> {
        let id = self.image.cluster_id.to_string();
        let mut changes = vec![
            Change::Cluster { id, brokers: Some(brokers) },
            Change::ProducerIds { end: self.producer_ids_end },
        ];
        changes.extend(self.image.topics.values().map(|t| Change::Topic((**t).clone())));
        changes.extend(self.access_snapshot());
        changes.extend(self.settings_snapshot());
        changes.extend(self.image.brokers.values().cloned().map(Change::Broker));
        changes.push(Change::Version(self.image.version));
        changes
    }

    /// Returns the changes since the last call.
    pub(super) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Reassigns ids that may have been used: a planted bug.
    pub(super) fn reuse_producer_ids(&mut self) {
        self.next_producer_id = 0.max(self.producer_ids_end - PRODUCER_ID_BLOCK);
    }

    /// Records a change of something without a separate version.
    pub(super) fn changed(&mut self, change: Change) {
        self.image.version += 1;
        self.changes.push(change);
    }

    fn live(&self, id: i32) -> bool {
        self.expected.contains(&id) || self.image.live_broker(id).is_some()
    }

    /// Returns whether the broker has a session that can time out.
    pub(super) fn has_session(&self, id: i32) -> bool {
        self.live(id)
    }

    fn set_broker(&mut self, broker: BrokerImage) {
        self.image.version += 1;
        self.changes.push(Change::Broker(broker.clone()));
        Arc::make_mut(&mut self.image.brokers).insert(broker.id, broker);
    }

    fn remove_broker(&mut self, id: i32) {
        Arc::make_mut(&mut self.image.brokers).remove(&id);
        self.changed(Change::RemoveBroker(id));
    }

    /// Registers a broker. It stays fenced until its first heartbeat, unless an earlier run's
    /// leaderships wait for it. A second incarnation immediately fences the first. It leaves the
    /// in-sync replicas, because its unsynced data may be lost (KIP-903).
    pub(super) fn register(&mut self, id: i32, addresses: Addresses) -> i64 {
        let expected = self.expected.contains(&id);
        if !expected {
            self.fence(id);
        }
        self.leaving.remove(&id);
        let epoch = i64::try_from(self.image.version + 1).unwrap_or(i64::MAX);
        let Addresses { endpoints, inner } = addresses;
        self.set_broker(BrokerImage { id, endpoints, inner, epoch, fenced: true });
        epoch
    }

    /// Handles a broker's heartbeat. Returns false if the incarnation is not the registered one.
    pub(super) fn heartbeat(&mut self, id: i32, epoch: i64) -> bool {
        let Some(broker) = self.image.brokers.get(&id) else { return false };
        if broker.epoch != epoch || self.leaving.contains(&id) {
            return false;
        }
        self.expected.remove(&id);
        if broker.fenced {
            let broker = BrokerImage { fenced: false, ..broker.clone() };
            self.set_broker(broker);
            let leaderless =
                self.partition_keys(|p| p.leader == NO_LEADER && p.replicas.contains(&id));
            for key in leaderless {
                self.elect(key);
            }
        }
        true
    }

    /// Ends a broker's session: it loses its leaderships and leaves the in-sync replicas.
    pub(super) fn fence(&mut self, id: i32) {
        if !self.live(id) {
            return;
        }
        self.expected.remove(&id);
        if let Some(broker) = self.image.brokers.get(&id) {
            let broker = BrokerImage { fenced: true, ..broker.clone() };
            self.set_broker(broker);
        }
        self.fence_partitions(id);
    }

    /// Like [`State::fence`], but heartbeats cannot unfence this incarnation.
    pub(super) fn leave(&mut self, id: i32) {
        self.leaving.insert(id);
        self.fence(id);
    }

    /// Removes a broker's registration. If it runs, its heartbeats are refused until it restarts.
    pub(super) fn unregister(&mut self, id: i32) -> Result<(), Refusal> {
        if !self.image.brokers.contains_key(&id) {
            let reason = format!("Broker ID {id} is not currently registered");
            return Err((ErrorCode::BROKER_ID_NOT_REGISTERED, reason));
        }
        self.fence(id);
        self.remove_broker(id);
        Ok(())
    }

    fn fence_partitions(&mut self, id: i32) {
        for key in self.partition_keys(|p| p.leader == id || p.isr.contains(&id)) {
            // The last in-sync replica stays in the ISR: only it has all committed records.
            self.change_partition(key, |p| {
                if p.isr.len() > 1 {
                    p.isr = p.isr.iter().copied().filter(|replica| *replica != id).collect();
                }
            });
            self.elect(key);
        }
    }

    fn partition_keys(&self, wanted: impl Fn(&PartitionImage) -> bool) -> Vec<PartitionKey> {
        let mut keys = Vec::new();
        for topic in self.image.topics.values() {
            for (partition, index) in topic.partitions.iter().zip(0..) {
                if wanted(partition) {
                    keys.push(PartitionKey { topic: topic.id, index });
                }
            }
        }
        keys
    }

    /// Elects the first live in-sync replica, in order of preference, for a partition whose leader
    /// is gone. If there is none and `unclean.leader.election.enable` allows it, elects the first
    /// live replica.
    fn elect(&mut self, key: PartitionKey) {
        let Some(partition) = self.partition(key) else { return };
        if partition.leader != NO_LEADER
            && self.live(partition.leader)
            && partition.isr.contains(&partition.leader)
        {
            return;
        }
        let eligible = |id: &&i32| partition.isr.contains(id) && self.live(**id);
        let clean = partition.replicas.iter().find(eligible).copied();
        let live = || partition.replicas.iter().find(|id| self.live(**id)).copied();
        let leader = clean.or_else(|| live().filter(|_| self.may_elect_uncleanly(key)));
        self.appoint(key, leader.unwrap_or(NO_LEADER));
    }

    /// The topic's own value counts before the brokers', and one that was set at run time before that of the start. The
    /// controller is no broker here, so the value of a single broker does not count.
    fn may_elect_uncleanly(&self, key: PartitionKey) -> bool {
        let own = || self.image.topic_by_id(&key.topic)?.config.elects_uncleanly();
        let of_brokers = || self.image.settings.get(&Whose::Brokers)?.get(UNCLEAN_ELECTION);
        let or_brokers = || of_brokers().map(|value| is_true(value));
        own().or_else(or_brokers).unwrap_or(self.elects_uncleanly)
    }

    /// Makes a replica the leader. After an unclean election it is the only in-sync replica: the
    /// others truncate their logs to its log.
    fn appoint(&mut self, key: PartitionKey, leader: i32) {
        let in_sync = self.partition(key).is_some_and(|p| p.isr.contains(&leader));
        if leader != NO_LEADER && !in_sync {
            self.change_partition(key, |p| p.isr = [leader].into());
            *self.unclean.entry(key).or_default() += 1;
        }
        self.set_leader(key, leader);
    }

    fn set_leader(&mut self, key: PartitionKey, leader: i32) {
        self.change_partition(key, |p| {
            if p.leader != leader {
                p.leader = leader;
                p.leader_epoch += 1;
            }
        });
    }

    fn partition(&self, key: PartitionKey) -> Option<&PartitionImage> {
        self.image.topic_by_id(&key.topic)?.partitions.get(usize::try_from(key.index).ok()?)
    }

    /// Changes one partition, and ends its reassignment if that is complete.
    fn change_partition(&mut self, key: PartitionKey, change: impl FnOnce(&mut PartitionImage)) {
        let Some(before) = self.partition(key) else { return };
        let mut after = before.clone();
        change(&mut after);
        reassignment::end(&mut after);
        reassignment::take_leave(before, &mut after, |id| self.live(id));
        self.put_partition(key, after);
    }

    /// Replaces a partition. If it differs, its epoch and the image's version advance.
    fn put_partition(&mut self, key: PartitionKey, mut after: PartitionImage) {
        let Some(before) = self.partition(key) else { return };
        if after == *before {
            return;
        }
        after.partition_epoch = after.partition_epoch.max(before.partition_epoch + 1);
        let Some(name) = self.image.names.get(&key.topic).cloned() else { return };
        if let Some(topic) = self.image.topics.get_mut(&name) {
            let topic = Arc::make_mut(topic);
            topic.partitions.set(key.index as usize, after.clone());
            self.image.version += 1;
            self.changes.push(Change::Partition { key, partition: after });
        }
    }

    /// Applies a leader's change of its in-sync replicas and returns the resulting partition.
    pub(super) fn alter_partition(
        &mut self,
        alter: &AlterPartition,
    ) -> Result<PartitionImage, ErrorCode> {
        let sender = self.image.brokers.get(&alter.broker);
        if sender.is_none_or(|b| b.epoch != alter.broker_epoch || b.fenced) {
            return Err(ErrorCode::STALE_BROKER_EPOCH);
        }
        let Some(partition) = self.partition(alter.key) else {
            return Err(ErrorCode::UNKNOWN_TOPIC_ID);
        };
        if partition.leader != alter.broker || partition.leader_epoch != alter.leader_epoch {
            return Err(ErrorCode::FENCED_LEADER_EPOCH);
        }
        if partition.partition_epoch != alter.partition_epoch {
            return Err(ErrorCode::INVALID_UPDATE_VERSION);
        }
        let ids: Vec<i32> = alter.isr.iter().map(|(id, _)| *id).collect();
        if !ids.contains(&alter.broker) || ids.iter().any(|id| !partition.replicas.contains(id)) {
            return Err(ErrorCode::INVALID_REQUEST);
        }
        let eligible = |(id, epoch): &(i32, Option<i64>)| {
            partition.isr.contains(id)
                || self
                    .image
                    .live_broker(*id)
                    .is_some_and(|b| epoch.is_none_or(|epoch| epoch == b.epoch))
        };
        if !alter.isr.iter().all(eligible) {
            return Err(ErrorCode::INELIGIBLE_REPLICA);
        }
        self.change_partition(alter.key, |p| p.isr = ids.into());
        self.partition(alter.key).cloned().ok_or(ErrorCode::UNKNOWN_TOPIC_ID)
    }

    /// Makes `to` the leader; it must be in sync and live.
    pub(super) fn move_leader(&mut self, name: &str, index: i32, to: i32) -> Result<(), Refusal> {
        let unknown = || {
            (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, format!("there is no partition {name}-{index}"))
        };
        let id = self.image.topic(name).ok_or_else(unknown)?.id;
        let key = PartitionKey { topic: id, index };
        let partition = self.partition(key).ok_or_else(unknown)?;
        if !partition.replicas.contains(&to) {
            let reason = format!("broker {to} has no replica of {name}-{index}");
            return Err((ErrorCode::INVALID_REPLICA_ASSIGNMENT, reason));
        }
        if !partition.isr.contains(&to) || !self.live(to) {
            let reason = format!("broker {to} is not in sync with {name}-{index}");
            return Err((ErrorCode::ELIGIBLE_LEADERS_NOT_AVAILABLE, reason));
        }
        self.set_leader(key, to);
        Ok(())
    }

    /// Validates a new topic and places its replicas, without creating it.
    pub(super) fn check_topic(
        &self,
        spec: &TopicSpec,
        config: &ClusterConfig,
    ) -> Result<(TopicConfig, Vec<Vec<i32>>), Refusal> {
        placement::check_name(&spec.name, &self.image)?;
        let live: Vec<i32> =
            self.image.brokers.values().filter(|b| !b.fenced).map(|b| b.id).collect();
        let fenced: Vec<i32> =
            self.image.brokers.values().filter(|b| b.fenced).map(|b| b.id).collect();
        let replicas = placement::place(spec, config, &live, &fenced, self.next_placement)?;
        let settings: BTreeMap<String, String> = spec.configs.iter().cloned().collect();
        let settings =
            TopicConfig::new(settings).map_err(|reason| (ErrorCode::INVALID_CONFIG, reason))?;
        Ok((settings, replicas))
    }

    /// Creates a topic under a new id.
    pub(super) fn create_topic(
        &mut self,
        spec: &TopicSpec,
        id: Uuid,
        config: &ClusterConfig,
    ) -> Result<Arc<TopicImage>, Refusal> {
        let (settings, placed) = self.check_topic(spec, config)?;
        self.next_placement = self.next_placement.wrapping_add(placed.len());
        let partitions = placed.into_iter().map(|replicas| self.born(replicas));
        let topic = Arc::new(TopicImage {
            name: spec.name.as_str().into(),
            id,
            config: Arc::new(settings),
            partitions: partitions.collect(),
        });
        self.insert_topic(&topic);
        self.changes.push(Change::Topic((*topic).clone()));
        Ok(topic)
    }

    fn insert_topic(&mut self, topic: &Arc<TopicImage>) {
        self.image.version += 1;
        self.image.topics_created = self.image.version;
        self.image.names.insert(topic.id, Arc::clone(&topic.name));
        self.image.topics.insert(Arc::clone(&topic.name), Arc::clone(topic));
    }

    /// Deletes a topic. Returns false if no topic has this id.
    pub(super) fn remove_topic(&mut self, id: Uuid) -> bool {
        let Some(name) = self.image.names.remove(&id) else { return false };
        self.image.topics.remove(&name);
        self.unclean.retain(|key, _| key.topic != id);
        self.image.version += 1;
        self.changes.push(Change::DeleteTopic(id));
        true
    }

    /// Returns a producer id that was never assigned before.
    pub(super) fn next_producer_id(&mut self) -> i64 {
        if self.next_producer_id == self.producer_ids_end {
            self.producer_ids_end += PRODUCER_ID_BLOCK;
            self.changes.push(Change::ProducerIds { end: self.producer_ids_end });
        }
        let id = self.next_producer_id;
        self.next_producer_id += 1;
        id
    }
}
