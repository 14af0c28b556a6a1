#!/usr/bin/env python3
"""Compares awaited sends with aiokafka: TASKS tasks, each awaits the acknowledgement of its record.

python bench/compare.py [--rounds 5] [--records 100000] [--tasks 1000]
python bench/compare.py --workload send_arrow --records 2000000

The workload send_arrow sends one table of pyarrow, without a peer. Its p50 and p99 are the time
between turns of a task that only yields: how long the event loop is held.

Brokers run in a process of their own, and each arm of a round in another one, one after the other.
Rounds alternate the order of the arms. CPU time is that of the client's process (getrusage).
"""

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from resource import RUSAGE_SELF, getrusage, struct_rusage
from typing import Any

from curtail_kafka.testing import Cluster

VALUE = bytes(100)
TOPIC = "bench"
Send = Callable[[], Awaitable[Any]]


async def measure(send: Send, records: int, tasks: int) -> dict[str, float]:
    latencies: list[float] = []
    left = iter(range(records))

    async def worker() -> None:
        for _ in left:
            began = time.perf_counter()
            await send()
            latencies.append(time.perf_counter() - began)

    before, began = getrusage(RUSAGE_SELF), time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(tasks)))
    took, after = time.perf_counter() - began, getrusage(RUSAGE_SELF)
    return measured(records, took, before, after, latencies)


def measured(
    records: int, took: float, before: struct_rusage, after: struct_rusage, times: list[float]
) -> dict[str, float]:
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    times.sort()
    return {
        "records/s": records / took,
        "CPU us/record": cpu / records * 1e6,
        "p50 ms": times[len(times) // 2] * 1e3,
        "p99 ms": times[len(times) * 99 // 100] * 1e3,
    }


async def curtail(servers: str, records: int, tasks: int) -> dict[str, float]:
    import curtail_kafka

    async with curtail_kafka.Producer(servers) as producer:
        await producer.warm_up(TOPIC)
        await asyncio.gather(*(producer.send(TOPIC, VALUE) for _ in range(1000)))
        return await measure(lambda: producer.send(TOPIC, VALUE), records, tasks)


async def aiokafka(servers: str, records: int, tasks: int) -> dict[str, float]:
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(
        bootstrap_servers=servers, acks="all", enable_idempotence=True
    ) as producer:
        await asyncio.gather(*[producer.send_and_wait(TOPIC, VALUE) for _ in range(1000)])
        return await measure(lambda: producer.send_and_wait(TOPIC, VALUE), records, tasks)


async def idle(servers: str, records: int, tasks: int) -> dict[str, float]:
    """The event loop alone: futures that the next turn of the loop resolves."""
    loop = asyncio.get_running_loop()

    def send() -> asyncio.Future[None]:
        future = loop.create_future()
        loop.call_soon(future.set_result, None)
        return future

    return await measure(send, records, tasks)


async def send_arrow(servers: str, records: int, tasks: int) -> dict[str, float]:
    import pyarrow

    import curtail_kafka

    table = pyarrow.table({"value": pyarrow.array([VALUE] * records, pyarrow.binary())})
    gaps: list[float] = []

    async def watch() -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            gaps.append(now - last - 0.001)
            last = now

    async with curtail_kafka.Producer(servers) as producer:
        await producer.send_arrow(TOPIC, table.slice(0, 10_000), value="value")
        watching = asyncio.create_task(watch())
        before, began = getrusage(RUSAGE_SELF), time.perf_counter()
        delivered = await producer.send_arrow(TOPIC, table, value="value")
        took, after = time.perf_counter() - began, getrusage(RUSAGE_SELF)
        watching.cancel()
    assert delivered.count == records
    return measured(records, took, before, after, gaps)


WORKLOADS = {
    "send": {"curtail": curtail, "aiokafka": aiokafka, "idle": idle},
    "send_arrow": {"curtail": send_arrow},
}


def serve() -> None:
    with Cluster(3) as cluster:
        cluster.create_topic(TOPIC, partitions=6)
        print(cluster.bootstrap_servers, flush=True)
        sys.stdin.read()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--workload", choices=WORKLOADS, default="send")
    parser.add_argument("--arm")
    parser.add_argument("--servers")
    parser.add_argument("--serve", action="store_true")
    asked = parser.parse_args()
    if asked.serve:
        return serve()
    arms = WORKLOADS[asked.workload]
    if asked.arm:
        result = asyncio.run(arms[asked.arm](asked.servers, asked.records, asked.tasks))
        return print(json.dumps(result))
    again = [sys.executable, __file__]
    brokers = subprocess.Popen(
        [*again, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert brokers.stdin and brokers.stdout
    servers = brokers.stdout.readline().strip()
    runs: dict[str, list[dict[str, float]]] = {arm: [] for arm in arms}
    for number in range(asked.rounds):
        for arm in list(arms) if number % 2 == 0 else reversed(arms):
            command = [*again, "--workload", asked.workload, "--arm", arm]
            command += ["--servers", servers]
            command += ["--records", str(asked.records), "--tasks", str(asked.tasks)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            runs[arm].append(json.loads(done.stdout))
    brokers.stdin.close()
    brokers.wait()
    for arm, results in runs.items():
        medians = {key: statistics.median(one[key] for one in results) for key in results[0]}
        print(arm, " ".join(f"{key}={value:,.2f}" for key, value in medians.items()))
        print("   ", [round(one["records/s"]) for one in results])


if __name__ == "__main__":
    main()
