#!/usr/bin/env python3
"""Runs the museum's cases against other clients, and writes the table of who passes what into README.md.

The runs are kept in peers.jsonl, and the table comes from that file alone. See README.md in this folder. Needs nothing
beyond Python's standard library.
"""

import argparse
import concurrent.futures
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

MUSEUM = Path(__file__).resolve().parent
ROOT = MUSEUM.parent
sys.path.insert(0, str(ROOT / "peers"))

import compare  # noqa: E402  (its folder is known only now)

CLIENTS = ("java", "librdkafka", "franz-go", "confluent-rust", "krafka")
BEGIN, END = "<!-- peers -->\n", "<!-- end of peers -->\n"
RUNS = 3
# One line per test and client.
RECORDS = MUSEUM / "peers.jsonl"
# A case's own limit is 60 s for each wait.
LIMIT_S = 150
# A run is repeated if this process did not run for longer: the clients' timeouts passed while they were stopped, too.
STANDSTILL_S = 3
NOT_APPLICABLE = "not applicable: "
PASSES = "passes"

# The word for a failure, by what the verdict says. The first that matches counts.
WORDS = (
    (r"was acknowledged\n +left: 0", "lost"),
    (r"was acknowledged\n +left: \d", "duplicated"),
    (r"was written \d+ times", "duplicated"),
    (r"out of order", "reordered"),
    (r" hangs", "hangs"),
    (r"late: ", "late"),
    (r"returned twice", "returned twice"),
    (r"was committed", "commits ahead"),
    (r"requests before metadata was asked for", "does not ask for metadata"),
    (r"socket cannot have taken", "acknowledges unsent records"),
    (r"the driver ended|^error: ", "the driver fails"),
    (r"ommit error|ommit failed|CommitFailed", "commit fails"),
    (r"panicked at [^\n]*\n\[\(", "other records than expected"),
    (r"failed: |a delivery|panicked at [^\n]*\nErr\(Failure", "record fails"),
    (r"unwrap_err\(\)` on an `Ok`", "an error is not reported"),
    (r"on an `Err` value: Failure", "call fails"),
)


def test_binary(rebuild):
    binary = compare.TARGET / "museum/cases"
    if not rebuild:
        return binary
    build = subprocess.run(
        ["cargo", "test", "-q", "-p", "curtail-museum", "--no-run", "--message-format=json"],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True,
    )
    for line in build.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == "museum":
            # A copy, so that a build in the meantime does not change it.
            binary.parent.mkdir(parents=True, exist_ok=True)
            binary.unlink(missing_ok=True)
            return shutil.copy(message["executable"], binary)
    raise compare.Problem("cargo built no test of the museum")


def tests_of(binary):
    listed = subprocess.run([binary, "--list"], cwd=MUSEUM, stdout=subprocess.PIPE, text=True, check=True)
    names = [line.removesuffix(": test") for line in listed.stdout.splitlines() if line.endswith(": test")]
    return [name for name in names if name.startswith("cases::")]


def word_of(log):
    for pattern, word in WORDS:
        if re.search(pattern, log):
            return word
    return "another way"


def run_once(binary, test, client, command, log):
    """Whether the test passed, its output, and whether this process stood still during the run, as when it is stopped."""
    environment = {**os.environ, "MUSEUM_CLIENT": client, "MUSEUM_DRIVER": "\n".join(command), "RUST_BACKTRACE": "0"}
    log.parent.mkdir(parents=True, exist_ok=True)
    stood_still = False
    with log.open("w") as output:
        process = subprocess.Popen([binary, "--exact", test, "--nocapture"], cwd=MUSEUM, env=environment,
                                   stdout=output, stderr=subprocess.STDOUT)
        begun = looked = time.monotonic()
        while process.poll() is None:
            time.sleep(0.2)
            last, looked = looked, time.monotonic()
            stood_still |= looked - last > STANDSTILL_S
            if looked - begun > LIMIT_S:
                process.kill()
                process.wait()
    text = log.read_text(errors="replace")
    return process.returncode == 0, text, stood_still


def run_test(binary, test, client, command, logs):
    """The record of one test with one client: the outcome of each run."""
    version, outcomes = None, []
    while len(outcomes) < RUNS:
        log = logs / client / f"{test.replace('::', '-')}-{len(outcomes) + 1}.log"
        passed, text, stood_still = run_once(binary, test, client, command, log)
        if stood_still:
            continue
        found = re.search(r"^version (\S+ \S+)", text, re.MULTILINE)
        version = found.group(1) if found else version
        if NOT_APPLICABLE in text:
            outcomes = [NOT_APPLICABLE + re.search(re.escape(NOT_APPLICABLE) + "(.*)", text).group(1)]
            break
        outcomes.append(PASSES if passed else word_of(text))
    print(f"{client:14} {test}: {', '.join(outcomes)}", flush=True)
    day = datetime.date.today().isoformat()
    return {"client": client, "test": test, "version": version, "day": day, "outcomes": outcomes}


