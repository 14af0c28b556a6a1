#!/usr/bin/env python3
"""Runs the same loads with Curtail and with its peers, interleaved, and tabulates the medians.

See README.md in this directory. Needs only Python's standard library.
"""

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
CLIENTS = ("curtail", "curtail-completions", "curtail-perf", "java", "librdkafka", "franz-go", "confluent-rust", "krafka",
           "floor")
# Open loops at a share of the client's own produce-max.
SHARES = {"open-50": 0.5, "open-80": 0.8, "open-95": 0.95}
TOOLS = ("produce-max", *SHARES, "produce-rate", "e2e", "consume")
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


DRIVERS = {"curtail": curtail, "curtail-completions": curtail_completions, "curtail-perf": curtail_perf, "java": java,
           "librdkafka": librdkafka, "franz-go": franz_go, "confluent-rust": confluent_rust, "krafka": krafka, "floor": floor}

# The floor is not a client: one socket that sends one request at a time. It supports only this load.
ONLY = {"floor": ("produce-rate",), "curtail-completions": ("produce-max", *SHARES, "produce-rate")}


def clients_for(tool, args):
    return [client for client in args.client if tool in ONLY.get(client, TOOLS)]


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


def open_rate(tool, reached):
    """Records per second of an open loop: a share of what the client has reached without a limit, as its median."""
    numbers = [result["throughput_rps"] for result in reached]
    return round(SHARES[tool] * statistics.median(numbers)) if numbers else None


def arguments(tool, broker, topic, args, rate):
    """The tool's own words on the command line, the same for every client except for the rate of an open loop."""
    at = ["--bootstrap-server", broker.bootstrap, "--topic", topic]
    if tool == "produce-max":
        words = load(args.max_records, args.max_warmup, args.max_record_size, -1)
        words = ["produce", *at, *words]
    elif tool in SHARES:
        words = ["produce", *at, *load(rate * args.open_seconds, rate * args.open_warmup_seconds, args.max_record_size, rate)]
    elif tool == "produce-rate":
        words = load(args.rate * args.rate_seconds, args.rate * args.rate_warmup_seconds, args.rate_record_size, args.rate)
        words = ["produce", *at, *words, "--command-property", "linger.ms=0"]
    elif tool == "e2e":
        words = ["e2e", *at, "--num-records", str(args.e2e_records + args.e2e_warmup), "--producer-acks", args.e2e_acks,
                 "--record-size", str(args.e2e_record_size)]
        if args.e2e_warmup:
            words += ["--warmup-records", str(args.e2e_warmup)]
    else:
        words = ["consume", *at, "--num-records", str(args.consume_records)]
    given = {"e2e": [], "consume": args.consume_property}.get(tool, args.produce_property)
    for pair in given:
        words += ["--command-property", pair]
    return words


def load(records, warmup, size, rate):
    """--num-records counts the warm-up too, as in Kafka's tool."""
    words = ["--num-records", str(records + warmup), "--record-size", str(size), "--throughput", str(rate)]
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
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=limit, preexec_fn=sleep_precisely)
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
    results = {(tool, client): [] for tool in args.tool for client in clients_for(tool, args)}
    filled = None
    if "consume" in args.tool:
        filled = fill(args, drivers, broker, out)
    for number in range(args.rounds):
        for tool in args.tool:
            clients = clients_for(tool, args)
            turn = number % len(clients)
            for client in clients[turn:] + clients[:turn]:
                run = Run(number + 1, tool, client)
                rate = None
                if tool in SHARES:
                    rate = open_rate(tool, results["produce-max", client])
                    if rate is None:
                        print(f"  round {run.round} {tool:12} {client:14} skipped: it has no result for produce-max")
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
    result = execute(driver, arguments(run.tool, broker, topic, args, rate), path, args.limit)
    if own_topic:
        broker.delete(topic)
    told = brief(run.tool, result) if result else "no result"
    print(f"  round {run.round} {run.tool:12} {run.client:14} {told}", flush=True)
    # Flush the previous run's data before the next one begins: a broker whose page cache is full waits for the disk, and
    # that wait would count against the next client.
    os.sync()
    time.sleep(args.pause)
    return result


def fill(args, drivers, broker, out):
    """One topic for all consumers, written by the last of the clients (the peers come last)."""
    topic = "consume"
    broker.create(topic, args)
    client = clients_for("consume", args)[-1]
    print(f"  filling topic {topic} with {args.consume_records} records by {client}", flush=True)
    words = ["produce", "--bootstrap-server", broker.bootstrap, "--topic", topic,
             *load(args.consume_records, 0, args.max_record_size, -1)]
    if not execute(drivers[client], words, out / f"fill-{client}.json", args.limit):
        raise Problem("the topic for the consumers could not be filled")
    return topic


# ---- tables --------------------------------------------------------------------------------------

OPEN = [("records/s", "throughput_rps", None, 0), ("CPU us/record", "cpu_us_per_record", None, 3),
        ("p50 us", "latency_us", "p50", 0), ("p99 us", "latency_us", "p99", 0), ("p99.9 us", "latency_us", "p999", 0),
        ("max us", "latency_us", "max", 0)]

