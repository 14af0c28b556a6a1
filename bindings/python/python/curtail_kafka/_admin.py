from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Self, Unpack
from uuid import UUID

from . import _native
from ._call import THREADED, finished
from ._client import Client
from ._config import Setting, properties, text
from ._items import (
    At,
    Each,
    acl,
    all_of,
    change,
    component,
    entries,
    pairs_of,
    resource,
)
from ._items import (
    filter as acl_filter,
)
from ._offset import Offset, offset_list
from ._partition import ByPartition, pairs
from ._tokens import Source, TokenFunction, key_of, source
from .admin import (
    AbortTransaction,
    Acl,
    AclFilter,
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ConfigKind,
    ConfigResource,
    Elected,
    Election,
    Features,
    FeatureUpdateKind,
    FencedProducer,
    GroupDescription,
    GroupListing,
    IsolationLevel,
    ListedOffset,
    LogDir,
    LogDirMove,
    NewPartitions,
    NewTopic,
    OffsetAndMetadata,
    OffsetSpec,
    OngoingReassignment,
    ProducerState,
    QuorumDescription,
    QuotaEntity,
    QuotaMatch,
    ScramChange,
    ScramCredential,
    TopicDescription,
    TopicListing,
    TopicPartition,
    TransactionDescription,
    TransactionListing,
)
from .errors import ConfigError

if TYPE_CHECKING:
    from ._options import AdminOptions


