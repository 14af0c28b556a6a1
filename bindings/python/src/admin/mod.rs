//! The admin client of an event loop's programs. `curtail_kafka._admin` turns its arguments into tuples.

mod from_python;
mod to_tree;

use std::sync::Arc;

use curtail::admin::{Each, GroupMember, LogDirMove, Quotas};
use parking_lot::Mutex;
use pyo3::prelude::*;

use self::{
    from_python::{
        AclFields, AclFilterFields, At, Change, Component, Partitions, Resource, Scram, Spec,
        Topic, abort, acl, acl_filter, change, election, feature_update, ids, isolation,
        member_name, mode, new_partitions, offset_spec, partition, partitions, quota_change,
        quota_filter, resource, resource_kind, scram_change, texts, topic, transaction_filter,
    },
    to_tree::{Entity, ToTree, each, each_of_each},
};
use crate::{
    config::{self, Properties},
    error,
    group::{self, Offset},
    port::{Call, Home, Port},
    runtime::{Owned, Process},
    timing,
    token::{Function, Tokens},
    tree::Tree,
};

/// The native part of `curtail_kafka.Admin`.
#[pyclass(frozen, subclass, module = "curtail_kafka._native")]
pub(crate) struct Admin {
    /// `None` once it is closed.
    admin: Owned<Mutex<Option<curtail::Admin>>>,
    home: Home,
    tokens: Owned<Option<Arc<Tokens>>>,
}

type Names = std::collections::BTreeMap<String, Option<String>>;
type QuotaChanges = Vec<(String, Option<f64>)>;

impl Admin {
    fn get(&self, py: Python<'_>) -> PyResult<curtail::Admin> {
        let admin = self.admin.get(py)?.lock().clone();
        admin.ok_or_else(|| error::raise(py, &curtail::Error::Closed))
    }

    /// Makes a call on the runtime.
    fn call<T, F>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(curtail::Admin) -> F,
        tree: impl FnOnce(T) -> Tree + Send + 'static,
    ) -> PyResult<Call>
    where
        T: Send + 'static,
        F: Future<Output = curtail::Result<T>> + Send + 'static,
    {
        if let Some(tokens) = self.tokens.get(py)? {
            tokens.enter(py, self.home)?;
        }
        let work = work(self.get(py)?);
        Port::spawn_long(py, self.home, async move { work.await.map(tree) })
    }
}

#[pymethods]
impl Admin {
    #[new]
    #[pyo3(signature = (properties, is_threaded=false, token=None))]
    fn new(
        py: Python<'_>,
        properties: Properties,
        is_threaded: bool,
        token: Option<Function>,
    ) -> PyResult<Self> {
        let (config, tokens) = config::admin(py, properties, token)?;
        let process = Process::get(py)?;
        let _entered = process.enter();
        let admin = curtail::Admin::with_env(config, &process.env())
            .map_err(|error| error::raise(py, &error))?;
        Ok(Self {
            admin: Owned::new(Mutex::new(Some(admin))),
            home: Home::new(is_threaded),
            tokens: Owned::new(tokens),
        })
    }

    /// Refuses later calls. Calls in progress continue.
    fn _close(&self) {
        let admin = self.admin.local().and_then(|admin| admin.lock().take());
        drop(admin);
    }

    fn _start_create_topics(&self, py: Python<'_>, topics: Vec<Topic>) -> PyResult<Call> {
        let topics: Vec<_> = topics.into_iter().map(topic).collect();
        self.call(py, |admin| async move { admin.create_topics(&topics).await }, each)
    }

    fn _start_delete_topics(&self, py: Python<'_>, names: Vec<String>) -> PyResult<Call> {
        self.call(py, |admin| async move { admin.delete_topics(&texts(&names)).await }, each)
    }

    fn _start_delete_topics_by_id(&self, py: Python<'_>, all: Vec<[u8; 16]>) -> PyResult<Call> {
        self.call(py, |admin| async move { admin.delete_topics_by_id(&ids(all)).await }, each)
    }

    fn _start_create_partitions(
        &self,
        py: Python<'_>,
        all: Vec<Partitions>,
        validate_only: bool,
    ) -> PyResult<Call> {
        let all: Vec<_> = all.into_iter().map(new_partitions).collect();
        let mode = mode(validate_only);
        self.call(py, move |admin| async move { admin.create_partitions(&all, mode).await }, each)
    }

