"""The code of docs/python.md and README.md runs, against the embedded cluster."""

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import pytest
from test_tokens import BEARER, unsecured

import curtail_kafka as curtail
from curtail_kafka import sync
from curtail_kafka.testing import Cluster

PACKAGE = Path(__file__).parent.parent


def blocks(document: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)


BLOCKS = blocks(PACKAGE.parent.parent / "docs" / "python.md")


def test_readme(curtail_cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    (produce,) = blocks(PACKAGE / "README.md")
    curtail_cluster.create_topic("sent-by-readme")
    produce = produce.replace("localhost:9092", curtail_cluster.bootstrap_servers)
    exec(produce.replace('"orders"', '"sent-by-readme"'), {})
    assert capsys.readouterr().out == "0 0\n"


def test_produce_and_consume(curtail_cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    produce, consume = (
        block.replace("localhost:9092", curtail_cluster.bootstrap_servers) for block in BLOCKS[:2]
    )
    curtail_cluster.create_topic("orders")
    exec(produce, {})
    assert capsys.readouterr().out == "0 0\n"
    # The group has no offset yet, and begins at the end unless it is told otherwise.
    consume = consume.replace('"billing",', '"billing", auto_offset_reset="earliest",')
    names: dict[str, object] = {}
    exec("import curtail_kafka as curtail\n" + consume, names)

    async def read() -> None:
        bill = asyncio.create_task(names["bill"]())  # type: ignore[operator]
        async with asyncio.timeout(20):
            while "orders 0 0 b'account-7' b'42.00'" not in seen():
                await asyncio.sleep(0.01)
        bill.cancel()
        with pytest.raises(asyncio.CancelledError):
            await bill

    printed = ""

    def seen() -> str:
        nonlocal printed
        printed += capsys.readouterr().out
        return printed

    asyncio.run(read())


async def test_exactly_once(curtail_cluster: Cluster, servers: str) -> None:
    curtail_cluster.create_topic("to-copy")
    curtail_cluster.create_topic("copied")
    copy = BLOCKS[2].replace('"orders"', '"to-copy"').replace('"bills"', '"copied"')
    names: dict[str, Any] = {"curtail": curtail}
    exec(copy, names)
    async with curtail.Producer(servers) as producer:
        await producer.send("to-copy", b"42.00", key=b"account-7")
    copying = asyncio.create_task(names["copy"](servers))
    async with curtail.Consumer(
        servers, "copied", isolation_level="read_committed", auto_offset_reset="earliest"
    ) as copied:
        async with asyncio.timeout(20):
            record = await anext(aiter(copied))
    assert (record.key, record.value) == (b"account-7", b"42.00")
    copying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await copying


def test_scan(curtail_cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    servers = curtail_cluster.bootstrap_servers
    curtail_cluster.create_topic("scanned")
    with sync.Producer(servers) as producer:
        producer.send("scanned", b"42.00").result(20)
    exec(BLOCKS[3].replace("localhost:9092", servers).replace('"orders"', '"scanned"'), {})
    assert capsys.readouterr().out == "[b'42.00']\n"


async def test_send_a_table(
    curtail_cluster: Cluster, servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    curtail_cluster.create_topic("payments")
    names: dict[str, Any] = {"curtail": curtail}
    exec(BLOCKS[4], names)
    await names["load"](servers)
    assert capsys.readouterr().out == "0 0 1 2\n"


def test_threads(curtail_cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    servers = curtail_cluster.bootstrap_servers
    curtail_cluster.create_topic("read-in-thread")
    curtail_cluster.create_topic("copies")
    with sync.Producer(servers) as producer:
        producer.send("read-in-thread", b"42.00").result(20)
    names: dict[str, Any] = {}
    exec(BLOCKS[5].replace('"orders"', '"read-in-thread"'), names)
    names["copy_in_thread"](servers)
    assert capsys.readouterr().out == "0\n"


async def test_administer(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"curtail": curtail}
    exec(BLOCKS[6], names)
    await names["prepare"](servers)
    assert capsys.readouterr().out == "audit created\n"


@pytest.mark.curtail(brokers=1, config=BEARER)
async def test_tokens(curtail_cluster: Cluster, servers: str) -> None:
    curtail_cluster.create_topic("secured")

    async def ask_provider() -> tuple[str, float]:
        return unsecured(), time.time() + 60

    names: dict[str, Any] = {"curtail": curtail, "ask_provider": ask_provider}
    plain = "oauth_token=token, security_protocol='SASL_PLAINTEXT'"
    exec(BLOCKS[7].replace("oauth_token=token", plain), names)
    await names["log_in"](servers)


@pytest.mark.curtail(brokers=1)
async def test_observe(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"curtail": curtail}
    exec(BLOCKS[8], names)
    await names["watch"](servers)
    assert re.fullmatch(r"p50 \d\.\d{3} s, p99\.99 \d\.\d{3} s\n", capsys.readouterr().out)


async def test_measure(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"curtail": curtail}
    exec(BLOCKS[11].replace("throughput=5e6", "throughput=100e3, duration=1"), names)
    await names["examine"](servers)
    assert "Settings tried in turn with the current ones" in capsys.readouterr().out


def test_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(BLOCKS[9] + BLOCKS[10])
    pytester.runpytest_subprocess("-o", "asyncio_mode=auto").assert_outcomes(passed=3)
