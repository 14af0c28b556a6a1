"""Sends whose outcomes are reported together, and views of records."""

import asyncio
import itertools
import time

import pytest
from eventloop import assert_loop_runs, watched_loop

import curtail_kafka as curtail
from curtail_kafka.testing import Cluster

# The API key of Produce.
PRODUCE = 0


async def values(servers: str, topic: str) -> list[bytes | None]:
    stream = await asyncio.to_thread(curtail.scan, servers, topic, columns=["value"])
    table = await asyncio.to_thread(stream.to_arrow)
    found: list[bytes | None] = table.column("value").to_pylist()
    return found


async def test_pipeline_delivers_in_order(servers: str, curtail_topic: str) -> None:
    async with curtail.Producer(servers) as producer:
        async with watched_loop() as gaps, producer.pipeline() as pipeline:
            for n in range(20_000):
                await pipeline.send(curtail_topic, b"%d" % n, key="k", headers={"h": b"1"})
        assert (pipeline.delivered, pipeline.failed) == (20_000, 0)
        with pytest.raises(curtail.IllegalStateError, match="inside its 'async with' block"):
            await pipeline.send(curtail_topic, b"late")
    assert_loop_runs(gaps)
    assert await values(servers, curtail_topic) == [b"%d" % n for n in range(20_000)]


async def test_pipeline_waits_for_room(
    curtail_cluster: Cluster, servers: str, curtail_topic: str
) -> None:
    async with curtail.Producer(servers) as producer, producer.pipeline(limit=10) as pipeline:
        await producer.warm_up(curtail_topic)
        leader = curtail_cluster.leader(curtail_topic, 0)
        assert leader is not None
        with curtail_cluster.slow(0.3):
            for _ in range(10):
                await pipeline.send(curtail_topic, b"x")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await pipeline.send(curtail_topic, b"cancelled")
            await pipeline.send(curtail_topic, b"last")
    assert pipeline.delivered == 11
    assert await values(servers, curtail_topic) == [*[b"x"] * 10, b"last"]


async def test_pipeline_waits_for_memory(servers: str, curtail_topic: str) -> None:
    """More than the 32 MiB that `send` accepts."""
    async with (
        curtail.Producer(servers, buffer_memory=1 << 20) as producer,
        producer.pipeline() as pipeline,
    ):
        for _ in range(50):
            # Iterated once, although the record may be offered several times.
            headers = iter([("h", b"1")])
            await pipeline.send(curtail_topic, bytes(900_000), headers=headers)
    assert pipeline.delivered == 50
    async with curtail.Consumer(servers, curtail_topic, auto_offset_reset="earliest") as consumer:
        read = 0
        while read < 50:
            for record in await consumer.poll():
                assert list(record.headers) == [("h", b"1")]
                read += 1


async def test_calls_that_wait_keep_their_order(servers: str, curtail_topic: str) -> None:
    async with curtail.Producer(servers) as producer, producer.pipeline(limit=4) as pipeline:
        tasks = [
            asyncio.ensure_future(pipeline.send(curtail_topic, b"%d" % n, key="k"))
            for n in range(100)
        ]
        await asyncio.sleep(0)
        # Calls that stop waiting leave their places.
        for task in tasks[50:60]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    sent = [b"%d" % n for n, task in enumerate(tasks) if not task.cancelled()]
    assert 90 <= len(sent) < 100 and pipeline.delivered == len(sent)
    assert await values(servers, curtail_topic) == sent