    fn _start_describe_configs(&self, py: Python<'_>, all: Vec<Resource>) -> PyResult<Call> {
        let all = all.into_iter().map(|one| resource(py, one)).collect::<PyResult<Vec<_>>>()?;
        self.call(py, |admin| async move { admin.describe_configs(&all).await }, each)
    }

    fn _start_incremental_alter_configs(
        &self,
        py: Python<'_>,
        all: Vec<(Resource, Vec<Change>)>,
        validate_only: bool,
    ) -> PyResult<Call> {
        let one = |(at, changes): (Resource, Vec<Change>)| -> PyResult<_> {
            let changes = changes.into_iter().map(|one| change(py, one));
            Ok((resource(py, at)?, changes.collect::<PyResult<Vec<_>>>()?))
        };
        let all = all.into_iter().map(one).collect::<PyResult<Vec<_>>>()?;
        let mode = mode(validate_only);
        let work = move |admin: curtail::Admin| async move {
            admin.incremental_alter_configs(&all, mode).await
        };
        self.call(py, work, each)
    }

    fn _start_list_topics(&self, py: Python<'_>) -> PyResult<Call> {
        self.call(py, |admin| async move { admin.list_topics().await }, ToTree::tree)
    }

    fn _start_describe_topics(&self, py: Python<'_>, names: Vec<String>) -> PyResult<Call> {
        self.call(py, |admin| async move { admin.describe_topics(&texts(&names)).await }, each)
    }

    fn _start_describe_topics_by_id(&self, py: Python<'_>, all: Vec<[u8; 16]>) -> PyResult<Call> {
        self.call(py, |admin| async move { admin.describe_topics_by_id(&ids(all)).await }, each)
    }

    fn _start_describe_cluster(&self, py: Python<'_>) -> PyResult<Call> {
        self.call(py, |admin| async move { admin.describe_cluster().await }, ToTree::tree)
    }

    fn _start_client_instance_id(&self, py: Python<'_>, timeout: f64) -> PyResult<Call> {
        let limit = timing::limit(timeout)?;
        let work =
            move |admin: curtail::Admin| async move { admin.client_instance_id(limit).await };
        self.call(py, work, ToTree::tree)
    }

    fn _start_list_groups(&self, py: Python<'_>) -> PyResult<Call> {
        self.call(py, |admin| async move { admin.list_groups().await }, each)
    }

    fn _start_describe_groups(&self, py: Python<'_>, groups: Vec<String>) -> PyResult<Call> {
        self.call(py, |admin| async move { admin.describe_groups(&texts(&groups)).await }, each)
    }

    fn _start_delete_groups(&self, py: Python<'_>, groups: Vec<String>) -> PyResult<Call> {
        self.call(py, |admin| async move { admin.delete_groups(&texts(&groups)).await }, each)
    }

    fn _start_list_group_offsets(&self, py: Python<'_>, groups: Vec<String>) -> PyResult<Call> {
        self.call(py, |admin| async move { admin.list_group_offsets(&texts(&groups)).await }, each)
    }

    fn _start_alter_group_offsets(
        &self,
        py: Python<'_>,
        group: String,
        offsets: Vec<Offset>,
    ) -> PyResult<Call> {
        let offsets: Vec<_> = offsets.into_iter().map(group::offset).collect();
        let work = |admin: curtail::Admin| async move {
            admin.alter_group_offsets(&group, &offsets).await
        };
        self.call(py, work, each)
    }

    fn _start_delete_group_offsets(
        &self,
        py: Python<'_>,
        group: String,
        all: Vec<At>,
    ) -> PyResult<Call> {
        let all = partitions(all);
        let work =
            |admin: curtail::Admin| async move { admin.delete_group_offsets(&group, &all).await };
        self.call(py, work, each)
    }

    fn _start_list_offsets(
        &self,
        py: Python<'_>,
        wanted: Vec<(At, Spec)>,
        isolation_level: &str,
    ) -> PyResult<Call> {
        let one =
            |(at, spec): (At, Spec)| -> PyResult<_> { Ok((partition(at), offset_spec(py, spec)?)) };
        let wanted = wanted.into_iter().map(one).collect::<PyResult<Vec<_>>>()?;
        let isolation = isolation(py, isolation_level)?;
        let work = move |admin: curtail::Admin| async move {
            admin.list_offsets(&wanted, isolation).await
        };
        self.call(py, work, each)
    }

    fn _start_delete_records(&self, py: Python<'_>, before: Vec<(At, i64)>) -> PyResult<Call> {
        let before: Vec<_> = before.into_iter().map(|(at, to)| (partition(at), to)).collect();
        self.call(py, |admin| async move { admin.delete_records(&before).await }, each)
    }

