#!/usr/bin/env python3
"""Runs the museum's cases against other clients, and writes the table of who passes what into README.md.

See README.md beside this file. Needs nothing beyond Python's standard library.
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
from dataclasses import dataclass, field
from pathlib import Path

MUSEUM = Path(__file__).resolve().parent
ROOT = MUSEUM.parent
sys.path.insert(0, str(ROOT / "peers"))

import compare  # noqa: E402  (its folder is known only now)

CLIENTS = ("java", "librdkafka", "franz-go")
BEGIN, END = "<!-- peers -->\n", "<!-- end of peers -->\n"
RUNS = 3
# A case's own limit is 60 s for each wait.
LIMIT_S = 150
NOT_APPLICABLE = "not applicable: "

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
    (r"the driver ended|^error: ", "the driver fails"),
    (r"ommit error|CommitFailed", "commit fails"),
    (r"panicked at [^\n]*\n\[\(", "other records than expected"),
    (r"failed: |a delivery|panicked at [^\n]*\nErr\(Failure", "record fails"),
    (r"unwrap_err\(\)` on an `Ok`", "an error is not reported"),
    (r"on an `Err` value: Failure", "call fails"),
)


@dataclass
class Outcome:
    """One case with one client."""

    passed: int = 0
    failures: list = field(default_factory=list)
    reasons: list = field(default_factory=list)

    def cell(self):
        if not self.passed and not self.failures:
            return "not applicable: " + "; ".join(sorted(set(self.reasons)))
        if not self.failures:
            return "passes"
        return "**fails**: " + "; ".join(sorted(set(self.failures)))


def test_binary():
    build = subprocess.run(
        ["cargo", "test", "-q", "-p", "curtail-museum", "--no-run", "--message-format=json"],
        cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True,
    )
    for line in build.stdout.splitlines():
        message = json.loads(line)
        if message.get("executable") and message["target"]["name"] == "museum":
            # A copy, so that a build in the meantime does not change it.
            binary = compare.TARGET / "museum/cases"
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
    environment = {**os.environ, "MUSEUM_CLIENT": client, "MUSEUM_DRIVER": "\n".join(command), "RUST_BACKTRACE": "0"}
    try:
        result = subprocess.run(
            [binary, "--exact", test, "--nocapture"], cwd=MUSEUM, env=environment, timeout=LIMIT_S,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )
        code, text = result.returncode, result.stdout
    except subprocess.TimeoutExpired as expired:
        code, text = 1, (expired.stdout or b"").decode(errors="replace") + "\nthe case hangs\n"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(text)
    return code == 0, text


def run_test(binary, test, client, command, logs):
    """The verdict of one test, and the client's version. A failure is run again before it is believed."""
    version = None
    failures, reason = [], None
    for run in range(1, RUNS + 1):
        passed, text = run_once(binary, test, client, command, logs / client / f"{test.replace('::', '-')}-{run}.log")
        found = re.search(r"^version (\S+ \S+)", text, re.MULTILINE)
        version = found.group(1) if found else version
        if NOT_APPLICABLE in text:
            reason = re.search(re.escape(NOT_APPLICABLE) + "(.*)", text).group(1)
            break
        if not passed:
            failures.append(word_of(text))
        if passed and run == 1:
            break
    print(f"{client:11} {test}: {reason or failures or 'passes'}", flush=True)
    return test, client, version, failures, reason


def table(tests, clients, verdicts, versions):
    today = datetime.date.today().isoformat()
    named = ", ".join(versions.get(client, client) for client in clients)
    rows = [f"\n{today}: {named}.\n\n", "| case | " + " | ".join(clients) + " |\n", "|---" * (len(clients) + 1) + "|\n"]
    for case in sorted({test.split("::")[1] for test in tests}):
        cells = []
        for client in clients:
            outcome = Outcome()
            for failures, reason in verdicts[case, client]:
                if reason:
                    outcome.reasons.append(reason)
                elif failures:
                    word = "/".join(sorted(set(failures)))
                    outcome.failures.append(f"{word} ({len(failures)} of {RUNS} runs)")
                else:
                    outcome.passed += 1
            cells.append(outcome.cell())
        rows.append(f"| {case} | " + " | ".join(cells) + " |\n")
    return "".join(rows) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--client", default=",".join(CLIENTS), help=f"a list of {', '.join(CLIENTS)}")
    parser.add_argument("--case", default="", help="only cases whose name contains this; the table is not written")
    parser.add_argument("--jobs", type=int, default=2, help="cases at the same time")
    parser.add_argument("--no-build", action="store_true", help="the drivers are built already")
    args = parser.parse_args()
    clients = args.client.split(",")
    unknown = set(clients) - set(CLIENTS)
    if unknown:
        raise compare.Problem(f"unknown client {', '.join(sorted(unknown))}; known: {', '.join(CLIENTS)}")
    commands = {client: compare.DRIVERS[client](not args.no_build) for client in clients}
    binary = test_binary()
    tests = [test for test in tests_of(binary) if args.case in test]
    logs = compare.TARGET / "museum"
    verdicts, versions = {}, {}
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        pending = [pool.submit(run_test, binary, test, client, commands[client], logs)
                   for client in clients for test in tests]
        for done in pending:
            test, client, version, failures, reason = done.result()
            verdicts.setdefault((test.split("::")[1], client), []).append((failures, reason))
            if version:
                versions[client] = version
    print(f"logs: {logs}")
    text = table(tests, clients, verdicts, versions)
    if args.case or set(clients) != set(CLIENTS):
        print(text)
        return
    readme = MUSEUM / "README.md"
    head, rest = readme.read_text().split(BEGIN)
    tail = rest.split(END)[1]
    readme.write_text(head + BEGIN + text + END + tail)


if __name__ == "__main__":
    try:
        main()
    except (compare.Problem, subprocess.CalledProcessError) as problem:
        sys.exit(f"error: {problem}")
