import warnings
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from datetime import datetime
from time import monotonic
from typing import TYPE_CHECKING, Literal, Self, Unpack
from uuid import UUID

from . import _native
from ._call import THREADED, Methods, pause
from ._client import Client
from ._config import Setting, properties
from ._group import GroupMetadata
from ._native import Record, RecordBatch, Records
from ._offset import Offset, OffsetAndTimestamp, milliseconds, offset_list, time_list
from ._partition import ByPartition, TopicPartition
from ._rebalance import RebalanceListener, register
from ._records import Column, Layout
from ._tokens import Source, TokenFunction, key_of, source
from .errors import ConfigError
from .metrics import ConsumerMetrics

if TYPE_CHECKING:
    from ._options import ConsumerOptions

WAIT = 1.0
"""Seconds of one poll of an iteration."""


class Consumer(Client, _native.Consumer):
    """Reads partitions, assigned by the application or shared in a group.

    With a ``group_id`` it subscribes to the topics; without one it is assigned all their
    partitions. A consumer belongs to one event loop at a time. Only records that the program has
    received count in :meth:`commit` and :meth:`close`. A block that is left by an exception
    rewinds the last poll, or with ``async for`` the last record.

    The ``listener`` is called when the group assigns or revokes partitions.
    """

    _topics: tuple[str, ...]
    _begun: bool
    _has_group: bool
    _methods: Methods
    _oauth_token: Source | None

    def __new__(
        cls,
        bootstrap_servers: str | Iterable[str] | None = None,
        *topics: str,
        listener: RebalanceListener | None = None,
        oauth_token: TokenFunction | None = None,
        config: Mapping[str, Setting] | None = None,
        **options: "Unpack[ConsumerOptions]",
    ) -> Self:
        settings = properties(bootstrap_servers, config, options)  # type: ignore[arg-type]
        token = source(oauth_token, THREADED)
        native = key_of(token)
        self = super().__new__(cls, settings, listener is not None, THREADED, native)
        self._oauth_token = token
        self._methods = Methods(listener)
        if listener is not None:
            register(self)
        self._topics = topics
        self._has_group = any(name == "group.id" for name, _ in settings)
        self._begun = not topics
        return self

    async def _begin(self) -> None:
        """Subscribes to the topics of the constructor, or assigns their partitions."""
        if self._has_group:
            await self._methods.served(self._start_subscribe(list(self._topics), None))
        else:
            await self._methods.served(self._start_assign_all(list(self._topics)))
        self._begun = True

    async def connect(self) -> None:
        """Connects to a bootstrap server, to fail early and clearly if none is usable."""
        await self._methods.served(self._start_connect())
        if not self._begun:
            await self._begin()

    async def poll(self, timeout: float = 1.0) -> Records:
        """Returns records that are buffered or arrive within ``timeout`` seconds.

        A cancelled poll loses no records: the next one returns them.
        """
        if not self._has_records:
            if not self._begun:
                await self._begin()
            await self._methods.heard(self._start_poll(timeout))
        return self._take()

    async def polls(self) -> AsyncGenerator[Records, None]:
        """Iterates over polls that return records."""
        while True:
            records = await self.poll(WAIT)
            if records:
                yield records

    async def poll_batch(
        self,
        timeout: float = 1.0,
        *,
        max_records: int = 65_536,
        columns: Sequence[Column] | None = None,
        layout: Layout = "view",
    ) -> RecordBatch | None:
        """Returns records as Arrow columns; ``None`` if none arrive within ``timeout`` seconds.

        The batch has the records received so far, at most ``max_records``; ``max.poll.records``
        does not apply. With auto-commit it has those of one produced batch, because a poll commits
        all records of earlier ones. ``columns`` selects columns, all by default. With the layout
        ``"view"``, keys and values are not copied; ``"binary"`` is for readers without views.
        """
        if isinstance(columns, str):
            raise TypeError("columns must be a sequence of names, not one")
        names: list[str] | None = None if columns is None else list(columns)
        deadline = monotonic() + timeout
        while True:
            if not self._begun:
                await self._begin()
            left = max(0.0, deadline - monotonic())
            await self._methods.heard(self._start_poll_batch(left, max_records, names, layout))
            batch = self._take_batch()
            # Without a batch before the time, another call has taken or moved the records.
            if batch is not None or monotonic() >= deadline:
                return batch

    async def batches(
        self,
        *,
        max_records: int = 65_536,
        columns: Sequence[Column] | None = None,
        layout: Layout = "view",
    ) -> AsyncGenerator[RecordBatch, None]:
        """Iterates over the batches of :meth:`poll_batch`."""
        while True:
            batch = await self.poll_batch(
                WAIT, max_records=max_records, columns=columns, layout=layout
            )
            if batch is not None:
                yield batch

    async def __aiter__(self) -> AsyncGenerator[Record, None]:
        """Iterates over records. Yields to the event loop at least every millisecond."""
        while True:
            if not self._has_records:
                if not self._begun:
                    await self._begin()
                await self._methods.heard(self._start_poll(WAIT))
            else:
                # A buffered poll returns without a pause.
                await pause()
            for record in self._turn():
                yield record

    async def subscribe(self, *topics: str, pattern: str | None = None) -> None:
        """Replaces the subscription by these topics, or by those that match the pattern."""
        if bool(topics) == (pattern is not None):
            raise ConfigError("a subscription has topics, or a pattern")
        await self._methods.served(self._start_subscribe(list(topics), pattern))
        self._begun = True

    async def unsubscribe(self) -> None:
        """Ends the subscription or assignment."""
        await self._methods.heard(self._start_unsubscribe())
        self._begun = True

    async def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Replaces the assignment. Partitions that stay assigned keep their positions."""
        await self._methods.heard(self._start_assign(list(partitions)))
        self._begun = True

    async def seek(
        self,
        partition: tuple[str, int],
        to: int | datetime | Literal["beginning", "end", "committed"],
    ) -> None:
        """Continues a partition at an offset, a time, or one of the names."""
        if isinstance(to, datetime):
            time = milliseconds(to)
            await self._methods.served(self._start_seek_to_timestamp(partition, time))
        else:
            await self._methods.served(self._start_seek(partition, to))

    async def pause(self, *partitions: tuple[str, int]) -> None:
        """Stops returning records of the partitions until they are resumed."""
        await self._methods.served(self._start_pause(list(partitions)))

    async def resume(self, *partitions: tuple[str, int]) -> None:
        """Resumes paused partitions."""
        await self._methods.served(self._start_resume(list(partitions)))

    async def commit(self, offsets: ByPartition[Offset] | None = None) -> None:
        """Commits these offsets, or those after the records that the program has received.

        A cancelled commit may have happened.
        """
        every = None if offsets is None else offset_list(offsets)
        await self._methods.served(self._start_commit(every))

    async def position(self, partition: tuple[str, int]) -> int:
        """Returns the offset of the next record of the partition."""
        offset: int = await self._methods.served(self._start_position(partition))
        return offset

    async def committed(self, partition: tuple[str, int]) -> int | None:
        """Returns the group's committed offset of the partition."""
        offsets = await self._methods.served(self._start_committed([partition]))
        offset: int | None = offsets[tuple(partition)]
        return offset

    async def beginning_offsets(
        self, partitions: Iterable[tuple[str, int]]
    ) -> dict[TopicPartition, int]:
        """Returns the first offset of each partition."""
        offsets = await self._methods.served(self._start_offsets(list(partitions), False))
        return {TopicPartition(*partition): offset for partition, offset in offsets.items()}

    async def end_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Returns the end of each partition, where its next record will be written."""
        offsets = await self._methods.served(self._start_offsets(list(partitions), True))
        return {TopicPartition(*partition): offset for partition, offset in offsets.items()}

    async def offsets_for_times(
        self, times: ByPartition[datetime | int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Returns the first record of each partition at its time or later; ``None`` without one.

        An ``int`` is a timestamp in milliseconds since 1970-01-01 UTC.
        """
        offsets = await self._methods.served(self._start_offsets_for_times(time_list(times)))
        return {
            TopicPartition(*partition): None if found is None else OffsetAndTimestamp(*found)
            for partition, found in offsets.items()
        }

    async def lag(self, partition: tuple[str, int]) -> int | None:
        """Returns how far the end of an assigned partition lies after the program's position.

        Counts offsets after the records that the program has received, up to the end at the last
        fetch: the high watermark, or with ``read_committed`` the last stable offset. ``None``
        before the first response.
        """
        lag: int | None = await self._methods.served(self._start_lag(partition))
        return lag

    async def partitions_for(self, topic: str) -> int:
        """Returns the number of partitions of a topic."""
        count: int = await self._methods.served(self._start_partitions_for(topic))
        return count

    async def client_instance_id(self, timeout: float) -> UUID:
        """Returns the id that a broker assigns to this client for its metrics (KIP-714).

        Waits for it up to ``timeout`` seconds. Brokers assign none without a receiver of metrics.
        """
        id: UUID = await self._methods.served(self._start_client_instance_id(timeout))
        return id

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The assigned partitions."""
        return frozenset(TopicPartition(*partition) for partition in self._assigned())

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The paused partitions."""
        return frozenset(TopicPartition(*partition) for partition in self._paused_now())

    @property
    def group_metadata(self) -> GroupMetadata | None:
        """The identity in the group; ``None`` without a ``group_id``, or once closed."""
        group = self._group()
        return None if group is None else GroupMetadata(*group)

    async def close(self) -> None:
        """Commits with auto-commit, leaves the group, and closes the consumer.

        A cancelled close continues.
        """
        await self._methods.heard(self._start_close(False))

    def metrics(self) -> ConsumerMetrics:
        """Returns what the client has measured, since it was created."""
        measured: ConsumerMetrics = self._metrics()
        return measured

    async def _discard(self) -> None:
        await self.close()

    async def _leave(self, failed: bool) -> None:
        await self._methods.heard(self._start_close(failed))

    def __del__(self) -> None:
        if self._is_open:
            warnings.warn(
                "unclosed consumer: its membership ends only after session.timeout.ms",
                ResourceWarning,
                stacklevel=2,
            )
