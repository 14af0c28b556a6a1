#!/usr/bin/env python3
"""Compares Python clients: each run is a separate process, the order of the clients alternates.

python bench/compare.py [--workload await,poll] [--rounds 5] [--scale 1.0] [--servers HOST:PORT]

The clients are built and installed into environments below target/bench first. The Rust client is
measured by the command of the checkout's release build, if there is one. Without --servers an
embedded cluster of three brokers runs in another process. Figures are medians of the rounds, and
CPU time is that of the client's process (getrusage). A target that is missed is printed as short;
--json writes every round.
"""

import argparse
import asyncio
import inspect
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import workloads
from workloads import Asked, Figures

HERE = pathlib.Path(__file__).resolve().parent
ENVIRONMENTS = HERE.parent / "target" / "bench"
# Packages of each client's environment. That of Curtail is built from this checkout.
PACKAGES = {
    "curtail": ("maturin>=1.16,<1.17", "pyarrow>=19", "polars>=1.30"),
    "confluent": ("confluent-kafka==2.16.1", "pyarrow>=19", "polars>=1.30"),
    "aiokafka": ("aiokafka==0.14.0",),
    "kafka_python": ("kafka-python==3.0.12",),
}
# Arms that are no Python client: an event loop without one, and the Rust client.
YARDSTICKS = ("idle", "rust")
Medians = dict[str, dict[str, Figures]]
"""Medians by workload and client."""


@dataclass(frozen=True)
class Reference:
    """The figure of another run, `times` as large and with `plus`."""

    workload: str
    client: str
    times: float = 1
    plus: float = 0


@dataclass(frozen=True)
class Target:
    """`figure` reaches a bound, `times_best` the best other client's figure, or a reference."""

    figure: str
    at_least: float | None = None
    at_most: float | None = None
    times_best: float | None = None
    of: Reference | None = None

    def complaint(self, workload: str, medians: Medians) -> str | None:
        """Why the target is not reached, or cannot be checked; ``None`` if it is reached."""
        value = medians[workload]["curtail"].get(self.figure)
        bound = self.bound(workload, medians)
        if value is None or bound is None:
            return f"NOT CHECKED: {self.figure}"
        if value >= bound if self.is_more_better() else value <= bound:
            return None
        return f"SHORT: {self.figure}: {value:,.2f}, must reach {bound:,.2f}"

    def is_more_better(self) -> bool:
        return self.at_least is not None or self.figure == RATE

    def bound(self, workload: str, medians: Medians) -> float | None:
        """The bound; ``None`` if the runs to compare with are missing."""
        if self.of is not None:
            figure = medians.get(self.of.workload, {}).get(self.of.client, {}).get(self.figure)
            return None if figure is None else self.of.times * figure + self.of.plus
        if self.times_best is not None:
            others = [
                figures[self.figure]
                for client, figures in medians[workload].items()
                if client != "curtail" and client not in YARDSTICKS
            ]
            if not others:
                return None
            return self.times_best * (max(others) if self.is_more_better() else min(others))
        return self.at_least if self.at_least is not None else self.at_most


@dataclass(frozen=True)
class Workload:
    """`kind` is the first part of the functions' names in `workloads`."""

    kind: str
    clients: tuple[str, ...]
    records: int
    targets: tuple[Target, ...] = ()
    tasks: int = 1000
    topics: int = 1
    backlog: bool = False


