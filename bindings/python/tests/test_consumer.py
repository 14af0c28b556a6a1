import asyncio
import itertools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import curtail_kafka as curtail
from curtail_kafka import OffsetAndTimestamp, TopicPartition
from curtail_kafka._offset import milliseconds
from curtail_kafka.testing import Cluster

EARLIEST: dict[str, Any] = {"auto_offset_reset": "earliest"}


async def produce(servers: str, topic: str, count: int, first: int = 0) -> None:
    async with curtail.Producer(servers) as producer:
        sent = [producer.send(topic, str(first + n)) for n in range(count)]
        await asyncio.gather(*sent)


async def read(consumer: curtail.Consumer, count: int) -> list[int]:
    values: list[int] = []
    async with asyncio.timeout(20):
        while len(values) < count:
            values += [int(record.value or b"") for record in await consumer.poll()]
    return values


async def test_records_come_back_with_keys_and_headers(servers: str, curtail_topic: str) -> None:
    async with curtail.Producer(servers) as producer:
        pairs = [("a", b"1"), ("b", None), ("a", "2")]
        await producer.send(curtail_topic, b"v\x00", key="k", headers=pairs, timestamp=1_234_567)
        await producer.send(curtail_topic, None, headers={"m": bytearray(b"x")})
        await producer.send(curtail_topic, "ü", key=b"")
    async with curtail.Consumer(servers, curtail_topic, **EARLIEST) as consumer:
        records = [await anext(aiter(consumer)) for _ in range(3)]
        first, second, third = records
        assert (first.topic, first.partition, first.offset) == (curtail_topic, 0, 0)
        assert (first.key, first.value, first.timestamp) == (b"k", b"v\x00", 1_234_567)
        headers = first.headers
        assert list(headers) == [("a", b"1"), ("b", None), ("a", b"2")]
        assert headers.get("a") == b"2" and headers.get("c") is None
        assert headers.get_all("a") == [b"1", b"2"]
        assert (second.key, second.value, second.headers) == (None, None, (("m", b"x"),))
        assert (third.key, third.value, third.headers) == (b"", "ü".encode(), ())
        assert repr(first).endswith(r"offset=0, key=b'k', value=b'v\x00')")


async def test_records_are_a_sequence(servers: str, curtail_topic: str) -> None:
    await produce(servers, curtail_topic, 10)
    async with curtail.Consumer(servers, curtail_topic, **EARLIEST) as consumer:
        records = await consumer.poll(10)
        assert isinstance(records, Sequence) and len(records) == 10
        assert [record.offset for record in records] == list(range(10))
        assert records[-1].offset == 9
        assert [record.offset for record in records[2:8:3]] == [2, 5]
        assert records[::-1][0].offset == 9
        with pytest.raises(IndexError):
            _ = records[10]
        assert not await consumer.poll(0)


async def test_a_batch_that_is_too_large_names_its_kind(servers: str, curtail_topic: str) -> None:
    large: dict[str, Any] = {"compression_type": "gzip", "max_request_size": 4 << 20}
    async with curtail.Producer(servers, **large) as producer:
        await producer.send(curtail_topic, bytes(2 << 20))
        await producer.send(curtail_topic, "after")
    small: dict[str, Any] = {"curtail_decompressed_batch_max_bytes": 1 << 20}
    async with curtail.Consumer(servers, curtail_topic, **EARLIEST, **small) as consumer:
        with pytest.raises(curtail.CorruptError) as raised:
            await consumer.poll()
        error = raised.value
        assert (error.topic, error.offset, error.next_offset) == (curtail_topic, 0, 1)
        assert error.problem == "too-large"
        await consumer.seek((curtail_topic, 0), 1)
        assert (await consumer.poll())[0].value == b"after"


async def test_iteration_returns_every_record_once(servers: str, curtail_topic: str) -> None:
    await produce(servers, curtail_topic, 2_000)
    seen: list[int] = []
    async with curtail.Consumer(servers, curtail_topic, **EARLIEST) as consumer:
        async for record in consumer:
            seen.append(record.offset)
            if len(seen) == 700:
                break
        # A poll continues within the chunk.
        rest = await consumer.poll()
        assert rest[0].offset == 700
        seen += [one.offset for one in rest]
        async for records in consumer.polls():
            seen += [one.offset for one in records]
            if len(seen) >= 2_000:
                break
    assert seen == list(range(2_000))


