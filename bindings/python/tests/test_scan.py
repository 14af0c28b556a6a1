"""Scans: topics between fixed offsets, as streams of Arrow columns."""

import asyncio
import signal
import subprocess
import threading
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from programs import started

import curtail_kafka as curtail
from curtail_kafka import TopicPartition
from curtail_kafka.testing import Cluster

DAY = 1_700_000_000_000


async def fill(servers: str, topic: str, count: int, **options: Any) -> None:
    async with curtail.Producer(servers, **options) as producer:
        records = (
            curtail.NewRecord(f"value {n:030}", key=f"k{n}", timestamp=DAY + n)
            for n in range(count)
        )
        await producer.send_many(topic, records)


async def scan(servers: str, *topics: str, **options: Any) -> curtail.ArrowStream:
    return await asyncio.to_thread(curtail.scan, servers, *topics, **options)


async def read(stream: curtail.ArrowStream) -> list[int]:
    return sorted((await asyncio.to_thread(stream.to_arrow)).column("offset").to_pylist())


async def test_scan_reads_to_the_end_at_its_creation(servers: str, curtail_topic: str) -> None:
    await fill(servers, curtail_topic, 1_000)
    stream = await scan(servers, curtail_topic)
    await fill(servers, curtail_topic, 10)
    assert stream.offsets == {TopicPartition(curtail_topic, 0): range(1_000)}
    assert repr(stream) == "<ArrowStream: 1000 offsets of 1 partitions>"
    table = await asyncio.to_thread(stream.to_arrow)
    assert table.schema == pa.schema(stream)
    assert table.column("offset").to_pylist() == list(range(1_000))
    assert table.column("value").to_pylist() == [f"value {n:030}".encode() for n in range(1_000)]
    # It can be read again, from its beginning, also in parts.
    reader = pa.RecordBatchReader.from_stream(stream)
    first = await asyncio.to_thread(reader.read_next_batch)
    assert first.column("offset")[0].as_py() == 0
    assert await read(stream) == list(range(1_000))


async def test_scan_covers_partitions_and_topics(
    curtail_cluster: Cluster, servers: str, curtail_topic: str
) -> None:
    wide = f"{curtail_topic}-wide"
    curtail_cluster.create_topic(wide, partitions=4)
    await fill(servers, curtail_topic, 10)
    await fill(servers, wide, 500)
    stream = await scan(servers, curtail_topic, wide, columns=["topic", "value"])
    assert sum(len(one) for one in stream.offsets.values()) == 510
    table = await asyncio.to_thread(stream.to_arrow)
    topics = table.column("topic").to_pylist()
    assert (topics.count(curtail_topic), topics.count(wide)) == (10, 500)
    assert len(set(table.column("value").to_pylist())) == 500


async def test_places_are_offsets_times_and_ends(servers: str, curtail_topic: str) -> None:
    await fill(servers, curtail_topic, 100)

    def at(milliseconds: int) -> datetime:
        return datetime.fromtimestamp((DAY + milliseconds) / 1000, UTC)

    for start, end, expected in (
        (10, 20, range(10, 20)),
        (90, 1_000, range(90, 100)),
        ("end", "end", range(0)),
        (20, 10, range(0)),
        (at(30), at(35), range(30, 35)),
        (at(95), "end", range(95, 100)),
        (at(100_000), "end", range(0)),
    ):
        assert await read(await scan(servers, curtail_topic, start=start, end=end)) == [*expected]