async def test_tasks_that_waited_do_not_wait_for_each_record(
    servers: str, curtail_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with curtail.Producer(servers) as producer, producer.pipeline(limit=100) as pipeline:
        wait, waits = pipeline._line.wait, itertools.count()

        async def counted(*record: object) -> None:
            next(waits)
            await wait(*record)

        monkeypatch.setattr(pipeline._line, "wait", counted)

        async def sender() -> None:
            for n in range(2_000):
                await pipeline.send(curtail_topic, b"%d" % n)

        await asyncio.gather(sender(), sender())
    assert pipeline.delivered == 4_000
    assert 0 < next(waits) < 2_000


async def test_calls_keep_their_order_when_the_loop_gets_a_turn(
    servers: str, curtail_topic: str
) -> None:
    async with curtail.Producer(servers) as producer, producer.pipeline() as pipeline:

        async def later() -> None:
            third.append(asyncio.create_task(pipeline.send(curtail_topic, b"3", key="k")))

        third: list[asyncio.Task[None]] = []
        # The turn is over: the first two calls let the loop run.
        pipeline._pace._ends = 0.0
        first = asyncio.create_task(pipeline.send(curtail_topic, b"1", key="k"))
        between = asyncio.create_task(later())
        second = asyncio.create_task(pipeline.send(curtail_topic, b"2", key="k"))
        await asyncio.gather(first, between, second)
        await asyncio.gather(*third)
    assert await values(servers, curtail_topic) == [b"1", b"2", b"3"]


async def test_records_that_wait_for_a_broker_do_not_stop_others(
    curtail_cluster: Cluster, servers: str
) -> None:
    topic = f"pipeline-{time.time_ns()}"
    curtail_cluster.create_topic(topic, 3)
    leaders = [curtail_cluster.leader(topic, partition) for partition in range(3)]
    other = next(n for n in range(3) if leaders[n] != leaders[0])
    async with (
        # The delayed response holds the requests behind it until then.
        curtail.Producer(servers, request_timeout_ms=1_000) as producer,
        producer.pipeline(limit=8) as pipeline,
    ):
        for partition in (0, other):
            await pipeline.send(topic, b"first", partition=partition)
        await producer.flush()
        with curtail_cluster.slow(60, broker=leaders[0], api=PRODUCE):
            for _ in range(7):
                await pipeline.send(topic, b"stuck", partition=0)
            async with asyncio.timeout(30):
                for _ in range(20):
                    await pipeline.send(topic, b"free", partition=other)
        await curtail_cluster.heal()
    assert pipeline.delivered == 29


async def test_calls_of_an_ended_block_do_not_send_in_the_next_one(
    servers: str, curtail_topic: str
) -> None:
    # The first record occupies the pipeline until the end of the block, which flushes.
    async with curtail.Producer(servers, linger_ms=60_000) as producer:
        pipeline = producer.pipeline(limit=1)
        async with pipeline:
            await pipeline.send(curtail_topic, b"1")
            late = [asyncio.ensure_future(pipeline.send(curtail_topic, b"late")) for _ in range(5)]
            await asyncio.sleep(0)
        async with pipeline:
            await pipeline.send(curtail_topic, b"2")
            outcomes = await asyncio.gather(*late, return_exceptions=True)
        assert all(isinstance(one, curtail.IllegalStateError) for one in outcomes)
    assert await values(servers, curtail_topic) == [b"1", b"2"]


async def test_a_failed_batch_is_one_exception(
    curtail_cluster: Cluster, curtail_topic: str
) -> None:
    async with curtail.Producer(
        curtail_cluster.bootstrap_servers,
        linger_ms=100,
        request_timeout_ms=200,
        delivery_timeout_ms=400,
    ) as producer:
        await producer.warm_up(curtail_topic)
        failed: list[int] = []
        async with asyncio.timeout(20):
            # A pause longer than linger.ms between two sends divides the records into two batches.
            while failed != [10]:
                with (
                    pytest.raises(ExceptionGroup, match="10 records were not ack") as raised,
                    curtail_cluster.slow(30, api=PRODUCE),
                ):
                    async with producer.pipeline() as pipeline:
                        for n in range(10):
                            await pipeline.send(curtail_topic, b"%d" % n, partition=0)
                errors = raised.value.exceptions
                assert all(isinstance(error, curtail.NotAcknowledgedError) for error in errors)
                # The exception of a single record has no note.
                notes = [getattr(error, "__notes__", ["1 records"]) for error in errors]
                assert all(note.endswith(" records") for (note,) in notes)
                failed = [int(note.split()[0]) for (note,) in notes]
                assert sum(failed) == 10
                assert (pipeline.delivered, pipeline.failed) == (0, 10)


async def test_send_that_waits_at_the_end_of_its_block_is_refused(
    servers: str, curtail_topic: str
) -> None:
    # The first record occupies the pipeline until the end of the block, which flushes.
    async with curtail.Producer(servers, linger_ms=60_000) as producer:
        async with producer.pipeline(limit=1) as pipeline:
            await pipeline.send(curtail_topic, b"1")
            late = asyncio.ensure_future(pipeline.send(curtail_topic, b"2"))
            await asyncio.sleep(0)
        with pytest.raises(curtail.IllegalStateError, match="block"):
            await late
        assert (pipeline.delivered, pipeline.failed) == (1, 0)


async def test_pipeline_raises_failures_together(servers: str, curtail_topic: str) -> None:
    async with curtail.Producer(servers) as producer:
        with pytest.raises(ExceptionGroup, match="150 records were not acknowledged") as raised:
            async with producer.pipeline() as pipeline:
                for n in range(300):
                    await pipeline.send(curtail_topic, bytes(2_000_000 if n % 2 else 10))
        assert (pipeline.delivered, pipeline.failed) == (150, 150)
        assert len(raised.value.exceptions) == 100
        assert all(isinstance(e, curtail.RecordTooLargeError) for e in raised.value.exceptions)
        with pytest.raises(ZeroDivisionError) as failed:
            async with producer.pipeline() as pipeline:
                await pipeline.send(curtail_topic, bytes(2_000_000))
                raise ZeroDivisionError
        assert failed.value.__notes__ == ["1 records were not acknowledged"]
        with pytest.raises(curtail.ConfigError, match="limit=0: must be at least 1"):
            producer.pipeline(0)
        async with producer.pipeline(1) as pipeline:
            with pytest.raises(TypeError, match="value must be a bytes-like object"):
                await pipeline.send(curtail_topic, 1)  # type: ignore[arg-type]
            # The refused record has left its room.
            await pipeline.send(curtail_topic, b"x")


async def test_views_of_records_are_not_copies(servers: str, curtail_topic: str) -> None:
    async with curtail.Producer(servers) as producer:
        await producer.send(curtail_topic, bytes(range(100)), key=b"key")
        await producer.send(curtail_topic)
    async with curtail.Consumer(servers, curtail_topic, auto_offset_reset="earliest") as consumer:
        records: list[curtail.Record] = []
        async with asyncio.timeout(20):
            while len(records) < 2:
                records += await consumer.poll()
    first, empty = records
    view = first.value_view
    assert view is not None and first.key_view is not None
    assert bytes(view) == first.value == bytes(range(100))
    assert bytes(first.key_view) == b"key"
    assert view.readonly and view.format == "B" and view.contiguous
    with pytest.raises(TypeError):
        view[0] = 1
    assert (empty.key_view, empty.value_view) == (None, None)
    # A view keeps the bytes, without the record.
    part = view[10:20]
    del first, records, view
    assert bytes(part) == bytes(range(10, 20))
