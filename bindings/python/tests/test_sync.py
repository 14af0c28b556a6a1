"""Clients for threads."""

import asyncio
import inspect
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from programs import started

import curtail_kafka as curtail
from curtail_kafka import RebalanceListener, TopicPartition, sync
from curtail_kafka.admin import NewTopic
from curtail_kafka.testing import Cluster

ROOT = Path(__file__).parent.parent
EARLIEST: dict[str, Any] = {"auto_offset_reset": "earliest"}


def read(consumer: sync.Consumer, count: int) -> list[curtail.Record]:
    records: list[curtail.Record] = []
    ends = time.monotonic() + 20
    while len(records) < count and time.monotonic() < ends:
        records += consumer.poll(0.5)
    return records


def test_generated_modules_are_current() -> None:
    subprocess.run([sys.executable, str(ROOT / "tools" / "sync.py"), "--check"], check=True)


@pytest.mark.parametrize(
    "name", ["Admin", "Consumer", "Pipeline", "Producer", "Transaction", "TransactionalProducer"]
)
def test_classes_have_the_same_methods(name: str) -> None:
    def methods(of: type) -> dict[str, inspect.Signature | None]:
        names = [one for one in dir(of) if not one.startswith("_")]
        every = [(one, getattr(of, one)) for one in names]
        return {n: inspect.signature(m) if inspect.isfunction(m) else None for n, m in every}

    ours, theirs = methods(getattr(sync, name)), methods(getattr(curtail, name))
    assert ours.keys() == theirs.keys()
    for method, signature in ours.items():
        if signature is not None:
            other = theirs[method]
            assert other is not None and list(signature.parameters) == list(other.parameters)
    assert not [
        one for one in vars(getattr(sync, name)).values() if inspect.iscoroutinefunction(one)
    ]


def test_produce_and_consume(servers: str, curtail_topic: str) -> None:
    with sync.Producer(servers, linger_ms=0) as producer:
        sent = producer.send(curtail_topic, b"one", key=b"k")
        assert isinstance(sent, Future)
        assert sent.result(20).offset == 0
        written = producer.send_many(
            curtail_topic, [curtail.NewRecord(b"%d" % n) for n in range(99)]
        )
        assert [one.offset for one in written] == list(range(1, 100))
        with producer.pipeline(limit=10) as pipeline:
            for n in range(100):
                pipeline.send(curtail_topic, b"%d" % n)
        assert pipeline.delivered == 100
        with pytest.raises(curtail.RecordTooLargeError):
            producer.send(curtail_topic, bytes(2_000_000)).result(20)
        assert producer.metrics()["all_brokers"]["delivery_time"]["count"] > 0
    with pytest.raises(curtail.ClosedError):
        producer.send(curtail_topic, b"late")
    with sync.Consumer(servers, curtail_topic, **EARLIEST) as consumer:
        assert [one.offset for one in read(consumer, 200)] == list(range(200))
        consumer.seek((curtail_topic, 0), 50)
        for record in consumer:
            assert record.offset == 50
            break
        assert consumer.position((curtail_topic, 0)) == 51
        batch = consumer.poll_batch(10)
        assert batch is not None and next(iter(batch)).offset == 51
        assert consumer.assignment == {TopicPartition(curtail_topic, 0)}


def test_transactions(curtail_cluster: Cluster, servers: str, curtail_topic: str) -> None:
    out = f"{curtail_topic}-out"
    curtail_cluster.create_topic(out)
    with sync.Producer(servers) as producer:
        producer.send_many(curtail_topic, [curtail.NewRecord(b"%d" % n) for n in range(10)])
    committed: dict[str, Any] = {"isolation_level": "read_committed", **EARLIEST}
    with (
        sync.Consumer(
            servers,
            curtail_topic,
            group_id=f"g-{curtail_topic}",
            enable_auto_commit=False,
            **committed,
        ) as consumer,
        sync.TransactionalProducer(servers, transactional_id=curtail_topic) as transactional,
    ):
        with pytest.raises(ZeroDivisionError), transactional.transaction(consumer) as tx:
            for record in read(consumer, 10):
                tx.send(out, record.value)
            tx.flush()
            raise ZeroDivisionError
        with transactional.transaction(consumer) as tx:
            for record in read(consumer, 10):
                tx.send(out, record.value)
        assert consumer.committed((curtail_topic, 0)) == 10
    with sync.Consumer(servers, out, **committed) as results:
        assert [one.value for one in read(results, 10)] == [b"%d" % n for n in range(10)]


