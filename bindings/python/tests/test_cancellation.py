"""Cancellation at every await of the asynchronous clients."""

import asyncio
import contextlib
import gc
import inspect
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from cancelling import cancelled_everywhere

import curtail_kafka as curtail
from curtail_kafka import GroupMetadata, NewRecord, TopicPartition, _native
from curtail_kafka.admin import (
    AbortTransaction,
    AclFilter,
    ConfigResource,
    LogDirMove,
    NewPartitions,
    NewTopic,
    QuotaEntity,
    ScramChange,
)
from curtail_kafka.testing import Cluster

CLASSES: list[type] = [
    curtail.Producer,
    curtail.Pipeline,
    curtail.TransactionalProducer,
    curtail.Transaction,
    curtail.Consumer,
    curtail.Admin,
]
ROWS = pa.table({"value": ["x", "y"]})
ID = UUID(int=7)
_names = itertools.count(1)

Awaited = Coroutine[Any, Any, Any]


class Bench:
    """The clients of a test. A case prepares one call of a method, and returns its coroutine."""

    def __init__(self, cluster: Cluster) -> None:
        self.servers = cluster.bootstrap_servers
        self.name = f"cancelled-{next(_names)}"
        self.topic = self.name
        cluster.create_topic(self.topic, replication_factor=1)
        self.at = TopicPartition(self.topic, 0)
        self.clients: dict[str, Any] = {}
        self.transaction: curtail.Transaction | None = None
        self.begun = 0
        self.written = 0
        self.read: list[int] = []
        """The numbers of the records that the program has received."""

    def shared(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self.clients:
            self.clients[name] = make()
        return self.clients[name]

    def fresh(self, make: Callable[[], Any]) -> Any:
        """A client for one call."""
        client = self.clients[f"client {len(self.clients)}"] = make()
        return client

    def new_producer(self) -> curtail.Producer:
        return curtail.Producer(self.servers)

    def new_transactional(self) -> curtail.TransactionalProducer:
        return curtail.TransactionalProducer(self.servers, transactional_id=self.name)

    def new_consumer(self, *topics: str) -> curtail.Consumer:
        return curtail.Consumer(
            self.servers,
            *topics,
            group_id=self.name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )

    @property
    def producer(self) -> curtail.Producer:
        producer: curtail.Producer = self.shared("producer", self.new_producer)
        return producer

    @property
    def transactional(self) -> curtail.TransactionalProducer:
        made: curtail.TransactionalProducer = self.shared("transactional", self.new_transactional)
        return made

    @property
    def admin(self) -> curtail.Admin:
        admin: curtail.Admin = self.shared("admin", lambda: curtail.Admin(self.servers))
        return admin

    async def consumer(self) -> curtail.Consumer:
        """A consumer of the topic, which no group assigns: it need not wait for other members."""
        is_new = "consumer" not in self.clients
        consumer: curtail.Consumer = self.shared("consumer", self.new_consumer)
        if is_new:
            await consumer.assign([self.at])
        return consumer

    async def write(self) -> None:
        for _ in range(3):
            await self.producer.send(self.topic, str(self.written))
            self.written += 1

    def receive(self, records: Any) -> None:
        self.read += [int(record.value) for record in records]

    async def begin(self) -> curtail.Transaction:
        self.transaction = self.transactional.transaction()
        self.begun += 1
        return await self.transaction.__aenter__()

    async def close(self) -> None:
        for client in reversed(self.clients.values()):
            await client.close()


Case = Callable[[Bench], Awaitable[Awaited]]


def simple(call: Callable[[Bench], Awaited]) -> Case:
    async def prepare(bench: Bench) -> Awaited:
        return call(bench)

    return prepare


def consuming(call: Callable[[curtail.Consumer, Bench], Awaited]) -> Case:
    async def prepare(bench: Bench) -> Awaited:
        return call(await bench.consumer(), bench)

    return prepare


def reading(call: Callable[[curtail.Consumer], Awaitable[Any]]) -> Case:
    """A call that returns records, which lie in the log."""

    async def prepare(bench: Bench) -> Awaited:
        consumer = await bench.consumer()
        await bench.write()

        async def read() -> None:
            bench.receive(await call(consumer))

        return read()

    return prepare


def iterating(iterate: Callable[[curtail.Consumer], AsyncIterator[Any]]) -> Case:
    async def first(consumer: curtail.Consumer) -> Any:
        found = await anext(iterate(consumer))
        return [found] if isinstance(found, curtail.Record) else found

    return reading(first)


def in_transaction(call: Callable[[curtail.Transaction, Bench], Awaited]) -> Case:
    async def prepare(bench: Bench) -> Awaited:
        return call(await bench.begin(), bench)

    return prepare


def entering(make: Callable[[Bench], Any], method: str = "__aenter__") -> Case:
    return simple(lambda b: getattr(b.fresh(lambda: make(b)), method)())


def leaving(make: Callable[[Bench], Any], method: str, *arguments: None) -> Case:
    async def prepare(bench: Bench) -> Awaited:
        client = bench.fresh(lambda: make(bench))
        await client.connect()
        awaited: Awaited = getattr(client, method)(*arguments)
        return awaited

    return prepare


async def flushing(bench: Bench) -> Awaited:
    bench.producer.send(bench.topic, b"x")
    return bench.producer.flush()


async def sending_in_a_pipeline(bench: Bench) -> Awaited:
    pipeline = bench.producer.pipeline(limit=1)
    bench.fresh(lambda: Left(pipeline))
    await pipeline.__aenter__()
    await pipeline.send(bench.topic, b"first")
    # It waits for the first one.
    return pipeline.send(bench.topic, b"second")


async def leaving_a_pipeline(bench: Bench) -> Awaited:
    pipeline = bench.producer.pipeline()
    await pipeline.__aenter__()
    await pipeline.send(bench.topic, b"x")
    return pipeline.__aexit__(None, None, None)


class Left:
    """A pipeline whose block ends with its client."""

    def __init__(self, pipeline: curtail.Pipeline) -> None:
        self.pipeline = pipeline

    async def close(self) -> None:
        await self.pipeline.__aexit__(None, None, None)


async def beginning(bench: Bench) -> Awaited:
    bench.transaction = bench.transactional.transaction()
    return bench.transaction.__aenter__()


async def committing(bench: Bench) -> Awaited:
    transaction = await bench.begin()
    transaction.send(bench.topic, b"x")
    return transaction.__aexit__(None, None, None)


PRODUCERS: dict[str, Case] = {
    "Producer.connect": simple(lambda b: b.producer.connect()),
    "Producer.warm_up": simple(lambda b: b.producer.warm_up(b.topic)),
    "Producer.partitions_for": simple(lambda b: b.producer.partitions_for(b.topic)),
    "Producer.client_instance_id": simple(lambda b: b.producer.client_instance_id(0.05)),
    "Producer.send_many": simple(lambda b: b.producer.send_many(b.topic, [NewRecord(b"x")])),
    "Producer.send_arrow": simple(lambda b: b.producer.send_arrow(b.topic, ROWS, value="value")),
    "Producer.flush": flushing,
    "Producer.close": leaving(Bench.new_producer, "close"),
    "Producer.__aenter__": entering(Bench.new_producer),
    "Producer.__aexit__": leaving(Bench.new_producer, "__aexit__", None, None, None),
    "Pipeline.send": sending_in_a_pipeline,
    "Pipeline.__aenter__": simple(lambda b: b.producer.pipeline().__aenter__()),
    "Pipeline.__aexit__": leaving_a_pipeline,
    "TransactionalProducer.connect": entering(Bench.new_transactional, "connect"),
    "TransactionalProducer.warm_up": simple(lambda b: b.transactional.warm_up(b.topic)),
    "TransactionalProducer.partitions_for": simple(
        lambda b: b.transactional.partitions_for(b.topic)
    ),
    "TransactionalProducer.client_instance_id": simple(
        lambda b: b.transactional.client_instance_id(0.05)
    ),
    "TransactionalProducer.close": leaving(Bench.new_transactional, "close"),
    "TransactionalProducer.__aenter__": entering(Bench.new_transactional),
    "TransactionalProducer.__aexit__": leaving(
        Bench.new_transactional, "__aexit__", None, None, None
    ),
}
TRANSACTIONS: dict[str, Case] = {
    "Transaction.send_many": in_transaction(lambda t, b: t.send_many(b.topic, [NewRecord(b"x")])),
    "Transaction.send_arrow": in_transaction(
        lambda t, b: t.send_arrow(b.topic, ROWS, value="value")
    ),
    "Transaction.send_offsets": in_transaction(
        lambda t, b: t.send_offsets({b.at: 0}, GroupMetadata(b.name))
    ),
    "Transaction.flush": in_transaction(lambda t, _: t.flush()),
    "Transaction.__aenter__": beginning,
    "Transaction.__aexit__": committing,
}
CONSUMERS: dict[str, Case] = {
    "Consumer.connect": entering(lambda b: b.new_consumer(b.topic), "connect"),
    "Consumer.close": leaving(lambda b: b.new_consumer(b.topic), "close"),
    "Consumer.__aenter__": entering(lambda b: b.new_consumer(b.topic)),
    "Consumer.__aexit__": leaving(lambda b: b.new_consumer(b.topic), "__aexit__", None, None, None),
    "Consumer.poll": reading(lambda c: c.poll(10)),
    "Consumer.polls": iterating(lambda c: c.polls()),
    "Consumer.poll_batch": reading(lambda c: c.poll_batch(10)),
    "Consumer.batches": iterating(lambda c: c.batches()),
    "Consumer.__aiter__": iterating(aiter),
    "Consumer.subscribe": consuming(lambda c, b: c.subscribe(b.topic)),
    "Consumer.unsubscribe": consuming(lambda c, _: c.unsubscribe()),
    "Consumer.assign": consuming(lambda c, b: c.assign([b.at])),
    "Consumer.seek": consuming(lambda c, b: c.seek(b.at, "beginning")),
    "Consumer.pause": consuming(lambda c, b: c.pause(b.at)),
    "Consumer.resume": consuming(lambda c, b: c.resume(b.at)),
    "Consumer.commit": consuming(lambda c, b: c.commit({b.at: 0})),
    "Consumer.position": consuming(lambda c, b: c.position(b.at)),
    "Consumer.committed": consuming(lambda c, b: c.committed(b.at)),
    "Consumer.beginning_offsets": consuming(lambda c, b: c.beginning_offsets([b.at])),
    "Consumer.end_offsets": consuming(lambda c, b: c.end_offsets([b.at])),
    "Consumer.offsets_for_times": consuming(lambda c, b: c.offsets_for_times({b.at: 0})),
    "Consumer.lag": consuming(lambda c, b: c.lag(b.at)),
    "Consumer.partitions_for": consuming(lambda c, b: c.partitions_for(b.topic)),
    "Consumer.client_instance_id": consuming(lambda c, _: c.client_instance_id(0.05)),
}
MOVES = ["subscribe", "unsubscribe", "assign", "seek", "pause", "resume"]
"""Methods of a consumer after which it need not continue where it was."""
ADMINISTRATION: dict[str, Callable[[curtail.Admin, Bench], Awaited]] = {
    "connect": lambda a, _: a.connect(),
    "close": lambda _, b: b.fresh(lambda: curtail.Admin(b.servers)).close(),
    "__aenter__": lambda _, b: b.fresh(lambda: curtail.Admin(b.servers)).__aenter__(),
    "__aexit__": lambda _, b: b.fresh(lambda: curtail.Admin(b.servers)).__aexit__(None, None, None),
    "create_topics": lambda a, b: a.create_topics([NewTopic(f"{b.name}-new")]),
    "delete_topics": lambda a, b: a.delete_topics([f"{b.name}-missing"]),
    "delete_topics_by_id": lambda a, _: a.delete_topics_by_id([ID]),
    "create_partitions": lambda a, b: a.create_partitions([NewPartitions(b.topic, 2)]),
    "describe_configs": lambda a, b: a.describe_configs([ConfigResource.topic(b.topic)]),
    "incremental_alter_configs": lambda a, b: a.incremental_alter_configs(
        {ConfigResource.topic(b.topic): []}
    ),
    "list_topics": lambda a, _: a.list_topics(),
    "describe_topics": lambda a, b: a.describe_topics([b.topic]),
    "describe_topics_by_id": lambda a, _: a.describe_topics_by_id([ID]),
    "describe_cluster": lambda a, _: a.describe_cluster(),
    "list_groups": lambda a, _: a.list_groups(),
    "describe_groups": lambda a, b: a.describe_groups([b.name]),
    "delete_groups": lambda a, b: a.delete_groups([b.name]),
    "list_group_offsets": lambda a, b: a.list_group_offsets([b.name]),
    "alter_group_offsets": lambda a, b: a.alter_group_offsets(b.name, {b.at: 0}),
    "delete_group_offsets": lambda a, b: a.delete_group_offsets(b.name, [b.at]),
    "list_offsets": lambda a, b: a.list_offsets({b.at: "latest"}),
    "delete_records": lambda a, b: a.delete_records({b.at: 0}),
    "alter_partition_reassignments": lambda a, b: a.alter_partition_reassignments({b.at: None}),
    "list_partition_reassignments": lambda a, _: a.list_partition_reassignments(),
    "elect_leaders": lambda a, b: a.elect_leaders("preferred", [b.at]),
    "describe_log_dirs": lambda a, _: a.describe_log_dirs([1]),
    "describe_features": lambda a, _: a.describe_features(),
    "update_features": lambda a, _: a.update_features({"none.version": 1}),
    "unregister_broker": lambda a, _: a.unregister_broker(99),
    "alter_replica_log_dirs": lambda a, b: a.alter_replica_log_dirs([LogDirMove(1, b.at, "/no")]),
    "list_config_resources": lambda a, _: a.list_config_resources(),
    "remove_group_members": lambda a, b: a.remove_group_members(b.name, member_ids=["nobody"]),
    "fence_producers": lambda a, b: a.fence_producers([b.name]),
    "describe_metadata_quorum": lambda a, _: a.describe_metadata_quorum(),
    "describe_producers": lambda a, b: a.describe_producers([b.at]),
    "list_transactions": lambda a, _: a.list_transactions(),
    "describe_transactions": lambda a, b: a.describe_transactions([b.name]),
    "abort_transaction": lambda a, b: a.abort_transaction(AbortTransaction(b.at, 7, 0, 0)),
    "describe_acls": lambda a, _: a.describe_acls(),
    "create_acls": lambda a, _: a.create_acls([]),
    "delete_acls": lambda a, _: a.delete_acls([AclFilter()]),
    "describe_client_quotas": lambda a, _: a.describe_client_quotas(),
    "alter_client_quotas": lambda a, _: a.alter_client_quotas({QuotaEntity({"user": "a"}): {}}),
    "describe_user_scram_credentials": lambda a, _: a.describe_user_scram_credentials(),
    "alter_user_scram_credentials": lambda a, _: a.alter_user_scram_credentials(
        [ScramChange("nobody", "SCRAM-SHA-256", None)]
    ),
    "client_instance_id": lambda a, _: a.client_instance_id(0.05),
}
ELSEWHERE = {"doctor": "test_doctor.py"}


def is_asynchronous(member: object) -> bool:
    return inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member)


