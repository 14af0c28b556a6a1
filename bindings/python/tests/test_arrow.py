"""Records as columns of Arrow."""

import asyncio
from typing import Any

import pyarrow as pa
import pytest
from eventloop import assert_loop_runs, watched_loop

import curtail_kafka as curtail
from curtail_kafka import TopicPartition
from curtail_kafka.testing import Cluster

EARLIEST: dict[str, Any] = {"auto_offset_reset": "earliest"}


async def fill(servers: str, topic: str, count: int, size: int = 40, **options: Any) -> None:
    async with curtail.Producer(servers, **options) as producer:
        records = (curtail.NewRecord(value(n, size), key=f"k{n}") for n in range(count))
        await producer.send_many(topic, records)


def value(n: int, size: int = 40) -> bytes:
    return f"{n:0{size}}".encode()


async def next_batch(consumer: curtail.Consumer, **options: Any) -> curtail.RecordBatch:
    async with asyncio.timeout(20):
        while True:
            batch = await consumer.poll_batch(**options)
            if batch is not None:
                return batch


async def test_batch_has_the_columns_of_its_records(servers: str, curtail_topic: str) -> None:
    headers = [("a", b"1"), ("b", None), ("a", b"2")]
    async with curtail.Producer(servers) as producer:
        for one in (
            curtail.NewRecord(value(0), "key", headers=headers, timestamp=1_234_567),
            curtail.NewRecord(None, None, timestamp=1_234_568),
            curtail.NewRecord(b"", b"", timestamp=1_234_569),
            curtail.NewRecord(b"short", value(3), timestamp=1_234_570),
        ):
            await producer.send_many(curtail_topic, [one])
    async with curtail.Consumer(servers, curtail_topic, **EARLIEST) as consumer:
        rows: list[dict[str, Any]] = []
        while len(rows) < 4:
            batch = await next_batch(consumer)
            rows += batch.to_arrow().to_pylist()
            assert batch.num_rows == len(batch) == len(list(batch))
    schema = batch.to_arrow().schema
    assert [(field.name, str(field.type)) for field in schema] == [
        ("topic", "dictionary<values=string, indices=int32, ordered=0>"),
        ("partition", "int32"),
        ("offset", "int64"),
        ("timestamp", "timestamp[ms, tz=UTC]"),
        ("key", "binary_view"),
        ("value", "binary_view"),
        ("headers", "list<item: struct<name: string not null, value: binary> not null>"),
    ]
    assert [field.name for field in schema if field.nullable] == ["key", "value"]
    assert [row["key"] for row in rows] == [b"key", None, b"", value(3)]
    assert [row["value"] for row in rows] == [value(0), None, b"", b"short"]
    assert [row["offset"] for row in rows] == [0, 1, 2, 3]
    assert {row["topic"] for row in rows} == {curtail_topic}
    assert {row["partition"] for row in rows} == {0}
    assert rows[0]["timestamp"].timestamp() == 1234.567
    named = [{"name": name, "value": content} for name, content in headers]
    assert [row["headers"] for row in rows] == [named, [], [], []]


@pytest.mark.parametrize("compression", ["none", "lz4"])
async def test_values_are_views_of_the_batch(
    servers: str, curtail_topic: str, compression: str
) -> None:
    await fill(servers, curtail_topic, 1_000, linger_ms=100, compression_type=compression)
    async with curtail.Consumer(servers, curtail_topic, **EARLIEST) as consumer:
        batch = await next_batch(consumer)
        column = batch.to_arrow().column("value")
    # One buffer for each produced batch. They contain the records with keys and lengths.
    views, *blocks = [buffer for buffer in column.buffers() if buffer is not None]
    assert views.size == 16 * len(column)
    retained = sum(block.size for block in blocks)
    assert sum(len(one) for one in column.to_pylist()) < retained < 4 * 40 * len(column)
    assert column.to_pylist() == [value(n) for n in range(len(column))]


async def test_small_part_of_a_batch_is_copied(servers: str, curtail_topic: str) -> None:
    """The keys are a small part of their batch, which their column must not keep in memory."""
    async with curtail.Producer(servers, linger_ms=100) as producer:
        records = [curtail.NewRecord(bytes(1_000), key=f"{n:020}") for n in range(10)]
        await producer.send_many(curtail_topic, records)
    async with curtail.Consumer(servers, curtail_topic, **EARLIEST) as consumer:
        keys = (await next_batch(consumer)).to_arrow().column("key")
    assert keys.to_pylist() == [f"{n:020}".encode() for n in range(len(keys))]
    _, *blocks = [buffer for buffer in keys.buffers() if buffer is not None]
    assert sum(block.size for block in blocks) == 20 * len(keys)


