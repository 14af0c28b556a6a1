"""How long the event loop is held between two turns of a task that only yields."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def watched_loop() -> AsyncIterator[list[float]]:
    """Collects the CPU seconds of the loop's thread between turns: other processes do not count."""
    gaps: list[float] = []

    async def watch() -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            gaps.append(now - last)
            last = now

    # A collection of the interpreter's garbage is not the package's.
    gc.collect()
    gc.disable()
    watching = asyncio.create_task(watch())
    try:
        await asyncio.sleep(0)
        yield gaps
    finally:
        watching.cancel()
        gc.enable()


def assert_loop_runs(gaps: list[float]) -> None:
    """The package holds the loop for at most 1 ms at a time. Allows for a busy machine."""
    gaps = sorted(gaps)
    assert gaps[-1] < 0.005, f"held for {gaps[-1] * 1000:.1f} ms"
    assert gaps[len(gaps) * 99 // 100] < 0.001, f"{len(gaps)} turns, worst {gaps[-10:]}"
