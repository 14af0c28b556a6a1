"""Calls of the runtime with asyncio. :mod:`curtail_kafka.sync` has the same module for threads."""

import asyncio
import inspect
from asyncio import CancelledError, Future, Lock
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from . import _native
from ._native import Call
from ._partition import TopicPartition
from ._rebalance import Rebalance, RebalanceListener, inside

if TYPE_CHECKING:
    from ._consumer import Consumer

__all__ = ["THREADED", "Future", "Lock", "Methods", "apart", "finished", "pause", "settled"]

T = TypeVar("T")
THREADED = False
"""Whether clients resolve futures of threads."""


async def finished(call: "Call[T]") -> T:
    """Waits for a call of the runtime; cancellation stops the call."""
    try:
        return await call.future
    except CancelledError:
        call.cancel()
        raise


async def settled(future: "Future[T]") -> T:
    """Waits for a future."""
    return await future


async def apart(function: Callable[..., T], *arguments: Any) -> T:
    """Calls a function on another thread. A cancelled call does not wait for its end."""
    return await asyncio.to_thread(function, *arguments)


async def pause() -> None:
    """Lets the event loop run."""
    await asyncio.sleep(0)


class Methods:
    """Runs the methods of a listener, as tasks of the consumer's event loop."""

    def __init__(self, listener: RebalanceListener | None) -> None:
        self._listener = listener
        self._errors: list[Exception] = []
        # The event loop has weak references.
        self._running: set[asyncio.Task[None]] = set()

    def begin(
        self,
        consumer: "Consumer",
        kind: str,
        partitions: list[TopicPartition],
        rebalance: _native.Rebalance,
    ) -> None:
        """Starts a method on the running event loop."""
        serving = self._serve(consumer, kind, partitions, rebalance)
        task = asyncio.get_running_loop().create_task(serving)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _serve(
        self,
        consumer: "Consumer",
        kind: str,
        partitions: list[TopicPartition],
        rebalance: _native.Rebalance,
    ) -> None:
        with inside(consumer._token, rebalance):
            try:
                called = getattr(self._listener, kind)(Rebalance(rebalance), partitions)
                if inspect.isawaitable(called):
                    await called
            except Exception as error:
                self._errors.append(error)
                consumer._wake()
            finally:
                rebalance._end()

    async def served(self, call: "Call[T]") -> T:
        """Waits for a call. A method's exception is kept for :meth:`heard`."""
        return await finished(call)

    async def heard(self, call: "Call[Any]") -> None:
        """Waits for a call in which a method may run, and raises the method's exception."""
        await finished(call)
        if self._errors:
            raise self._errors.pop(0)