def test_every_asynchronous_method_has_a_case() -> None:
    entries = ("__aenter__", "__aexit__", "__aiter__", "__anext__")
    methods = {
        f"{one.__name__}.{name}"
        for one in CLASSES
        for name, _ in inspect.getmembers(one, is_asynchronous)
        if not name.startswith("_") or name in entries
    }
    administration = {f"Admin.{name}" for name in ADMINISTRATION}
    assert methods == {*PRODUCERS, *TRANSACTIONS, *CONSUMERS} | administration
    functions = {name for name in curtail.__all__ if is_asynchronous(getattr(curtail, name))}
    assert functions == ELSEWHERE.keys()
    others = [getattr(curtail, name) for name in curtail.__all__]
    with_methods = {
        one for one in others if inspect.isclass(one) and inspect.getmembers(one, is_asynchronous)
    }
    assert with_methods == set(CLASSES)


async def outcome(awaitable: Awaitable[Any]) -> type:
    """The type of a result, or of an exception."""
    try:
        return type(await awaitable)
    except curtail.Error as error:
        return type(error)


async def no_results_pending() -> None:
    async with asyncio.timeout(20):
        while _native.pending_results():
            await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def opened(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Bench]:
    """A bench, after which nothing is left."""
    bench = Bench(cluster)
    yield bench
    await bench.close()
    await no_results_pending()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    bench.clients.clear()
    gc.collect()
    assert not [record for record in caplog.records if record.name == "asyncio"]