def test_admin(servers: str, curtail_topic: str) -> None:
    with sync.Admin(servers) as admin:
        assert admin.create_topics([NewTopic(f"{curtail_topic}-new")]) == {
            f"{curtail_topic}-new": None
        }
        [error] = admin.create_topics([NewTopic(curtail_topic)]).values()
        assert isinstance(error, curtail.BrokerError)
    with pytest.raises(curtail.UnreachableError), sync.Producer("127.0.0.1:9"):
        pass


async def test_threads_with_a_running_event_loop(servers: str, curtail_topic: str) -> None:
    """As in a notebook, whose cells run in an event loop."""
    with sync.Producer(servers) as producer:
        assert producer.send(curtail_topic, b"x").result(20).offset == 0
    async with curtail.Producer(servers) as other:
        assert (await other.send(curtail_topic, b"y")).offset == 1
    with sync.Consumer(servers, curtail_topic, **EARLIEST) as consumer:
        assert [one.value for one in read(consumer, 2)] == [b"x", b"y"]
    assert len(list(sync.scan(servers, curtail_topic))) == 1


def test_many_threads_share_a_producer(servers: str, curtail_topic: str) -> None:
    with sync.Producer(servers) as producer, ThreadPoolExecutor(8) as threads:

        def send(n: int) -> list[int | None]:
            sent = [producer.send(curtail_topic, b"%d" % n) for _ in range(500)]
            return [one.result(20).offset for one in sent]

        offsets = [offset for some in threads.map(send, range(8)) for offset in some]
    assert sorted(offsets, key=lambda offset: offset or 0) == list(range(4_000))


def test_close_in_another_thread_ends_a_poll(servers: str, curtail_topic: str) -> None:
    consumer = sync.Consumer(servers, curtail_topic)
    consumer.connect()
    raised: list[BaseException] = []
    begun = threading.Event()

    def poll() -> None:
        begun.set()
        try:
            consumer.poll(60)
        except curtail.Error as error:
            raised.append(error)

    thread = threading.Thread(target=poll)
    thread.start()
    begun.wait()
    # The poll may begin after the close: that is an error, too.
    consumer.close()
    thread.join(10)
    assert not thread.is_alive()
    assert [type(error) for error in raised] == [curtail.ClosedError]


class Listener(RebalanceListener):
    def __init__(self) -> None:
        self.calls: list[tuple[str, list[TopicPartition], int]] = []
        self.error: Exception | None = None

    def on_assigned(self, rebalance: curtail.Rebalance, partitions: list[TopicPartition]) -> None:
        self.calls.append(("assigned", partitions, threading.get_ident()))
        for one in partitions:
            rebalance.seek(one, 5)

    def on_revoked(self, rebalance: curtail.Rebalance, partitions: list[TopicPartition]) -> None:
        self.calls.append(("revoked", partitions, threading.get_ident()))
        rebalance.commit()
        if self.error is not None:
            raise self.error


def test_listener_runs_on_the_polling_thread(servers: str, curtail_topic: str) -> None:
    with sync.Producer(servers) as producer:
        producer.send_many(curtail_topic, [curtail.NewRecord(b"%d" % n) for n in range(10)])
    listener = Listener()
    group = f"g-{curtail_topic}"
    settings: dict[str, Any] = {"group_id": group, "enable_auto_commit": False, **EARLIEST}
    with sync.Consumer(servers, curtail_topic, listener=listener, **settings) as consumer:
        assert [one.offset for one in read(consumer, 5)] == [5, 6, 7, 8, 9]
        listener.error = ZeroDivisionError()
        with pytest.raises(ZeroDivisionError):
            consumer.unsubscribe()
        listener.error = None
    at, thread = [TopicPartition(curtail_topic, 0)], threading.get_ident()
    assert listener.calls == [("assigned", at, thread), ("revoked", at, thread)]
    with sync.Admin(servers) as admin:
        offsets = admin.list_group_offsets([group])[group]
    assert not isinstance(offsets, curtail.Error) and offsets[at[0]].offset == 10


class Asynchronous(RebalanceListener):
    async def on_assigned(
        self, rebalance: curtail.Rebalance, partitions: list[TopicPartition]
    ) -> None: ...

    async def on_revoked(
        self, rebalance: curtail.Rebalance, partitions: list[TopicPartition]
    ) -> None: ...


def test_assigning_ends_a_membership(servers: str, curtail_topic: str) -> None:
    """The listener runs in the call: nothing else would run it."""
    listener = Listener()
    group = f"g-{curtail_topic}"
    with sync.Consumer(servers, curtail_topic, listener=listener, group_id=group) as consumer:
        while not consumer.assignment:
            consumer.poll(0.1)
        consumer.assign([TopicPartition(curtail_topic, 0)])
        assert [call[0] for call in listener.calls] == ["assigned", "revoked"]


