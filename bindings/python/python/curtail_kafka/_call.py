"""Calls of the runtime with asyncio. :mod:`curtail_kafka.sync` has the same module for threads."""

import asyncio
import inspect
from asyncio import CancelledError, Future
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from . import _native
from ._native import Call
from ._partition import TopicPartition
from ._rebalance import Rebalance, RebalanceListener, inside
from .errors import IllegalStateError

if TYPE_CHECKING:
    from ._consumer import Consumer

__all__ = ["THREADED", "TURN", "Future", "Line", "Methods", "apart", "finished", "pause", "settled"]

T = TypeVar("T")
THREADED = False
"""Whether clients resolve futures of threads."""
TURN = 0.0005
"""Seconds after which a loop over records lets the event loop run."""


async def finished(call: "Call[T]") -> T:
    """Waits for a call of the runtime; cancellation stops the call."""
    try:
        return await call.future
    except (CancelledError, GeneratorExit):
        # A task is also destroyed, after its event loop has ended.
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


class Line:
    """Records of a pipeline that wait for room, in the order of the calls."""

    def __init__(self, block: Callable[[], _native.Pipeline]) -> None:
        """``block`` raises outside the pipeline's block."""
        self._block = block
        self._waiting: deque[tuple[tuple[Any, ...], Future[None]]] = deque()
        self._is_due = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def begin(self) -> None:
        """Begins a block, in which calls of this event loop wait."""
        self._loop = _native.running_loop()

    async def wait(self, *record: Any) -> None:
        """Lets the event loop run, and returns once the record is accepted."""
        loop = _native.running_loop()
        if loop is not self._loop:
            raise IllegalStateError("a pipeline belongs to the event loop that began its block")
        accepted = loop.create_future()
        self._waiting.append((record, accepted))
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._advance)
        await accepted

    def _advance(self, room: "Future[None] | None" = None) -> None:
        """Offers the records of one turn: not one by one, in a turn each."""
        self._is_due = False
        if room is not None and not room.cancelled():
            # Retrieves an error. The next offer has it too.
            room.exception()
        ends = perf_counter() + TURN
        while self._waiting:
            record, accepted = self._waiting[0]
            if not accepted.done():
                try:
                    block = self._block()
                    size = block.offer(*record)
                    if size is not None:
                        self._is_due = True
                        block.start_room(size).future.add_done_callback(self._advance)
                        return
                    accepted.set_result(None)
                except Exception as error:
                    accepted.set_exception(error)
            self._waiting.popleft()
            if self._waiting and perf_counter() >= ends:
                self._is_due = True
                asyncio.get_running_loop().call_soon(self._advance)
                return

    def end(self) -> None:
        """Ends the waits, as those outside the block."""
        # An event loop that has ended makes no more turns, and its calls have ended.
        self._is_due = False
        while self._waiting:
            _, accepted = self._waiting.popleft()
            loop = accepted.get_loop()
            if not loop.is_closed():
                try:
                    self._block()
                except Exception as error:
                    # The block may end in another event loop.
                    loop.call_soon_threadsafe(_fail, accepted, error)


def _fail(future: "Future[None]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


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