RATE, CPU, P99, LATE = "records/s", "CPU us/record", "p99 ms", "loop late p99 ms"
WORKLOADS = {
    "await": Workload(
        "await", ("curtail", "confluent", "aiokafka", "idle"), 100_000,
        (
            Target(RATE, at_least=200_000), Target(RATE, times_best=3), Target(CPU, at_most=5),
            Target(LATE, of=Reference("await", "idle", plus=1)),
        ),
    ),
    "await-10000-tasks": Workload(
        "await", ("curtail", "confluent", "aiokafka"), 100_000,
        (Target(CPU, of=Reference("await", "curtail", times=1.2)),), tasks=10_000,
    ),
    "await-5000-topics": Workload(
        "await", ("curtail", "aiokafka"), 100_000,
        (Target(CPU, of=Reference("await", "curtail", times=1.2)),), topics=5_000,
    ),
    "pipeline": Workload(
        "pipeline", ("curtail", "confluent", "kafka_python"), 300_000,
        (Target(RATE, at_least=500_000), Target(CPU, times_best=0.7)),
    ),
    "send-arrow": Workload("arrow", ("curtail",), 1_000_000, (Target(RATE, at_least=1_000_000),)),
    "async-for": Workload(
        "records", ("curtail", "confluent", "aiokafka"), 500_000,
        (Target(RATE, at_least=600_000),), backlog=True,
    ),
    "poll": Workload(
        "polls", ("curtail", "confluent", "kafka_python"), 500_000,
        (Target(RATE, at_least=1_500_000),), backlog=True,
    ),
    "polars": Workload(
        "polars", ("curtail", "confluent"), 1_000_000,
        (Target(RATE, at_least=3_000_000), Target(CPU, at_most=0.35)), backlog=True,
    ),
    "end-to-end": Workload(
        "trip", ("curtail", "rust", "confluent", "aiokafka", "kafka_python"), 5_000,
        (Target(P99, times_best=1), Target(P99, of=Reference("end-to-end", "rust", times=1.5))),
    ),
    "idle-consumer": Workload(
        "idle", ("curtail", "confluent", "aiokafka"), 1, (Target("% of a core", at_most=0.1),),
    ),
}  # fmt: skip


def environment(client: str) -> pathlib.Path:
    return ENVIRONMENTS / ("curtail" if client in YARDSTICKS else client)


def prepare(client: str) -> None:
    """Installs a client into its environment."""
    folder = environment(client)
    if not (folder / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    packages = PACKAGES[folder.name]
    subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "-q", *packages], check=True)
    if folder.name == "curtail":
        build = [folder / "bin" / "maturin", "develop", "--release", "--quiet"]
        subprocess.run(
            build, check=True, cwd=HERE.parent, env={**os.environ, "VIRTUAL_ENV": str(folder)}
        )