async def test_iteration_lets_other_tasks_run(servers: str, curtail_topic: str) -> None:
    await produce(servers, curtail_topic, 20)
    loop = asyncio.get_running_loop()
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0)

    async with curtail.Consumer(servers, curtail_topic, **EARLIEST) as consumer:
        await consumer.seek((curtail_topic, 0), 0)
        beating = asyncio.create_task(beat())
        seen = []
        async for record in consumer:
            seen.append(beats)
            # Work of more than a millisecond.
            until = loop.time() + 0.0011
            while loop.time() < until:
                pass
            if record.offset == 19:
                break
        beating.cancel()
    assert all(before < after for before, after in itertools.pairwise(seen))


async def test_cancelled_poll_loses_no_records(servers: str, curtail_topic: str) -> None:
    async with curtail.Consumer(servers, curtail_topic, **EARLIEST) as consumer:
        writing = asyncio.create_task(produce(servers, curtail_topic, 3_000))
        seen: list[int] = []
        cancelled = 0
        async with asyncio.timeout(30):
            while len(seen) < 3_000:
                poll = asyncio.create_task(consumer.poll())
                for _ in range(len(seen) % 4):
                    await asyncio.sleep(0)
                if not poll.done():
                    await asyncio.sleep(0.0005)
                poll.cancel()
                try:
                    seen += [int(one.value or b"") for one in await poll]
                except asyncio.CancelledError:
                    cancelled += 1
        await writing
    assert seen == list(range(3_000))
    assert cancelled > 0


async def test_result_that_is_cancelled_before_it_is_received_is_kept(
    servers: str, curtail_topic: str
) -> None:
    await produce(servers, curtail_topic, 10)
    async with curtail.Consumer(servers, curtail_topic, **EARLIEST) as consumer:
        await consumer.seek((curtail_topic, 0), 0)
        poll = asyncio.create_task(consumer.poll(10))
        while not consumer._has_records:
            await asyncio.sleep(0)
        # The records are there, and the task has not run since.
        poll.cancel()
        with pytest.raises(asyncio.CancelledError):
            await poll
        assert await consumer.position((curtail_topic, 0)) == 0
        assert await read(consumer, 10) == list(range(10))


async def test_commit_counts_only_records_that_were_received(
    servers: str, curtail_topic: str
) -> None:
    await produce(servers, curtail_topic, 10)
    partition = TopicPartition(curtail_topic, 0)
    settings: dict[str, Any] = {**EARLIEST, "group_id": f"g-{curtail_topic}"}
    settings["enable_auto_commit"] = False
    async with curtail.Consumer(servers, curtail_topic, **settings) as consumer:
        async for record in consumer:
            if record.offset == 3:
                break
        await consumer.commit()
        assert await consumer.committed(partition) == 4
        assert await consumer.position(partition) == 4
    async with curtail.Consumer(servers, curtail_topic, **settings) as consumer:
        assert await read(consumer, 6) == [4, 5, 6, 7, 8, 9]
        await consumer.commit({partition: 7})
        assert await consumer.committed(partition) == 7


async def test_close_commits_only_records_that_were_received(
    servers: str, curtail_topic: str
) -> None:
    await produce(servers, curtail_topic, 10)
    settings: dict[str, Any] = {**EARLIEST, "group_id": f"g-{curtail_topic}"}
    async with curtail.Consumer(servers, curtail_topic, **settings) as consumer:
        async for record in consumer:
            if record.offset == 3:
                break
    async with curtail.Consumer(servers, curtail_topic, **settings) as consumer:
        assert await consumer.committed((curtail_topic, 0)) == 4
        assert await read(consumer, 6) == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("iterate", [True, False])
async def test_exception_rewinds_what_was_received_last(
    servers: str, curtail_topic: str, iterate: bool
) -> None:
    await produce(servers, curtail_topic, 10)
    settings: dict[str, Any] = {**EARLIEST, "group_id": f"g-{curtail_topic}"}
    with pytest.raises(ZeroDivisionError):
        async with curtail.Consumer(servers, curtail_topic, **settings) as consumer:
            if iterate:
                async for record in consumer:
                    1 // (3 - record.offset)
            async for records in consumer.polls():
                1 // (len(records) - 10)
    async with curtail.Consumer(servers, curtail_topic, **settings) as consumer:
        first = 3 if iterate else 0
        assert await read(consumer, 10 - first) == list(range(first, 10))