@pytest.fixture
async def bench(curtail_cluster: Cluster, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Bench]:
    async with opened(curtail_cluster, caplog) as bench:
        yield bench


async def cancel_everywhere(case: Case, bench: Bench, after: Callable[[], Awaitable[None]]) -> None:
    """Cancels the calls of a case at each place. Each time, the next call succeeds."""
    await after()
    expected = await outcome(await case(bench))
    await after()
    async for stop, task in cancelled_everywhere(lambda: case(bench)):
        await after()
        await no_results_pending()
        found = await outcome(await case(bench) if stop.reached else task)
        assert found is expected, f"the next call, after one was cancelled {stop}"
        await after()


async def nothing() -> None: ...


@pytest.mark.parametrize("method", PRODUCERS)
async def test_cancelled_calls_of_producers_leave_no_trace(bench: Bench, method: str) -> None:
    await cancel_everywhere(PRODUCERS[method], bench, nothing)
    async with asyncio.timeout(20):
        assert (await bench.producer.send(bench.topic, b"x")).offset is not None


@pytest.mark.parametrize("method", TRANSACTIONS)
async def test_cancelled_calls_of_transactions_leave_no_trace(bench: Bench, method: str) -> None:
    ended = 0

    async def end() -> None:
        """Aborts a transaction that is open, and commits another one."""
        nonlocal ended
        transaction, bench.transaction = bench.transaction, None
        if transaction is not None:
            with contextlib.suppress(curtail.IllegalStateError):
                error = ZeroDivisionError()
                await transaction.__aexit__(ZeroDivisionError, error, None)
        async with bench.transactional.transaction() as following:
            following.send(bench.topic, b"next")
        ended += 1

    await cancel_everywhere(TRANSACTIONS[method], bench, end)
    values = await committed(bench)
    assert values.count(b"next") == ended
    # A commit that was cancelled before its first step did not begin, and the others continue.
    commits = bench.begun - 1 if method == "Transaction.__aexit__" else 0
    assert len(values) == ended + commits


