#!/usr/bin/env python3
"""Runs the same loads with Curtail and with its peers, interleaved, and tabulates medians, spreads and targets.

See README.md in this directory. Needs only Python's standard library.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

PEERS = Path(__file__).resolve().parent
ROOT = PEERS.parent
TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
# Other clients than Curtail.
OTHERS = ("java", "librdkafka", "franz-go", "confluent-rust", "krafka")
CLIENTS = ("curtail", "curtail-completions", "curtail-unbounded", "curtail-perf", *OTHERS, "floor")
# Open loops at a share of the client's own produce-max.
SHARES = {"open-50": 0.5, "open-80": 0.8, "open-95": 0.95}
TOOLS = ("produce-max", "produce-max-1000", *SHARES, "produce-rate", "e2e-rate", "e2e", "consume")
TOPIC_COMMAND = "org.apache.kafka.tools.TopicCommand"


class Problem(Exception):
    """Something that the person at the keyboard must put right."""


# ---- clients -------------------------------------------------------------------------------------


def need(*commands):
    """Refuses with what is missing and what it is for."""
    hints = {
        "cargo": "install a Rust toolchain",
        "java": "install Java 17 or newer",
        "mvn": "install Maven 3.8 or newer",
        "go": "install Go 1.26 or newer",
        "make": "install make (librdkafka is built from its sources)",
        "cc": "install a C compiler",
    }
    missing = [command for command in commands if shutil.which(command) is None]
    if missing:
        raise Problem("; ".join(f"`{command}` is missing: {hints[command]}" for command in missing))


def build(command, folder, **environment):
    print(f"building: {shlex.join(command)}  (in {folder.relative_to(ROOT.parent)})", flush=True)
    result = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )
    if result.returncode != 0:
        raise Problem(f"{shlex.join(command)} failed:\n" + "\n".join(result.stdout.splitlines()[-30:]))


def curtail(rebuild):
    """An ordinary program with Curtail."""
    folder = PEERS / "curtail"
    if rebuild:
        need("cargo")
        build(["cargo", "build", "--release"], folder, CARGO_TARGET_DIR=str(folder / "target"))
    return [str(folder / "target/release/curtail-peer-curtail")]


def curtail_completions(rebuild):
    """The same program, which receives the outcomes of a batch's records at once."""
    return [*curtail(rebuild), "--completions"]


def curtail_perf(rebuild):
    """The tool's own way, which costs least."""
    if rebuild:
        need("cargo")
        build(["cargo", "build", "--release", "--bin", "curtail"], ROOT)
    return [str(TARGET / "release/curtail"), "perf"]


def java(rebuild):
    need("java")
    if rebuild:
        need("mvn")
        build(["mvn", "-q", "-B", "package"], PEERS / "java")
    target = PEERS / "java/target"
    # The collector's settings are those of Kafka's start scripts; the heap is that of its perf tool.
    return [
        "java", "-server", "-Xmx512m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
        "-XX:InitiatingHeapOccupancyPercent=35", "-cp", f"{target}/curtail-peer-java.jar:{target}/jars/*",
        "curtail.peers.Main",
    ]


def librdkafka(rebuild):
    folder = PEERS / "librdkafka"
    if rebuild:
        need("cargo", "cc", "make")
        build(["cargo", "build", "--release"], folder, CARGO_TARGET_DIR=str(folder / "target"))
    return [str(folder / "target/release/curtail-peer-librdkafka")]


def confluent_rust(rebuild):
    folder = PEERS / "confluent-rust"
    if rebuild:
        need("cargo", "cc")
        build(["cargo", "build", "--release"], folder, CARGO_TARGET_DIR=str(folder / "target"))
    return [str(folder / "target/release/curtail-peer-confluent-rust")]


def krafka(rebuild):
    folder = PEERS / "krafka"
    if rebuild:
        need("cargo", "cc")
        build(["cargo", "build", "--release"], folder, CARGO_TARGET_DIR=str(folder / "target"))
    return [str(folder / "target/release/curtail-peer-krafka")]


def franz_go(rebuild):
    folder = PEERS / "franz-go"
    if rebuild:
        need("go")
        build(["go", "build", "-o", "curtail-peer-franz-go", "."], folder)
    return [str(folder / "curtail-peer-franz-go")]