async def test_columns_and_layout_are_selected(servers: str, curtail_topic: str) -> None:
    await fill(servers, curtail_topic, 10, linger_ms=100)
    async with curtail.Consumer(servers, curtail_topic, **EARLIEST) as consumer:
        batch = await next_batch(
            consumer, columns=["value", "offset"], layout="binary", max_records=3
        )
        arrow = batch.to_arrow()
        assert [str(field.type) for field in arrow.schema] == ["binary", "int64"]
        assert arrow.to_pydict() == {"value": [value(n) for n in range(3)], "offset": [0, 1, 2]}
        assert [record.offset for record in batch] == [0, 1, 2]
        assert repr(batch) == "<RecordBatch: 3 rows of value, offset>"
        batch = await next_batch(consumer, columns=[], max_records=2)
        assert batch.num_rows == batch.to_arrow().num_rows == 2
        with pytest.raises(curtail.ConfigError, match="no column 'size': must be one of topic,"):
            await consumer.poll_batch(columns=["size"])  # type: ignore[list-item]
        with pytest.raises(curtail.ConfigError, match="layout 'wide': must be one of view, binary"):
            await consumer.poll_batch(layout="wide")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="not one"):
            await consumer.poll_batch(columns="value")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="at least 1"):
            await consumer.poll_batch(max_records=0)
        # A view is a request of the reader, too.
        wanted = pa.schema([("value", pa.binary())])
        batch = await next_batch(consumer, columns=["value"])
        assert pa.record_batch(batch, schema=wanted).schema == wanted
        wanted = pa.schema([("value", pa.large_binary())])
        table = pa.table(batch, schema=wanted)
        assert table.column("value").to_pylist() == [value(n) for n in range(5, 5 + len(batch))]


async def test_consumed_schema_is_refused(servers: str, curtail_topic: str) -> None:
    """An import moves the schema out of its capsule, whose remaining pointers dangle."""
    await fill(servers, curtail_topic, 3, linger_ms=100)
    async with curtail.Consumer(servers, curtail_topic, **EARLIEST) as consumer:
        batch = await next_batch(consumer)
    capsule = batch.__arrow_c_schema__()
    assert len(batch.__arrow_c_array__(capsule)) == 2
    pa.Schema._import_from_c_capsule(capsule)
    for export in (batch.__arrow_c_array__, batch.__arrow_c_stream__):
        with pytest.raises(TypeError, match="requested_schema was consumed before"):
            export(capsule)


async def test_requests_that_cannot_be_served_are_ignored(servers: str, curtail_topic: str) -> None:
    await fill(servers, curtail_topic, 3, linger_ms=100)
    async with curtail.Consumer(servers, curtail_topic, **EARLIEST) as consumer:
        batch = await next_batch(consumer)
    for request in (pa.int64(), pa.field("value", pa.binary()), pa.schema([("value", pa.int64())])):
        schema, array = batch.__arrow_c_array__(request.__arrow_c_schema__())
        assert pa.RecordBatch._import_from_c_capsule(schema, array) == batch.to_arrow()


async def test_streams_are_read_by_other_libraries(servers: str, curtail_topic: str) -> None:
    await fill(servers, curtail_topic, 10, linger_ms=100)
    async with curtail.Consumer(servers, curtail_topic, **EARLIEST) as consumer:
        batch = await next_batch(consumer)
        reader = pa.RecordBatchReader.from_stream(batch)
        assert reader.schema == batch.to_arrow().schema == pa.schema(batch)
        assert reader.read_all().num_rows == batch.num_rows
        # It can be read again, and outlives the consumer.
    assert pa.table(batch).column("offset").to_pylist() == list(range(len(batch)))


async def test_polls_of_all_kinds_return_each_record_once(servers: str, curtail_topic: str) -> None:
    count = 3_000
    await fill(servers, curtail_topic, count)
    at = TopicPartition(curtail_topic, 0)
    seen: list[int] = []
    settings: dict[str, Any] = {**EARLIEST, "group_id": f"g-{curtail_topic}"}
    settings["enable_auto_commit"] = False
    async with curtail.Consumer(servers, curtail_topic, **settings) as consumer:
        async with asyncio.timeout(30):
            while len(seen) < count:
                seen += [one.offset for one in await next_batch(consumer, max_records=7)]
                if len(seen) < count:
                    seen.append((await anext(aiter(consumer))).offset)
                if len(seen) < count:
                    seen += [one.offset for one in await consumer.poll(0.2)]
                assert await consumer.position(at) == len(seen)
                await consumer.commit()
                assert await consumer.committed(at) == len(seen)
    assert seen == list(range(count))


