"""What each client does in each workload. `compare.py` runs each function in a separate process.

A client is imported inside its functions: each has a separate environment.
"""

import asyncio
import json
import math
import pathlib
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from resource import RUSAGE_SELF, getrusage
from typing import Any

VALUE = bytes(100)
PARTITIONS = 6
"""Partitions of the topic, where there is one."""
BATCH = 10_000
"""Records of a data frame."""
WARM_UP = 500
"""Trips before those that are measured."""
COMMAND = pathlib.Path(__file__).resolve().parents[3] / "target" / "release" / "curtail"
"""With the Rust client, if the checkout has a release build."""
Figures = dict[str, float]
Send = Callable[[str], Awaitable[Any]]


@dataclass(frozen=True)
class Asked:
    """What a run is asked to do."""

    servers: str
    topics: tuple[str, ...]
    records: int
    tasks: int

    @property
    def topic(self) -> str:
        return self.topics[0]


@dataclass
class Meter:
    """Elapsed time and the process's CPU time of the block that it encloses."""

    records: int
    figures: Figures = field(default_factory=dict)

    def __enter__(self) -> "Meter":
        self._usage, self._began = getrusage(RUSAGE_SELF), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        took, usage = time.perf_counter() - self._began, getrusage(RUSAGE_SELF)
        cpu = usage.ru_utime + usage.ru_stime - self._usage.ru_utime - self._usage.ru_stime
        self.figures["records/s"] = self.records / took
        self.figures["CPU us/record"] = cpu / self.records * 1e6

    def latencies(self, seconds: list[float]) -> None:
        seconds.sort()
        for name, quantile in (("p50 ms", 0.5), ("p99 ms", 0.99), ("p99.9 ms", 0.999)):
            self.figures[name] = seconds[math.ceil(len(seconds) * quantile) - 1] * 1e3