def test_callback_that_waits_is_an_error(servers: str, curtail_topic: str) -> None:
    """It would wait for its own thread."""
    with sync.Producer(servers) as producer:
        told: Future[BaseException] = Future()

        def wait(_: object) -> None:
            try:
                producer.flush()
            except curtail.IllegalStateError as error:
                told.set_result(error)

        producer.send(curtail_topic, b"1").add_done_callback(wait)
        assert "callback" in str(told.result(10))
        producer.send(curtail_topic, b"2").result(10)


def test_clients_close_in_exit_handlers(servers: str, curtail_topic: str) -> None:
    program = f"""
import atexit
from curtail_kafka import sync
producer = sync.Producer({servers!r})
atexit.register(lambda: print("closed", producer.close()))
producer.send({curtail_topic!r}, b"1")
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (ended.stdout, ended.stderr) == ("closed None\n", "")


def test_asynchronous_listener_is_an_error(servers: str, curtail_topic: str) -> None:
    consumer = sync.Consumer(
        servers, curtail_topic, listener=Asynchronous(), group_id=f"g-{curtail_topic}"
    )
    with pytest.raises(TypeError, match="on_assigned must not be asynchronous"):
        while True:
            consumer.poll(1)
    with pytest.raises(TypeError, match="on_revoked must not be asynchronous"):
        consumer.close()


WAITS = """
import sys
import curtail_kafka as curtail

servers, topic, what = sys.argv[1:]
with curtail.sync.Consumer(servers, topic) as consumer, curtail.sync.Producer(servers) as producer:
    calls = {
        "poll": lambda: consumer.poll(60),
        "iteration": lambda: next(iter(consumer)),
        "future": lambda: producer.send("missing", b"x").result(),
        "scan": lambda: curtail.scan(servers, "missing"),
    }
    print("waits", flush=True)
    try:
        calls[what]()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    sys.exit(0)
"""


@pytest.mark.parametrize("what", ["poll", "iteration", "scan"])
def test_ctrl_c_ends_a_wait(
    python: str, tmp_path: Path, servers: str, curtail_topic: str, what: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(WAITS)
    with started(python, str(program), servers, curtail_topic, what) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "waits\n"
        # The signal may arrive before the wait begins, which then ends as well.
        time.sleep(0.3)
        begun = time.monotonic()
        running.send_signal(signal.SIGINT)
        assert running.stdout.readline() == "interrupted\n"
        # Far less than the wait, which would last 60 s or longer.
        assert time.monotonic() - begun < 5
        assert running.wait(20) == 0


EXITS = """
import sys, threading
import curtail_kafka as curtail

servers, topic = sys.argv[1:]
consumer = curtail.sync.Consumer(servers, topic)
thread = threading.Thread(target=lambda: consumer.poll(60), daemon=True)
producer = curtail.sync.Producer(servers, linger_ms=60_000)
producer.send(topic, b"x")
thread.start()
"""


def test_exit_with_a_waiting_thread(
    python: str, tmp_path: Path, servers: str, curtail_topic: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(EXITS)
    ended = subprocess.run(
        [python, str(program), servers, curtail_topic], capture_output=True, text=True, timeout=30
    )
    assert ended.returncode == 0, ended.stderr
    with sync.Consumer(servers, curtail_topic, **EARLIEST) as consumer:
        assert [one.value for one in read(consumer, 1)] == [b"x"]


FORKS = """
import os, sys
import curtail_kafka as curtail

servers, topic = sys.argv[1:]
with curtail.sync.Producer(servers) as producer:
    assert producer.send(topic, b"parent").result(20).offset == 0
    child = os.fork()
    if child == 0:
        try:
            producer.send(topic, b"x")
        except curtail.ForkedError:
            with curtail.sync.Producer(servers) as again:
                again.send(topic, b"child").result(20)
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert producer.send(topic, b"parent").result(20).offset == 2
"""


def test_forked_child_has_a_thread_of_its_own(
    python: str, tmp_path: Path, servers: str, curtail_topic: str
) -> None:
    program = tmp_path / "program.py"
    program.write_text(FORKS)
    subprocess.run([python, str(program), servers, curtail_topic], check=True, timeout=60)


def test_clients_need_no_event_loop(servers: str, curtail_topic: str) -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()
    with sync.Producer(servers) as producer:
        assert producer.partitions_for(curtail_topic) == 1
