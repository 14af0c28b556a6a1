//! Administration for plain threads.

use std::{collections::BTreeMap, time::Duration};

use super::Runtime;
use crate::{
    AdminConfig, Result, TopicPartition, Uuid,
    admin::{
        AbortTransaction, Acl, AclFilter, ClusterDescription, ConfigChange, ConfigEntry,
        ConfigResource, ConfigResourceKind, Each, Elected, Election, FeatureUpdate, Features,
        FencedProducer, GroupDescription, GroupListing, GroupMember, GroupOffsets, ListedOffset,
        LogDir, LogDirMove, Mode, NewPartitions, NewTopic, OffsetSpec, OngoingReassignment,
        ProducerState, QuorumDescription, QuotaChange, QuotaEntity, QuotaFilter, Quotas,
        Reassignment, ScramChange, ScramCredential, TopicDescription, TopicListing,
        TransactionDescription, TransactionFilter, TransactionListing,
    },
    config::IsolationLevel,
    transaction::OffsetAndMetadata,
};

/// [`crate::Admin`] for plain threads.
///
/// ```no_run
/// # fn main() -> curtail::Result<()> {
/// use curtail::{AdminConfig, admin::NewTopic, blocking};
///
/// let admin = blocking::Admin::new(AdminConfig::new("localhost:9092"))?;
/// for (topic, created) in admin.create_topics(&[NewTopic::new("payments").partitions(6)])? {
///     created?;
///     println!("created {topic}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Admin {
    // Before the runtime: its tasks must end while the runtime still runs.
    inner: crate::Admin,
    runtime: Runtime,
}

impl Admin {
    /// Creates a client with its own runtime. Sends no request yet.
    ///
    /// # Errors
    /// As [`crate::Admin::new`]; inside an async context; if the system cannot start a thread.
    pub fn new(config: AdminConfig) -> Result<Self> {
        let runtime = Runtime::start()?;
        let entered = runtime.enter();
        let inner = crate::Admin::new(config)?;
        drop(entered);
        Ok(Self { inner, runtime })
    }

