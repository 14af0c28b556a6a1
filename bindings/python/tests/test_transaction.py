import asyncio
import contextlib
import gc
import itertools
import warnings
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import curtail_kafka as curtail
from curtail_kafka import GroupMetadata, NewRecord, TopicPartition
from curtail_kafka.admin import OffsetAndMetadata
from curtail_kafka.testing import Cluster

COMMITTED: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "isolation_level": "read_committed",
    "enable_auto_commit": False,
}
_names = itertools.count(1)


@pytest.fixture
def out(curtail_cluster: Cluster) -> str:
    """A topic for results."""
    name = f"out-{next(_names)}"
    curtail_cluster.create_topic(name)
    return name


@pytest.fixture
def name() -> str:
    """A transactional.id and group.id."""
    return f"worker-{next(_names)}"


def transactional(servers: str, name: str, **options: Any) -> curtail.TransactionalProducer:
    return curtail.TransactionalProducer(servers, transactional_id=name, **options)


def worker(servers: str, topic: str, name: str) -> curtail.Consumer:
    return curtail.Consumer(servers, topic, group_id=name, **COMMITTED)


async def fill(servers: str, topic: str, count: int) -> None:
    async with curtail.Producer(servers) as producer:
        await asyncio.gather(*(producer.send(topic, str(n)) for n in range(count)))


async def committed_values(
    servers: str, topic: str, *, is_open: bool = False
) -> list[bytes | None]:
    """The values that a reader of committed records sees, up to the end of the topic.

    While a transaction is open, up to the last stable offset.
    """
    values: list[bytes | None] = []
    at = TopicPartition(topic, 0)
    # The response to a commit may precede its markers, which advance the last stable offset.
    async with curtail.Consumer(
        servers, isolation_level="read_committed" if is_open else "read_uncommitted"
    ) as consumer:
        end = (await consumer.end_offsets([at]))[at]
    async with curtail.Consumer(servers, topic, **COMMITTED) as consumer:
        async with asyncio.timeout(20):
            while await consumer.position(at) < end:
                values += [record.value for record in await consumer.poll(0.2)]
    return values


async def load_coordinator(servers: str, name: str) -> None:
    """Creates ``__transaction_state``, which may take longer than a short ``max.block.ms``."""
    async with transactional(servers, name) as producer, producer.transaction():
        pass


async def poll(consumer: curtail.Consumer) -> curtail.Records:
    async with asyncio.timeout(20):
        while True:
            records = await consumer.poll()
            if records:
                return records


async def test_commit_makes_records_and_offsets_visible(
    servers: str, curtail_topic: str, out: str, name: str
) -> None:
    await fill(servers, curtail_topic, 3)
    async with (
        transactional(servers, name) as producer,
        worker(servers, curtail_topic, name) as consumer,
    ):
        records = await poll(consumer)
        async with producer.transaction(consumer) as tx:
            written = await tx.send(out, b"first", key="k", headers={"h": b"1"})
            assert (written.topic, written.offset) == (out, 0)
            for record in records:
                tx.send(out, record.value)
            await tx.flush()
            many = await tx.send_many(out, [NewRecord(b"x"), NewRecord(b"y")])
            assert [one.offset for one in many] == [4, 5]
            assert await committed_values(servers, out, is_open=True) == []
        assert await consumer.committed((curtail_topic, 0)) == 3
        group = consumer.group_metadata
        assert group is not None and group.group_id == name and group.member_id
    assert consumer.group_metadata is None
    assert await committed_values(servers, out) == [b"first", b"0", b"1", b"2", b"x", b"y"]


async def test_exception_aborts_and_rewinds_the_consumer(
    servers: str, curtail_topic: str, out: str, name: str
) -> None:
    await fill(servers, curtail_topic, 5)
    async with (
        transactional(servers, name) as producer,
        worker(servers, curtail_topic, name) as consumer,
    ):
        records = await poll(consumer)
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction(consumer) as tx:
                await tx.send(out, b"lost")
                tx.send(out, b"lost too")
                raise ZeroDivisionError
        assert await consumer.committed((curtail_topic, 0)) is None
        again = await poll(consumer)
        assert [one.offset for one in again] == [one.offset for one in records]
        async with producer.transaction(consumer) as tx:
            tx.send(out, b"kept")
        assert await consumer.committed((curtail_topic, 0)) == 5
    assert await committed_values(servers, out) == [b"kept"]


