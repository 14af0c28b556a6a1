import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import curtail_kafka as curtail
from curtail_kafka import Rebalance, RebalanceListener, TopicPartition
from curtail_kafka.testing import Cluster

Seen = list[tuple[str, list[TopicPartition]]]


class Recorder(RebalanceListener):
    """Records its calls. A hook runs in each."""

    def __init__(self, hook: Callable[[str, Rebalance], Awaitable[None] | None] | None = None):
        self.seen: Seen = []
        self.hook = hook or (lambda kind, rebalance: None)

    def on_assigned(
        self, rebalance: Rebalance, partitions: list[TopicPartition]
    ) -> Awaitable[None] | None:
        self.seen.append(("assigned", partitions))
        return self.hook("assigned", rebalance)

    def on_revoked(
        self, rebalance: Rebalance, partitions: list[TopicPartition]
    ) -> Awaitable[None] | None:
        self.seen.append(("revoked", partitions))
        return self.hook("revoked", rebalance)


def member(servers: str, topic: str, **options: Any) -> curtail.Consumer:
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **options}
    return curtail.Consumer(servers, topic, group_id=f"g-{topic}", **settings)


async def fill(servers: str, topic: str, count: int) -> None:
    async with curtail.Producer(servers) as producer:
        await producer.send_many(topic, [curtail.NewRecord(str(n)) for n in range(count)])


async def records(consumer: curtail.Consumer) -> curtail.Records:
    async with asyncio.timeout(20):
        while True:
            if received := await consumer.poll():
                return received


async def test_listener_hears_of_partitions(servers: str, curtail_topic: str) -> None:
    await fill(servers, curtail_topic, 3)
    at = TopicPartition(curtail_topic, 0)
    listener = Recorder()
    async with member(servers, curtail_topic, listener=listener) as consumer:
        await records(consumer)
        assert listener.seen == [("assigned", [at])]
        assert isinstance(listener.seen[0][1][0], TopicPartition)
        await consumer.unsubscribe()
        assert listener.seen == [("assigned", [at]), ("revoked", [at])]
    assert len(listener.seen) == 2


async def test_revoked_partitions_commit_the_received_records(
    curtail_cluster: Cluster, servers: str, curtail_topic: str
) -> None:
    """The other member continues after the records that the first has received."""
    await fill(servers, curtail_topic, 10)
    at = TopicPartition(curtail_topic, 0)
    positions: list[int | None] = []

    async def commit(kind: str, rebalance: Rebalance) -> None:
        # An asynchronous method: the consumer waits for its end.
        await asyncio.sleep(0.05)
        positions.append(rebalance.position(at))
        if kind == "revoked":
            rebalance.commit()

    listener = Recorder(commit)
    async with member(servers, curtail_topic, listener=listener) as first:
        async for record in first:
            if record.offset == 3:
                break
    assert [kind for kind, _ in listener.seen] == ["assigned", "revoked"]
    assert positions == [None, 4]
    async with member(servers, curtail_topic) as second:
        assert (await records(second))[0].offset == 4


async def test_listener_commits_and_seeks(servers: str, curtail_topic: str) -> None:
    await fill(servers, curtail_topic, 10)
    at = TopicPartition(curtail_topic, 0)
    failures: list[Exception] = []
    kept: list[Rebalance] = []

    def act(kind: str, rebalance: Rebalance) -> None:
        kept.append(rebalance)
        if kind == "assigned":
            rebalance.seek(at, 7)
            assert rebalance.position(at) == 7
            wrong: list[Callable[[], object]] = [
                lambda: rebalance.seek(at, -1),
                lambda: rebalance.seek((curtail_topic, 9), 1),
                lambda: rebalance.commit({at: 1}),
            ]
        else:
            rebalance.commit({at: curtail.OffsetAndMetadata(5, metadata="half")})
            wrong = [lambda: rebalance.commit({(curtail_topic, 9): 1})]
        for call in wrong:
            with pytest.raises(curtail.IllegalStateError) as raised:
                call()
            failures.append(raised.value)

    async with member(servers, curtail_topic, listener=Recorder(act)) as consumer:
        assert (await records(consumer))[0].offset == 7
    assert len(failures) == 4
    with pytest.raises(curtail.IllegalStateError, match="has ended"):
        kept[0].position(at)
    async with member(servers, curtail_topic) as consumer:
        assert (await records(consumer))[0].offset == 5


async def test_exception_of_a_listener_is_raised_by_the_poll(
    servers: str, curtail_topic: str
) -> None:
    await fill(servers, curtail_topic, 3)
    failing = True

    def fail(kind: str, rebalance: Rebalance) -> None:
        if failing:
            raise ZeroDivisionError(kind)

    consumer = member(servers, curtail_topic, listener=Recorder(fail))
    async with asyncio.timeout(20):
        with pytest.raises(ZeroDivisionError, match="assigned"):
            await consumer.poll(3600)
        # The partitions are assigned, and the consumer continues.
        assert len(await records(consumer)) == 3
        await consumer.commit()
        with pytest.raises(ZeroDivisionError, match="revoked"):
            await consumer.close()
    assert not consumer._is_open
    failing = False
    async with member(servers, curtail_topic, listener=Recorder(fail)) as consumer:
        assert await consumer.committed((curtail_topic, 0)) == 3


