"""Event loops: several at once, and those that end before their calls."""

import asyncio
import gc
import selectors
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

import curtail_kafka as curtail
from curtail_kafka.testing import Cluster

T = TypeVar("T")
NewLoop = Callable[[], asyncio.AbstractEventLoop]
EARLIEST: dict[str, Any] = {"auto_offset_reset": "earliest"}


@pytest.fixture(autouse=True)
def unraisable(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Errors that the package could report to no caller. There are none."""
    found: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", found.append)
    return found


def run(new_loop: NewLoop, main: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(main)


def left_running(loop: asyncio.AbstractEventLoop, main: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine and closes its loop. Other tasks are not cancelled, as they are by `run`."""
    asyncio.set_event_loop(None)
    found = loop.run_until_complete(main)
    loop.close()
    return found


async def use_all(servers: str, topic: str) -> None:
    """Uses a client of each kind."""
    loop = asyncio.get_running_loop()
    threads: set[int] = set()
    async with (
        curtail.Producer(servers) as producer,
        curtail.Consumer(servers, topic, **EARLIEST) as consumer,
        curtail.Admin(servers) as admin,
    ):
        sent = [producer.send(topic, str(n)) for n in range(500)]
        for one in sent:
            assert one.get_loop() is loop
            one.add_done_callback(lambda _: threads.add(threading.get_ident()))
        assert [one.offset for one in await asyncio.gather(*sent)] == list(range(500))
        read: list[int] = []
        async with asyncio.timeout(20):
            while len(read) < 500:
                read += [int(record.value or b"") for record in await consumer.poll()]
        assert read == list(range(500))
        assert topic in {one.name for one in await admin.list_topics()}
    stream = await asyncio.to_thread(curtail.scan, servers, topic)
    assert sum(batch.num_rows for batch in await asyncio.to_thread(list, stream)) == 500
    assert threads == {threading.get_ident()}


def test_threads_have_event_loops_with_clients_of_each_kind(
    curtail_cluster: Cluster, servers: str, new_loop: NewLoop, unraisable: list[Any]
) -> None:
    topics = [f"loops-{new_loop.__module__}-{n}" for n in range(4)]
    for topic in topics:
        curtail_cluster.create_topic(topic)

    def use(topic: str) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            # It raises an error for a call of another thread.
            runner.get_loop().set_debug(True)
            runner.run(use_all(servers, topic))

    with ThreadPoolExecutor(len(topics)) as pool:
        list(pool.map(use, topics))
    assert not unraisable


class Counting(selectors.DefaultSelector):
    """Counts the turns of its event loop."""

    turns = 0

    def select(self, timeout: float | None = None) -> Any:
        self.turns += 1
        return super().select(timeout)


def test_event_loop_does_not_wake_for_results_of_another(servers: str, curtail_topic: str) -> None:
    """Both use the same producer."""
    producer = curtail.Producer(servers)
    selector = Counting()
    is_idle, ends = threading.Event(), asyncio.Event()
    idle = asyncio.SelectorEventLoop(selector)
    turns: list[int] = []

    async def wait() -> None:
        await producer.send(curtail_topic, b"x")
        idle.call_soon(is_idle.set)
        await ends.wait()
        turns.append(selector.turns)

    async def send() -> None:
        for _ in range(10):
            await asyncio.gather(*(producer.send(curtail_topic, b"x") for _ in range(50)))

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(idle.run_until_complete, wait())
        assert is_idle.wait(20)
        before = selector.turns
        asyncio.run(send())
        idle.call_soon_threadsafe(ends.set)
        waiting.result(20)
    idle.close()
    asyncio.run(producer.close())
    assert turns[0] - before <= 3, "one to become idle, and two for the end"


def test_clients_are_shared_by_event_loops_of_threads(
    servers: str, curtail_topic: str, new_loop: NewLoop, unraisable: list[Any]
) -> None:
    producer, admin = curtail.Producer(servers), curtail.Admin(servers)
    consumer = curtail.Consumer(servers, curtail_topic, **EARLIEST)
    found: list[int] = []

    async def use(n: int) -> list[int | None]:
        written: list[int | None] = []
        for _ in range(5):
            sent = [producer.send(curtail_topic, str(n)) for _ in range(50)]
            written += [one.offset for one in await asyncio.gather(*sent)]
            assert (await admin.describe_cluster()).brokers
            found.extend(record.offset for record in await consumer.poll(0.05))
        assert written == sorted(written, key=lambda offset: offset or 0)
        return written

    with ThreadPoolExecutor(4) as pool:
        offsets = [
            one for some in pool.map(lambda n: run(new_loop, use(n)), range(4)) for one in some
        ]
    assert sorted(offsets, key=lambda offset: offset or 0) == list(range(1_000))

    async def finish() -> None:
        async with asyncio.timeout(20):
            while len(found) < 1_000:
                found.extend(record.offset for record in await consumer.poll(1))
        await asyncio.gather(producer.close(), consumer.close(), admin.close())

    run(new_loop, finish())
    assert sorted(found) == list(range(1_000))
    assert not unraisable


def test_future_of_another_event_loop_is_an_error(
    servers: str, curtail_topic: str, new_loop: NewLoop
) -> None:
    producer = curtail.Producer(servers, linger_ms=60_000)

    async def send() -> asyncio.Future[curtail.RecordMetadata]:
        return producer.send(curtail_topic, b"x")

    async def wait(sent: asyncio.Future[curtail.RecordMetadata]) -> None:
        with pytest.raises(RuntimeError, match="attached to a different loop") as raised:
            await sent
        assert "\n" not in str(raised.value)
        # Ends the wait for the record, whose outcome belongs to no event loop.
        await producer.close()

    run(new_loop, wait(run(new_loop, send())))


def test_pipeline_of_another_event_loop_is_an_error(
    servers: str, curtail_topic: str, new_loop: NewLoop
) -> None:
    """Its calls would wait for a callback of another thread."""
    producer = curtail.Producer(servers)
    pipeline = producer.pipeline(limit=1)

    async def send_elsewhere() -> None:
        async with asyncio.timeout(20):
            with pytest.raises(curtail.IllegalStateError, match="event loop") as raised:
                for _ in range(100):
                    await pipeline.send(curtail_topic, b"elsewhere")
        assert "\n" not in str(raised.value)

    async def main() -> None:
        async with producer, pipeline:
            for _ in range(10):
                await pipeline.send(curtail_topic, b"here")
            await asyncio.to_thread(run, new_loop, send_elsewhere())
            await pipeline.send(curtail_topic, b"here")

    run(new_loop, main())
    assert pipeline.failed == 0


def test_clients_of_a_closed_event_loop_work_in_the_next(
    servers: str, curtail_topic: str, new_loop: NewLoop, unraisable: list[Any]
) -> None:
    """The first loop ends with calls in progress, which it cancels."""
    producer, admin = curtail.Producer(servers), curtail.Admin(servers)
    consumer = curtail.Consumer(servers, curtail_topic, **EARLIEST)

    async def begin() -> None:
        sent = producer.send(curtail_topic, b"0")
        calls: list[Awaitable[Any]] = [producer.flush(), consumer.poll(60), admin.list_topics()]
        tasks = [asyncio.ensure_future(call) for call in calls]
        await asyncio.sleep(0)
        assert not sent.done() and not any(task.done() for task in tasks)

    async def proceed() -> None:
        async with asyncio.timeout(20):
            assert (await producer.send(curtail_topic, b"1")).offset == 1
            assert curtail_topic in {one.name for one in await admin.list_topics()}
            values: list[bytes | None] = []
            while len(values) < 2:
                values += [record.value for record in await consumer.poll()]
            assert values == [b"0", b"1"]
            await asyncio.gather(producer.close(), consumer.close(), admin.close())

    run(new_loop, begin())
    run(new_loop, use_new(servers, curtail_topic))
    run(new_loop, proceed())
    assert not unraisable


async def use_new(servers: str, topic: str) -> None:
    async with curtail.Admin(servers) as admin, curtail.Consumer(servers, topic) as consumer:
        assert await consumer.partitions_for(topic) == 1
        assert (await admin.describe_cluster()).brokers


def test_poll_of_a_destroyed_task_ends(servers: str, curtail_topic: str, new_loop: NewLoop) -> None:
    """A loop that is closed without `asyncio.run` cancels no task."""
    consumer = curtail.Consumer(servers, curtail_topic, **EARLIEST)

    tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()

    async def begin() -> None:
        await consumer.connect()
        # The loop alone refers to the task.
        tasks.add(asyncio.get_running_loop().create_task(consumer.poll(3600)))
        await asyncio.sleep(0.01)

    async def proceed() -> None:
        async with asyncio.timeout(20):
            for _ in range(3):
                assert await consumer.position((curtail_topic, 0)) == 0
            async with curtail.Producer(servers) as producer:
                await producer.send(curtail_topic, b"x")
            # The first poll no longer waits: it would take the records first.
            while not (records := await consumer.poll(1)):
                pass
            assert [record.value for record in records] == [b"x"]
            await consumer.close()

    left_running(new_loop(), begin())
    gc.collect()
    assert not tasks, "they are destroyed with their loop"
    run(new_loop, proceed())


def test_pipeline_of_a_closed_event_loop_ends_in_the_next(
    servers: str, curtail_topic: str, new_loop: NewLoop
) -> None:
    producer = curtail.Producer(servers, linger_ms=60_000)
    pipeline = producer.pipeline(limit=1)
    waiting: list[asyncio.Task[None]] = []

    async def begin() -> None:
        await pipeline.__aenter__()
        await pipeline.send(curtail_topic, b"x")
        waiting.append(asyncio.ensure_future(pipeline.send(curtail_topic, b"waits")))
        await asyncio.sleep(0)

    async def proceed() -> None:
        async with asyncio.timeout(20):
            await pipeline.__aexit__(None, None, None)
            assert pipeline.delivered == 1
            async with pipeline:
                for _ in range(10):
                    await pipeline.send(curtail_topic, b"x")
                    await producer.flush()
            await producer.close()

    left_running(new_loop(), begin())
    run(new_loop, proceed())
    assert pipeline.delivered == 10


def test_closed_event_loop_returns_its_part_of_the_buffer(
    servers: str, curtail_topic: str, new_loop: NewLoop
) -> None:
    """Outcomes of its records keep their batches, and nothing receives them."""
    settings = {"buffer.memory": 100_000, "batch.size": 1_000, "max.block.ms": 5_000}
    producer = curtail.Producer(servers, config=settings)

    async def send_and_leave() -> None:
        for _ in range(200):
            producer.send(curtail_topic, bytes(1_000))

    async def main() -> None:
        # This loop is known to the package before the other one ends.
        await producer.send(curtail_topic, b"x")
        await asyncio.to_thread(left_running, new_loop(), send_and_leave())
        async with asyncio.timeout(20):
            for _ in range(5):
                await asyncio.gather(
                    *(producer.send(curtail_topic, bytes(1_000)) for _ in range(60))
                )
        await producer.close()

    run(new_loop, main())