async def test_abort_rewinds_to_the_lowest_offset_received_after_a_seek_back(
    servers: str, curtail_topic: str, name: str
) -> None:
    await fill(servers, curtail_topic, 6)
    at = TopicPartition(curtail_topic, 0)
    async with (
        transactional(servers, name) as producer,
        curtail.Consumer(servers, group_id=name, **COMMITTED) as consumer,
    ):
        await consumer.assign([at])
        for offset in (3, 0):
            await consumer.seek(at, offset)
            assert (await poll(consumer))[0].offset == offset
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction(consumer):
                raise ZeroDivisionError
        assert (await poll(consumer))[0].offset == 0


async def test_iteration_rewinds_to_the_last_commit(
    servers: str, curtail_topic: str, out: str, name: str
) -> None:
    """Records of one poll, in a transaction each."""
    await fill(servers, curtail_topic, 6)
    failed = False
    async with (
        transactional(servers, name) as producer,
        worker(servers, curtail_topic, name) as consumer,
    ):
        async with asyncio.timeout(30):
            async for record in consumer:
                try:
                    async with producer.transaction(consumer) as tx:
                        tx.send(out, record.value)
                        if record.offset == 3 and not failed:
                            failed = True
                            raise ValueError("once")
                except ValueError:
                    continue
                assert await consumer.committed((curtail_topic, 0)) == record.offset + 1
                if record.offset == 5:
                    break
    assert await committed_values(servers, out) == [str(n).encode() for n in range(6)]


async def test_results_of_records_that_were_rewound_are_refused(
    servers: str, curtail_topic: str, out: str, name: str
) -> None:
    await fill(servers, curtail_topic, 2)
    async with (
        transactional(servers, name) as producer,
        worker(servers, curtail_topic, name) as consumer,
    ):
        await poll(consumer)
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction(consumer):
                raise ZeroDivisionError
        with pytest.raises(curtail.IllegalStateError, match="poll again"):
            async with producer.transaction(consumer) as tx:
                tx.send(out, b"again, without a poll")
        # Without results and without records, there is nothing to commit.
        async with producer.transaction(consumer):
            pass
        assert len(await poll(consumer)) == 2
    assert await committed_values(servers, out) == []


async def test_refused_record_fails_the_commit(
    servers: str, curtail_topic: str, out: str, name: str
) -> None:
    await fill(servers, curtail_topic, 2)
    async with (
        transactional(servers, name, max_request_size=1000) as producer,
        worker(servers, curtail_topic, name) as consumer,
    ):
        await poll(consumer)
        with pytest.raises(curtail.TransactionAbortableError) as raised:
            async with producer.transaction(consumer) as tx:
                tx.send(out, b"small")
                tx.send(out, bytes(5_000))
                last = tx.send(out, b"later")
        assert isinstance(raised.value.__cause__, curtail.RecordTooLargeError)
        assert raised.value.abortable and not raised.value.fatal
        assert isinstance(last.exception(), curtail.TransactionAbortableError)
        # The consumer and the producer continue.
        assert len(await poll(consumer)) == 2
        async with producer.transaction(consumer) as tx:
            tx.send(out, b"good")
    assert await committed_values(servers, out) == [b"good"]


