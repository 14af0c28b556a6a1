"""Tests of whole processes: exit, and forks."""

import asyncio
import subprocess
from pathlib import Path

import pytest

import curtail_kafka as curtail


def run(
    python: str, tmp_path: Path, text: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    program = tmp_path / "program.py"
    program.write_text(text)
    command = [python, "-W", "always", str(program), *arguments]
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
