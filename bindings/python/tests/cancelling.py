"""Cancels a coroutine at each of its suspensions."""

import asyncio
import itertools
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass
from typing import Any

Prepare = Callable[[], Awaitable[Coroutine[Any, Any, Any]]]


@dataclass
class Stop:
    """Where a coroutine is cancelled."""

    step: int
    """Number of suspensions before; -1: the coroutine never runs."""
    late: bool
    """Whether the awaited future has its result, which the task has not received."""
    reached: bool = False

    def __str__(self) -> str:
        when = "its result is about to be delivered" if self.late else "it begins"
        return "before the first step" if self.step < 0 else f"at await {self.step}, when {when}"


@types.coroutine
def _stopped(coroutine: Coroutine[Any, Any, Any], stop: Stop) -> Generator[Any, Any, Any]:
    task = asyncio.current_task()
    assert task is not None
    resume, value = coroutine.send, None
    for step in itertools.count():
        try:
            awaited = resume(value)
        except StopIteration as end:
            return end.value
        if step == stop.step:
            stop.reached = True
            if stop.late and asyncio.isfuture(awaited):
                # Runs before the callback of the task, which would deliver the result.
                awaited.add_done_callback(lambda _: task.cancel())
            else:
                # Takes effect in this suspension.
                task.cancel()
        try:
            value = yield awaited
        except BaseException as error:
            resume, value = coroutine.throw, error
        else:
            resume = coroutine.send


async def _run(coroutine: Coroutine[Any, Any, Any], stop: Stop) -> Any:
    return await _stopped(coroutine, stop)


async def cancelled_everywhere(
    prepare: Prepare, limit: float = 20
) -> AsyncIterator[tuple[Stop, asyncio.Task[Any]]]:
    """Runs coroutines, each cancelled at another place, and returns their tasks.

    The last ones have ended before their places: they were not cancelled.
    """
    for late in (False, True):
        for step in itertools.count(0 if late else -1):
            stop = Stop(step, late)
            coroutine = await prepare()
            task = asyncio.create_task(coroutine if step < 0 else _run(coroutine, stop))
            if step < 0:
                stop.reached = True
                task.cancel()
            await asyncio.wait([task], timeout=limit)
            assert task.done(), f"hangs after a cancellation {stop}"
            assert task.cancelled() == stop.reached, f"cancelled {stop}: {task}"
            yield stop, task
            if not stop.reached:
                break
