"""Runs exactly_once.py while it and the brokers are killed.

python -m pytest examples/test_exactly_once.py
"""

import asyncio
import sys
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from signal import SIGKILL

from apache import Apache

import curtail_kafka as curtail
from curtail_kafka.testing import Cluster

PROGRAM = Path(__file__).parent / "exactly_once.py"
ROUND = 2_000


class Reader:
    """Counts the committed bills."""

    def __init__(self, consumer: curtail.Consumer) -> None:
        self.consumer = consumer
        self.bills: Counter[bytes | None] = Counter()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(60):
            while len(self.bills) < count:
                self.bills.update(record.value for record in await self.consumer.poll())


@asynccontextmanager
async def running(command: list[str]) -> AsyncIterator[Process]:
    """The program, until SIGKILL."""
    program = await asyncio.create_subprocess_exec(*command)
    try:
        yield program
        assert program.returncode in (None, -SIGKILL)
    finally:
        if program.returncode is None:
            program.kill()
        await program.wait()


async def produce(servers: str, topic: str, first: int) -> None:
    async with curtail.Producer(servers) as producer:
        orders = (producer.send(topic, str(first + n), key=str(n)) for n in range(ROUND))
        await asyncio.gather(*orders)


async def test_exactly_once(each_cluster: Cluster | Apache) -> None:
    servers = each_cluster.bootstrap_servers
    each_cluster.create_topic("to-bill", partitions=3)
    each_cluster.create_topic("billed")
    command = [sys.executable, str(PROGRAM), servers, "to-bill", "billed", "worker-1"]
    async with curtail.Consumer(
        servers, "billed", isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        reader = Reader(consumer)
        for number, broker in enumerate(each_cluster.broker_ids):
            await produce(servers, "to-bill", number * ROUND)
            async with running(command) as program:
                # In the middle of the round, as far as the number of bills shows it.
                await reader.until(number * ROUND + 1)
                each_cluster.kill(broker)
                program.kill()
            await each_cluster.restart(broker)
        total = ROUND * len(each_cluster.broker_ids)
        async with running(command):
            await reader.until(total)
            # What a restarted program might write twice comes before its first new bill.
            await produce(servers, "to-bill", total)
            await reader.until(total + ROUND)
        expected = {f"bill for {n}".encode(): 1 for n in range(total + ROUND)}
        assert reader.bills == expected