class Admin(Client, _native.Admin):
    """Administers topics, settings, groups, offsets, replicas, transactions, users and ACLs.

    Each call is retried within ``default.api.timeout.ms`` after retriable errors. A call for many
    items returns a dictionary with a value or an :class:`Error` for each, and raises only if no
    item has a result. A changing call that fails or is cancelled may still have been carried out.
    Types of arguments and results are in :mod:`curtail_kafka.admin`.
    """

    _oauth_token: Source | None

    def __new__(
        cls,
        bootstrap_servers: str | Iterable[str] | None = None,
        *,
        oauth_token: TokenFunction | None = None,
        config: Mapping[str, Setting] | None = None,
        **options: "Unpack[AdminOptions]",
    ) -> Self:
        settings = properties(bootstrap_servers, config, options)  # type: ignore[arg-type]
        token = source(oauth_token, THREADED)
        self = super().__new__(cls, settings, THREADED, key_of(token))
        self._oauth_token = token
        return self

    async def connect(self) -> None:
        """Connects to a bootstrap server, to fail early and clearly if none is usable."""
        await self.describe_cluster()

    async def close(self) -> None:
        """Refuses later calls; calls in progress continue."""
        self._close()

    async def create_topics(self, topics: Iterable[NewTopic]) -> Each[str, None]:
        """Creates topics. A topic that exists is an error of it."""
        every = [
            (
                topic.name,
                topic.partitions,
                topic.replication_factor,
                [
                    (name, text(name, value))
                    for name, value in entries("configs", str, topic.configs)
                ],
            )
            for topic in all_of(NewTopic, "topics", topics)
        ]
        return await finished(self._start_create_topics(every))

    async def delete_topics(self, names: Iterable[str]) -> Each[str, None]:
        """Deletes topics with their records."""
        return await finished(self._start_delete_topics(all_of(str, "names", names)))

    async def delete_topics_by_id(self, ids: Iterable[UUID]) -> Each[UUID, None]:
        """Deletes topics by their ids. A topic created later with the same name stays."""
        every = [one.bytes for one in all_of(UUID, "ids", ids)]
        return await finished(self._start_delete_topics_by_id(every))

    async def create_partitions(
        self, partitions: Iterable[NewPartitions], *, validate_only: bool = False
    ) -> Each[str, None]:
        """Adds partitions to topics. Keys then map to other partitions."""
        every = [
            (one.topic, one.total, None if one.replicas is None else [[*b] for b in one.replicas])
            for one in all_of(NewPartitions, "partitions", partitions)
        ]
        return await finished(self._start_create_partitions(every, validate_only))

    async def describe_configs(
        self, resources: Iterable[ConfigResource]
    ) -> Each[ConfigResource, list[ConfigEntry]]:
        """Returns all settings of the resources."""
        every = [resource(one) for one in all_of(ConfigResource, "resources", resources)]
        return await finished(self._start_describe_configs(every))

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[ConfigChange]],
        *,
        validate_only: bool = False,
    ) -> Each[ConfigResource, None]:
        """Changes settings; the others keep their values. All changes of a resource, or none."""
        every = [
            (resource(one), [change(each) for each in all_of(ConfigChange, "changes", some)])
            for one, some in entries("changes", ConfigResource, changes)
        ]
        return await finished(self._start_incremental_alter_configs(every, validate_only))

    async def list_topics(self) -> list[TopicListing]:
        """Returns all topics that the client may describe, by name."""
        return await finished(self._start_list_topics())

    async def describe_topics(self, names: Iterable[str]) -> Each[str, TopicDescription]:
        """Returns partitions, leaders and replicas of topics."""
        return await finished(self._start_describe_topics(all_of(str, "names", names)))

    async def describe_topics_by_id(self, ids: Iterable[UUID]) -> Each[UUID, TopicDescription]:
        """Returns partitions, leaders and replicas of topics by their ids."""
        every = [one.bytes for one in all_of(UUID, "ids", ids)]
        return await finished(self._start_describe_topics_by_id(every))

    async def describe_cluster(self) -> ClusterDescription:
        """Returns the live brokers and the controller."""
        return await finished(self._start_describe_cluster())

    async def list_groups(self) -> Each[int, list[GroupListing]]:
        """Returns the groups that each broker coordinates, by broker id."""
        return await finished(self._start_list_groups())

    async def describe_groups(self, groups: Iterable[str]) -> Each[str, GroupDescription]:
        """Returns states, members and assignments of groups."""
        return await finished(self._start_describe_groups(all_of(str, "groups", groups)))

    async def delete_groups(self, groups: Iterable[str]) -> Each[str, None]:
        """Deletes groups without members, with their offsets."""
        return await finished(self._start_delete_groups(all_of(str, "groups", groups)))

    async def list_group_offsets(
        self, groups: Iterable[str]
    ) -> Each[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Returns all committed offsets of groups."""
        return await finished(self._start_list_group_offsets(all_of(str, "groups", groups)))

    async def alter_group_offsets(
        self, group: str, offsets: ByPartition[Offset]
    ) -> Each[TopicPartition, None]:
        """Sets committed offsets of a group without members."""
        return await finished(self._start_alter_group_offsets(group, offset_list(offsets)))

    async def delete_group_offsets(
        self, group: str, partitions: Iterable[At]
    ) -> Each[TopicPartition, None]:
        """Deletes committed offsets of topics that no member is subscribed to."""
        return await finished(self._start_delete_group_offsets(group, pairs_of(partitions)))

    async def list_offsets(
        self,
        wanted: Mapping[At, OffsetSpec],
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
    ) -> Each[TopicPartition, ListedOffset]:
        """Returns offsets of partitions by name or timestamp."""
        every = pairs("wanted", wanted)
        return await finished(self._start_list_offsets(every, isolation_level))

    async def delete_records(self, before: ByPartition[int]) -> Each[TopicPartition, int]:
        """Deletes the records before an offset (-1: all), and returns the new first offsets."""
        return await finished(self._start_delete_records(pairs("before", before)))

    async def alter_partition_reassignments(
        self, reassignments: ByPartition[Iterable[int] | None]
    ) -> Each[TopicPartition, None]:
        """Moves replicas to these brokers, the preferred leader first; ``None`` cancels a move."""
        every = [
            (at, None if to is None else list(to))
            for at, to in pairs("reassignments", reassignments)
        ]
        return await finished(self._start_alter_partition_reassignments(every))

    async def list_partition_reassignments(
        self, partitions: Iterable[At] | None = None
    ) -> dict[TopicPartition, OngoingReassignment]:
        """Returns the moves in progress, of these partitions or of all."""
        every = None if partitions is None else pairs_of(partitions)
        return await finished(self._start_list_partition_reassignments(every))

    async def elect_leaders(
        self, election: Election, partitions: Iterable[At]
    ) -> Each[TopicPartition, Elected]:
        """Elects leaders, and returns whether each was elected now or led already."""
        return await finished(self._start_elect_leaders(election, pairs_of(partitions)))

    async def describe_log_dirs(self, brokers: Iterable[int]) -> Each[int, list[LogDir]]:
        """Returns the log directories of brokers, with the sizes of their replicas."""
        return await finished(self._start_describe_log_dirs(list(brokers)))

    async def describe_features(self) -> Features:
        """Returns the finalized and supported levels of features."""
        return await finished(self._start_describe_features())

    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        kind: FeatureUpdateKind = "upgrade",
        validate_only: bool = False,
    ) -> None:
        """Changes finalized levels of features (KIP-584). All change, or none."""
        updates: list[tuple[str, int, str]] = [
            (name, level, kind) for name, level in levels.items()
        ]
        await finished(self._start_update_features(updates, validate_only))

    async def unregister_broker(self, broker: int) -> None:
        """Removes the registration of a broker that has been shut down for good."""
        await finished(self._start_unregister_broker(broker))

    async def alter_replica_log_dirs(self, moves: Iterable[LogDirMove]) -> Each[LogDirMove, None]:
        """Moves replicas between directories of their brokers, which copy in the background."""
        every: list[tuple[int, At, str]] = [
            (one.broker, one.partition, one.path) for one in all_of(LogDirMove, "moves", moves)
        ]
        return await finished(self._start_alter_replica_log_dirs(every))

    async def list_config_resources(self, kinds: Iterable[ConfigKind] = ()) -> list[ConfigResource]:
        """Returns the resources of these kinds, or of all kinds (KIP-1142)."""
        return await finished(self._start_list_config_resources(all_of(str, "kinds", kinds)))

    async def remove_group_members(
        self, group: str, *, instance_ids: Iterable[str] = (), member_ids: Iterable[str] = ()
    ) -> Each[str, None]:
        """Removes members from a group (KIP-345), by ``group.instance.id`` or by member id."""
        instances = all_of(str, "instance_ids", instance_ids)
        members = all_of(str, "member_ids", member_ids)
        if both := set(instances) & set(members):
            raise ValueError(f"{min(both)!r} is in instance_ids and in member_ids")
        return await finished(self._start_remove_group_members(group, instances, members))

    async def fence_producers(self, transactional_ids: Iterable[str]) -> Each[str, FencedProducer]:
        """Fences the producers of transactional ids, whose open transactions abort (KIP-588)."""
        ids = all_of(str, "transactional_ids", transactional_ids)
        return await finished(self._start_fence_producers(ids))

    async def describe_metadata_quorum(self) -> QuorumDescription:
        """Returns the controllers and their replication."""
        return await finished(self._start_describe_metadata_quorum())

    async def describe_producers(
        self, partitions: Iterable[At]
    ) -> Each[TopicPartition, list[ProducerState]]:
        """Returns the idempotent producers that the leaders know, with open transactions."""
        return await finished(self._start_describe_producers(pairs_of(partitions)))

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        open_for: float | None = None,
    ) -> Each[int, list[TransactionListing]]:
        """Returns transactions by coordinator's broker id.

        Filters: Kafka's names of states, producer ids, and open for more than these seconds.
        """
        wanted = all_of(str, "states", states)
        call = self._start_list_transactions(wanted, list(producer_ids), open_for)
        return await finished(call)

    async def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> Each[str, TransactionDescription]:
        """Returns state and partitions of transactions."""
        ids = all_of(str, "transactional_ids", transactional_ids)
        return await finished(self._start_describe_transactions(ids))

    async def abort_transaction(self, transaction: AbortTransaction) -> None:
        """Aborts a transaction in one partition, whose coordinator has lost it."""
        [one] = all_of(AbortTransaction, "transaction", [transaction])
        fields = (one.partition, one.producer_id, one.producer_epoch, one.coordinator_epoch)
        await finished(self._start_abort_transaction(fields))

    async def describe_acls(self, filter: AclFilter | None = None) -> list[Acl]:
        """Returns the access rules that match."""
        [one] = all_of(AclFilter, "filter", [filter or AclFilter()])
        return await finished(self._start_describe_acls(acl_filter(one)))

    async def create_acls(self, acls: Iterable[Acl]) -> Each[Acl, None]:
        """Creates access rules."""
        every = [acl(one) for one in all_of(Acl, "acls", acls)]
        return await finished(self._start_create_acls(every))

    async def delete_acls(self, filters: Iterable[AclFilter]) -> Each[AclFilter, Each[Acl, None]]:
        """Deletes the access rules that match, and returns them by filter."""
        every = [acl_filter(one) for one in all_of(AclFilter, "filters", filters)]
        return await finished(self._start_delete_acls(every))

    async def describe_client_quotas(
        self, components: Mapping[str, str | QuotaMatch] | None = None, *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Returns quotas of entities with these types and names; ``strict``: and no other type."""
        named = entries("components", str, {} if components is None else components)
        every = [component(kind, match) for kind, match in named]
        return await finished(self._start_describe_client_quotas(every, strict))

    async def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
    ) -> Each[QuotaEntity, None]:
        """Sets quotas by name, such as ``producer_byte_rate``; ``None`` removes one."""
        every = [
            (dict(entity.names), entries("changes of an entity", str, some))
            for entity, some in entries("changes", QuotaEntity, changes)
        ]
        return await finished(self._start_alter_client_quotas(every, validate_only))

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None
    ) -> Each[str, list[ScramCredential]]:
        """Returns the credentials of users, or of all users with credentials."""
        wanted = None if users is None else all_of(str, "users", users)
        return await finished(self._start_describe_user_scram_credentials(wanted))

    async def alter_user_scram_credentials(self, changes: Iterable[ScramChange]) -> Each[str, None]:
        """Sets and deletes passwords of users. Brokers receive the hash only."""
        every = []
        for one in all_of(ScramChange, "changes", changes):
            password = one.password.encode() if isinstance(one.password, str) else one.password
            if password == b"":
                raise ConfigError(f"user '{one.user}': the password is empty")
            every.append((one.user, one.mechanism, password, one.iterations, one.salt))
        return await finished(self._start_alter_user_scram_credentials(every))

    async def client_instance_id(self, timeout: float) -> UUID:
        """Returns the id that a broker assigns to this client (KIP-714), always the same one.

        Waits for it up to ``timeout`` seconds. It needs ``enable_metrics_push=True``. Brokers
        assign none without a receiver of metrics.
        """
        return await finished(self._start_client_instance_id(timeout))

    async def _discard(self) -> None:
        self._close()
