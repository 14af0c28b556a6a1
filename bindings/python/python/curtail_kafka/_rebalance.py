"""Listeners of rebalances."""

from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Protocol
from weakref import WeakValueDictionary

from . import _native
from ._offset import Offset, offset_list
from ._partition import ByPartition, TopicPartition


class Served(Protocol):
    """A consumer with a listener, of asyncio or of threads."""

    @property
    def _token(self) -> int: ...
    @property
    def _methods(self) -> Any: ...


class Rebalance:
    """The calls that a listener may make. They end with its method."""

    def __init__(self, native: _native.Rebalance) -> None:
        self._native = native

    def position(self, partition: tuple[str, int]) -> int | None:
        """Returns the offset of the partition's next record; ``None`` while it is unknown."""
        return self._native.position(partition)

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Continues a partition at an offset, also one that is being assigned."""
        self._native.seek(partition, offset)

    def commit(self, offsets: ByPartition[Offset] | None = None) -> None:
        """Commits offsets of partitions that are being revoked, before other members have them.

        By default those after the records that the program has received. In ``on_revoked`` only.
        """
        self._native._commit(None if offsets is None else offset_list(offsets))


class RebalanceListener(Protocol):
    """Is called when a group assigns or revokes partitions. Methods may be asynchronous.

    The consumer waits for the end of a method, in a poll, or in ``close`` and ``unsubscribe``. A
    method must not call its consumer. Its exception is raised by that poll or call.
    """

    def on_assigned(
        self, rebalance: Rebalance, partitions: list[TopicPartition]
    ) -> Awaitable[None] | None:
        """Called after each rebalance with the added partitions, of which there may be none."""

    def on_revoked(
        self, rebalance: Rebalance, partitions: list[TopicPartition]
    ) -> Awaitable[None] | None:
        """Called before the partitions go to other members."""

    def on_lost(
        self, rebalance: Rebalance, partitions: list[TopicPartition]
    ) -> Awaitable[None] | None:
        """Called after the partitions went to other members without notice."""
        return self.on_revoked(rebalance, partitions)


_consumers: "WeakValueDictionary[int, Served]" = WeakValueDictionary()
_served: ContextVar[tuple[int, _native.Rebalance] | None] = ContextVar("_served", default=None)


def register(consumer: Served) -> None:
    _consumers[consumer._token] = consumer


def is_inside(token: int) -> bool:
    """Whether the running task is that of a listener's method. Called by native code."""
    served = _served.get()
    return served is not None and served[0] == token and served[1]._is_open


@contextmanager
def inside(token: int, rebalance: _native.Rebalance) -> Iterator[None]:
    """Marks the block, and tasks that it starts, as a method of the consumer's listener."""
    before = _served.set((token, rebalance))
    try:
        yield
    finally:
        # A task that is destroyed ends in another context.
        with suppress(ValueError):
            _served.reset(before)


def begin(
    token: int, kind: str, partitions: list[tuple[str, int]], rebalance: _native.Rebalance
) -> None:
    """Starts a method of the listener. Called by native code."""
    consumer = _consumers.get(token)
    if consumer is None:
        rebalance._end()
        return
    every = [TopicPartition(*one) for one in partitions]
    consumer._methods.begin(consumer, kind, every, rebalance)