async def test_unretrieved_failures_are_not_logged(
    servers: str, out: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with transactional(servers, name) as producer:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction() as tx:
                for _ in range(10):
                    tx.send(out, b"x")
                raise ZeroDivisionError
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_send_offsets_commits_them_with_the_records(
    servers: str, curtail_topic: str, out: str, name: str
) -> None:
    await fill(servers, curtail_topic, 4)
    at = TopicPartition(curtail_topic, 0)
    async with (
        transactional(servers, name) as producer,
        worker(servers, curtail_topic, name) as consumer,
    ):
        await poll(consumer)
        group = consumer.group_metadata
        assert group is not None
        async with producer.transaction() as tx:
            await tx.send_offsets({at: 3}, group)
            assert await consumer.position(at) == 4
        assert await consumer.committed(at) == 3
        with pytest.raises(curtail.IllegalStateError, match="negative"):
            async with producer.transaction() as tx:
                await tx.send_offsets({at: -1}, group)
        with pytest.raises(curtail.TransactionAbortableError):
            async with producer.transaction() as tx:
                await tx.send_offsets({at: 4}, group._replace(member_id="another"))
        async with producer.transaction() as tx:
            await tx.send_offsets({at: 1}, GroupMetadata(f"{name}-assigned"))
        assert await consumer.committed(at) == 3


async def test_newer_producer_fences_the_older(servers: str, out: str, name: str) -> None:
    async with transactional(servers, name) as older:
        with pytest.raises(curtail.TransactionFatalError) as raised:
            async with older.transaction() as tx:
                await tx.send(out, b"older")
                async with transactional(servers, name) as newer:
                    async with newer.transaction() as of_newer:
                        of_newer.send(out, b"newer")
        assert raised.value.fenced and raised.value.fatal
        with pytest.raises(curtail.TransactionFatalError):
            async with older.transaction():
                pytest.fail("the transaction began")
    assert await committed_values(servers, out) == [b"newer"]


Step = Callable[[curtail.Transaction, str], Awaitable[Any]]
STEPS: dict[str, Step] = {
    "send": lambda tx, out: tx.send(out, b"x"),
    "send_many": lambda tx, out: tx.send_many(out, [NewRecord(b"x")]),
    "flush": lambda tx, _: tx.flush(),
    "send_offsets": lambda tx, out: tx.send_offsets({(out, 0): 0}, GroupMetadata("g")),
    "commit": lambda tx, _: asyncio.sleep(0),
}


@pytest.mark.parametrize("step", STEPS)
async def test_cancellation_anywhere_leaves_no_trace(
    curtail_cluster: Cluster, servers: str, curtail_topic: str, out: str, name: str, step: str
) -> None:
    """Cancelled at each await, a transaction is a whole or nothing, and the next one continues."""
    count = 4
    await fill(servers, curtail_topic, count)
    async with (
        transactional(servers, name) as producer,
        worker(servers, curtail_topic, name) as consumer,
    ):
        for delay in [0.0, 0.001, 0.005, 0.02, 0.1]:
            await poll(consumer)

            async def run(value: str) -> None:
                async with producer.transaction(consumer) as tx:
                    tx.send(out, value)
                    await STEPS[step](tx, out)

            with curtail_cluster.slow(0.02):
                task = asyncio.create_task(run(f"{step} {delay}"))
                await asyncio.sleep(delay)
                task.cancel()
                await asyncio.wait([task])
            position = await consumer.position((curtail_topic, 0))
            results = await committed_values(servers, out)
            if f"{step} {delay}".encode() in results:
                assert position == count
                await fill(servers, curtail_topic, 2)
                count += 2
            else:
                assert position < count
        await poll(consumer)
        async with producer.transaction(consumer) as tx:
            tx.send(out, b"last")
        assert await consumer.committed((curtail_topic, 0)) == count
    assert (await committed_values(servers, out))[-1] == b"last"


async def test_cancelled_begin_opens_no_transaction(
    curtail_cluster: Cluster, servers: str, out: str, name: str
) -> None:
    async with transactional(servers, name) as producer:
        for delay in [0.0, 0.001, 0.01]:
            task = asyncio.create_task(producer.transaction().__aenter__())
            await asyncio.sleep(delay)
            if not task.done():
                task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                await task.result().__aexit__(None, None, None)
        async with producer.transaction() as tx:
            tx.send(out, b"x")
    assert await committed_values(servers, out) == [b"x"]


async def test_failed_begin_rewinds_the_consumer(
    servers: str, curtail_topic: str, name: str
) -> None:
    """The block does not run, so the next commit must not include the offsets of its records."""
    await fill(servers, curtail_topic, 3)
    async with worker(servers, curtail_topic, name) as consumer:
        await poll(consumer)
        unreachable = transactional("127.0.0.1:9", name, max_block_ms=100)
        with pytest.raises(curtail.TimeoutError):
            async with unreachable.transaction(consumer):
                pytest.fail("the transaction began")
        assert len(await poll(consumer)) == 3
        await unreachable.close()
        with pytest.raises(curtail.ClosedError):
            async with unreachable.transaction(consumer):
                pytest.fail("the transaction began")
        assert len(await poll(consumer)) == 3


async def test_transaction_refused_beside_an_open_one_rewinds_its_consumer(
    servers: str, curtail_topic: str, out: str, name: str
) -> None:
    """Otherwise a program that catches the error and polls on commits past these records."""
    await fill(servers, curtail_topic, 3)
    async with (
        transactional(servers, name) as producer,
        worker(servers, curtail_topic, name) as consumer,
    ):
        await poll(consumer)
        async with producer.transaction() as tx:
            with pytest.raises(curtail.IllegalStateError, match="is open"):
                async with producer.transaction(consumer):
                    pytest.fail("the transaction began")
            tx.send(out, b"of the open one")
        assert len(await poll(consumer)) == 3
    assert await committed_values(servers, out) == [b"of the open one"]


async def test_wrong_use_raises_one_clear_error(
    servers: str, curtail_topic: str, out: str, name: str
) -> None:
    with pytest.raises(curtail.ConfigError, match=r"transactional\.id"):
        curtail.TransactionalProducer(servers)
    settings: list[tuple[dict[str, Any], str]] = [
        ({}, "group_id"),
        ({"group_id": name}, "enable_auto_commit=False"),
        ({"group_id": name, "enable_auto_commit": False}, "isolation_level='read_committed'"),
    ]
    async with transactional(servers, name) as producer:
        for options, text in settings:
            async with curtail.Consumer(servers, **options) as consumer:
                with pytest.raises(curtail.ConfigError, match=text):
                    producer.transaction(consumer)
        with pytest.raises(curtail.ClosedError):
            producer.transaction(worker_that_is_closed := await closed(servers, name))
        assert not worker_that_is_closed._is_open
        with pytest.raises(TypeError):
            producer.transaction(object())  # type: ignore[arg-type]
        unbegun = producer.transaction()
        with pytest.raises(curtail.IllegalStateError, match="async with"):
            unbegun.send(out, b"x")
        async with producer.transaction() as tx:
            with pytest.raises(curtail.IllegalStateError, match="is open"):
                await producer.transaction().__aenter__()
            with pytest.raises(curtail.IllegalStateError, match="before the transaction"):
                await producer.partitions_for(out)
            with pytest.raises(TypeError):
                tx.send(out, 1)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="GroupMetadata, not str"):
                await tx.send_offsets({(out, 0): 1}, "group")  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="pairs such as"):
                await tx.send_offsets({out: 1}, GroupMetadata("group"))  # type: ignore[arg-type]
        with pytest.raises(curtail.IllegalStateError, match="has ended"):
            tx.send(out, b"x")
        with pytest.raises(curtail.IllegalStateError, match="used once"):
            await tx.__aenter__()
        assert await producer.partitions_for(out) == 1
        await producer.warm_up(out)
    with pytest.raises(curtail.ClosedError):
        await producer.transaction().__aenter__()
    await producer.close()
    assert curtail_topic