# Heading, key, subkey, digits.
COLUMNS = {
    **dict.fromkeys(SHARES, OPEN),
    "produce-max": [("records/s", "throughput_rps", None, 0), ("MB/s", "throughput_mbps", None, 1),
                    ("CPU us/record", "cpu_us_per_record", None, 3), ("p50 us", "latency_us", "p50", 0),
                    ("p99 us", "latency_us", "p99", 0)],
    "produce-rate": [("records/s", "throughput_rps", None, 0), ("CPU us/record", "cpu_us_per_record", None, 2),
                     ("p50 us", "latency_us", "p50", 0), ("p95 us", "latency_us", "p95", 0),
                     ("p99 us", "latency_us", "p99", 0), ("p99.9 us", "latency_us", "p999", 0),
                     ("max us", "latency_us", "max", 0), ("sent p99 us", "send_latency_us", "p99", 0)],
    "e2e": [("CPU us/record", "cpu_us_per_record", None, 1), ("avg us", "latency_us", "avg", 0),
            ("p50 us", "latency_us", "p50", 0), ("p99 us", "latency_us", "p99", 0),
            ("p99.9 us", "latency_us", "p999", 0), ("max us", "latency_us", "max", 0)],
    "consume": [("records/s", "throughput_rps", None, 0), ("MB/s", "throughput_mbps", None, 1),
                ("CPU us/record", "cpu_us_per_record", None, 3)],
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


def medians(results, tool, client):
    row = []
    for _, key, sub, _ in COLUMNS[tool]:
        numbers = [value(result, key, sub) for result in results[tool, client]]
        numbers = [number for number in numbers if number is not None]
        row.append(statistics.median(numbers) if numbers else None)
    return row


def table(results, tool, clients):
    headings = [heading for heading, *_ in COLUMNS[tool]]
    digits = [digits for *_, digits in COLUMNS[tool]]
    lines = [f"### {tool}", "", "| client | runs | errors | " + " | ".join(headings) + " |",
             "|---|---:|---:|" + "---:|" * len(headings)]
    rows = {client: medians(results, tool, client) for client in clients}
    for client in clients:
        runs = results[tool, client]
        version = f"{client} {runs[0].get('version', '')}".strip() if runs else client
        errors = sum(run.get("errors", 0) for run in runs)
        cells = ["-" if n is None else f"{n:,.{d}f}" for n, d in zip(rows[client], digits)]
        lines.append(f"| {version} | {len(runs)} | {errors} | " + " | ".join(cells) + " |")
    for peer in clients:
        if peer == "curtail" or "curtail" not in clients:
            continue
        pairs = zip(rows["curtail"], rows[peer])
        cells = ["-" if a is None or not b else f"{a / b:.2f}" for a, b in pairs]
        lines.append(f"| curtail / {peer} | | | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def machine():
    model = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")), platform.processor())
    return f"{os.cpu_count()} cores ({model}), {platform.system()} {platform.release()}"


def report(args, broker, results):
    server = "Apache Kafka 4.3.0" if not args.bootstrap_server else broker.bootstrap
    lines = [
        f"Server: {server}, {args.brokers} broker(s); {args.partitions} partitions, replication factor "
        f"{args.replication_factor}; {args.rounds} interleaved round(s), medians.",
        f"Machine: {machine()}. Load at the end: {os.getloadavg()[0]:.2f}.",
        f"Command: `{shlex.join(['peers/compare.py', *sys.argv[1:]])}`", "",
    ]
    return "\n".join(lines) + "\n" + "\n".join(table(results, tool, clients_for(tool, args)) for tool in args.tool)


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
    add("--rounds", type=int, default=3)
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
    add("--max-record-size", type=int, default=100)
    add("--open-seconds", type=float, default=10, help="of each open loop, after its warm-up")
    add("--open-warmup-seconds", type=float, default=3)
    add("--rate", type=int, default=10_000, help="records a second of produce-rate")
    add("--rate-seconds", type=float, default=20)
    add("--rate-warmup-seconds", type=float, default=5)
    add("--rate-record-size", type=int, default=1000)
    add("--e2e-records", type=int, default=10_000)
    add("--e2e-warmup", type=int, default=1000)
    add("--e2e-record-size", type=int, default=512)
    add("--e2e-acks", default="all", choices=("1", "all"))
    add("--consume-records", type=int, default=9_000_000)
    add("--pause", type=float, default=1.0, help="seconds of rest for the server after each run")
    add("--limit", type=float, default=600, help="seconds until a run is aborted")
    args = parser.parse_args()
    for name in ("max_records", "max_warmup", "e2e_records", "e2e_warmup", "consume_records"):
        setattr(args, name, int(getattr(args, name) * args.scale))
    if set(args.tool) & set(SHARES) and "produce-max" not in args.tool:
        parser.error("--tool: open-50, open-80 and open-95 need produce-max in the same run, of which they are a share")
    args.tool.sort(key=TOOLS.index)
    args.open_seconds = max(1, round(args.open_seconds * args.scale))
    args.open_warmup_seconds = round(args.open_warmup_seconds * args.scale)
    args.rate_seconds = max(1, round(args.rate_seconds * args.scale))
    args.rate_warmup_seconds = round(args.rate_warmup_seconds * args.scale)
    return args


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
