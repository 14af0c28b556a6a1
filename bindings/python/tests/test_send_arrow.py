"""Columns of Arrow as records."""

import asyncio
import ctypes
import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from eventloop import assert_loop_runs, watched_loop

import curtail_kafka as curtail
from curtail_kafka import TopicPartition, Written, sync
from curtail_kafka.testing import Cluster


async def written(servers: str, topic: str, **options: Any) -> list[dict[str, Any]]:
    stream = await asyncio.to_thread(curtail.scan, servers, topic, **options)
    rows: list[dict[str, Any]] = (await asyncio.to_thread(stream.to_arrow)).to_pylist()
    return rows


def values(count: int, size: int = 100) -> pa.Table:
    return pa.table({"body": [b"%0*d" % (size, n) for n in range(count)]})


def reader(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(schema, batches)


async def test_columns_become_records(servers: str, curtail_cluster: Cluster) -> None:
    topic = "arrow-columns"
    curtail_cluster.create_topic(topic, partitions=2)
    kind = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
    table = pa.table(
        {
            "unused": [1.5, 2.5, 3.5],
            "body": ["one", None, ""],
            "id": pa.array([b"a", b"", None], pa.binary()),
            "to": pa.array([1, 0, 1], pa.int64()),
            "at": pa.array([1_000, None, 3_000], pa.timestamp("ms", "UTC")),
            "extra": pa.array(
                [[{"name": "h", "value": b"1"}, {"name": "h", "value": None}], [], None], kind
            ),
        }
    )
    began = time.time()
    async with curtail.Producer(servers) as producer:
        delivered = await producer.send_arrow(
            topic, table, value="body", key="id", partition="to", timestamp="at", headers="extra"
        )
    assert delivered == curtail.Delivered(
        3,
        {
            TopicPartition(topic, 0): Written(0, 0, 1),
            TopicPartition(topic, 1): Written(0, 1, 2),
        },
    )
    rows = sorted(await written(servers, topic), key=lambda row: (row["partition"], row["offset"]))
    assert [row["partition"] for row in rows] == [0, 1, 1]
    assert [row["value"] for row in rows] == [None, b"one", b""]
    assert [row["key"] for row in rows] == [b"", b"a", None]
    assert rows[0]["timestamp"].timestamp() >= began - 0.001
    assert [row["timestamp"].timestamp() for row in rows[1:]] == [1, 3]
    pairs = [{"name": "h", "value": b"1"}, {"name": "h", "value": None}]
    assert [row["headers"] for row in rows] == [[], pairs, []]


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.binary(16),
        pa.null(),
    ],
    ids=str,
)
async def test_types_of_values_and_keys(servers: str, curtail_topic: str, kind: Any) -> None:
    contents = [b"fits in views", b"a long content..", None, b"0123456789abcdef"]
    if kind == pa.binary(16):
        contents[0] = b"also sixteen...."
    if kind == pa.null():
        contents = [None, None, None, None]
    texts = [one if one is None else one.decode() for one in contents]
    is_text = kind in (pa.string(), pa.large_string(), pa.string_view())
    column = pa.array(texts if is_text else contents, kind)
    # A slice begins in the middle of the buffers.
    table = pa.table({"a": pa.concat_arrays([column, column])}).slice(2, 4)
    async with curtail.Producer(servers) as producer:
        delivered = await producer.send_arrow(curtail_topic, table, value="a", key="a")
    assert delivered.count == 4
    rows = await written(servers, curtail_topic)
    assert [row["value"] for row in rows] == contents[2:] + contents[:2]
    assert [row["key"] for row in rows] == contents[2:] + contents[:2]


