"""Calls of the runtime for threads. The other modules of this package are generated."""

import inspect
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from threading import Condition
from typing import TYPE_CHECKING, Any, TypeVar

from .. import _native, _threads
from .._native import Call
from .._partition import TopicPartition
from .._rebalance import Rebalance, RebalanceListener, inside
from ..errors import IllegalStateError

if TYPE_CHECKING:
    from ._consumer import Consumer

__all__ = ["THREADED", "TURN", "Future", "Line", "Methods", "apart", "finished", "pause", "settled"]

T = TypeVar("T")
THREADED = True
"""Whether clients resolve futures of threads."""
LOOK = 0.5
"""Longest time in seconds until a signal is handled."""
TURN = 1.0
"""Seconds between the pauses of a loop over records, which are nothing here."""


def finished(call: "Call[T]") -> T:
    """Waits for a call of the runtime. An exception of a signal's handler stops the call."""
    future: Any = call.future
    try:
        result: T = settled(future)
    except BaseException:
        call.cancel()
        raise
    return result


def settled(future: "Future[T]") -> T:
    """Waits for a future."""
    _threads.may_wait(future)
    # A signal ends the wait for a lock, unless it arrives just before that wait: then its handler
    # runs after this time.
    while not future.done():
        try:
            return future.result(LOOK)
        except TimeoutError:
            # Or the future's own.
            continue
    return future.result()


def apart(function: Callable[..., T], *arguments: Any) -> T:
    """Calls a function. The thread waits in any case."""
    return function(*arguments)


def pause() -> None:
    """Threads need no pauses."""


class Line:
    """Waits of a pipeline's calls. Each thread makes one call after the other."""

    def __init__(self, block: Callable[[], _native.Pipeline]) -> None:
        """``block`` raises outside the pipeline's block."""
        self._block = block

    def __bool__(self) -> bool:
        return False

    def begin(self) -> None:
        """Threads may share a block."""

    def wait(self, *record: Any) -> None:
        """Returns once the record is accepted."""
        block = self._block()
        while (size := block.offer(*record)) is not None:
            finished(block.start_room(size))
            if self._block() is not block:
                raise IllegalStateError("the pipeline's block has ended")

    def end(self) -> None:
        """The calls that wait notice the end."""


class Methods:
    """Runs the methods of a listener, on the thread that waits for the consumer."""

    def __init__(self, listener: RebalanceListener | None) -> None:
        self._listener = listener
        self._begun: deque[tuple[Consumer, str, list[TopicPartition], _native.Rebalance]] = deque()
        self._errors: deque[Exception] = deque()
        self._changed = Condition()

    def begin(
        self,
        consumer: "Consumer",
        kind: str,
        partitions: list[TopicPartition],
        rebalance: _native.Rebalance,
    ) -> None:
        """Passes a method to the thread that waits."""
        with self._changed:
            self._begun.append((consumer, kind, partitions, rebalance))
            self._changed.notify()

    def served(self, call: "Call[T]") -> T:
        """Waits for a call, and runs methods until it ends, also those of an interrupted call.

        A method's exception is kept for :meth:`heard`.
        """
        if self._listener is None:
            return finished(call)
        future: Any = call.future
        future.add_done_callback(self._tell)
        try:
            while self._next(future):
                pass
        except BaseException:
            call.cancel()
            raise
        return finished(call)

    def heard(self, call: "Call[Any]") -> None:
        """Waits for a call in which a method may run, and raises the method's exception."""
        self.served(call)
        with self._changed:
            error = self._errors.popleft() if self._errors else None
        if error is not None:
            raise error

    def _tell(self, _: object) -> None:
        with self._changed:
            self._changed.notify_all()

    def _next(self, future: Any) -> bool:
        """Runs the next method. Returns False once the call has ended instead."""
        with self._changed:
            while not self._begun and not future.done():
                # As in `settled`.
                self._changed.wait(LOOK)
            if not self._begun:
                return False
            consumer, kind, partitions, rebalance = self._begun.popleft()
        with inside(consumer._token, rebalance):
            try:
                called = getattr(self._listener, kind)(Rebalance(rebalance), partitions)
                if inspect.isawaitable(called):
                    if inspect.iscoroutine(called):
                        called.close()
                    raise TypeError(f"{kind} must not be asynchronous in curtail_kafka.sync")
            except Exception as error:
                with self._changed:
                    self._errors.append(error)
                consumer._wake()
            finally:
                rebalance._end()
        return True