async def committed(bench: Bench) -> list[bytes | None]:
    values: list[bytes | None] = []
    options: Any = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
    # The response to a commit may precede its markers, which advance the last stable offset.
    async with curtail.Consumer(bench.servers, isolation_level="read_uncommitted") as consumer:
        end = (await consumer.end_offsets([bench.at]))[bench.at]
    async with curtail.Consumer(bench.servers, bench.topic, **options) as consumer:
        async with asyncio.timeout(20):
            while await consumer.position(bench.at) < end:
                values += [record.value for record in await consumer.poll(0.1)]
    return values


@pytest.mark.parametrize("method", CONSUMERS)
async def test_cancelled_calls_of_consumers_lose_no_record(bench: Bench, method: str) -> None:
    async def catch_up() -> None:
        """Reads to the end: each record once, in order."""
        consumer = await bench.consumer()
        if method.removeprefix("Consumer.") in MOVES:
            await consumer.assign([bench.at])
            await consumer.resume(bench.at)
            await consumer.seek(bench.at, 0)
            bench.read.clear()
        async with asyncio.timeout(20):
            while len(bench.read) < bench.written:
                bench.receive(await consumer.poll(1))
        assert bench.read == list(range(bench.written))

    await bench.write()
    await cancel_everywhere(CONSUMERS[method], bench, catch_up)


