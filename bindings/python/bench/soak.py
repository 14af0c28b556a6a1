#!/usr/bin/env python3
"""Runs every kind of client while brokers are killed, and watches the process's resources.

python bench/soak.py 10    # minutes; the package must be installed

The embedded cluster is a separate process: memory, threads and file descriptors are those of the
clients. Exits with 1 if an acknowledged record is lost, an aborted one is read, a call fails for
another reason than a broker that is down, or a resource grows beyond its bound after the warm-up.
"""

import argparse
import asyncio
import gc
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import curtail_kafka as curtail
from curtail_kafka.admin import NewTopic, OffsetSpec
from curtail_kafka.testing import Cluster

BROKERS = 3
PARTITIONS = 3
TOPICS = ("awaited", "pipelined", "committed")
CHUNK = 25
"""Records of a pipeline, or of a transaction."""
ABORT_EVERY = 8
"""One in this many transactions is aborted."""
DOWN = 5.0
"""Seconds for which a killed broker is down."""
UP = 10.0
"""Seconds with every replica in sync, before the next broker is killed."""
DRAIN = 60.0
"""Seconds within which the consumer must have read the last acknowledged record."""
WARM_UP = 0.2
"""Part of the time before resources are compared."""
THREADS = 8
"""Bound on the growth of threads: the runtime's blocking pool starts and ends some."""
DESCRIPTORS = 16
"""Bound on the growth of file descriptors: connections to a broker that returns are replaced."""


def serve() -> None:
    """The process of the cluster: reads commands, and answers each with a line."""
    with Cluster(BROKERS) as cluster:
        for topic in TOPICS:
            cluster.create_topic(topic, PARTITIONS, min_insync_replicas=2)
        print(cluster.bootstrap_servers, flush=True)
        for line in sys.stdin:
            command, broker = line.split()
            if command == "kill":
                cluster.kill(int(broker))
            else:
                cluster.sync.restart(int(broker))
                while any(
                    len(cluster.isr(topic, partition) or []) < BROKERS
                    for topic in TOPICS
                    for partition in range(PARTITIONS)
                ):
                    time.sleep(0.05)
            print("done", flush=True)


@dataclass(frozen=True)
class Usage:
    """The process's resources."""

    mib: float
    threads: int
    descriptors: int

    @classmethod
    def now(cls) -> "Usage":
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        mib = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
        threads, descriptors = (len(os.listdir(f"/proc/self/{kind}")) for kind in ("task", "fd"))
        return cls(mib, threads, descriptors)


class Ledger:
    """What happened to each record of a topic. A byte for each: the harness must not grow."""

    def __init__(self, size: int) -> None:
        self._acknowledged, self._aborted, self._read = (bytearray(size) for _ in range(3))
        self.next = 0

    def take(self, count: int = 1) -> range:
        """The numbers of the next records."""
        taken = range(self.next, self.next + count)
        self.next += count
        return taken

    def acknowledge(self, numbers: range) -> None:
        for number in numbers:
            self._acknowledged[number] = 1

    def abort(self, numbers: range) -> None:
        for number in numbers:
            self._aborted[number] = 1

    def read(self, number: int) -> None:
        self._read[number] = min(self._read[number] + 1, 255)

    @property
    def acknowledged(self) -> int:
        return sum(self._acknowledged)

    def unread(self) -> int:
        """Acknowledged records that the consumer has not read."""
        return sum(a and not r for a, r in zip(self._acknowledged, self._read, strict=True))

    def wrong(self) -> int:
        """Aborted records that the consumer has read."""
        return sum(a and r > 0 for a, r in zip(self._aborted, self._read, strict=True))

    def repeated(self) -> int:
        return sum(max(0, count - 1) for count in self._read)


class Withdrawn(Exception):
    """Ends a transaction that the program aborts."""


