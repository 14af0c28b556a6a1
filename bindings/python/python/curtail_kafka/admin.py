"""Arguments and results of :class:`curtail_kafka.Admin`.

Times are integer milliseconds since 1970-01-01 UTC, durations are seconds, and sizes are bytes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, TypeAlias
from uuid import UUID

from ._config import Setting
from ._partition import TopicPartition
from .errors import Error

__all__ = [
    "UUID",
    "AbortTransaction",
    "Acl",
    "AclFilter",
    "AclOperation",
    "AclPattern",
    "AclPatternFilter",
    "AclPermission",
    "AclResource",
    "BrokerDescription",
    "ClusterDescription",
    "ConfigChange",
    "ConfigEntry",
    "ConfigKind",
    "ConfigResource",
    "ConfigSynonym",
    "Elected",
    "Election",
    "FeatureUpdateKind",
    "Features",
    "FencedProducer",
    "GroupDescription",
    "GroupListing",
    "IsolationLevel",
    "ListedOffset",
    "LogDir",
    "LogDirMove",
    "LogDirReplica",
    "MemberDescription",
    "NewPartitions",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetSpec",
    "OngoingReassignment",
    "PartitionDescription",
    "ProducerState",
    "QuorumDescription",
    "QuorumReplica",
    "QuotaEntity",
    "QuotaMatch",
    "ScramChange",
    "ScramCredential",
    "ScramMechanism",
    "TopicDescription",
    "TopicListing",
    "TopicPartition",
    "TransactionDescription",
    "TransactionListing",
]

IsolationLevel: TypeAlias = Literal["read_uncommitted", "read_committed"]
Election: TypeAlias = Literal["preferred", "unclean"]
"""``unclean`` elects an out-of-sync replica if none in sync is alive, and loses records."""
Elected: TypeAlias = Literal["now", "already"]
OffsetName: TypeAlias = Literal[
    "earliest", "latest", "max_timestamp", "earliest_local", "latest_tiered"
]
OffsetSpec: TypeAlias = OffsetName | int
"""A name, or a timestamp: the first record with it or a later one."""
AclResource: TypeAlias = Literal[
    "topic", "group", "cluster", "transactional-id", "delegation-token", "user"
]
AclPattern: TypeAlias = Literal["literal", "prefixed"]
AclPatternFilter: TypeAlias = Literal["any", "match", "literal", "prefixed"]
"""``match`` selects all rules that apply to the resource of the name."""
AclOperation: TypeAlias = Literal[
    "all",
    "read",
    "write",
    "create",
    "delete",
    "alter",
    "describe",
    "cluster-action",
    "describe-configs",
    "alter-configs",
    "idempotent-write",
    "create-tokens",
    "describe-tokens",
    "two-phase-commit",
]
AclPermission: TypeAlias = Literal["allow", "deny"]
FeatureUpdateKind: TypeAlias = Literal["upgrade", "safe-downgrade", "unsafe-downgrade"]
"""``unsafe-downgrade`` may lose metadata."""
ConfigKind: TypeAlias = Literal["topic", "broker", "broker-logger", "group", "client-metrics"]
ScramMechanism: TypeAlias = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create; -1 stands for the brokers' default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, Setting] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """Additional partitions: the new total, and the replicas of each added one, if given."""

    topic: str
    total: int
    replicas: Iterable[Iterable[int]] | None = None


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: list[int]
    isr: list[int]
    offline: list[int]


@dataclass(frozen=True, slots=True)
class TopicListing:
    name: str
    id: UUID | None
    internal: bool
    partitions: int


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    id: UUID | None
    internal: bool
    partitions: list[PartitionDescription]


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: str | None
    controller: int | None
    brokers: list[BrokerDescription]


@dataclass(frozen=True, slots=True)
class ConfigResource:
    """A resource with settings. The broker ``""`` stands for all brokers."""

    kind: ConfigKind
    name: str

    @classmethod
    def topic(cls, name: str) -> "ConfigResource":
        return cls("topic", name)

    @classmethod
    def broker(cls, id: int) -> "ConfigResource":
        return cls("broker", str(id))

    @classmethod
    def all_brokers(cls) -> "ConfigResource":
        return cls("broker", "")

    @classmethod
    def broker_logger(cls, id: int) -> "ConfigResource":
        return cls("broker-logger", str(id))

    @classmethod
    def group(cls, name: str) -> "ConfigResource":
        return cls("group", name)

    @classmethod
    def client_metrics(cls, name: str) -> "ConfigResource":
        return cls("client-metrics", name)


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    name: str
    value: str | None
    source: str


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting. ``source`` has Kafka's name; brokers withhold sensitive values."""

    name: str
    value: str | None
    source: str
    read_only: bool
    sensitive: bool
    synonyms: list[ConfigSynonym]


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A change of one setting; ``append`` and ``subtract`` change a list."""

    action: Literal["set", "delete", "append", "subtract"]
    name: str
    value: Setting | None = field(default=None, repr=False)

    @classmethod
    def set(cls, name: str, value: Setting) -> "ConfigChange":
        return cls("set", name, value)

    @classmethod
    def delete(cls, name: str) -> "ConfigChange":
        return cls("delete", name)

    @classmethod
    def append(cls, name: str, value: Setting) -> "ConfigChange":
        return cls("append", name, value)

    @classmethod
    def subtract(cls, name: str, value: Setting) -> "ConfigChange":
        return cls("subtract", name, value)


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group. ``state`` and ``kind`` have Kafka's names, such as ``Stable`` and ``classic``."""

    group_id: str
    protocol_type: str
    state: str
    kind: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    rack: str | None
    epoch: int | None
    topics: list[str]
    topic_regex: str | None
    assignment: list[TopicPartition]
    target: list[TopicPartition] | None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    kind: str
    state: str
    assignor: str
    coordinator: BrokerDescription
    epoch: int | None
    assignment_epoch: int | None
    members: list[MemberDescription]


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset: that of the next record to read."""

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """An offset; ``None`` if no record has the timestamp or a later one."""

    offset: int | None
    timestamp: int | None
    leader_epoch: int | None


@dataclass(frozen=True, slots=True)
class OngoingReassignment:
    replicas: list[int]
    adding: list[int]
    removing: list[int]


@dataclass(frozen=True, slots=True)
class LogDirReplica:
    size: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDir:
    """A directory of a broker's logs. With an ``error`` the broker cannot use it."""

    path: str
    error: Error | None
    replicas: dict[TopicPartition, LogDirReplica]
    total_bytes: int | None
    usable_bytes: int | None