    fn _start_alter_partition_reassignments(
        &self,
        py: Python<'_>,
        all: Vec<(At, Option<Vec<i32>>)>,
    ) -> PyResult<Call> {
        use curtail::admin::Reassignment;
        let one = |(at, to): (At, Option<Vec<i32>>)| {
            (partition(at), to.map_or(Reassignment::Cancel, Reassignment::To))
        };
        let all: Vec<_> = all.into_iter().map(one).collect();
        let work =
            |admin: curtail::Admin| async move { admin.alter_partition_reassignments(&all).await };
        self.call(py, work, each)
    }

    fn _start_list_partition_reassignments(
        &self,
        py: Python<'_>,
        all: Option<Vec<At>>,
    ) -> PyResult<Call> {
        let all = all.map(partitions);
        let work = |admin: curtail::Admin| async move {
            admin.list_partition_reassignments(all.as_deref()).await
        };
        self.call(py, work, ToTree::tree)
    }

    fn _start_elect_leaders(&self, py: Python<'_>, kind: &str, all: Vec<At>) -> PyResult<Call> {
        let (kind, all) = (election(py, kind)?, partitions(all));
        self.call(py, move |admin| async move { admin.elect_leaders(kind, &all).await }, each)
    }

    fn _start_describe_log_dirs(&self, py: Python<'_>, brokers: Vec<i32>) -> PyResult<Call> {
        self.call(py, |admin| async move { admin.describe_log_dirs(&brokers).await }, each)
    }

    fn _start_describe_features(&self, py: Python<'_>) -> PyResult<Call> {
        self.call(py, |admin| async move { admin.describe_features().await }, ToTree::tree)
    }

    fn _start_update_features(
        &self,
        py: Python<'_>,
        updates: Vec<(String, i16, String)>,
        validate_only: bool,
    ) -> PyResult<Call> {
        let one = |(name, level, kind): (String, i16, String)| -> PyResult<_> {
            Ok((name, feature_update(py, level, &kind)?))
        };
        let updates = updates.into_iter().map(one).collect::<PyResult<Vec<_>>>()?;
        let mode = mode(validate_only);
        let work = move |admin: curtail::Admin| async move {
            let updates: Vec<_> =
                updates.iter().map(|(name, update)| (name.as_str(), *update)).collect();
            admin.update_features(&updates, mode).await
        };
        self.call(py, work, ToTree::tree)
    }

    fn _start_unregister_broker(&self, py: Python<'_>, id: i32) -> PyResult<Call> {
        self.call(py, move |admin| async move { admin.unregister_broker(id).await }, ToTree::tree)
    }

    fn _start_alter_replica_log_dirs(
        &self,
        py: Python<'_>,
        moves: Vec<(i32, At, String)>,
    ) -> PyResult<Call> {
        let one = |(broker, at, path)| LogDirMove::new(broker, partition(at), path);
        let moves: Vec<_> = moves.into_iter().map(one).collect();
        self.call(py, |admin| async move { admin.alter_replica_log_dirs(&moves).await }, each)
    }

    fn _start_list_config_resources(&self, py: Python<'_>, kinds: Vec<String>) -> PyResult<Call> {
        let kinds =
            kinds.iter().map(|kind| resource_kind(py, kind)).collect::<PyResult<Vec<_>>>()?;
        let work = |admin: curtail::Admin| async move { admin.list_config_resources(&kinds).await };
        self.call(py, work, ToTree::tree)
    }

    /// The results have the ids as keys.
    fn _start_remove_group_members(
        &self,
        py: Python<'_>,
        group: String,
        instance_ids: Vec<String>,
        member_ids: Vec<String>,
    ) -> PyResult<Call> {
        let members = instance_ids.into_iter().map(GroupMember::Static);
        let members: Vec<_> = members.chain(member_ids.into_iter().map(GroupMember::Id)).collect();
        let work = |admin: curtail::Admin| async move {
            let removed = admin.remove_group_members(&group, &members).await?.into_iter();
            let removed = removed.map(|(member, result)| (member_name(member), result));
            curtail::Result::<Each<String, ()>>::Ok(removed.collect())
        };
        self.call(py, work, each)
    }

    fn _start_fence_producers(&self, py: Python<'_>, ids: Vec<String>) -> PyResult<Call> {
        self.call(py, |admin| async move { admin.fence_producers(&texts(&ids)).await }, each)
    }