async def test_seek_goes_to_offsets_times_and_names(servers: str, curtail_topic: str) -> None:
    async with curtail.Producer(servers) as producer:
        for n in range(10):
            await producer.send(curtail_topic, str(n), timestamp=1_000_000 + n * 1000)
    partition = TopicPartition(curtail_topic, 0)
    settings: dict[str, Any] = {**EARLIEST, "group_id": f"g-{curtail_topic}"}
    async with curtail.Consumer(servers, **settings) as consumer:
        await consumer.assign([partition])
        assert consumer.assignment == {partition}
        assert await read(consumer, 10) == list(range(10))
        await consumer.seek(partition, 8)
        assert await read(consumer, 2) == [8, 9]
        await consumer.seek(partition, datetime.fromtimestamp(1005, UTC))
        assert await read(consumer, 5) == [5, 6, 7, 8, 9]
        await consumer.seek(partition, "beginning")
        async for record in consumer:
            assert record.offset == 0
            break
        # The rest of the chunk is not returned after a seek.
        await consumer.seek(partition, "end")
        assert not await consumer.poll(0.2)
        await consumer.commit({partition: 9})
        await consumer.seek(partition, "committed")
        assert await read(consumer, 1) == [9]
        with pytest.raises(curtail.IllegalStateError):
            await consumer.seek(partition, "middle")  # type: ignore[arg-type]
        with pytest.raises(curtail.IllegalStateError):
            await consumer.seek((curtail_topic, 5), 0)
        assert await consumer.beginning_offsets([partition]) == {partition: 0}
        assert await consumer.end_offsets([partition]) == {partition: 10}


async def test_paused_partition_returns_no_records(curtail_cluster: Cluster, servers: str) -> None:
    curtail_cluster.create_topic("paused", partitions=2)
    async with curtail.Producer(servers) as producer:
        for n in range(20):
            await producer.send("paused", str(n), partition=n % 2)
    async with curtail.Consumer(servers, "paused", **EARLIEST) as consumer:
        record = await anext(aiter(consumer))
        other = TopicPartition("paused", 1 - record.partition)
        await consumer.pause((record.topic, record.partition))
        assert consumer.paused == {("paused", record.partition)}
        seen = await read(consumer, 10)
        assert all(n % 2 == other.partition for n in seen)
        assert not await consumer.poll(0.2)
        await consumer.resume(*consumer.paused)
        # From the first record that the program has not received.
        assert len(await read(consumer, 9)) == 9


async def test_members_of_a_group_share_partitions(curtail_cluster: Cluster, servers: str) -> None:
    curtail_cluster.create_topic("shared", partitions=4)
    settings: dict[str, Any] = {**EARLIEST, "group_id": "sharing"}
    async with curtail.Consumer(servers, "shared", **settings) as first:
        async with curtail.Consumer(servers, **settings) as second:
            await second.subscribe("shared")
            async with asyncio.timeout(20):
                while len(first.assignment) != 2 or len(second.assignment) != 2:
                    await asyncio.gather(first.poll(0.1), second.poll(0.1))
            assert first.assignment | second.assignment == {("shared", n) for n in range(4)}
        async with asyncio.timeout(20):
            while len(first.assignment) != 4:
                await first.poll(0.1)


async def test_commit_ignores_partitions_that_were_revoked(
    curtail_cluster: Cluster, servers: str
) -> None:
    curtail_cluster.create_topic("revoked", partitions=2)
    async with curtail.Producer(servers) as producer:
        for n in range(20):
            await producer.send("revoked", str(n), partition=n % 2)
    settings: dict[str, Any] = {**EARLIEST, "group_id": "revoking", "enable_auto_commit": False}
    async with curtail.Consumer(servers, "revoked", **settings) as first:
        assert len(await read(first, 20)) == 20
        async with curtail.Consumer(servers, "revoked", **settings) as second:
            async with asyncio.timeout(20):
                while not second.assignment:
                    await asyncio.gather(first.poll(0.1), second.poll(0.1))
            (moved,) = second.assignment
            # The first member committed nothing, so the second one begins at the start.
            await second.commit({moved: 3})
            await first.commit()
            (kept,) = first.assignment
            assert await first.committed(kept) == 10
            assert await first.committed(moved) == 3