async def closed(servers: str, name: str) -> curtail.Consumer:
    async with curtail.Consumer(servers, group_id=name, **COMMITTED) as consumer:
        return consumer


async def test_closed_consumer_fails_the_commit(
    servers: str, curtail_topic: str, out: str, name: str
) -> None:
    await fill(servers, curtail_topic, 1)
    async with transactional(servers, name) as producer:
        consumer = worker(servers, curtail_topic, name)
        await poll(consumer)
        with pytest.raises(curtail.ClosedError):
            async with producer.transaction(consumer) as tx:
                tx.send(out, b"x")
                await consumer.close()
    assert await committed_values(servers, out) == []


async def test_close_aborts_an_open_transaction(
    servers: str, curtail_topic: str, out: str, name: str
) -> None:
    await fill(servers, curtail_topic, 2)
    producer = transactional(servers, name)
    async with worker(servers, curtail_topic, name) as consumer:
        await poll(consumer)
        with pytest.raises(curtail.ClosedError):
            async with producer.transaction(consumer) as tx:
                await tx.send(out, b"x")
                await producer.close()
        assert len(await poll(consumer)) == 2
    assert await committed_values(servers, out) == []


@pytest.mark.curtail(brokers=1)
async def test_consumer_closes_before_its_producer_while_no_broker_responds(
    curtail_cluster: Cluster, servers: str, curtail_topic: str, out: str, name: str
) -> None:
    """Its close does not wait for the outcome of a commit, which only the producer's close ends."""
    await fill(servers, curtail_topic, 3)
    await load_coordinator(servers, name)
    producer = transactional(servers, name, max_block_ms=500)
    consumer = curtail.Consumer(
        servers, curtail_topic, group_id=name, default_api_timeout_ms=500, **COMMITTED
    )
    await poll(consumer)
    tx = await producer.transaction(consumer).__aenter__()
    await tx.send(out, b"x")
    with curtail_cluster.frozen(1):
        ending = asyncio.create_task(tx.__aexit__(None, None, None))
        await asyncio.sleep(0)
        ending.cancel()
        await asyncio.wait([ending])
        async with asyncio.timeout(20):
            await consumer.close()
    with contextlib.suppress(curtail.Error):
        await producer.close()