class Soak:
    def __init__(self, servers: str, seconds: float, rate: float) -> None:
        self.servers = servers
        self.rate = rate / len(TOPICS)
        self.ends = time.monotonic() + seconds
        size = int(seconds * self.rate * 1.5) + 10 * CHUNK
        self.ledgers = {topic: Ledger(size) for topic in TOPICS}
        self.failures: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.kills = 0

    def is_over(self) -> bool:
        return time.monotonic() >= self.ends

    async def paced(self, count: int) -> AsyncIterator[None]:
        """Steps of ``count`` records each, at the rate of a topic."""
        due = time.monotonic()
        while not self.is_over():
            yield
            due = max(due + count / self.rate, time.monotonic() - 1.0)
            await asyncio.sleep(due - time.monotonic())

    @asynccontextmanager
    async def tolerated(self, call: str) -> AsyncIterator[None]:
        """Counts a call, and its failure while a broker is down."""
        self.calls[call] += 1
        try:
            yield
        except curtail.Error as error:
            if not (error.retriable or error.abortable):
                raise
            self.failures[f"{call}: {type(error).__name__}"] += 1

    async def awaited(self) -> None:
        ledger = self.ledgers["awaited"]
        async with curtail.Producer(self.servers, linger_ms=0) as producer:
            async for _ in self.paced(1):
                taken = ledger.take()
                async with self.tolerated("send"):
                    await producer.send("awaited", str(taken.start), key=str(taken.start))
                    ledger.acknowledge(taken)

    async def pipelined(self) -> None:
        ledger = self.ledgers["pipelined"]
        async with curtail.Producer(self.servers) as producer:
            async for _ in self.paced(CHUNK):
                taken = ledger.take(CHUNK)
                self.calls["pipeline"] += 1
                try:
                    async with producer.pipeline() as pipeline:
                        for number in taken:
                            await pipeline.send("pipelined", str(number))
                    ledger.acknowledge(taken)
                except* curtail.NotAcknowledgedError:
                    self.failures["pipeline"] += 1

    async def committed(self) -> None:
        ledger = self.ledgers["committed"]
        async with curtail.TransactionalProducer(self.servers, transactional_id="soak") as producer:
            count = 0
            async for _ in self.paced(CHUNK):
                taken, count = ledger.take(CHUNK), count + 1
                try:
                    async with self.tolerated("transaction"):
                        async with producer.transaction() as tx:
                            for number in taken:
                                tx.send("committed", str(number), key=str(number))
                            if count % ABORT_EVERY == 0:
                                await tx.flush()
                                raise Withdrawn
                        ledger.acknowledge(taken)
                except Withdrawn:
                    ledger.abort(taken)

    async def consume(self) -> None:
        """Reads until the end, and then the rest of the acknowledged records."""
        async with curtail.Consumer(
            self.servers,
            *TOPICS,
            group_id="soak",
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        ) as consumer:
            while not self.is_over() or (
                time.monotonic() < self.ends + DRAIN
                and any(ledger.unread() for ledger in self.ledgers.values())
            ):
                async with self.tolerated("poll"):
                    records = await consumer.poll(0.5)
                    for record in records:
                        self.ledgers[record.topic].read(int(record.value or b""))
                    if records:
                        async with self.tolerated("commit"):
                            await consumer.commit()

    async def administer(self) -> None:
        every = range(PARTITIONS)
        specs: dict[tuple[str, int], OffsetSpec] = {
            (topic, partition): "latest" for topic in TOPICS for partition in every
        }
        async with curtail.Admin(self.servers) as admin:
            while not self.is_over():
                async with self.tolerated("admin"):
                    await admin.describe_topics(TOPICS)
                    await admin.list_offsets(specs)
                    await admin.list_groups()
                    await admin.create_topics([NewTopic("for-a-while")])
                    await admin.delete_topics(["for-a-while"])
                await asyncio.sleep(1.0)

    async def come_and_go(self) -> None:
        """Clients that are created, cancelled and closed: each must return what it has taken."""
        while not self.is_over():
            async with self.tolerated("short-lived client"):
                async with curtail.Producer(self.servers):
                    pass
                async with curtail.Consumer(self.servers, "awaited") as consumer:
                    polling = asyncio.ensure_future(consumer.poll(10.0))
                    await asyncio.sleep(0.1)
                    polling.cancel()
            await asyncio.sleep(2.0)

    async def kill(self, brokers: Process) -> None:
        async def command(text: str) -> None:
            assert brokers.stdin and brokers.stdout
            brokers.stdin.write(text.encode())
            if not await brokers.stdout.readline():
                raise RuntimeError("the cluster's process has ended")

        while not self.is_over():
            await asyncio.sleep(UP)
            broker = self.kills % BROKERS + 1
            await command(f"kill {broker}\n")
            self.kills += 1
            await asyncio.sleep(DOWN)
            await command(f"restart {broker}\n")

    async def watch(self, interval: float, usages: list[tuple[float, Usage]]) -> None:
        began = time.monotonic()
        while not self.is_over():
            await asyncio.sleep(min(interval, max(0.0, self.ends - time.monotonic())))
            usages.append((time.monotonic(), Usage.now()))
            print(f"{time.monotonic() - began:6.0f} s  {self.line(usages[-1][1])}", flush=True)

    def line(self, usage: Usage) -> str:
        acknowledged = sum(ledger.acknowledged for ledger in self.ledgers.values())
        unread = sum(ledger.unread() for ledger in self.ledgers.values())
        return (
            f"{acknowledged:8,} acknowledged, {unread:5,} of them not read yet, "
            f"{self.kills:3} kills, {usage.mib:6.1f} MiB, {usage.threads:3} threads, "
            f"{usage.descriptors:3} descriptors"
        )

    async def run(self, brokers: Process, interval: float) -> list[tuple[float, Usage]]:
        usages: list[tuple[float, Usage]] = []
        parts: list[Callable[[], Awaitable[None]]] = [
            self.awaited,
            self.pipelined,
            self.committed,
            self.consume,
            self.administer,
            self.come_and_go,
        ]
        async with asyncio.TaskGroup() as group:
            for part in parts:
                group.create_task(part())  # type: ignore[arg-type]
            group.create_task(self.kill(brokers))
            group.create_task(self.watch(interval, usages))
        return usages