async def test_listener_that_lacks_a_method_fails_the_poll(
    servers: str, curtail_topic: str
) -> None:
    consumer = member(servers, curtail_topic, listener=object())
    with pytest.raises(AttributeError, match="on_assigned"):
        async with asyncio.timeout(20):
            await consumer.poll(20)
    with pytest.raises(AttributeError, match="on_revoked"):
        await consumer.close()


async def test_listener_must_not_call_its_consumer(servers: str, curtail_topic: str) -> None:
    """The consumer waits for the method, so that such a call would wait for itself."""
    await fill(servers, curtail_topic, 3)
    refused: list[str] = []
    consumers: list[curtail.Consumer] = []

    async def call(kind: str, rebalance: Rebalance) -> None:
        [consumer] = consumers
        calls = [consumer.commit(), consumer.poll(), consumer.position((curtail_topic, 0))]
        calls += [consumer.close(), consumer.committed((curtail_topic, 0))]
        # Also in tasks of the method.
        for result in await asyncio.gather(*calls, return_exceptions=True):
            # The methods that a close calls see a closed consumer.
            if kind == "assigned" or not isinstance(result, curtail.ClosedError):
                assert isinstance(result, curtail.IllegalStateError), result
                refused.append(str(result))

    consumers.append(member(servers, curtail_topic, listener=Recorder(call)))
    async with consumers[0] as consumer:
        assert len(await records(consumer)) == 3
        # Calls of other tasks wait.
        await consumer.commit()
    assert len(refused) == 5 + 1
    assert all("use the methods of the rebalance" in text for text in refused)


async def test_cancelled_listener_ends_the_wait(servers: str, curtail_topic: str) -> None:
    await fill(servers, curtail_topic, 3)

    async def hang(kind: str, rebalance: Rebalance) -> None:
        if kind == "assigned":
            await asyncio.Event().wait()

    async with member(servers, curtail_topic, listener=Recorder(hang)) as consumer:
        polling = asyncio.create_task(consumer.poll(20))
        async with asyncio.timeout(20):
            while not consumer._methods._running:
                await asyncio.sleep(0.01)
            for task in consumer._methods._running:
                task.cancel()
            assert len(await polling) == 3


def test_closed_event_loop_ends_the_wait(servers: str, curtail_topic: str) -> None:
    """The next event loop can close the consumer, whose listener has never ended."""

    async def hang(kind: str, rebalance: Rebalance) -> None:
        if kind == "assigned":
            await asyncio.Event().wait()

    consumer = member(servers, curtail_topic, listener=Recorder(hang))

    async def begin() -> None:
        polling = asyncio.create_task(consumer.poll(20))
        async with asyncio.timeout(20):
            while not consumer._methods._running:
                await asyncio.sleep(0.01)
        polling.cancel()

    async def close() -> None:
        async with asyncio.timeout(20):
            await consumer.close()

    asyncio.run(begin())
    asyncio.run(close())


def test_rebalance_after_the_event_loop_has_ended_is_not_waited_for(
    curtail_cluster: Cluster, servers: str
) -> None:
    """One poll revokes and assigns partitions: its event loop closes between the two."""
    topic = "rebalanced-without-a-loop"
    curtail_cluster.create_topic(topic, partitions=2)
    revoked: list[Rebalance] = []

    async def hang(kind: str, rebalance: Rebalance) -> None:
        if kind == "revoked" and not revoked:
            revoked.append(rebalance)
            await asyncio.Event().wait()

    # The range assignor: a member revokes all partitions before it joins again.
    options = {"partition_assignment_strategy": "range", "heartbeat_interval_ms": 100}
    first = member(servers, topic, listener=Recorder(hang), **options)
    second = member(servers, topic, **options)
    polling: list[asyncio.Task[Any]] = []

    async def begin() -> None:
        async with asyncio.timeout(20):
            polling.append(asyncio.create_task(first.poll(3600)))
            while len(first.assignment) != 2:
                await asyncio.sleep(0.01)
            polling.append(asyncio.create_task(second.poll(3600)))
            while not revoked:
                await asyncio.sleep(0.01)

    async def close() -> None:
        async with asyncio.timeout(20):
            revoked[0]._native._end()
            while len(first.assignment) != 1:
                await asyncio.sleep(0.01)
            await asyncio.gather(first.close(), second.close())

    # Unlike `asyncio.run`, it does not cancel the polls.
    ending = asyncio.new_event_loop()
    ending.run_until_complete(begin())
    ending.close()
    asyncio.run(close())


async def test_members_hear_of_each_other(curtail_cluster: Cluster, servers: str) -> None:
    topic = "rebalanced"
    curtail_cluster.create_topic(topic, partitions=4)
    first, second = Recorder(), Recorder()
    async with member(servers, topic, listener=first) as one:
        async with member(servers, topic, listener=second) as other:
            async with asyncio.timeout(30):
                while len(one.assignment) != 2 or len(other.assignment) != 2:
                    await asyncio.gather(one.poll(0.1), other.poll(0.1))
        async with asyncio.timeout(30):
            while len(one.assignment) != 4:
                await one.poll(0.1)
    for recorder in (first, second):
        held: set[TopicPartition] = set()
        for kind, partitions in recorder.seen:
            assert held.isdisjoint(partitions) if kind == "assigned" else held >= {*partitions}
            held = held | {*partitions} if kind == "assigned" else held - {*partitions}
        assert not held