async def test_end_may_be_a_marker_of_a_transaction(servers: str, curtail_topic: str) -> None:
    """The last offsets have no record that a reader of committed records receives."""
    async with curtail.TransactionalProducer(servers, transactional_id=curtail_topic) as producer:
        async with producer.transaction() as tx:
            tx.send(curtail_topic, b"committed")
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction() as tx:
                await tx.send(curtail_topic, b"aborted")
                raise ZeroDivisionError
    at = TopicPartition(curtail_topic, 0)
    # The response to an abort may precede its marker.
    async with (
        curtail.Consumer(servers, isolation_level="read_committed") as consumer,
        asyncio.timeout(20),
    ):
        while (await consumer.end_offsets([at]))[at] < 4:
            await asyncio.sleep(0.01)
    stream = await scan(servers, curtail_topic, isolation_level="read_committed")
    assert stream.offsets[at] == range(4)
    async with asyncio.timeout(20):
        table = await asyncio.to_thread(stream.to_arrow)
    assert table.column("value").to_pylist() == [b"committed"]
    assert await read(await scan(servers, curtail_topic)) == [0, 2]


async def test_layouts_and_requested_schemas(servers: str, curtail_topic: str) -> None:
    await fill(servers, curtail_topic, 5)
    stream = await scan(servers, curtail_topic, columns=["value"], layout="binary")
    assert pa.schema(stream) == pa.schema([("value", pa.binary())])
    wanted = pa.schema([("value", pa.large_binary())])
    table = await asyncio.to_thread(
        lambda: pa.RecordBatchReader.from_stream(stream, schema=wanted).read_all()
    )
    assert table.schema == wanted
    assert table.num_rows == 5


async def test_large_scan_has_batches_of_bounded_size(servers: str, curtail_topic: str) -> None:
    count = 150_000
    async with (
        curtail.Producer(servers, linger_ms=5) as producer,
        producer.pipeline() as pipeline,
    ):
        for n in range(count):
            await pipeline.send(curtail_topic, b"%d" % n)
    assert pipeline.delivered == count
    stream = await scan(servers, curtail_topic, columns=["offset"])
    sizes = await asyncio.to_thread(lambda: [len(batch) for batch in stream])
    assert sum(sizes) == count
    assert len(sizes) > 1
    assert max(sizes) < 2 * 65_536


async def test_reader_that_stops_ends_the_reading(servers: str, curtail_topic: str) -> None:
    await fill(servers, curtail_topic, 100)
    stream = await scan(servers, curtail_topic)
    for _ in range(20):
        batches = iter(stream)
        assert len(await asyncio.to_thread(next, batches)) > 0
        del batches
    assert await read(stream) == list(range(100))


async def test_other_threads_run_during_a_scan(
    curtail_cluster: Cluster, servers: str, curtail_topic: str
) -> None:
    await fill(servers, curtail_topic, 10)
    stream = await scan(servers, curtail_topic)
    leader = curtail_cluster.leader(curtail_topic, 0)
    assert leader is not None
    done = threading.Event()

    def read_all() -> None:
        stream.to_arrow()
        done.set()

    with curtail_cluster.frozen(leader):
        reading = asyncio.create_task(asyncio.to_thread(read_all))
        # The event loop's thread runs although the reader waits.
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert not done.is_set()
    async with asyncio.timeout(60):
        await reading