@contextmanager
def embedded() -> Iterator[str]:
    brokers = subprocess.Popen(
        [environment("curtail") / "bin" / "python", __file__, "--serve"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert brokers.stdin and brokers.stdout
    try:
        yield brokers.stdout.readline().strip()
    finally:
        brokers.stdin.close()
        brokers.wait()


def serve() -> None:
    from curtail_kafka.testing import Cluster

    with Cluster(3) as cluster:
        print(cluster.bootstrap_servers, flush=True)
        sys.stdin.read()


def create(servers: str, names: tuple[str, ...]) -> None:
    """A single topic has six partitions, many have one each. A request creates at most 500."""
    import curtail_kafka.sync as curtail_kafka
    from curtail_kafka.admin import NewTopic

    partitions = workloads.PARTITIONS if len(names) == 1 else 1
    with curtail_kafka.Admin(servers) as admin:
        for begin in range(0, len(names), 500):
            created = admin.create_topics(
                [NewTopic(name, partitions) for name in names[begin : begin + 500]]
            )
            for outcome in created.values():
                if isinstance(outcome, Exception):
                    raise outcome


def delete(servers: str, topics: tuple[str, ...]) -> None:
    import curtail_kafka.sync as curtail_kafka

    with curtail_kafka.Admin(servers) as admin:
        for begin in range(0, len(topics), 500):
            admin.delete_topics(topics[begin : begin + 500])


def child(kind: str, client: str, *asked: str) -> Figures:
    program = [
        str(environment(client) / "bin" / "python"),
        __file__,
        "--child",
        kind,
        client,
        *asked,
    ]
    done = subprocess.run(program, check=True, stdout=subprocess.PIPE, text=True)
    result: Figures = json.loads(done.stdout.splitlines()[-1])
    return result


def act(
    kind: str, client: str, servers: str, prefix: str, count: int, records: int, tasks: int
) -> Figures:
    """The part of the process that measures."""
    names = tuple(f"{prefix}-{number}" for number in range(count))
    if kind in ("create", "delete"):
        (create if kind == "create" else delete)(servers, names)
        return {}
    asked = Asked(servers, names, records, tasks)
    function = getattr(workloads, "fill" if kind == "fill" else f"{kind}_{client}")
    result: Figures = function(asked)
    return asyncio.run(result) if inspect.iscoroutine(result) else result


@contextmanager
def topics(name: str, workload: Workload, servers: str, records: int) -> Iterator[tuple[str, str]]:
    """New topics, with a backlog if the workload reads one."""
    prefix = (f"{name}-{time.time_ns()}", str(workload.topics))
    child("create", "curtail", servers, *prefix, "1", "1")
    try:
        if workload.backlog:
            child("fill", "curtail", servers, *prefix, str(records), "1")
        yield prefix
    finally:
        child("delete", "curtail", servers, *prefix, "1", "1")


def measure(
    name: str, workload: Workload, servers: str, scale: float, rounds: int
) -> dict[str, list[Figures]]:
    """Runs every client in each round. A backlog serves all; other runs have their own topics."""
    records = max(1, int(workload.records * scale))
    has_rust = workloads.COMMAND.exists()
    clients = [client for client in workload.clients if client != "rust" or has_rust]
    runs: dict[str, list[Figures]] = {client: [] for client in clients}

    def run(client: str, prefix: tuple[str, str]) -> None:
        asked = (servers, *prefix, str(records), str(workload.tasks))
        runs[client].append(child(workload.kind, client, *asked))

    turns = [
        client
        for number in range(rounds)
        for client in (clients if number % 2 == 0 else reversed(clients))
    ]
    if workload.backlog:
        with topics(name, workload, servers, records) as prefix:
            for client in turns:
                run(client, prefix)
        return runs
    for client in turns:
        with topics(name, workload, servers, records) as prefix:
            run(client, prefix)
    return runs


def medians_of(runs: dict[str, list[Figures]]) -> dict[str, Figures]:
    medians: dict[str, Figures] = {}
    for client, rounds in runs.items():
        common = [figure for figure in rounds[0] if all(figure in one for one in rounds)]
        medians[client] = {
            figure: statistics.median(one[figure] for one in rounds) for figure in common
        }
    return medians


def report(name: str, runs: dict[str, list[Figures]], medians: Medians) -> None:
    figures = list(dict.fromkeys(figure for one in medians[name].values() for figure in one))
    print(f"\n{name}\n  {'':14}" + "".join(f"{figure:>18}" for figure in figures) + "  spread")
    for client, one in medians[name].items():
        cells = (f"{one[figure]:18,.2f}" if figure in one else f"{'-':>18}" for figure in figures)
        first = [each[figures[0]] for each in runs[client]]
        print(f"  {client:14}{''.join(cells)}  {min(first):,.2f} to {max(first):,.2f}")
    for target in WORKLOADS[name].targets:
        if complaint := target.complaint(name, medians):
            print(f"  {complaint}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workload", help=f"of {', '.join(WORKLOADS)} [default: all]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the numbers of records")
    parser.add_argument(
        "--servers", metavar="HOST:PORT", help="an existing cluster, such as Apache Kafka"
    )
    parser.add_argument("--no-build", action="store_true", help="use the environments as they are")
    parser.add_argument("--json", metavar="FILE", help="write every round")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--child", nargs=7, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        return serve()
    if asked.child:
        kind, client, servers, prefix, *numbers = asked.child
        count, records, tasks = map(int, numbers)
        return print(json.dumps(act(kind, client, servers, prefix, count, records, tasks)))
    names = asked.workload.split(",") if asked.workload else list(WORKLOADS)
    if unknown := set(names) - set(WORKLOADS):
        parser.error(f"no workload {', '.join(sorted(unknown))}; they are {', '.join(WORKLOADS)}")
    if asked.rounds < 1 or asked.scale <= 0:
        parser.error("--rounds must be at least 1, and --scale above 0")
    if not asked.no_build:
        for client in PACKAGES:
            prepare(client)
    results = {}
    medians: Medians = {}
    with embedded() if asked.servers is None else _given(asked.servers) as servers:
        for name in names:
            results[name] = measure(name, WORKLOADS[name], servers, asked.scale, asked.rounds)
            medians[name] = medians_of(results[name])
            report(name, results[name], medians)
    if asked.json:
        pathlib.Path(asked.json).write_text(json.dumps(results, indent=1) + "\n")


@contextmanager
def _given(servers: str) -> Iterator[str]:
    yield servers


if __name__ == "__main__":
    main()