@pytest.mark.curtail(brokers=1)
async def test_unknown_outcome_waits_for_the_committed_offsets(
    curtail_cluster: Cluster, servers: str, curtail_topic: str, out: str, name: str
) -> None:
    """A failed lookup does not mean that the group has no offsets: records would come twice."""
    await fill(servers, curtail_topic, 3)
    at = TopicPartition(curtail_topic, 0)
    offset_fetch, end_txn = 9, 26
    await load_coordinator(servers, name)
    producer = transactional(servers, name, max_block_ms=500)
    settings: dict[str, Any] = {
        "fetch_max_wait_ms": 100,
        "request_timeout_ms": 300,
        "default_api_timeout_ms": 500,
    }
    async with curtail.Consumer(
        servers, curtail_topic, group_id=name, **settings, **COMMITTED
    ) as consumer:
        await poll(consumer)
        tx = await producer.transaction(consumer).__aenter__()
        await tx.send(out, b"x")
        # The commit is applied, and its response does not arrive.
        with curtail_cluster.slow(60, api=offset_fetch):
            with curtail_cluster.slow(60, api=end_txn):
                ending = asyncio.create_task(tx.__aexit__(None, None, None))
                await asyncio.sleep(0)
                with contextlib.suppress(curtail.Error):
                    await producer.close()
                assert isinstance(await outcome(ending), curtail.TimeoutError)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2):
                    await consumer.position(at)
        async with asyncio.timeout(20):
            assert await consumer.position(at) == 3
        assert not await consumer.poll(0.2)
    assert await committed_values(servers, out) == [b"x"]


async def outcome(task: asyncio.Task[Any]) -> object:
    """The task's result, or its exception."""
    await asyncio.wait([task])
    return task.exception() or task.result()


async def test_second_close_waits_for_the_first(
    curtail_cluster: Cluster, servers: str, out: str, name: str
) -> None:
    producer = transactional(servers, name)
    tx = await producer.transaction().__aenter__()
    await tx.send(out, b"x")
    with curtail_cluster.slow(0.3):
        first = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        await producer.close()
        assert first.done()
    await producer.close()


@pytest.mark.parametrize("to", ["end", "beginning", datetime.now(UTC) + timedelta(days=1)])
async def test_seek_in_a_block_keeps_the_offsets_of_received_records(
    servers: str, curtail_topic: str, out: str, name: str, to: Any
) -> None:
    await fill(servers, curtail_topic, 5)
    at = TopicPartition(curtail_topic, 0)
    async with (
        transactional(servers, name) as producer,
        worker(servers, curtail_topic, name) as consumer,
    ):
        assert len(await poll(consumer)) == 5
        async with producer.transaction(consumer) as tx:
            tx.send(out, b"of five records")
            await consumer.seek(at, to)
        assert await consumer.committed(at) == 5


async def test_abort_rewinds_to_the_last_commit_of_the_consumer(
    servers: str, curtail_topic: str, name: str
) -> None:
    await fill(servers, curtail_topic, 6)
    async with (
        transactional(servers, name) as producer,
        curtail.Consumer(
            servers, curtail_topic, group_id=name, max_poll_records=2, **COMMITTED
        ) as consumer,
    ):
        assert [one.offset for one in await poll(consumer)] == [0, 1]
        await consumer.commit()
        for _ in range(2):
            assert [one.offset for one in await poll(consumer)] == [2, 3]
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction(consumer):
                    raise ZeroDivisionError
        assert [one.offset for one in await poll(consumer)] == [2, 3]
        assert [one.offset for one in await poll(consumer)] == [4, 5]
        await consumer.commit({(curtail_topic, 0): 5})
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction(consumer):
                raise ZeroDivisionError
        assert [one.offset for one in await poll(consumer)] == [5]
        # All that was received is committed: nothing is left to rewind.
        await consumer.commit()
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction(consumer):
                raise ZeroDivisionError
        assert not await consumer.poll(0.2)