async def test_batch_is_larger_than_max_poll_records(servers: str, curtail_topic: str) -> None:
    await fill(servers, curtail_topic, 3_000)
    sizes = []
    async with curtail.Consumer(servers, curtail_topic, **EARLIEST) as consumer:
        async with asyncio.timeout(20):
            async for batch in consumer.batches(columns=["offset"]):
                sizes.append(len(batch))
                if sum(sizes) == 3_000:
                    break
    assert max(sizes) > 500


@pytest.mark.parametrize("auto_commit", [True, False])
async def test_auto_commit_keeps_a_batch_to_one_produced_batch(
    servers: str, curtail_topic: str, auto_commit: bool
) -> None:
    """A further poll would commit records that the program has not received."""
    async with curtail.Producer(servers, linger_ms=0) as producer:
        for n in range(3):
            await producer.send(curtail_topic, value(n))
    settings: dict[str, Any] = {**EARLIEST, "enable_auto_commit": auto_commit}
    async with curtail.Consumer(
        servers, curtail_topic, group_id=f"g-{curtail_topic}", **settings
    ) as consumer:
        sizes = [len(await next_batch(consumer))]
        while sum(sizes) < 3:
            sizes.append(len(await next_batch(consumer)))
    assert sizes == ([1, 1, 1] if auto_commit else [3])


async def test_cancelled_poll_batch_loses_no_records(servers: str, curtail_topic: str) -> None:
    await fill(servers, curtail_topic, 10, linger_ms=100)
    async with curtail.Consumer(servers, curtail_topic, **EARLIEST) as consumer:
        await consumer.seek((curtail_topic, 0), 0)
        polling = asyncio.create_task(consumer.poll_batch(10))
        while not consumer._has_records:
            await asyncio.sleep(0)
        polling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await polling
        assert await consumer.position((curtail_topic, 0)) == 0
        seen: list[int] = []
        while len(seen) < 10:
            seen += [one.offset for one in await next_batch(consumer)]
        assert seen == list(range(10))
        assert await consumer.poll_batch(0.1) is None


async def test_seek_drops_columns_that_were_built(servers: str, curtail_topic: str) -> None:
    await fill(servers, curtail_topic, 10, linger_ms=100)
    at = (curtail_topic, 0)
    async with curtail.Consumer(servers, curtail_topic, **EARLIEST) as consumer:
        await consumer.seek(at, 0)
        polling = asyncio.create_task(consumer.poll_batch(20))
        while not consumer._has_records:
            await asyncio.sleep(0)
        await consumer.seek(at, 8)
        batch = await polling
        assert batch is not None
        # Returned before the seek, or from its offset on; never older records after it.
        offsets = [one.offset for one in batch]
        assert offsets[0] in (0, 8)
        if offsets[0] == 0:
            assert next(iter(await next_batch(consumer))).offset == 8


async def test_exception_rewinds_the_last_batch(servers: str, curtail_topic: str) -> None:
    await fill(servers, curtail_topic, 10, linger_ms=100)
    settings: dict[str, Any] = {**EARLIEST, "group_id": f"g-{curtail_topic}"}
    with pytest.raises(ZeroDivisionError):
        async with curtail.Consumer(servers, curtail_topic, **settings) as consumer:
            await next_batch(consumer, max_records=4)
            await next_batch(consumer, max_records=4)
            raise ZeroDivisionError
    async with curtail.Consumer(servers, curtail_topic, **settings) as consumer:
        assert next(iter(await next_batch(consumer))).offset == 4


async def test_large_batches_do_not_hold_the_event_loop(servers: str, curtail_topic: str) -> None:
    count = 40_000
    await fill(servers, curtail_topic, count)
    async with curtail.Consumer(servers, curtail_topic, **EARLIEST) as consumer:
        read = 0
        async with watched_loop() as gaps, asyncio.timeout(30):
            while read < count:
                batch = await consumer.poll_batch()
                read += len(batch or ())
    assert_loop_runs(gaps)


async def test_transaction_includes_the_offsets_of_batches(
    curtail_cluster: Cluster, servers: str, curtail_topic: str
) -> None:
    curtail_cluster.create_topic(f"{curtail_topic}-out")
    await fill(servers, curtail_topic, 10, linger_ms=100)
    at = (curtail_topic, 0)
    async with (
        curtail.TransactionalProducer(servers, transactional_id=curtail_topic) as producer,
        curtail.Consumer(
            servers,
            curtail_topic,
            group_id=f"g-{curtail_topic}",
            enable_auto_commit=False,
            isolation_level="read_committed",
            **EARLIEST,
        ) as consumer,
    ):
        await next_batch(consumer, max_records=4)
        async with producer.transaction(consumer) as tx:
            tx.send(f"{curtail_topic}-out", b"of four")
        assert await consumer.committed(at) == 4
        await next_batch(consumer, max_records=3)
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction(consumer):
                raise ZeroDivisionError
        assert next(iter(await next_batch(consumer))).offset == 4