@pytest.mark.parametrize(
    "kind",
    [pa.int64(), *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns"))],
    ids=str,
)
async def test_timestamps_become_milliseconds(servers: str, curtail_topic: str, kind: Any) -> None:
    per_second = {"s": 1, "us": 1_000_000, "ns": 1_000_000_000}.get(getattr(kind, "unit", ""), 1000)
    column = pa.array([1_700_000_000 * per_second + (per_second > 1)], pa.int64()).cast(kind)
    async with curtail.Producer(servers) as producer:
        await producer.send_arrow(
            curtail_topic, pa.table({"a": ["x"], "at": column}), value="a", timestamp="at"
        )
    async with curtail.Consumer(servers, curtail_topic, auto_offset_reset="earliest") as consumer:
        record = await anext(aiter(consumer))
    assert record.timestamp == 1_700_000_000_000 + (per_second == 1000)


@pytest.mark.parametrize(
    "kind",
    [
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.uint8(),
        pa.uint16(),
        pa.uint32(),
        pa.uint64(),
    ],
    ids=str,
)
@pytest.mark.parametrize("large", [False, True])
async def test_integers_and_lists_of_all_sizes(
    servers: str, curtail_topic: str, kind: Any, large: bool
) -> None:
    item = pa.struct([("value", pa.string_view()), ("name", pa.large_string())])
    lists = pa.large_list(item) if large else pa.list_(item)
    every = [[{"name": "a", "value": "1"}], [{"name": "b", "value": "2"}], [], None]
    table = pa.table(
        {
            "a": ["w", "x", "y", "z"],
            "p": pa.array([0, None, 0, None], kind),
            "h": pa.array(every, lists),
        }
    ).slice(1)
    async with curtail.Producer(servers) as producer:
        await producer.send_arrow(curtail_topic, table, value="a", partition="p", headers="h")
    rows = await written(servers, curtail_topic)
    assert [row["value"] for row in rows] == [b"x", b"y", b"z"]
    assert [row["headers"] for row in rows] == [[{"name": "b", "value": b"2"}], [], []]


class OnlyArray:
    """Columns without a stream."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        pair: tuple[object, object] = self._batch.__arrow_c_array__(requested_schema)
        return pair


@pytest.mark.parametrize("source", ["table", "chunks", "batch", "array", "reader", "empty"])
async def test_sources_of_pyarrow(servers: str, curtail_topic: str, source: str) -> None:
    table = values(1_000)
    (batch,) = table.to_batches()
    data: Any = {
        "table": table,
        "chunks": pa.Table.from_batches(table.to_batches(max_chunksize=7)),
        "batch": batch,
        "array": OnlyArray(batch),
        # The generator runs in Python, on the thread that reads.
        "reader": reader((one for one in table.to_batches(max_chunksize=64)), table.schema),
        "empty": table.slice(0, 0),
    }[source]
    async with curtail.Producer(servers) as producer:
        delivered = await producer.send_arrow(curtail_topic, data, value="body")
    expected = [] if source == "empty" else table.column("body").to_pylist()
    assert delivered.count == len(expected)
    at = TopicPartition(curtail_topic, 0)
    assert delivered.partitions == ({at: Written(0, 999, 1_000)} if expected else {})
    assert [row["value"] for row in await written(servers, curtail_topic)] == expected


async def test_polars_and_duckdb(servers: str, curtail_topic: str) -> None:
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    frame = polars.DataFrame(
        {
            "body": ["first value, of a frame", None],
            "at": polars.Series([1, 2], dtype=polars.Datetime()),
        }
    )
    rows = duckdb.sql("select 'value ' || range as body, range as key from range(3)")
    async with curtail.Producer(servers) as producer:
        assert (
            await producer.send_arrow(curtail_topic, frame, value="body", timestamp="at")
        ).count == 2
        with pytest.raises(TypeError, match="key: column 'key' must be of strings or binary"):
            await producer.send_arrow(curtail_topic, rows, value="body", key="key")
        assert (await producer.send_arrow(curtail_topic, rows, value="body")).count == 3
    assert [row["value"] for row in await written(servers, curtail_topic)] == [
        b"first value, of a frame",
        None,
        b"value 0",
        b"value 1",
        b"value 2",
    ]


async def test_batches_and_scans_are_sent_again(
    servers: str, curtail_topic: str, curtail_cluster: Cluster
) -> None:
    copies = f"{curtail_topic}-copies"
    curtail_cluster.create_topic(copies)
    columns: dict[str, Any] = {
        "value": "value",
        "key": "key",
        "partition": "partition",
        "timestamp": "timestamp",
        "headers": "headers",
    }
    async with curtail.Producer(servers, linger_ms=50) as producer:
        new = (curtail.NewRecord(str(n), f"k{n}", headers={"n": str(n)}) for n in range(100))
        await producer.send_many(curtail_topic, new)
        async with curtail.Consumer(
            servers, curtail_topic, auto_offset_reset="earliest"
        ) as consumer:
            batch = await consumer.poll_batch(20)
            assert batch is not None
            delivered = await producer.send_arrow(copies, batch, **columns)
            assert delivered.count == len(batch)
        stream = await asyncio.to_thread(curtail.scan, servers, curtail_topic, start=len(batch))
        delivered = await producer.send_arrow(copies, stream, **columns)
        assert delivered.count == 100 - len(batch)
    originals, all = await written(servers, curtail_topic), await written(servers, copies)
    assert len(all) == 100
    for row in (*originals, *all):
        del row["topic"]
    assert all == originals


async def test_wrong_columns_are_errors_before_a_record_is_sent(
    servers: str, curtail_topic: str
) -> None:
    table = pa.table({"body": ["x"], "number": [1], "ratio": [1.5]})
    twice = pa.table([pa.array(["x"]), pa.array(["y"])], names=["body", "body"])
    many = pa.table({f"c{n}": ["x"] for n in range(30)})
    headers = pa.table({"body": ["x"], "h": pa.array([[{"name": 1, "value": b""}]])})
    cases: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        (
            table,
            {"value": "bodies"},
            curtail.ConfigError,
            "no column 'bodies': data has body, number, ratio",
        ),
        (
            many,
            {"value": "c99"},
            curtail.ConfigError,
            "'c99': data has c0, .*, c19, [.]{3}$",
        ),
        (twice, {"value": "body"}, curtail.ConfigError, "value: data has several columns 'body'"),
        (
            table,
            {"value": "number"},
            TypeError,
            "value: column 'number' must be of strings .* not Int64",
        ),
        (
            table,
            {"value": "body", "key": "number"},
            TypeError,
            "key: column 'number' must be",
        ),
        (
            table,
            {"value": "body", "partition": "ratio"},
            TypeError,
            "'ratio' must be of integers, not Float64",
        ),
        (
            table,
            {"value": "body", "timestamp": "ratio"},
            TypeError,
            "'ratio' must be of timestamps",
        ),
        (
            table,
            {"value": "body", "headers": "body"},
            TypeError,
            "'body' must be of lists of structs",
        ),
        (
            headers,
            {"value": "body", "headers": "h"},
            TypeError,
            "headers: column 'h' must be of lists",
        ),
        (table, {"value": "body", "topic": "body"}, TypeError, "topic"),
        (table, {}, TypeError, "value"),
        (table, {"value": 1}, TypeError, "value"),
        (
            pa.array(["x"]),
            {"value": "body"},
            TypeError,
            "must have columns, .* an array of Utf8",
        ),
        (
            [{"body": "x"}],
            {"value": "body"},
            TypeError,
            "must have __arrow_c_stream__ .* <class 'list'>",
        ),
    ]
    async with curtail.Producer(servers) as producer:
        for data, arguments, kind, text in cases:
            with pytest.raises(kind, match=text):
                await producer.send_arrow(curtail_topic, data, **arguments)
        assert (await producer.send(curtail_topic, b"first")).offset == 0


async def test_consumed_capsules_are_refused(servers: str, curtail_topic: str) -> None:
    table = values(3)
    stream = table.__arrow_c_stream__()
    pair: tuple[object, object] = table.to_batches()[0].__arrow_c_array__()

    class Stream:
        def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
            return stream

    class Array:
        def __arrow_c_array__(
            self, requested_schema: object | None = None
        ) -> tuple[object, object]:
            return pair

    async with curtail.Producer(servers) as producer:
        for data in (Stream(), Array()):
            assert (await producer.send_arrow(curtail_topic, data, value="body")).count == 3
            with pytest.raises(TypeError, match="capsules of Arrow that were not consumed"):
                await producer.send_arrow(curtail_topic, data, value="body")


async def test_failed_rows_are_reported_after_the_others(servers: str, curtail_topic: str) -> None:
    sizes = [10, 2_000, 10, 2_000, 10, 10]
    table = pa.table({"body": [bytes(size) for size in sizes], "to": [0, 0, 0, 0, 7, 0]})
    async with curtail.Producer(servers, max_request_size=1_000) as producer:
        await producer.warm_up(curtail_topic)
        with pytest.raises(ExceptionGroup) as failed:
            await producer.send_arrow(curtail_topic, table, value="body", partition="to")
    assert failed.value.message == "3 of 6 records were not acknowledged"
    large, again, unknown = failed.value.exceptions
    assert isinstance(large, curtail.RecordTooLargeError)
    assert isinstance(again, curtail.RecordTooLargeError)
    assert isinstance(unknown, curtail.UnknownPartitionError) and unknown.partition == 7
    assert large.__notes__ == ["row 1"]
    assert [len(row["value"]) for row in await written(servers, curtail_topic)] == [10, 10, 10]


async def test_failed_batches_are_counted_by_record(servers: str, curtail_cluster: Cluster) -> None:
    curtail_cluster.create_topic("arrow-small", max_message_bytes=100)
    async with curtail.Producer(servers, linger_ms=5) as producer:
        with pytest.raises(ExceptionGroup) as failed:
            await producer.send_arrow("arrow-small", values(500, size=1_000), value="body")
    assert failed.value.message == "500 of 500 records were not acknowledged"
    assert len(failed.value.exceptions) == 100
    for error in failed.value.exceptions:
        assert isinstance(error, curtail.NotAcknowledgedError)


@pytest.mark.parametrize("number", [-(2**31) - 1, 2**31, 2**63])
async def test_wrong_value_of_a_row_ends_the_call_after_earlier_rows(
    servers: str, curtail_topic: str, number: int
) -> None:
    kind = pa.uint64() if number == 2**63 else pa.int64()
    table = pa.table({"body": ["a", "b", "c"], "to": pa.array([0, number, 0], kind)})
    async with curtail.Producer(servers) as producer:
        with pytest.raises(ExceptionGroup) as failed:
            await producer.send_arrow(curtail_topic, table, value="body", partition="to")
        (error,) = failed.value.exceptions
        assert failed.value.message == "0 of 1 records were not acknowledged"
        assert isinstance(error, ValueError)
        assert str(error) == f"row 1: partition {number} is outside the range of int32"
        with pytest.raises(ValueError, match="row 0: partition"):
            await producer.send_arrow(curtail_topic, table.slice(1), value="body", partition="to")
    assert [row["value"] for row in await written(servers, curtail_topic)] == [b"a"]


async def test_failure_of_the_reader_ends_the_call(servers: str, curtail_topic: str) -> None:
    table = values(10)

    def failing() -> Iterator[pa.RecordBatch]:
        yield from table.to_batches()
        raise RuntimeError("the source has failed")

    async with curtail.Producer(servers) as producer:
        with pytest.raises(ExceptionGroup) as failed:
            data = reader(failing(), table.schema)
            await producer.send_arrow(curtail_topic, data, value="body")
    (error,) = failed.value.exceptions
    assert isinstance(error, OSError) and "the source has failed" in str(error)
    assert len(await written(servers, curtail_topic)) == 10


async def test_failure_of_a_scan_has_its_type(servers: str, curtail_topic: str) -> None:
    async with curtail.Producer(servers) as producer, curtail.Admin(servers) as admin:
        await producer.send_arrow(curtail_topic, values(10), value="body")
        stream = await asyncio.to_thread(curtail.scan, servers, curtail_topic)
        await admin.delete_records({(curtail_topic, 0): 5})
        with pytest.raises(curtail.OffsetOutOfRangeError):
            await producer.send_arrow(curtail_topic, stream, value="value")


async def test_rows_with_a_key_keep_their_order(servers: str, curtail_cluster: Cluster) -> None:
    topic, count = "arrow-order", 30_000
    curtail_cluster.create_topic(topic, partitions=6)
    table = pa.table(
        {"n": [str(n) for n in range(count)], "key": [f"k{n % 100}" for n in range(count)]}
    )
    # Rows wait for room in the buffer.
    async with curtail.Producer(servers, buffer_memory=200_000) as producer:
        delivered = await producer.send_arrow(topic, table, value="n", key="key")
    assert delivered.count == count and len(delivered.partitions) == 6
    for at, one in delivered.partitions.items():
        assert at.topic == topic
        assert (one.first, one.last) == (0, one.count - 1)
    last: dict[bytes, int] = {}
    for row in await written(servers, topic):
        assert last.get(row["key"], -1) < int(row["value"])
        last[row["key"]] = int(row["value"])
    assert len(last) == 100


async def test_reading_pauses_without_room(
    servers: str, curtail_topic: str, curtail_cluster: Cluster
) -> None:
    batch = values(640, size=1_000).to_batches()[0]
    read = 0

    def batches() -> Iterator[pa.RecordBatch]:
        nonlocal read
        for _ in range(50):
            read += 1
            yield batch

    async with curtail.Producer(servers, buffer_memory=1_000_000) as producer:
        await producer.warm_up(curtail_topic)
        with curtail_cluster.slow(3):
            data = reader(batches(), batch.schema)
            sending = asyncio.create_task(producer.send_arrow(curtail_topic, data, value="body"))
            seen, since = 0, time.monotonic()
            async with asyncio.timeout(30):
                while read < 8 or time.monotonic() < since + 0.5:
                    await asyncio.sleep(0.01)
                    if read > seen:
                        seen, since = read, time.monotonic()
            # 8 MiB in the stage, 1 MB in the buffer, and the batch that is read.
            assert read <= 16
            # There is room for other sends.
            other = producer.send(curtail_topic, b"other")
            assert not sending.done()
        delivered = await sending
        await other
    assert read == 50 and delivered.count == 50 * 640


async def test_event_loop_is_not_held(servers: str, curtail_topic: str) -> None:
    table = values(200_000)
    async with curtail.Producer(servers) as producer:
        await producer.warm_up(curtail_topic)
        # The first call starts the thread that reads rows, which takes about a millisecond, once.
        await producer.send_arrow(curtail_topic, values(1), value="body")
        async with watched_loop() as gaps, asyncio.timeout(60):
            delivered = await producer.send_arrow(curtail_topic, table, value="body")
    assert delivered.count == 200_000
    assert_loop_runs(gaps)


async def test_cancelled_call_sends_no_further_rows(servers: str, curtail_topic: str) -> None:
    batch = values(100).to_batches()[0]
    read = 0
    released = threading.Event()

    def endless() -> Iterator[pa.RecordBatch]:
        nonlocal read
        try:
            while True:
                read += 1
                yield batch
        finally:
            released.set()

    async with curtail.Producer(servers) as producer:
        sending = asyncio.create_task(
            producer.send_arrow(curtail_topic, reader(endless(), batch.schema), value="body")
        )
        async with asyncio.timeout(20):
            while not len(await written(servers, curtail_topic, columns=["offset"])):
                await asyncio.sleep(0.01)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        # The thread that reads ends, and the stream is released.
        gc.collect()
        assert await asyncio.to_thread(released.wait, 20)
        stopped = read
        await producer.flush()
        rows = len(await written(servers, curtail_topic, columns=["offset"]))
        assert 0 < rows <= stopped * 100
        after = await producer.send(curtail_topic, b"after")
        assert after.offset == rows
    assert read == stopped


async def test_close_ends_a_call(servers: str, curtail_topic: str) -> None:
    batch = values(100).to_batches()[0]

    def endless() -> Iterator[pa.RecordBatch]:
        while True:
            yield batch

    producer = curtail.Producer(servers)
    sending = asyncio.create_task(
        producer.send_arrow(curtail_topic, reader(endless(), batch.schema), value="body")
    )
    while not len(await written(servers, curtail_topic, columns=["offset"])):
        await asyncio.sleep(0.01)
    await producer.close()
    with pytest.raises(ExceptionGroup) as ended:
        await sending
    assert [type(error) for error in ended.value.exceptions] == [curtail.ClosedError]
    assert ended.value.message.startswith("0 of ")
    with pytest.raises(curtail.ClosedError):
        await producer.send_arrow(curtail_topic, values(1), value="body")


async def test_without_acknowledgements_there_are_no_offsets(
    servers: str, curtail_topic: str
) -> None:
    async with curtail.Producer(servers, acks=0, enable_idempotence=False) as producer:
        delivered = await producer.send_arrow(curtail_topic, values(5), value="body")
    assert delivered.partitions == {TopicPartition(curtail_topic, 0): Written(None, None, 5)}


async def test_transactions_commit_and_abort_rows(servers: str, curtail_topic: str) -> None:
    settings: dict[str, Any] = {"isolation_level": "read_committed"}
    async with curtail.TransactionalProducer(servers, transactional_id=curtail_topic) as producer:
        async with producer.transaction() as tx:
            tx.send(curtail_topic, b"before")
            delivered = await tx.send_arrow(curtail_topic, values(1_000), value="body")
            assert delivered.partitions == {
                TopicPartition(curtail_topic, 0): Written(1, 1_000, 1_000)
            }
        with pytest.raises(curtail.IllegalStateError, match="the transaction has ended"):
            await tx.send_arrow(curtail_topic, values(1), value="body")
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction() as tx:
                await tx.send_arrow(curtail_topic, values(10), value="body")
                raise ZeroDivisionError
        unused = producer.transaction()
        with pytest.raises(curtail.IllegalStateError, match="has not begun"):
            await unused.send_arrow(curtail_topic, values(1), value="body")
    rows = await written(servers, curtail_topic, **settings)
    assert [row["value"] for row in rows] == [b"before", *values(1_000).column(0).to_pylist()]


async def test_failed_row_fails_the_commit(servers: str, curtail_topic: str) -> None:
    table = pa.table({"body": [b"small", bytes(2_000), b"last"]})
    async with curtail.TransactionalProducer(
        servers, transactional_id=curtail_topic, max_request_size=1_000
    ) as producer:
        with pytest.raises(curtail.TransactionAbortableError):
            async with producer.transaction() as tx:
                with pytest.raises(ExceptionGroup) as failed:
                    await tx.send_arrow(curtail_topic, table, value="body")
                assert isinstance(failed.value.exceptions[0], curtail.RecordTooLargeError)
    assert await written(servers, curtail_topic, isolation_level="read_committed") == []


def test_threads(servers: str, curtail_topic: str) -> None:
    with sync.Producer(servers) as producer:
        delivered = producer.send_arrow(curtail_topic, values(2_000), value="body")
        assert delivered.partitions == {TopicPartition(curtail_topic, 0): Written(0, 1_999, 2_000)}
        with pytest.raises(TypeError, match="must be of strings"):
            producer.send_arrow(curtail_topic, pa.table({"n": [1]}), value="n")
    with (
        sync.TransactionalProducer(servers, transactional_id=curtail_topic) as transactional,
        transactional.transaction() as tx,
    ):
        assert tx.send_arrow(curtail_topic, values(10), value="body").count == 10


class Malformed:
    """Exports by the C data interface. The format in its schema is not UTF-8."""

    def __init__(self) -> None:
        words = ctypes.c_void_p
        self.release = ctypes.CFUNCTYPE(None, words)(lambda _: None)
        self.format = ctypes.create_string_buffer(b"\xff")
        release = ctypes.cast(self.release, words)
        self.schema = (words * 9)(ctypes.addressof(self.format))
        self.schema[7] = release
        self.array = (words * 10)()
        self.array[8] = release

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype = ctypes.py_object
        capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        named = ((self.schema, b"arrow_schema"), (self.array, b"arrow_array"))
        schema, array = (capsule(ctypes.addressof(at), name, None) for at, name in named)
        return schema, array


async def test_malformed_schema_is_an_error(servers: str, curtail_topic: str) -> None:
    async with curtail.Producer(servers) as producer:
        with pytest.raises(RuntimeError, match="malformed data"):
            await producer.send_arrow(curtail_topic, Malformed(), value="body")
        # The producer is as before.
        assert (await producer.send(curtail_topic, b"x")).offset == 0