def read_records():
    """The last record of each test with each client."""
    lines = RECORDS.read_text().splitlines() if RECORDS.exists() else []
    return {(record["client"], record["test"]): record for record in map(json.loads, lines)}


def keep(record):
    """Appends, so that an interrupted run keeps what it has done."""
    with RECORDS.open("a") as file:
        file.write(json.dumps(record) + "\n")


def tidy(tests):
    """Drops replaced records and those of tests that no longer exist."""
    records = [record for record in read_records().values() if record["test"] in tests]
    records.sort(key=lambda record: (CLIENTS.index(record["client"]), record["test"]))
    RECORDS.write_text("".join(json.dumps(record) + "\n" for record in records))


def cell(records, tests):
    """The verdict on a case from the records of its tests with one client."""
    if len(records) < len(tests):
        return "not run"
    applicable = [record for record in records if not record["outcomes"][0].startswith(NOT_APPLICABLE)]
    if not applicable:
        reasons = {record["outcomes"][0].removeprefix(NOT_APPLICABLE) for record in records}
        return NOT_APPLICABLE + "; ".join(sorted(reasons))
    failed = set()
    for record in applicable:
        words = [outcome for outcome in record["outcomes"] if outcome != PASSES]
        if words:
            failed.add(f"{len(words)} of {len(record['outcomes'])}: {'/'.join(sorted(set(words)))}")
    return "**fails** " + "; ".join(sorted(failed)) if failed else PASSES


def table(records):
    clients = [client for client in CLIENTS if any(record["client"] == client for record in records)]
    days = sorted({record["day"] for record in records})
    versions = sorted({record["version"] for record in records if record["version"]})
    rows = [f"\n{' to '.join(dict.fromkeys((days[0], days[-1])))}: {', '.join(versions)}.\n\n",
            "| case | " + " | ".join(clients) + " |\n", "|---" * (len(clients) + 1) + "|\n"]
    for case in sorted(path.stem for path in (MUSEUM / "tests/museum/cases").glob("*.rs") if path.stem != "mod"):
        own = [record for record in records if record["test"].split("::")[1] == case]
        tests = {record["test"] for record in own}
        cells = [cell([record for record in own if record["client"] == client], tests) for client in clients]
        rows.append(f"| {case} | " + " | ".join(cells) + " |\n")
    return "".join(rows) + "\n"


def write_table():
    readme = MUSEUM / "README.md"
    head, rest = readme.read_text().split(BEGIN)
    tail = rest.split(END)[1]
    readme.write_text(head + BEGIN + table(list(read_records().values())) + END + tail)


def run_cases(args, clients):
    commands = {client: compare.DRIVERS[client](not args.no_build) for client in clients}
    binary = test_binary(not args.no_build)
    tests = tests_of(binary)
    wanted = [(client, test) for client in clients for test in tests if any(part in test for part in args.case.split(","))]
    if args.missing:
        wanted = [pair for pair in wanted if pair not in read_records()]
    logs = compare.TARGET / "museum"
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        pending = [pool.submit(run_test, binary, test, client, commands[client], logs) for client, test in wanted]
        for done in concurrent.futures.as_completed(pending):
            keep(done.result())
    tidy(tests)
    print(f"logs: {logs}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--client", default=",".join(CLIENTS), help=f"a list of {', '.join(CLIENTS)}")
    parser.add_argument("--case", default="", help="a list; only tests whose name contains one of these")
    parser.add_argument("--missing", action="store_true", help="only tests without kept runs")
    parser.add_argument("--jobs", type=int, default=2, help="tests at the same time")
    parser.add_argument("--no-build", action="store_true", help="the drivers and the cases are built already")
    parser.add_argument("--table", action="store_true", help="write the table from the kept runs, and run nothing")
    args = parser.parse_args()
    clients = args.client.split(",")
    unknown = set(clients) - set(CLIENTS)
    if unknown:
        raise compare.Problem(f"unknown client {', '.join(sorted(unknown))}; known: {', '.join(CLIENTS)}")
    if not args.table:
        run_cases(args, clients)
    write_table()


if __name__ == "__main__":
    try:
        main()
    except (compare.Problem, subprocess.CalledProcessError) as problem:
        sys.exit(f"error: {problem}")