def verdict(soak: Soak, usages: list[tuple[float, Usage]], began: float, mib: float) -> list[str]:
    """What is wrong."""
    wrong = []
    for topic, ledger in soak.ledgers.items():
        if lost := ledger.unread():
            wrong.append(f"{topic}: {lost} acknowledged records were not read")
        if aborted := ledger.wrong():
            wrong.append(f"{topic}: {aborted} aborted records were read")
        if not ledger.acknowledged:
            wrong.append(f"{topic}: no record was acknowledged")
    warm = began + (soak.ends - began) * WARM_UP
    before = [usage for at, usage in usages if at <= warm] or [usages[0][1]]
    after = [usage for at, usage in usages if at > warm]
    quarter = max(1, len(after) // 4)
    grown = median(usage.mib for usage in after[-quarter:]) - median(
        usage.mib for usage in after[:quarter]
    )
    print(f"memory after the warm-up: {grown:+.1f} MiB, first quarter to last (bound {mib:g})")
    if grown > mib:
        wrong.append(f"memory has grown by {grown:.1f} MiB, more than {mib:g}")
    for name, bound in (("threads", THREADS), ("descriptors", DESCRIPTORS)):
        first = max(getattr(usage, name) for usage in before)
        most = max(getattr(usage, name) for usage in after)
        print(f"{name}: at most {first} in the warm-up, {most} after it (bound {first + bound})")
        if most > first + bound:
            wrong.append(f"{name} have grown from {first} to {most}")
    return wrong


async def main(minutes: float, rate: float, interval: float, mib: float) -> int:
    seconds = minutes * 60
    brokers = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--serve", stdin=PIPE, stdout=PIPE
    )
    assert brokers.stdin and brokers.stdout
    try:
        servers = (await brokers.stdout.readline()).decode().strip()
        soak, began = Soak(servers, seconds, rate), time.monotonic()
        usages = await soak.run(brokers, min(interval, seconds / 10))
    finally:
        brokers.stdin.close()
        await brokers.wait()
    print(f"\nat the end: {soak.line(Usage.now())}")
    print("calls:", ", ".join(f"{count:,} {name}" for name, count in sorted(soak.calls.items())))
    failures = ", ".join(f"{count} {name}" for name, count in sorted(soak.failures.items()))
    print("failed while a broker was down:", failures or "none")
    print("read again:", sum(ledger.repeated() for ledger in soak.ledgers.values()))
    wrong = verdict(soak, usages, began, mib)
    for text in wrong:
        print(f"WRONG: {text}")
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("minutes", type=float, nargs="?", default=10.0)
    parser.add_argument("--rate", type=float, default=500.0, help="records per second")
    # No divisor of the period of the kills: samples must see each of its parts.
    parser.add_argument("--interval", type=float, default=7.0, help="seconds between lines")
    parser.add_argument("--mib", type=float, default=16.0, help="bound on the growth of memory")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve()
    else:
        sys.exit(asyncio.run(main(given.minutes, given.rate, given.interval, given.mib)))