async def test_offsets_have_metadata(servers: str, curtail_topic: str, name: str) -> None:
    at = TopicPartition(curtail_topic, 0)
    await fill(servers, curtail_topic, 3)
    async with (
        transactional(servers, name) as producer,
        worker(servers, curtail_topic, name) as consumer,
        curtail.Admin(servers) as admin,
    ):
        await poll(consumer)
        group = consumer.group_metadata
        assert group is not None
        offset = OffsetAndMetadata(2, metadata="two of three")
        async with producer.transaction() as tx:
            await tx.send_offsets({at: offset}, group)
        assert (await admin.list_group_offsets([name]))[name] == {at: offset}
        offset = OffsetAndMetadata(1, leader_epoch=0, metadata="by the consumer")
        await consumer.commit({at: offset})
        assert (await admin.list_group_offsets([name]))[name] == {at: offset}
        wrong = "offsets must be int or OffsetAndMetadata each, not str"
        with pytest.raises(TypeError, match=wrong):
            await consumer.commit({at: "3"})  # type: ignore[arg-type]
        async with producer.transaction() as tx:
            with pytest.raises(TypeError, match=wrong):
                await tx.send_offsets({at: "3"}, group)  # type: ignore[arg-type]


async def test_unclosed_producer_warns(servers: str, name: str) -> None:
    # Garbage of earlier tests may warn, too.
    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        transactional(servers, name)
        gc.collect()
    (warned,) = (str(one.message) for one in caught)
    assert "unclosed transactional producer" in warned


async def test_revoked_partitions_abort_their_results(
    curtail_cluster: Cluster, servers: str, out: str, name: str
) -> None:
    """Another member takes partitions whose records were received: their results must not count."""
    topic = f"shared-{name}"
    curtail_cluster.create_topic(topic, partitions=2)
    async with curtail.Producer(servers) as feeder:
        for n in range(2):
            await feeder.send(topic, str(n), partition=n)
    async with (
        transactional(servers, name) as producer,
        worker(servers, topic, name) as consumer,
    ):
        seen: set[int] = set()
        async with asyncio.timeout(30):
            while len(seen) < 2:
                seen |= {record.partition for record in await consumer.poll()}
        with pytest.raises(curtail.CommitFailedError, match="revoked"):
            async with producer.transaction(consumer) as tx:
                tx.send(out, b"of both partitions")
                async with worker(servers, topic, name) as other, asyncio.timeout(60):
                    while not other.assignment or len(consumer.assignment) == 2:
                        await asyncio.gather(consumer.poll(0.1), other.poll(0.1))
    assert await committed_values(servers, out) == []


# With the default of 9 s, each fault would last as long.
@pytest.mark.curtail(
    config={"broker.session.timeout.ms": 1_000, "broker.heartbeat.interval.ms": 200}
)
@pytest.mark.parametrize("fault", ["kill", "frozen"])
async def test_transactions_survive_a_broker(
    curtail_cluster: Cluster, servers: str, curtail_topic: str, out: str, name: str, fault: str
) -> None:
    """Copies records while each broker in turn fails: every record arrives once."""
    count = 1_000
    await fill(servers, curtail_topic, count)
    copied = 0

    async def copy() -> None:
        nonlocal copied
        async with (
            transactional(servers, name) as producer,
            curtail.Consumer(
                servers, curtail_topic, group_id=name, max_poll_records=5, **COMMITTED
            ) as consumer,
        ):
            while copied < count:
                try:
                    records = await consumer.poll()
                    async with producer.transaction(consumer) as tx:
                        for record in records:
                            tx.send(out, record.value)
                except curtail.Error as error:
                    if error.fatal:
                        raise
                    continue
                copied += len(records)

    async def until(target: int) -> None:
        while copied < target and not copying.done():
            await asyncio.sleep(0.001)

    copying = asyncio.create_task(copy())
    async with asyncio.timeout(90):
        for broker in curtail_cluster.broker_ids:
            await until(broker * 200)
            assert not copying.done()
            if fault == "kill":
                curtail_cluster.kill(broker)
                await until(broker * 200 + 50)
                await curtail_cluster.restart(broker)
            else:
                with curtail_cluster.frozen(broker):
                    await until(broker * 200 + 50)
            await curtail_cluster.settled()
        await copying
    values = [int(value or b"") for value in await committed_values(servers, out)]
    assert sorted(values) == list(range(count))
