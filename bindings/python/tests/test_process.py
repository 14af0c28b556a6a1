"""Tests of whole processes: exit, and forks."""

import asyncio
import importlib.util
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import curtail_kafka as curtail
from curtail_kafka.testing import Cluster


def run(
    python: str, tmp_path: Path, text: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    program = tmp_path / "program.py"
    program.write_text(text)
    # Since 3.12 Python warns of each fork of a process with threads.
    forks = "ignore:This process:DeprecationWarning"
    command = [python, "-W", "always", "-W", forks, str(program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


EXITS = """
import asyncio, sys
import curtail_kafka as curtail

producer = curtail.Producer(sys.argv[1], linger_ms=60_000)

async def main():
    for n in range(1000):
        producer.send(sys.argv[2], str(n))

asyncio.run(main())
"""


def test_exit_flushes_sends_in_flight(
    python: str, tmp_path: Path, servers: str, curtail_topic: str
) -> None:
    ended = run(python, tmp_path, EXITS, servers, curtail_topic)
    assert ended.returncode == 0, ended.stderr
    assert "ResourceWarning: producer was not closed before exit" in ended.stderr

    async def next_offset() -> int | None:
        async with curtail.Producer(servers) as producer:
            return (await producer.send(curtail_topic, b"x")).offset

    assert asyncio.run(next_offset()) == 1000


UNREACHABLE = """
import asyncio, time
import curtail_kafka as curtail

async def main():
    producer = curtail.Producer("127.0.0.1:9")
    keep.append(producer)
    producer.send("t", b"x")

keep = []
asyncio.run(main())
"""


def test_exit_waits_for_at_most_5_seconds(python: str, tmp_path: Path) -> None:
    ended = run(python, tmp_path, UNREACHABLE)
    assert ended.returncode == 0, ended.stderr
    assert "not settled within 5 s" in ended.stderr


FORKS = """
import asyncio, os, sys
import curtail_kafka as curtail

servers, topic = sys.argv[1:]

async def send(producer):
    return (await producer.send(topic, b"x")).offset

async def send_one():
    async with curtail.Producer(servers) as producer:
        return await send(producer)

inherited = curtail.Producer(servers)
assert asyncio.run(send(inherited)) == 0
child = os.fork()
if child == 0:
    try:
        asyncio.run(send(inherited))
    except curtail.ForkedError as error:
        assert "parent process" in str(error)
    else:
        sys.exit(3)
    assert not inherited._is_open
    assert asyncio.run(send_one()) == 1
    del inherited
    sys.exit(0)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert asyncio.run(send(inherited)) == 2
asyncio.run(inherited.close())
"""


def test_forked_child_needs_new_clients(
    python: str, tmp_path: Path, servers: str, curtail_topic: str
) -> None:
    ended = run(python, tmp_path, FORKS, servers, curtail_topic)
    assert ended.returncode == 0, ended.stderr


FORKS_WITH_READERS = """
import asyncio, multiprocessing, os, sys
import curtail_kafka as curtail

servers, topic, how = sys.argv[1:]
at = (topic, 0)
EARLIEST = {"auto_offset_reset": "earliest"}

async def read(consumer, count):
    values = []
    async with asyncio.timeout(20):
        while len(values) < count:
            values += [record.value for record in await consumer.poll()]
    return values

async def use_new():
    async with curtail.Consumer(servers, topic, **EARLIEST) as consumer:
        assert len(await read(consumer, 10)) == 10
    async with curtail.Admin(servers) as admin:
        assert topic in {one.name for one in await admin.list_topics()}

consumer = curtail.Consumer(servers, topic, max_poll_records=5, **EARLIEST)
admin = curtail.Admin(servers)
stream = curtail.scan(servers, topic)
fresh, begun = iter(stream), iter(stream)
first_batch = next(begun)

async def begin():
    records = await consumer.poll(10)
    assert len(records) == 5
    async for record in consumer:
        # The rest of the poll waits for the program.
        assert record.value == b"5"
        break
    assert topic in {one.name for one in await admin.list_topics()}
    return records

records = asyncio.run(begin())

def refused(call):
    try:
        found = call()
        if asyncio.iscoroutine(found):
            asyncio.run(found)
    except curtail.ForkedError as error:
        assert "parent process" in str(error), error
        return
    sys.exit(f"a child could use {call}")

async def iterate():
    async for _ in consumer:
        pass

def child():
    for call in [
        consumer.connect, consumer.poll, consumer.poll_batch, consumer.commit, consumer.close,
        consumer.metrics, consumer.prometheus, lambda: consumer.assignment,
        lambda: consumer.paused, lambda: consumer.group_metadata, lambda: consumer.seek(at, 0),
        iterate, admin.list_topics, admin.connect,
        lambda: next(fresh), lambda: next(begun), lambda: iter(stream), lambda: stream.offsets,
        lambda: stream.error, lambda: repr(stream), stream.__arrow_c_stream__,
    ]:
        refused(call)
    assert not consumer._is_open
    # Records belong to the program.
    assert [record.value for record in records] == [b"%d" % n for n in range(5)]
    assert first_batch.num_rows == 10
    asyncio.run(use_new())
    assert sum(batch.num_rows for batch in curtail.scan(servers, topic)) == 10

if how == "fork":
    pid = os.fork()
    if pid == 0:
        child()
        # Also frees inherited objects.
        sys.exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
else:
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(50)
    code = process.exitcode
assert code == 0, code

async def proceed():
    # From the first record that the program has not received.
    assert await read(consumer, 4) == [b"6", b"7", b"8", b"9"]
    assert (await admin.describe_cluster()).brokers
    await asyncio.gather(consumer.close(), admin.close())

asyncio.run(proceed())
assert next(begun, None) is None
assert sum(batch.num_rows for batch in fresh) == 10
"""


@pytest.mark.parametrize("how", ["fork", "multiprocessing"])
def test_forked_child_cannot_use_inherited_readers(
    python: str, tmp_path: Path, servers: str, curtail_topic: str, how: str
) -> None:
    async def fill() -> None:
        async with curtail.Producer(servers) as producer:
            await asyncio.gather(*(producer.send(curtail_topic, str(n)) for n in range(10)))

    asyncio.run(fill())
    ended = run(python, tmp_path, FORKS_WITH_READERS, servers, curtail_topic, how)
    assert (ended.returncode, ended.stderr) == (0, "")


FORKS_IN_A_TRANSACTION = """
import asyncio, os, sys
import curtail_kafka as curtail

servers, topic = sys.argv[1:]

async def main():
    async with curtail.TransactionalProducer(servers, transactional_id=topic) as producer:
        tx = await producer.transaction().__aenter__()
        tx.send(topic, b"x")
        child = os.fork()
        if child == 0:
            # A thread that no longer exists may hold the locks of the inherited transaction.
            try:
                tx._abandon()
            except curtail.ForkedError:
                os._exit(0)
            os._exit(3)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, status
        await tx.__aexit__(None, None, None)

asyncio.run(main())
"""


def test_forked_child_takes_no_lock_of_a_transaction(
    python: str, tmp_path: Path, servers: str, curtail_topic: str
) -> None:
    ended = run(python, tmp_path, FORKS_IN_A_TRANSACTION, servers, curtail_topic)
    assert ended.returncode == 0, ended.stderr


ENDS_WITH_CALLS = """
import asyncio, gc, sys
import curtail_kafka as curtail

servers, topic, how, kind = sys.argv[1:]
if kind == "uvloop":
    import uvloop
    new_loop = uvloop.new_event_loop
else:
    new_loop = asyncio.new_event_loop
producer, admin = curtail.Producer(servers, linger_ms=20), curtail.Admin(servers)
consumer = curtail.Consumer(servers, topic, group_id=topic, auto_offset_reset="earliest")
transactional = curtail.TransactionalProducer(servers, transactional_id=topic)

async def transact():
    async with transactional.transaction() as tx:
        await tx.send(topic, b"aborted")
        await asyncio.Event().wait()

async def begin():
    tasks = [asyncio.ensure_future(consumer.poll(3600)), asyncio.ensure_future(transact())]
    for n in range(100):
        producer.send(topic, b"x")
        calls = [producer.flush(), admin.list_topics(), admin.describe_cluster(), consumer.commit()]
        tasks += [asyncio.ensure_future(call) for call in calls]
    await asyncio.sleep(0)

async def proceed():
    async with asyncio.timeout(20):
        await producer.send(topic, b"last")
        found = []
        while not found or found[-1] != b"last":
            found += [record.value for record in await consumer.poll()]
        assert (await admin.describe_cluster()).brokers
        async with transactional.transaction() as tx:
            await tx.send(topic, b"committed")
        await asyncio.gather(producer.close(), consumer.close(), admin.close())
        await transactional.close()

if how.startswith("cancelled"):
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(begin())
else:
    # The tasks are destroyed while they wait.
    loop = new_loop()
    loop.run_until_complete(begin())
    loop.close()
    gc.collect()
if how.endswith("used again"):
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(proceed())
print("ends")
"""


@pytest.mark.parametrize("kind", ["asyncio", "uvloop"])
def test_exit_after_an_event_loop_that_has_ended_with_calls(
    python: str, tmp_path: Path, curtail_cluster: Cluster, kind: str
) -> None:
    if kind == "uvloop":
        pytest.importorskip("uvloop")
    cases = ["cancelled", "cancelled, used again", "destroyed", "destroyed, used again"]

    def program(how: str) -> subprocess.CompletedProcess[str]:
        topic = f"{how.replace(', ', '-').replace(' ', '-')}-{kind}"
        directory = tmp_path / topic
        directory.mkdir()
        curtail_cluster.create_topic(topic)
        servers = curtail_cluster.bootstrap_servers
        return run(python, directory, ENDS_WITH_CALLS, servers, topic, how, kind)

    with ThreadPoolExecutor(len(cases)) as pool:
        for how, ended in zip(cases, pool.map(program, cases), strict=True):
            assert (ended.returncode, ended.stdout) == (0, "ends\n"), (how, ended.stderr)
            assert "panicked" not in ended.stderr, (how, ended.stderr)
            # "Exception ignored in": errors that had no caller.
            assert "ignored" not in ended.stderr, (how, ended.stderr)


SUB_INTERPRETER = """
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

path, first, config = sys.argv[1:]
imports = f'''
try:
    import curtail_kafka
    text = "imported"
except ImportError as error:
    text = f"{{type(error).__name__}}: {{error}}"
with open({path!r}, "w") as file:
    file.write(text)
'''
if first == "main":
    import curtail_kafka
options = (config,) if config else ()
other = interpreters.create(*options)
interpreters.run_string(other, imports)
interpreters.destroy(other)
import curtail_kafka
"""


@pytest.mark.parametrize("first", ["main", "sub"])
def test_sub_interpreter_cannot_import_the_package(python: str, tmp_path: Path, first: str) -> None:
    modules = ["_interpreters", "_xxsubinterpreters"]
    if not any(importlib.util.find_spec(name) for name in modules):
        pytest.skip("this interpreter has no module for sub-interpreters")
    if sys.version_info[:2] == (3, 12) and first == "sub":
        pytest.skip("CPython 3.12 aborts at exit after the refused import; others do not")
    # With one GIL for all, and each with a separate one.
    configs = ["legacy", "isolated"] if sys.version_info >= (3, 13) else [""]
    for config in configs:
        ended = run(python, tmp_path, SUB_INTERPRETER, str(tmp_path / "text"), first, config)
        assert (ended.returncode, ended.stderr) == (0, "")
        text = (tmp_path / "text").read_text()
        assert text.startswith("ImportError: ") and "interpreter" in text and "\n" not in text


THREADS = """
import os, sys
import curtail_kafka as curtail
from curtail_kafka import _native

assert _native.runtime_threads() is None
producer = curtail.Producer("127.0.0.1:9")
print(_native.runtime_threads())
producer._abandon()
"""


@pytest.mark.parametrize(("value", "expected"), [(None, "2"), ("3", "3")])
def test_variable_sets_the_number_of_threads(
    python: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    value: str | None,
    expected: str,
) -> None:
    if value:
        monkeypatch.setenv("CURTAIL_THREADS", value)
    ended = run(python, tmp_path, THREADS)
    assert ended.stdout.strip() == expected, ended.stderr
    monkeypatch.setenv("CURTAIL_THREADS", "many")
    assert "CURTAIL_THREADS=many" in run(python, tmp_path, THREADS).stderr