@pytest.mark.parametrize("method", ADMINISTRATION)
async def test_cancelled_calls_of_admins_leave_no_trace(bench: Bench, method: str) -> None:
    case = simple(lambda b: ADMINISTRATION[method](b.admin, b))
    await cancel_everywhere(case, bench, nothing)
    assert bench.topic in {topic.name for topic in await bench.admin.list_topics()}


Check = Callable[[Bench, str], Coroutine[Any, Any, None]]
ON_UVLOOP: dict[str, Check] = {
    "Producer.send_many": test_cancelled_calls_of_producers_leave_no_trace,
    "Producer.close": test_cancelled_calls_of_producers_leave_no_trace,
    "Pipeline.send": test_cancelled_calls_of_producers_leave_no_trace,
    "Transaction.__aenter__": test_cancelled_calls_of_transactions_leave_no_trace,
    "Transaction.__aexit__": test_cancelled_calls_of_transactions_leave_no_trace,
    "Consumer.poll": test_cancelled_calls_of_consumers_lose_no_record,
    "Consumer.poll_batch": test_cancelled_calls_of_consumers_lose_no_record,
    "Consumer.commit": test_cancelled_calls_of_consumers_lose_no_record,
    "list_topics": test_cancelled_calls_of_admins_leave_no_trace,
}


@pytest.mark.parametrize("method", ON_UVLOOP)
def test_cancelled_calls_on_uvloop(
    curtail_cluster: Cluster, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def main() -> None:
        async with opened(curtail_cluster, caplog) as bench:
            await ON_UVLOOP[method](bench, method)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


async def test_cancelled_wait_for_a_scan_ends_no_reading(bench: Bench) -> None:
    await bench.write()
    scanning = asyncio.create_task(asyncio.to_thread(curtail.scan, bench.servers, bench.topic))
    await asyncio.sleep(0)
    scanning.cancel()
    with pytest.raises(asyncio.CancelledError):
        await scanning
    stream = await asyncio.to_thread(curtail.scan, bench.servers, bench.topic)
    batches = iter(stream)
    reading = asyncio.create_task(asyncio.to_thread(next, batches))
    await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    # The batch went to the cancelled call, or goes to this one; another reading has all.
    await asyncio.to_thread(next, batches, None)
    assert (await asyncio.to_thread(stream.to_arrow)).num_rows == bench.written