@dataclass(frozen=True, slots=True)
class Features:
    """Finalized levels, and the lowest and highest that the responding broker supports."""

    finalized: dict[str, int]
    epoch: int | None
    supported: dict[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class FencedProducer:
    """Producer id and epoch of a transactional id whose producers were fenced."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class LogDirMove:
    """A broker's replica, and the directory to which it moves."""

    broker: int
    partition: TopicPartition
    path: str


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    id: int
    log_end_offset: int
    last_caught_up: int | None


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    leader: int
    leader_epoch: int
    high_watermark: int
    voters: list[QuorumReplica]
    observers: list[QuorumReplica]


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer at a partition's leader. ``transaction_start`` is that of an open transaction."""

    producer_id: int
    producer_epoch: int
    last_sequence: int | None
    last_timestamp: int | None
    coordinator_epoch: int | None
    transaction_start: int | None


@dataclass(frozen=True, slots=True)
class TransactionListing:
    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout: float
    started: int | None
    partitions: list[TopicPartition]


@dataclass(frozen=True, slots=True)
class AbortTransaction:
    """An open transaction in one partition, to be aborted there."""

    partition: tuple[str, int]
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int = 0

    @classmethod
    def of(cls, partition: tuple[str, int], producer: ProducerState) -> "AbortTransaction":
        """The transaction of a producer from ``describe_producers``."""
        epoch = producer.coordinator_epoch or 0
        return cls(partition, producer.producer_id, producer.producer_epoch, epoch)


@dataclass(frozen=True, slots=True)
class Acl:
    """An access rule. The resource name ``*`` stands for all names, the host ``*`` for all."""

    resource: AclResource
    name: str
    principal: str
    operation: AclOperation
    permission: AclPermission = "allow"
    pattern: AclPattern = "literal"
    host: str = "*"


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Selects rules; ``None`` matches everything."""

    resource: AclResource | None = None
    name: str | None = None
    principal: str | None = None
    operation: AclOperation | None = None
    permission: AclPermission | None = None
    pattern: AclPatternFilter = "any"
    host: str | None = None

    @classmethod
    def of(cls, acl: Acl) -> "AclFilter":
        """Matches this rule only."""
        return cls(
            acl.resource,
            acl.name,
            acl.principal,
            acl.operation,
            acl.permission,
            acl.pattern,
            acl.host,
        )


class QuotaMatch(Enum):
    """In place of a name, in a filter of quotas."""

    DEFAULT = "default"
    """The default entity."""
    ANY = "any"
    """All names with a quota."""


@dataclass(frozen=True, slots=True, init=False)
class QuotaEntity:
    """Names by ``user``, ``client-id`` or ``ip``; ``None`` is the default entity."""

    names: tuple[tuple[str, str | None], ...]

    def __init__(self, names: Mapping[str, str | None]) -> None:
        object.__setattr__(self, "names", tuple(sorted(names.items())))


@dataclass(frozen=True, slots=True)
class ScramCredential:
    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramChange:
    """A user's new password for a mechanism; ``None`` deletes it.

    By default with 4096 iterations and a random salt. Kafka accepts 4096 to 16384 iterations.
    """

    user: str
    mechanism: ScramMechanism
    password: str | bytes | None = field(repr=False)
    iterations: int | None = None
    salt: bytes | None = field(default=None, repr=False)