def floor(rebuild):
    folder = PEERS / "floor"
    if rebuild:
        need("cargo")
        build(["cargo", "build", "--release"], folder, CARGO_TARGET_DIR=str(folder / "target"))
    return [str(folder / "target/release/curtail-peer-floor")]


DRIVERS = {"curtail": curtail, "curtail-completions": curtail_completions, "curtail-unbounded": curtail,
           "curtail-perf": curtail_perf, "java": java, "librdkafka": librdkafka, "franz-go": franz_go,
           "confluent-rust": confluent_rust, "krafka": krafka, "floor": floor}

# Clients that differ from another one by their properties.
PROPERTIES = {"curtail-unbounded": ("curtail.latency.target.ms=0",)}

# Tools of clients that do not have all of them. The floor is not a client: one socket that sends one request at a time.
ONLY = {
    "floor": ("produce-rate",),
    "curtail-completions": ("produce-max", "produce-max-1000", *SHARES, "produce-rate"),
    "curtail-unbounded": ("produce-max",),
    "curtail-perf": tuple(tool for tool in TOOLS if tool != "e2e-rate"),
}


def clients_for(tool, clients):
    return [client for client in clients if tool in ONLY.get(client, TOOLS)]


# ---- broker --------------------------------------------------------------------------------------


class Broker:
    """An Apache Kafka started here, or an existing one."""

    def __init__(self, args):
        need("cargo", "java")
        build(["cargo", "build", "-q", "-p", "curtail-apache"], ROOT)
        self.command = str(TARGET / "debug/curtail-apache")
        self.process = None
        self.bootstrap = args.bootstrap_server
        if self.bootstrap:
            return
        need("mvn")
        start = [self.command, "start", "--brokers", str(args.brokers)]
        for pair in args.broker_property:
            start += ["--property", pair]
        self.process = subprocess.Popen(start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline().strip()
        if not line.startswith("bootstrap: "):
            raise Problem("Apache Kafka did not start; its message is above")
        self.bootstrap = line.removeprefix("bootstrap: ")

    def topics(self, *arguments):
        command = [self.command, "tool", TOPIC_COMMAND, "--bootstrap-server", self.bootstrap, *arguments]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            raise Problem(f"{' '.join(arguments)}: {result.stdout}{result.stderr}")

    def create(self, topic, args):
        self.topics("--create", "--topic", topic, "--partitions", str(args.partitions),
                    "--replication-factor", str(args.replication_factor))

    def delete(self, topic):
        self.topics("--delete", "--topic", topic)

    def stop(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait()


# ---- runs ----------------------------------------------------------------------------------------


@dataclass
class Run:
    round: int
    tool: str
    client: str

    def __str__(self):
        return f"round {self.round} {self.tool:16} {self.client:19}"


def open_rate(tool, reached):
    """Records per second of an open loop: a share of what the client has reached without a limit, as its median."""
    numbers = [result["throughput_rps"] for result in reached]
    return round(SHARES[tool] * statistics.median(numbers)) if numbers else None


def arguments(run, broker, topic, args, rate):
    """The command line, the same for every client except for the rate of an open loop and a client's own properties."""
    subcommand, *flags = load_of(run.tool, args, rate)
    words = [subcommand, "--bootstrap-server", broker.bootstrap, "--topic", topic, *flags]
    given = {"e2e": [], "e2e-rate": [], "consume": args.consume_property}.get(run.tool, args.produce_property)
    for pair in (*given, *PROPERTIES.get(run.client, ())):
        words += ["--command-property", pair]
    return words


def load_of(tool, args, rate):
    """A tool's subcommand and flags."""
    no_linger = ["--command-property", "linger.ms=0"]
    if tool == "produce-max":
        return ["produce", *records_of(args.max_records, args.max_warmup, args.max_record_size)]
    if tool == "produce-max-1000":
        return ["produce", *records_of(args.max_1000_records, args.max_1000_warmup, 1000)]
    if tool in SHARES:
        return ["produce", *steady(rate, args.open_seconds, args.open_warmup_seconds, args.max_record_size)]
    if tool == "produce-rate":
        flags = steady(args.rate, args.rate_seconds, args.rate_warmup_seconds, args.rate_record_size)
        return ["produce", *flags, *no_linger]
    if tool == "e2e-rate":
        flags = steady(args.e2e_rate, args.e2e_rate_seconds, args.e2e_rate_warmup_seconds, args.e2e_record_size)
        return ["load", "--until", "read", *flags, *no_linger]
    if tool == "e2e":
        count = counted(args.e2e_records, args.e2e_warmup)
        return ["e2e", *count, "--producer-acks", args.e2e_acks, "--record-size", str(args.e2e_record_size)]
    return ["consume", *counted(args.consume_records, 0)]


def steady(rate, seconds, warmup_seconds, size):
    return records_of(rate * seconds, rate * warmup_seconds, size, rate)


def records_of(records, warmup, size, rate=-1):
    return [*counted(records, warmup), "--record-size", str(size), "--throughput", str(rate)]


def counted(records, warmup):
    """--num-records counts the warm-up too, as in Kafka's tool."""
    words = ["--num-records", str(records + warmup)]
    return words + ["--warmup-records", str(warmup)] if warmup else words


def sleep_precisely():
    """Sleeps of the process that follows end on time. The kernel otherwise adds up to 50 us to each to save wake-ups,
    and whether a driver has that switched off would be measured too."""
    set_timer_slack = 29
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(set_timer_slack, 1, 0, 0, 0)


def execute(driver, words, path, limit):
    """Runs one arm; returns its JSON, or None after saying what went wrong."""
    command = [*driver, *words, "--json", str(path)]
    # A `load` waits for this line after its warm-up.
    line = "go\n" if words[0] == "load" else None
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=limit, input=line,
                                preexec_fn=sleep_precisely)
    except subprocess.TimeoutExpired:
        print(f"    stopped after {limit} s: {shlex.join(command)}")
        return None
    except FileNotFoundError:
        raise Problem(f"{command[0]} does not exist; run without --no-build") from None
    if result.returncode != 0:
        print(f"    exit code {result.returncode}: {shlex.join(command)}\n    {result.stderr.strip()}")
        return None
    path.with_suffix(".txt").write_text(result.stdout + result.stderr)
    return json.loads(path.read_text())


def measure(args, drivers, broker, out):
    """All rounds. The order of the clients turns by one each round, so that none is always first."""
    results = {(tool, client): [] for tool in args.tool for client in clients_for(tool, args.client)}
    filled = None
    if "consume" in args.tool:
        filled = fill(args, drivers, broker, out)
    for number in range(args.rounds):
        for tool in args.tool:
            clients = clients_for(tool, args.client)
            turn = number % len(clients)
            for client in clients[turn:] + clients[:turn]:
                run = Run(number + 1, tool, client)
                rate = None
                if tool in SHARES:
                    rate = open_rate(tool, results["produce-max", client])
                    if rate is None:
                        print(f"  {run} skipped: it has no result for produce-max")
                        continue
                result = one(args, run, drivers[client], broker, filled, out, rate)
                if result:
                    results[tool, client].append(result)
    return results


def one(args, run, driver, broker, filled, out, rate):
    own_topic = run.tool != "consume"
    topic = f"{run.tool}-{run.round}-{run.client}" if own_topic else filled
    if own_topic:
        broker.create(topic, args)
    path = out / f"round-{run.round}-{run.tool}-{run.client}.json"
    result = execute(driver, arguments(run, broker, topic, args, rate), path, args.limit)
    if own_topic:
        broker.delete(topic)
    told = brief(run.tool, result) if result else "no result"
    print(f"  {run} {told}", flush=True)
    # Flush the previous run's data before the next one begins: a broker whose page cache is full waits for the disk, and
    # that wait would count against the next client.
    os.sync()
    time.sleep(args.pause)
    return result


def fill(args, drivers, broker, out):
    """One topic for all consumers, written by the last of the clients (the peers come last)."""
    topic = "consume"
    broker.create(topic, args)
    client = clients_for("consume", args.client)[-1]
    print(f"  filling topic {topic} with {args.consume_records} records by {client}", flush=True)
    words = ["produce", "--bootstrap-server", broker.bootstrap, "--topic", topic,
             *records_of(args.consume_records, 0, args.max_record_size)]
    if not execute(drivers[client], words, out / f"fill-{client}.json", args.limit):
        raise Problem("the topic for the consumers could not be filled")
    return topic


# ---- tables --------------------------------------------------------------------------------------

RATE, CPU, P50, P99 = "records/s", "CPU us/record", "p50 us", "p99 us"
THROUGHPUT = [(RATE, "throughput_rps", None, 0), ("MB/s", "throughput_mbps", None, 1), (CPU, "cpu_us_per_record", None, 3)]
LATENCY = [(P50, "latency_us", "p50", 0), (P99, "latency_us", "p99", 0)]
TAIL = [("p99.9 us", "latency_us", "p999", 0), ("max us", "latency_us", "max", 0)]

# Heading, key, subkey, digits.
COLUMNS = {
    "produce-max": [*THROUGHPUT, *LATENCY],
    "produce-max-1000": [*THROUGHPUT, *LATENCY],
    **dict.fromkeys(SHARES, [(RATE, "throughput_rps", None, 0), (CPU, "cpu_us_per_record", None, 3), *LATENCY, *TAIL]),
    "produce-rate": [(RATE, "throughput_rps", None, 0), (CPU, "cpu_us_per_record", None, 2),
                     (P50, "latency_us", "p50", 0), ("p95 us", "latency_us", "p95", 0), (P99, "latency_us", "p99", 0),
                     *TAIL, ("sent p99 us", "send_latency_us", "p99", 0)],
    "e2e-rate": [(RATE, "throughput_rps", None, 0), (CPU, "cpu_us_per_record", None, 1), *LATENCY, *TAIL],
    "e2e": [(CPU, "cpu_us_per_record", None, 1), ("avg us", "latency_us", "avg", 0), *LATENCY, *TAIL],
    "consume": THROUGHPUT,
}


def value(result, key, sub):
    found = result.get(key)
    return found.get(sub) if sub and isinstance(found, dict) else found


def brief(tool, result):
    cells = []
    for heading, key, sub, digits in COLUMNS[tool]:
        number = value(result, key, sub)
        cells.append(f"{heading} {number:.{digits}f}" if number is not None else f"{heading} -")
    if result.get("errors"):
        cells.append(f"ERRORS {result['errors']}")
    return ", ".join(cells)


@dataclass(frozen=True)
class Spread:
    """Median, lowest and highest of the rounds."""

    median: float
    lowest: float
    highest: float
    digits: int

    def __str__(self):
        median, lowest, highest = (f"{n:,.{self.digits}f}" for n in (self.median, self.lowest, self.highest))
        return median if lowest == highest else f"{median} ({lowest} to {highest})"


def figures(results, tool, client):
    """A client's figures by their headings, without those that no round has."""
    found = {}
    for heading, key, sub, digits in COLUMNS[tool]:
        numbers = [value(result, key, sub) for result in results.get((tool, client), [])]
        numbers = [number for number in numbers if number is not None]
        if numbers:
            found[heading] = Spread(statistics.median(numbers), min(numbers), max(numbers), digits)
    return found


def table(results, tool, clients):
    headings = [heading for heading, *_ in COLUMNS[tool]]
    lines = [f"### {tool}", "", "| client | runs | errors | " + " | ".join(headings) + " |",
             "|---|---:|---:|" + "---:|" * len(headings)]
    rows = {client: figures(results, tool, client) for client in clients}
    for client in clients:
        runs = results[tool, client]
        version = f"{client} {runs[0].get('version', '')}".strip() if runs else client
        errors = sum(run.get("errors", 0) for run in runs)
        cells = [str(rows[client].get(heading, "-")) for heading in headings]
        lines.append(f"| {version} | {len(runs)} | {errors} | " + " | ".join(cells) + " |")
    if "curtail" in clients:
        for peer in clients:
            if peer != "curtail":
                cells = [ratio(rows["curtail"].get(heading), rows[peer].get(heading)) for heading in headings]
                lines.append(f"| curtail / {peer} | | | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def ratio(ours, theirs):
    return f"{ours.median / theirs.median:.2f}" if ours and theirs and theirs.median else "-"


# ---- targets -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """`figure` of `client` reaches a number, or `times` the figure of another client: of `of`, or of the best one."""

    figure: str
    at_most: float | None = None
    times: float = 1
    of: str | None = None
    client: str = "curtail"

    def is_more_better(self):
        return self.figure == RATE

    def best_other(self, results, tool):
        """The best other client and its figure; `None` if none was run."""
        found = [(client, figures(results, tool, client).get(self.figure)) for client in OTHERS]
        found = [(client, spread) for client, spread in found if spread]
        choose = max if self.is_more_better() else min
        return choose(found, key=lambda pair: pair[1].median, default=None)

    def bound(self, results, tool):
        """The number that must be reached, and the client that it comes from; `None` if that was not run."""
        if self.at_most is not None:
            return self.at_most, None
        if self.of:
            client, spread = self.of, figures(results, tool, self.of).get(self.figure)
        else:
            client, spread = self.best_other(results, tool) or (None, None)
        return (self.times * spread.median, client) if spread else None

    def is_reached(self, median, bound):
        return median >= bound if self.is_more_better() else median <= bound

    def demand(self, found, digits):
        """What must be reached, in words: `at most 280 (0.85 of franz-go)`."""
        words = "at least" if self.is_more_better() else "at most"
        share = "" if self.times == 1 else f"{self.times:g} of "
        if not found:
            return f"{words} {share}{self.of or 'the best other client'}"
        bound, client = found
        return f"{words} {bound:,.{digits}f}" + (f" ({share}{client})" if client else "")

    def row(self, results, tool):
        """The cells of `targets`."""
        measured, best = figures(results, tool, self.client).get(self.figure), self.best_other(results, tool)
        found = self.bound(results, tool)
        digits = next(digits for heading, _, _, digits in COLUMNS[tool] if heading == self.figure)
        verdict = "NOT CHECKED"
        if measured and found:
            verdict = "reached" if self.is_reached(measured.median, found[0]) else "SHORT"
        return [tool, self.client, self.figure, str(measured or "-"), f"{best[0]} {best[1]}" if best else "-",
                self.demand(found, digits), verdict]


# Targets of an ordinary program, for the default loads.
TARGETS = {
    "produce-max": (
        Target(P50, at_most=10_000), Target(P99), Target(RATE), Target(RATE, times=0.97, of="curtail-unbounded"),
        Target(CPU, at_most=0.65), Target(CPU, at_most=0.45, client="curtail-completions"),
    ),
    "produce-max-1000": (Target(P50, at_most=10_000),),
    "produce-rate": (Target(CPU, at_most=40), Target(P50, at_most=330), Target(P99)),
    "e2e-rate": (Target(CPU, times=0.7, of="librdkafka"), Target(P50, times=0.85)),
}


def targets(args, results):
    """The table of targets; empty without Curtail, or if no load has one."""
    rows = [target.row(results, tool) for tool in args.tool for target in TARGETS.get(tool, ())]
    if not rows or "curtail" not in args.client:
        return ""
    lines = ["### Targets", ""]
    if args.changed:
        lines += [f"The targets are for the default loads. Changed here: {', '.join(args.changed)}.", ""]
    lines += ["| load | client | figure | median | best other client | must reach | |", "|---|---|---|---:|---:|---:|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def machine():
    model = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.processor())
    return f"{os.cpu_count()} cores ({model}), {platform.system()} {platform.release()}"


def report(args, broker, results):
    server = "Apache Kafka 4.3.0" if not args.bootstrap_server else broker.bootstrap
    lines = [
        f"Server: {server}, {args.brokers} broker(s); {args.partitions} partitions, replication factor "
        f"{args.replication_factor}; {args.rounds} interleaved round(s): median (lowest to highest).",
        f"Machine: {machine()}. Load at the end: {os.getloadavg()[0]:.2f}.",
        f"Command: `{shlex.join(['peers/compare.py', *sys.argv[1:]])}`", "",
    ]
    tables = [table(results, tool, clients_for(tool, args.client)) for tool in args.tool]
    found = targets(args, results)
    return "\n".join([*lines, *tables, *([found] if found else [])])


# ---- command line --------------------------------------------------------------------------------


def some_of(names):
    def check(text):
        chosen = text.split(",")
        for name in chosen:
            if name not in names:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(names)}")
        return chosen
    return check


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--client", type=some_of(CLIENTS), default=list(CLIENTS), help="comma-separated: " + ",".join(CLIENTS))
    add("--tool", type=some_of(TOOLS), default=list(TOOLS), help="comma-separated: " + ",".join(TOOLS))
    add("--rounds", type=int, default=5)
    add("--scale", type=float, default=1.0, help="multiplies every count of records and seconds")
    add("--out", type=Path, default=None, help="folder for all raw JSON (default: target/peers/TIME)")
    add("--no-build", action="store_true", help="the clients are built already")
    add("--bootstrap-server", help="a server of your own, instead of one that is started here")
    add("--brokers", type=int, default=1, choices=(1, 3))
    add("--broker-property", action="append", default=[], metavar="K=V")
    add("--partitions", type=int, default=6)
    add("--replication-factor", type=int, default=1)
    add("--produce-property", action="append", default=[], metavar="K=V", help="for every producer")
    add("--consume-property", action="append", default=[], metavar="K=V", help="for every consumer")
    add("--max-records", type=int, default=9_000_000)
    add("--max-warmup", type=int, default=1_000_000)
    add("--max-record-size", type=int, default=100, help="of produce-max, the open loops and consume")
    add("--max-1000-records", type=int, default=1_000_000, help="records of produce-max-1000")
    add("--max-1000-warmup", type=int, default=250_000)
    add("--open-seconds", type=float, default=10, help="of each open loop, after its warm-up")
    add("--open-warmup-seconds", type=float, default=3)
    add("--rate", type=int, default=10_000, help="records a second of produce-rate")
    add("--rate-seconds", type=float, default=20)
    add("--rate-warmup-seconds", type=float, default=5)
    add("--rate-record-size", type=int, default=1000)
    add("--e2e-rate", type=int, default=2_000, help="records a second of e2e-rate")
    add("--e2e-rate-seconds", type=float, default=20)
    add("--e2e-rate-warmup-seconds", type=float, default=5)
    add("--e2e-records", type=int, default=10_000)
    add("--e2e-warmup", type=int, default=1000)
    add("--e2e-record-size", type=int, default=512)
    add("--e2e-acks", default="all", choices=("1", "all"))
    add("--consume-records", type=int, default=9_000_000)
    add("--pause", type=float, default=1.0, help="seconds of rest for the server after each run")
    add("--limit", type=float, default=600, help="seconds until a run is aborted")
    args = parser.parse_args()
    args.changed = changed(parser, args)
    check_tools(parser, args)
    scale(args)
    return args


def changed(parser, args):
    """The options that change a load."""
    same_loads = ("client", "tool", "rounds", "out", "no_build", "pause", "limit")
    given = [name for name, value in vars(args).items() if value != parser.get_default(name)]
    return ["--" + name.replace("_", "-") for name in given if name not in same_loads]


def check_tools(parser, args):
    if set(args.tool) & set(SHARES) and "produce-max" not in args.tool:
        parser.error("--tool: open-50, open-80 and open-95 need produce-max in the same run, of which they are a share")
    args.tool = [tool for tool in TOOLS if tool in args.tool and clients_for(tool, args.client)]
    if not args.tool:
        parser.error("--tool: none of the clients has these tools")


def scale(args):
    counts = ("max_records", "max_warmup", "max_1000_records", "max_1000_warmup", "e2e_records", "e2e_warmup",
              "consume_records")
    for name in counts:
        setattr(args, name, int(getattr(args, name) * args.scale))
    for load in ("open", "rate", "e2e_rate"):
        seconds, warmup = f"{load}_seconds", f"{load}_warmup_seconds"
        setattr(args, seconds, max(1, round(getattr(args, seconds) * args.scale)))
        setattr(args, warmup, round(getattr(args, warmup) * args.scale))


def main():
    args = parse()
    out = args.out or TARGET / "peers" / time.strftime("%Y%m%d-%H%M%S")
    out.mkdir(parents=True, exist_ok=True)
    drivers = {client: DRIVERS[client](not args.no_build) for client in args.client}
    broker = Broker(args)
    load_at_start = os.getloadavg()[0]
    if args.no_build and load_at_start > 0.5:
        print(f"warning: this machine is busy (load {load_at_start:.2f}); the figures will say little")
    try:
        results = measure(args, drivers, broker, out)
        text = report(args, broker, results)
    finally:
        broker.stop()
    (out / "summary.md").write_text(text)
    (out / "summary.json").write_text(json.dumps(
        {f"{tool}/{client}": runs for (tool, client), runs in results.items()}, indent=1) + "\n")
    print("\n" + text + f"\nRaw results: {out}")
    if any(len(runs) < args.rounds for runs in results.values()):
        raise Problem("some runs gave no result; see above")


if __name__ == "__main__":
    try:
        main()
    except Problem as problem:
        sys.exit(f"error: {problem}")
    except KeyboardInterrupt:
        sys.exit("error: interrupted")