@contextmanager
def heartbeat(meter: Meter) -> Iterator[None]:
    """Measures by how much a task of the event loop that is due every 5 ms is late."""
    late: list[float] = []

    async def beat() -> None:
        due = time.perf_counter()
        while True:
            due = max(due + 0.005, time.perf_counter())
            await asyncio.sleep(due - time.perf_counter())
            late.append(time.perf_counter() - due)

    task = asyncio.get_running_loop().create_task(beat())
    try:
        yield
    finally:
        task.cancel()
        late.sort()
        if late:
            meter.figures["loop late p99 ms"] = late[len(late) * 99 // 100] * 1e3


# Sends, each awaited.


async def await_each(send: Send, asked: Asked) -> Figures:
    """Tasks that each await the acknowledgement of a record before they send the next one."""
    latencies: list[float] = []
    left = iter(range(asked.records))

    async def worker() -> None:
        for number in left:
            topic = asked.topics[number % len(asked.topics)]
            began = time.perf_counter()
            await send(topic)
            latencies.append(time.perf_counter() - began)

    await asyncio.gather(*(send(topic) for topic in asked.topics for _ in range(10)))
    meter = Meter(asked.records)
    with heartbeat(meter), meter:
        await asyncio.gather(*(worker() for _ in range(asked.tasks)))
    meter.latencies(latencies)
    return meter.figures


async def await_curtail(asked: Asked) -> Figures:
    import curtail_kafka

    async with curtail_kafka.Producer(asked.servers) as producer:
        await producer.warm_up(*asked.topics)
        return await await_each(lambda topic: producer.send(topic, VALUE), asked)


async def await_aiokafka(asked: Asked) -> Figures:
    from aiokafka import AIOKafkaProducer

    servers = asked.servers
    async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
        return await await_each(lambda topic: producer.send_and_wait(topic, VALUE), asked)


async def await_confluent(asked: Asked) -> Figures:
    """By default its producer gathers 1,000 records or waits for 1 s, and polls for outcomes then.

    Here batches are smaller and a task polls: otherwise this would measure the timer.
    """
    from confluent_kafka.aio import AIOProducer

    settings = {"bootstrap.servers": asked.servers, "enable.idempotence": True}
    producer = AIOProducer(settings, batch_size=100, buffer_timeout=0.005)

    async def send(topic: str) -> None:
        await (await producer.produce(topic, value=VALUE))

    async def poll() -> None:
        while True:
            await producer.poll(0.05)

    polling = asyncio.get_running_loop().create_task(poll())
    try:
        return await await_each(send, asked)
    finally:
        polling.cancel()
        await producer.close()


async def await_idle(asked: Asked) -> Figures:
    """The cost of asyncio and of this measurement: futures that the loop's next turn resolves."""
    loop = asyncio.get_running_loop()

    def send(_: str) -> asyncio.Future[None]:
        future = loop.create_future()
        loop.call_soon(future.set_result, None)
        return future

    return await await_each(send, asked)


# Sends whose outcomes are not awaited one by one.


async def pipeline_curtail(asked: Asked) -> Figures:
    import curtail_kafka

    async with curtail_kafka.Producer(asked.servers) as producer:
        await producer.warm_up(asked.topic)
        meter = Meter(asked.records)
        with heartbeat(meter), meter:
            async with producer.pipeline() as pipeline:
                for _ in range(asked.records):
                    await pipeline.send(asked.topic, VALUE)
        return meter.figures


def pipeline_confluent(asked: Asked) -> Figures:
    from confluent_kafka import Producer

    failed = []

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": asked.servers, "enable.idempotence": True})
    producer.produce(asked.topic, VALUE)
    producer.flush()
    meter = Meter(asked.records)
    with meter:
        for number in range(asked.records):
            while True:
                try:
                    producer.produce(asked.topic, VALUE, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.01)
            if number % 1000 == 0:
                producer.poll(0)
        producer.flush()
    assert not failed, failed[0]
    return meter.figures


def pipeline_kafka_python(asked: Asked) -> Figures:
    from kafka import KafkaProducer

    failed: list[object] = []
    producer = KafkaProducer(bootstrap_servers=asked.servers)
    producer.send(asked.topic, VALUE).get()
    meter = Meter(asked.records)
    with meter:
        for _ in range(asked.records):
            producer.send(asked.topic, VALUE).add_errback(failed.append)
        producer.flush()
    assert not failed, failed[0]
    producer.close()
    return meter.figures


async def arrow_curtail(asked: Asked) -> Figures:
    import pyarrow

    import curtail_kafka

    table = pyarrow.table({"value": pyarrow.array([VALUE] * asked.records, pyarrow.binary())})
    async with curtail_kafka.Producer(asked.servers) as producer:
        await producer.warm_up(asked.topic)
        meter = Meter(asked.records)
        with heartbeat(meter), meter:
            await producer.send_arrow(asked.topic, table, value="value")
        return meter.figures


# Reads of a backlog, from its beginning. The first records, and with them the connections and the
# rebalance of clients that need a group, come before the measurement.


async def iterated(records: AsyncIterator[Any], asked: Asked) -> Figures:
    """Reads with `async for`."""
    await anext(records)
    read = 1
    meter = Meter(asked.records - read)
    with heartbeat(meter), meter:
        async for record in records:
            read += len(record.value) > 0
            if read == asked.records:
                break
    return meter.figures


async def polled(poll: Callable[[int], Awaitable[int]], asked: Asked) -> Figures:
    """Reads with `poll`, which takes a limit on records and returns how many it has read."""
    read = 0
    while not read:
        read = await poll(asked.records)
    meter = Meter(asked.records - read)
    with heartbeat(meter), meter:
        while read < asked.records:
            read += await poll(asked.records - read)
    return meter.figures


def polled_by_thread(poll: Callable[[int], int], asked: Asked) -> Figures:
    """As `polled`, without an event loop."""
    read = 0
    while not read:
        read = poll(asked.records)
    meter = Meter(asked.records - read)
    with meter:
        while read < asked.records:
            read += poll(asked.records - read)
    return meter.figures


def count(values: Iterable[bytes]) -> int:
    """Looks at each value."""
    return sum(len(value) > 0 for value in values)


def curtail_reader(asked: Asked) -> Any:
    import curtail_kafka

    return curtail_kafka.Consumer(asked.servers, asked.topic, auto_offset_reset="earliest")


def confluent_settings(asked: Asked) -> dict[str, object]:
    """Settings of a confluent-kafka consumer. It verifies checksums, as the others do."""
    return {
        "bootstrap.servers": asked.servers,
        "group.id": "bench",
        "enable.auto.commit": False,
        "check.crcs": True,
    }


def partitions(asked: Asked, offset: int) -> list[Any]:
    """All partitions of the topic, for an assignment."""
    from confluent_kafka import TopicPartition

    return [TopicPartition(asked.topic, number, offset) for number in range(PARTITIONS)]


def confluent_reader(asked: Asked, offset: int) -> Any:
    from confluent_kafka import Consumer

    consumer = Consumer(confluent_settings(asked))
    consumer.assign(partitions(asked, offset))
    return consumer


def values(records: list[Any]) -> list[bytes]:
    for record in records:
        assert record.error() is None, record.error()
    return [record.value() for record in records]


async def records_curtail(asked: Asked) -> Figures:
    async with curtail_reader(asked) as consumer:
        return await iterated(aiter(consumer), asked)


async def records_aiokafka(asked: Asked) -> Figures:
    from aiokafka import AIOKafkaConsumer

    servers = asked.servers
    options = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with AIOKafkaConsumer(asked.topic, bootstrap_servers=servers, **options) as consumer:
        return await iterated(aiter(consumer), asked)


async def records_confluent(asked: Asked) -> Figures:
    """`consume` of 500 records, awaited: its asyncio consumer has no iterator."""
    from confluent_kafka import OFFSET_BEGINNING
    from confluent_kafka.aio import AIOConsumer

    consumer = AIOConsumer(confluent_settings(asked))
    await consumer.assign(partitions(asked, OFFSET_BEGINNING))

    async def poll(most: int) -> int:
        return count(values(await consumer.consume(min(500, most), 1.0)))

    figures = await polled(poll, asked)
    await consumer.close()
    return figures


async def polls_curtail(asked: Asked) -> Figures:
    async with curtail_reader(asked) as consumer:

        async def poll(_: int) -> int:
            return count(record.value for record in await consumer.poll())

        return await polled(poll, asked)


def polls_confluent(asked: Asked) -> Figures:
    from confluent_kafka import OFFSET_BEGINNING

    consumer = confluent_reader(asked, OFFSET_BEGINNING)

    def poll(most: int) -> int:
        return count(values(consumer.consume(min(500, most), 1.0)))

    figures = polled_by_thread(poll, asked)
    consumer.close()
    return figures


def polls_kafka_python(asked: Asked) -> Figures:
    from kafka import KafkaConsumer

    servers = asked.servers
    consumer = KafkaConsumer(asked.topic, bootstrap_servers=servers, auto_offset_reset="earliest")

    def poll(_: int) -> int:
        polled = consumer.poll(1000, max_records=500)
        return count(record.value for records in polled.values() for record in records)

    figures = polled_by_thread(poll, asked)
    consumer.close()
    return figures


async def polars_curtail(asked: Asked) -> Figures:
    import polars

    async with curtail_reader(asked) as consumer:

        async def poll(most: int) -> int:
            batch = await consumer.poll_batch(max_records=min(BATCH, most), columns=["value"])
            return 0 if batch is None else polars.DataFrame(batch).height

        return await polled(poll, asked)


def polars_confluent(asked: Asked) -> Figures:
    import polars
    import pyarrow
    from confluent_kafka import OFFSET_BEGINNING

    consumer = confluent_reader(asked, OFFSET_BEGINNING)

    def poll(most: int) -> int:
        column = values(consumer.consume(min(BATCH, most), 0.1))
        return polars.from_arrow(pyarrow.table({"value": column})).height if column else 0

    figures = polled_by_thread(poll, asked)
    consumer.close()
    return figures


# One record at a time, from the send to the read.


async def trips(trip: Callable[[], Awaitable[object]], asked: Asked) -> Figures:
    for _ in range(WARM_UP):
        await trip()
    latencies, meter = [], Meter(asked.records)
    with meter:
        for _ in range(asked.records):
            began = time.perf_counter()
            await trip()
            latencies.append(time.perf_counter() - began)
    meter.latencies(latencies)
    return meter.figures


def trips_by_thread(trip: Callable[[], object], asked: Asked) -> Figures:
    for _ in range(WARM_UP):
        trip()
    latencies, meter = [], Meter(asked.records)
    with meter:
        for _ in range(asked.records):
            began = time.perf_counter()
            trip()
            latencies.append(time.perf_counter() - began)
    meter.latencies(latencies)
    return meter.figures


async def trip_curtail(asked: Asked) -> Figures:
    import curtail_kafka

    async with (
        curtail_kafka.Producer(asked.servers, linger_ms=0) as producer,
        curtail_kafka.Consumer(asked.servers, asked.topic) as consumer,
    ):

        async def trip() -> None:
            await producer.send(asked.topic, VALUE)
            while not await consumer.poll(1.0):
                pass

        await producer.send(asked.topic, VALUE)
        while not await consumer.poll(0.1):
            await producer.send(asked.topic, VALUE)
        while await consumer.poll(0.1):
            pass
        return await trips(trip, asked)


async def trip_aiokafka(asked: Asked) -> Figures:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    servers = asked.servers
    async with (
        AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer,
        AIOKafkaConsumer(asked.topic, bootstrap_servers=servers) as consumer,
    ):

        async def trip() -> None:
            await producer.send_and_wait(asked.topic, VALUE)
            await consumer.getone()

        await producer.send_and_wait(asked.topic, VALUE)
        while not await consumer.getmany(timeout_ms=100):
            await producer.send_and_wait(asked.topic, VALUE)
        while await consumer.getmany(timeout_ms=100):
            pass
        return await trips(trip, asked)


def trip_confluent(asked: Asked) -> Figures:
    from confluent_kafka import OFFSET_END, Producer

    producer = Producer(
        {"bootstrap.servers": asked.servers, "enable.idempotence": True, "linger.ms": 0}
    )
    consumer = confluent_reader(asked, OFFSET_END)

    def delivered(error: object, _: object) -> None:
        assert error is None, error

    def send() -> None:
        producer.produce(asked.topic, VALUE, on_delivery=delivered)
        producer.flush()

    def trip() -> None:
        send()
        while consumer.poll(1.0) is None:
            pass

    send()
    while consumer.poll(0.1) is None:
        send()
    while consumer.poll(0.1) is not None:
        pass
    figures = trips_by_thread(trip, asked)
    consumer.close()
    return figures


def trip_kafka_python(asked: Asked) -> Figures:
    from kafka import KafkaConsumer, KafkaProducer

    servers = asked.servers
    producer = KafkaProducer(bootstrap_servers=servers)
    consumer = KafkaConsumer(asked.topic, bootstrap_servers=servers)

    def trip() -> None:
        producer.send(asked.topic, VALUE).get()
        while not consumer.poll(1000):
            pass

    producer.send(asked.topic, VALUE).get()
    while not consumer.poll(100):
        producer.send(asked.topic, VALUE).get()
    while consumer.poll(100):
        pass
    figures = trips_by_thread(trip, asked)
    consumer.close()
    producer.close()
    return figures


def trip_rust(asked: Asked) -> Figures:
    """The Rust client itself, without Python: `curtail perf e2e`."""
    with tempfile.NamedTemporaryFile() as file:
        command = [
            str(COMMAND), "perf", "e2e", "--bootstrap-server", asked.servers,
            "--topic", asked.topic, "--record-size", str(len(VALUE)), "--json", file.name,
            "--num-records", str(WARM_UP + asked.records), "--warmup-records", str(WARM_UP),
        ]  # fmt: skip
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        report = json.load(file)
    figures = {
        "records/s": report["throughput_rps"],
        "CPU us/record": report["cpu_us_per_record"],
    }
    for name, quantile in (("p50 ms", "p50"), ("p99 ms", "p99"), ("p99.9 ms", "p999")):
        figures[name] = report["latency_us"][quantile] / 1e3
    return figures


# A consumer with nothing to read, for 10 s.


async def idle_curtail(asked: Asked) -> Figures:
    import curtail_kafka

    async with curtail_kafka.Consumer(asked.servers, asked.topic) as consumer:
        await consumer.poll(1.0)
        return await cpu_of(consumer.poll(10.0))


async def idle_aiokafka(asked: Asked) -> Figures:
    from aiokafka import AIOKafkaConsumer

    async with AIOKafkaConsumer(asked.topic, bootstrap_servers=asked.servers) as consumer:
        await consumer.getmany(timeout_ms=1000)
        return await cpu_of(consumer.getmany(timeout_ms=10_000))


async def idle_confluent(asked: Asked) -> Figures:
    from confluent_kafka import OFFSET_END

    consumer = confluent_reader(asked, OFFSET_END)
    consumer.poll(1.0)
    figures = await cpu_of(asyncio.to_thread(consumer.poll, 10.0))
    consumer.close()
    return figures


async def cpu_of(work: Awaitable[object]) -> Figures:
    usage, began = getrusage(RUSAGE_SELF), time.perf_counter()
    await work
    after, took = getrusage(RUSAGE_SELF), time.perf_counter() - began
    cpu = after.ru_utime + after.ru_stime - usage.ru_utime - usage.ru_stime
    return {"% of a core": cpu / took * 100}


async def fill(asked: Asked) -> Figures:
    """Not a measurement: writes the backlog."""
    return await pipeline_curtail(asked)