    fn _start_describe_metadata_quorum(&self, py: Python<'_>) -> PyResult<Call> {
        self.call(py, |admin| async move { admin.describe_metadata_quorum().await }, ToTree::tree)
    }

    fn _start_describe_producers(&self, py: Python<'_>, all: Vec<At>) -> PyResult<Call> {
        let all = partitions(all);
        self.call(py, |admin| async move { admin.describe_producers(&all).await }, each)
    }

    fn _start_list_transactions(
        &self,
        py: Python<'_>,
        states: Vec<String>,
        producer_ids: Vec<i64>,
        open_for: Option<f64>,
    ) -> PyResult<Call> {
        let filter = transaction_filter(py, states, producer_ids, open_for)?;
        self.call(py, |admin| async move { admin.list_transactions(&filter).await }, each)
    }

    fn _start_describe_transactions(&self, py: Python<'_>, ids: Vec<String>) -> PyResult<Call> {
        self.call(py, |admin| async move { admin.describe_transactions(&texts(&ids)).await }, each)
    }

    fn _start_abort_transaction(
        &self,
        py: Python<'_>,
        transaction: (At, i64, i16, i32),
    ) -> PyResult<Call> {
        let transaction = abort(transaction);
        self.call(
            py,
            |admin| async move { admin.abort_transaction(&transaction).await },
            ToTree::tree,
        )
    }

    fn _start_describe_acls(&self, py: Python<'_>, filter: AclFilterFields) -> PyResult<Call> {
        let filter = acl_filter(py, filter)?;
        self.call(py, |admin| async move { admin.describe_acls(&filter).await }, ToTree::tree)
    }

    fn _start_create_acls(&self, py: Python<'_>, acls: Vec<AclFields>) -> PyResult<Call> {
        let acls = acls.into_iter().map(|one| acl(py, one)).collect::<PyResult<Vec<_>>>()?;
        self.call(py, |admin| async move { admin.create_acls(&acls).await }, each)
    }

    fn _start_delete_acls(&self, py: Python<'_>, all: Vec<AclFilterFields>) -> PyResult<Call> {
        let all = all.into_iter().map(|one| acl_filter(py, one)).collect::<PyResult<Vec<_>>>()?;
        self.call(py, |admin| async move { admin.delete_acls(&all).await }, each_of_each)
    }

    fn _start_describe_client_quotas(
        &self,
        py: Python<'_>,
        components: Vec<Component>,
        strict: bool,
    ) -> PyResult<Call> {
        let filter = quota_filter(components, strict);
        let work = |admin: curtail::Admin| async move {
            let quotas = admin.describe_client_quotas(&filter).await?.into_iter();
            let quotas = quotas.map(|(entity, quotas)| (Entity(entity), Ok(quotas)));
            curtail::Result::<Each<Entity, Quotas>>::Ok(quotas.collect())
        };
        self.call(py, work, each)
    }

    fn _start_alter_client_quotas(
        &self,
        py: Python<'_>,
        changes: Vec<(Names, QuotaChanges)>,
        validate_only: bool,
    ) -> PyResult<Call> {
        let one = |(entity, changes): (Names, QuotaChanges)| {
            (entity, changes.into_iter().map(quota_change).collect::<Vec<_>>())
        };
        let changes: Vec<_> = changes.into_iter().map(one).collect();
        let mode = mode(validate_only);
        let work = move |admin: curtail::Admin| async move {
            let altered = admin.alter_client_quotas(&changes, mode).await?.into_iter();
            let altered = altered.map(|(entity, result)| (Entity(entity), result));
            curtail::Result::<Each<Entity, ()>>::Ok(altered.collect())
        };
        self.call(py, work, each)
    }

    fn _start_describe_user_scram_credentials(
        &self,
        py: Python<'_>,
        users: Option<Vec<String>>,
    ) -> PyResult<Call> {
        let work = |admin: curtail::Admin| async move {
            let users = users.as_deref().map(texts);
            admin.describe_user_scram_credentials(users.as_deref()).await
        };
        self.call(py, work, each)
    }

    fn _start_alter_user_scram_credentials(
        &self,
        py: Python<'_>,
        changes: Vec<Scram>,
    ) -> PyResult<Call> {
        let changes =
            changes.into_iter().map(|one| scram_change(py, one)).collect::<PyResult<Vec<_>>>()?;
        let work = |admin: curtail::Admin| async move {
            admin.alter_user_scram_credentials(&changes).await
        };
        self.call(py, work, each)
    }
}