async def test_errors_are_typed(curtail_cluster: Cluster, servers: str, curtail_topic: str) -> None:
    await fill(servers, curtail_topic, 10)
    with pytest.raises(curtail.ConfigError, match="at least one topic"):
        curtail.scan(servers)
    with pytest.raises(curtail.ConfigError, match="start=-1: must be an offset from 0 on"):
        curtail.scan(servers, curtail_topic, start=-1)
    with pytest.raises(curtail.ConfigError, match="end='now': must be"):
        curtail.scan(servers, curtail_topic, end="now")  # type: ignore[arg-type]
    with pytest.raises(curtail.ConfigError, match="no column 'size'"):
        curtail.scan(servers, curtail_topic, columns=["size"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="not one"):
        curtail.scan(servers, curtail_topic, columns="value")  # type: ignore[arg-type]
    with pytest.raises(curtail.ConfigError, match="without a group"):
        curtail.scan(servers, curtail_topic, group_id="g")
    with pytest.raises(curtail.UnknownTopicError):
        await scan(servers, "missing", default_api_timeout_ms=1_000, request_timeout_ms=1_000)
    async with curtail.Admin(servers) as admin:
        assert "missing" not in [one.name for one in await admin.list_topics()]
    with pytest.raises(curtail.UnreachableError):
        await scan("127.0.0.1:9", curtail_topic)


async def test_errors_of_readings_are_typed(
    curtail_cluster: Cluster, servers: str, curtail_topic: str
) -> None:
    single = f"{curtail_topic}-single"
    curtail_cluster.create_topic(single, replication_factor=1)
    await fill(servers, single, 10)
    limits = {"default_api_timeout_ms": 2_000, "request_timeout_ms": 1_000}
    stream = await scan(servers, single, **limits)
    assert stream.error is None
    leader = curtail_cluster.leader(single, 0)
    assert leader is not None
    with curtail_cluster.frozen(leader):
        with pytest.raises(OSError, match="progress of a scan"):
            await asyncio.to_thread(stream.to_arrow)
        assert isinstance(stream.error, curtail.TimeoutError)
        with pytest.raises(curtail.TimeoutError, match=r"default\.api\.timeout\.ms"):
            await asyncio.to_thread(list, stream)
    for broker in curtail_cluster.broker_ids:
        curtail_cluster.kill(broker)
    with pytest.raises(curtail.UnreachableError):
        await asyncio.to_thread(list, stream)


async def test_removed_records_are_an_error(servers: str, curtail_topic: str) -> None:
    await fill(servers, curtail_topic, 10)
    stream = await scan(servers, curtail_topic)
    lenient = await scan(servers, curtail_topic, auto_offset_reset="earliest")
    async with curtail.Admin(servers) as admin:
        await admin.delete_records({TopicPartition(curtail_topic, 0): 5})
    with pytest.raises(curtail.OffsetOutOfRangeError):
        await asyncio.to_thread(list, stream)
    assert await read(lenient) == [5, 6, 7, 8, 9]
    # Offsets before the beginning count as the beginning.
    assert await read(await scan(servers, curtail_topic, start=1)) == [5, 6, 7, 8, 9]


READS = """
import signal, sys, time
import pyarrow as pa
import curtail_kafka as curtail

signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
stream = curtail.scan(*sys.argv[1:])
print("scanned", flush=True)
sys.stdin.readline()
print("reads", flush=True)
try:
    try:
        pa.table(stream)
    except OSError:
        # The exception of the other library. That of the signal follows at once.
        for _ in range(6000):
            time.sleep(0.01)
except (KeyboardInterrupt, SystemExit):
    print("interrupted", repr(stream.error), flush=True)
"""


@pytest.mark.parametrize(
    ("number", "raised"),
    [(signal.SIGINT, "KeyboardInterrupt()"), (signal.SIGTERM, "SystemExit(3)")],
)
def test_signals_end_a_read_of_another_library(
    python: str,
    tmp_path: Path,
    curtail_cluster: Cluster,
    curtail_topic: str,
    number: signal.Signals,
    raised: str,
) -> None:
    asyncio.run(fill(curtail_cluster.bootstrap_servers, curtail_topic, 100))
    program = tmp_path / "program.py"
    program.write_text(READS)
    command = [python, str(program), curtail_cluster.bootstrap_servers, curtail_topic]
    with (
        started(*command, stdin=subprocess.PIPE) as running,
        ExitStack() as frozen,
    ):
        assert running.stdin and running.stdout
        assert running.stdout.readline() == "scanned\n"
        for broker in curtail_cluster.broker_ids:
            frozen.enter_context(curtail_cluster.frozen(broker))
        print(file=running.stdin, flush=True)
        assert running.stdout.readline() == "reads\n"
        # The signal may arrive before the wait begins, which then ends as well.
        time.sleep(0.3)
        begun = time.monotonic()
        running.send_signal(number)
        assert running.stdout.readline() == f"interrupted {raised}\n"
        # Far less than the read, which would last for default.api.timeout.ms.
        assert time.monotonic() - begun < 5
        assert running.wait(20) == 0