async def test_closed_consumer_refuses_calls(servers: str, curtail_topic: str) -> None:
    consumer = curtail.Consumer(servers, curtail_topic)
    waiting = asyncio.create_task(consumer.poll(10))
    await asyncio.sleep(0.05)
    await consumer.close()
    with pytest.raises(curtail.ClosedError):
        await waiting
    with pytest.raises(curtail.ClosedError):
        await consumer.poll()
    with pytest.raises(curtail.ClosedError):
        await consumer.commit()
    await consumer.close()


async def test_second_close_waits_for_the_first(
    curtail_cluster: Cluster, servers: str, curtail_topic: str
) -> None:
    consumer = curtail.Consumer(servers, curtail_topic, group_id=f"g-{curtail_topic}")
    async with asyncio.timeout(20):
        while not consumer.assignment:
            await consumer.poll(0.1)
    with curtail_cluster.slow(0.3):
        first = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        await consumer.close()
        assert first.done()
    await consumer.close()


async def test_member_that_leaves_while_it_joins_delays_nobody(
    servers: str, curtail_topic: str
) -> None:
    """A coordinator waits up to `session.timeout.ms` for members that do not finish their joins."""
    group = f"g-{curtail_topic}"
    consumer = curtail.Consumer(servers, group_id=group)
    async with asyncio.timeout(20):
        for _ in range(100):
            await consumer.subscribe(curtail_topic)
            await consumer.unsubscribe()
        await consumer.close()
        async with curtail.Consumer(servers, curtail_topic, group_id=group) as other:
            while not other.assignment:
                await other.poll(0.1)


async def test_unreachable_brokers_raise_connection_error() -> None:
    with pytest.raises(ConnectionError):
        async with curtail.Consumer("127.0.0.1:9", "t"):
            pass


async def test_commit_without_a_group_is_an_error(servers: str, curtail_topic: str) -> None:
    async with curtail.Consumer(servers, curtail_topic) as consumer:
        with pytest.raises(curtail.IllegalStateError):
            await consumer.commit({(curtail_topic, 0): 1})


async def test_lag_counts_from_the_records_that_were_received(
    servers: str, curtail_topic: str
) -> None:
    await produce(servers, curtail_topic, 10)
    partition = TopicPartition(curtail_topic, 0)
    async with curtail.Consumer(servers, **EARLIEST) as consumer:
        with pytest.raises(curtail.IllegalStateError, match="not assigned"):
            await consumer.lag(partition)
        await consumer.assign([partition])
        # There may be no response so far.
        assert await consumer.lag(partition) in (None, 10)
        async for record in consumer:
            # The rest of the poll has not been received.
            assert await consumer.lag(partition) == 9 - record.offset
            if record.offset == 3:
                break
        assert await read(consumer, 6) == [4, 5, 6, 7, 8, 9]
        assert await consumer.lag(partition) == 0


def test_times_become_milliseconds_without_floats() -> None:
    # `timestamp() * 1000` is 1000.9999999999999 here.
    assert milliseconds(datetime.fromtimestamp(1.001, UTC)) == 1_001
    assert milliseconds(datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)) == 0
    local = datetime(2026, 1, 1, 12, 0, 0, 1)
    assert milliseconds(local) == int(local.replace(microsecond=0).timestamp()) * 1000 + 1


async def test_offsets_are_found_by_time(servers: str, curtail_topic: str) -> None:
    partition = TopicPartition(curtail_topic, 0)
    async with curtail.Producer(servers) as producer:
        for n in range(5):
            await producer.send(curtail_topic, b"x", timestamp=1_000 + n * 100)
    async with curtail.Consumer(servers, **EARLIEST) as consumer:
        found = await consumer.offsets_for_times({partition: 1_150})
        assert found == {partition: OffsetAndTimestamp(2, 1_200)}
        at = found[partition]
        assert at is not None and (at.offset, at.timestamp) == (2, 1_200)
        time = datetime.fromtimestamp(1.3, UTC)
        assert await consumer.offsets_for_times({partition: time}) == {partition: (3, 1_300)}
        # Between two milliseconds: the record before it is too early.
        time += timedelta(microseconds=1)
        assert await consumer.offsets_for_times({partition: time}) == {partition: (4, 1_400)}
        assert await consumer.offsets_for_times({partition: 9_000}) == {partition: None}
        with pytest.raises(curtail.IllegalStateError, match="negative"):
            await consumer.offsets_for_times({partition: -1})
        with pytest.raises(TypeError, match="datetime or int"):
            await consumer.offsets_for_times({partition: "now"})  # type: ignore[arg-type]