    /// As [`crate::Admin::client_instance_id`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn client_instance_id(&self, timeout: Duration) -> Result<Uuid> {
        self.runtime.block_on(self.inner.client_instance_id(timeout))?
    }

    /// As [`crate::Admin::create_topics`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn create_topics(&self, topics: &[NewTopic]) -> Result<Each<String, ()>> {
        self.runtime.block_on(self.inner.create_topics(topics))?
    }

    /// As [`crate::Admin::delete_topics`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn delete_topics(&self, names: &[&str]) -> Result<Each<String, ()>> {
        self.runtime.block_on(self.inner.delete_topics(names))?
    }

    /// As [`crate::Admin::delete_topics_by_id`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn delete_topics_by_id(&self, ids: &[Uuid]) -> Result<Each<Uuid, ()>> {
        self.runtime.block_on(self.inner.delete_topics_by_id(ids))?
    }

    /// As [`crate::Admin::create_partitions`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn create_partitions(
        &self,
        partitions: &[NewPartitions],
        mode: Mode,
    ) -> Result<Each<String, ()>> {
        self.runtime.block_on(self.inner.create_partitions(partitions, mode))?
    }

    /// As [`crate::Admin::describe_configs`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn describe_configs(
        &self,
        resources: &[ConfigResource],
    ) -> Result<Each<ConfigResource, Vec<ConfigEntry>>> {
        self.runtime.block_on(self.inner.describe_configs(resources))?
    }

    /// As [`crate::Admin::incremental_alter_configs`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn incremental_alter_configs(
        &self,
        changes: &[(ConfigResource, Vec<ConfigChange>)],
        mode: Mode,
    ) -> Result<Each<ConfigResource, ()>> {
        self.runtime.block_on(self.inner.incremental_alter_configs(changes, mode))?
    }

    /// As [`crate::Admin::list_topics`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn list_topics(&self) -> Result<Vec<TopicListing>> {
        self.runtime.block_on(self.inner.list_topics())?
    }

    /// As [`crate::Admin::describe_topics`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn describe_topics(&self, names: &[&str]) -> Result<Each<String, TopicDescription>> {
        self.runtime.block_on(self.inner.describe_topics(names))?
    }

    /// As [`crate::Admin::describe_topics_by_id`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn describe_topics_by_id(&self, ids: &[Uuid]) -> Result<Each<Uuid, TopicDescription>> {
        self.runtime.block_on(self.inner.describe_topics_by_id(ids))?
    }

    /// As [`crate::Admin::describe_cluster`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn describe_cluster(&self) -> Result<ClusterDescription> {
        self.runtime.block_on(self.inner.describe_cluster())?
    }

    /// As [`crate::Admin::list_groups`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn list_groups(&self) -> Result<Each<i32, Vec<GroupListing>>> {
        self.runtime.block_on(self.inner.list_groups())?
    }

    /// As [`crate::Admin::describe_groups`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn describe_groups(&self, groups: &[&str]) -> Result<Each<String, GroupDescription>> {
        self.runtime.block_on(self.inner.describe_groups(groups))?
    }

    /// As [`crate::Admin::delete_groups`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn delete_groups(&self, groups: &[&str]) -> Result<Each<String, ()>> {
        self.runtime.block_on(self.inner.delete_groups(groups))?
    }

    /// As [`crate::Admin::list_group_offsets`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn list_group_offsets(&self, groups: &[&str]) -> Result<Each<String, GroupOffsets>> {
        self.runtime.block_on(self.inner.list_group_offsets(groups))?
    }

    /// As [`crate::Admin::alter_group_offsets`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn alter_group_offsets(
        &self,
        group: &str,
        offsets: &[(TopicPartition, OffsetAndMetadata)],
    ) -> Result<Each<TopicPartition, ()>> {
        self.runtime.block_on(self.inner.alter_group_offsets(group, offsets))?
    }

    /// As [`crate::Admin::delete_group_offsets`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn delete_group_offsets(
        &self,
        group: &str,
        partitions: &[TopicPartition],
    ) -> Result<Each<TopicPartition, ()>> {
        self.runtime.block_on(self.inner.delete_group_offsets(group, partitions))?
    }

    /// As [`crate::Admin::list_offsets`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn list_offsets(
        &self,
        wanted: &[(TopicPartition, OffsetSpec)],
        isolation: IsolationLevel,
    ) -> Result<Each<TopicPartition, ListedOffset>> {
        self.runtime.block_on(self.inner.list_offsets(wanted, isolation))?
    }

    /// As [`crate::Admin::delete_records`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn delete_records(
        &self,
        before: &[(TopicPartition, i64)],
    ) -> Result<Each<TopicPartition, i64>> {
        self.runtime.block_on(self.inner.delete_records(before))?
    }

    /// As [`crate::Admin::alter_partition_reassignments`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn alter_partition_reassignments(
        &self,
        reassignments: &[(TopicPartition, Reassignment)],
    ) -> Result<Each<TopicPartition, ()>> {
        self.runtime.block_on(self.inner.alter_partition_reassignments(reassignments))?
    }

    /// As [`crate::Admin::list_partition_reassignments`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn list_partition_reassignments(
        &self,
        partitions: Option<&[TopicPartition]>,
    ) -> Result<BTreeMap<TopicPartition, OngoingReassignment>> {
        self.runtime.block_on(self.inner.list_partition_reassignments(partitions))?
    }

    /// As [`crate::Admin::elect_leaders`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn elect_leaders(
        &self,
        election: Election,
        partitions: &[TopicPartition],
    ) -> Result<Each<TopicPartition, Elected>> {
        self.runtime.block_on(self.inner.elect_leaders(election, partitions))?
    }

    /// As [`crate::Admin::describe_log_dirs`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn describe_log_dirs(&self, brokers: &[i32]) -> Result<Each<i32, Vec<LogDir>>> {
        self.runtime.block_on(self.inner.describe_log_dirs(brokers))?
    }

    /// As [`crate::Admin::describe_features`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn describe_features(&self) -> Result<Features> {
        self.runtime.block_on(self.inner.describe_features())?
    }

    /// As [`crate::Admin::update_features`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn update_features(&self, updates: &[(&str, FeatureUpdate)], mode: Mode) -> Result<()> {
        self.runtime.block_on(self.inner.update_features(updates, mode))?
    }

    /// As [`crate::Admin::unregister_broker`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn unregister_broker(&self, id: i32) -> Result<()> {
        self.runtime.block_on(self.inner.unregister_broker(id))?
    }

    /// As [`crate::Admin::alter_replica_log_dirs`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn alter_replica_log_dirs(&self, moves: &[LogDirMove]) -> Result<Each<LogDirMove, ()>> {
        self.runtime.block_on(self.inner.alter_replica_log_dirs(moves))?
    }

    /// As [`crate::Admin::list_config_resources`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn list_config_resources(
        &self,
        kinds: &[ConfigResourceKind],
    ) -> Result<Vec<ConfigResource>> {
        self.runtime.block_on(self.inner.list_config_resources(kinds))?
    }

    /// As [`crate::Admin::remove_group_members`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn remove_group_members(
        &self,
        group: &str,
        members: &[GroupMember],
    ) -> Result<Each<GroupMember, ()>> {
        self.runtime.block_on(self.inner.remove_group_members(group, members))?
    }

    /// As [`crate::Admin::fence_producers`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn fence_producers(
        &self,
        transactional_ids: &[&str],
    ) -> Result<Each<String, FencedProducer>> {
        self.runtime.block_on(self.inner.fence_producers(transactional_ids))?
    }

    /// As [`crate::Admin::describe_metadata_quorum`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn describe_metadata_quorum(&self) -> Result<QuorumDescription> {
        self.runtime.block_on(self.inner.describe_metadata_quorum())?
    }

    /// As [`crate::Admin::describe_producers`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn describe_producers(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<Each<TopicPartition, Vec<ProducerState>>> {
        self.runtime.block_on(self.inner.describe_producers(partitions))?
    }

    /// As [`crate::Admin::list_transactions`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn list_transactions(
        &self,
        filter: &TransactionFilter,
    ) -> Result<Each<i32, Vec<TransactionListing>>> {
        self.runtime.block_on(self.inner.list_transactions(filter))?
    }

    /// As [`crate::Admin::describe_transactions`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn describe_transactions(
        &self,
        transactional_ids: &[&str],
    ) -> Result<Each<String, TransactionDescription>> {
        self.runtime.block_on(self.inner.describe_transactions(transactional_ids))?
    }

    /// As [`crate::Admin::abort_transaction`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn abort_transaction(&self, transaction: &AbortTransaction) -> Result<()> {
        self.runtime.block_on(self.inner.abort_transaction(transaction))?
    }

    /// As [`crate::Admin::describe_acls`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn describe_acls(&self, filter: &AclFilter) -> Result<Vec<Acl>> {
        self.runtime.block_on(self.inner.describe_acls(filter))?
    }

    /// As [`crate::Admin::create_acls`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn create_acls(&self, acls: &[Acl]) -> Result<Each<Acl, ()>> {
        self.runtime.block_on(self.inner.create_acls(acls))?
    }

    /// As [`crate::Admin::delete_acls`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn delete_acls(&self, filters: &[AclFilter]) -> Result<Each<AclFilter, Each<Acl, ()>>> {
        self.runtime.block_on(self.inner.delete_acls(filters))?
    }

    /// As [`crate::Admin::describe_client_quotas`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn describe_client_quotas(
        &self,
        filter: &QuotaFilter,
    ) -> Result<BTreeMap<QuotaEntity, Quotas>> {
        self.runtime.block_on(self.inner.describe_client_quotas(filter))?
    }

    /// As [`crate::Admin::alter_client_quotas`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn alter_client_quotas(
        &self,
        changes: &[(QuotaEntity, Vec<QuotaChange>)],
        mode: Mode,
    ) -> Result<Each<QuotaEntity, ()>> {
        self.runtime.block_on(self.inner.alter_client_quotas(changes, mode))?
    }

    /// As [`crate::Admin::describe_user_scram_credentials`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn describe_user_scram_credentials(
        &self,
        users: Option<&[&str]>,
    ) -> Result<Each<String, Vec<ScramCredential>>> {
        self.runtime.block_on(self.inner.describe_user_scram_credentials(users))?
    }

    /// As [`crate::Admin::alter_user_scram_credentials`].
    ///
    /// # Errors
    /// As the async method, and inside an async context.
    pub fn alter_user_scram_credentials(
        &self,
        changes: &[ScramChange],
    ) -> Result<Each<String, ()>> {
        self.runtime.block_on(self.inner.alter_user_scram_credentials(changes))?
    }

    /// Runs async code with the underlying client, to make several calls at the same time.
    ///
    /// # Errors
    /// Inside an async context.
    pub fn run<T>(&self, work: impl AsyncFnOnce(&crate::Admin) -> T) -> Result<T> {
        self.runtime.block_on(work(&self.inner))
    }
}
