#!/usr/bin/env python3
"""Members of four clients in one consumer group: they join, leave and are killed while records are written.

A manual check, since the toolchains of the other clients are not part of the project's tests. In every round records are
written, and each must be returned to a member. Once the group has settled, every member must receive some.
See README.md in this directory. Needs only Python's standard library.
"""

import argparse
import collections
import queue
import signal
import subprocess
import sys
import threading
import time

from compare import DRIVERS, PEERS, ROOT, TARGET, Broker, Problem, build, need

CLIENTS = ("curtail", "java", "librdkafka", "franz-go")
ASSIGNORS = ("range", "roundrobin", "cooperative-sticky")
# Keys enough that every partition has some.
KEYS = 64


class Embedded:
    """The embedded cluster in a separate process."""

    def __init__(self, command):
        self.command = command
        start = [*command, "cluster", "--port", "0", "--property", "group.min.session.timeout.ms=1000"]
        self.process = subprocess.Popen(start, stdout=subprocess.PIPE, text=True)
        self.bootstrap = self.process.stdout.readline().strip()
        if not self.bootstrap:
            raise Problem("the embedded cluster did not start; its message is above")

    def create(self, topic, args):
        done = subprocess.run(
            [*self.command, "topics", "create", "-b", self.bootstrap, "--topic", topic,
             "--partitions", str(args.partitions)],
            capture_output=True, text=True)
        if done.returncode != 0:
            raise Problem(f"topic {topic}: {done.stdout}{done.stderr}")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


class Member:
    """A process that reads as a member and prints a line for everything that happens."""

    def __init__(self, client, command, events):
        self.client = client
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.records = 0
        self.partitions = set()
        threading.Thread(target=self.listen, args=(events,), daemon=True).start()

    def listen(self, events):
        for line in self.process.stdout:
            events.put((self, line.split()))

    def end(self, how):
        self.process.send_signal(how)
        self.process.wait()


class Group:
    """One group on one cluster."""

    def __init__(self, cluster, commands, assignor, args):
        self.cluster, self.commands, self.assignor, self.args = cluster, commands, assignor, args
        self.name = f"mixed-{assignor}-{time.monotonic_ns()}"
        self.events = queue.Queue()
        self.members = {}
        self.given = collections.Counter()
        self.again = 0
        self.written = 0

    def start(self, client):
        # As short as Apache Kafka allows by default.
        settings = ["session.timeout.ms=6000", "heartbeat.interval.ms=500", "auto.commit.interval.ms=200"]
        at = ["--topic", self.name]
        if client == "curtail":
            settings += ["partition.assignment.strategy=" + self.assignor]
            command = [*self.commands[client], "consume", "-b", self.cluster.bootstrap, *at, "-G", self.name,
                       "-f", r"record %p %o %s\n"]
            command += [word for setting in settings for word in ("-X", setting)]
        else:
            command = [*self.commands[client], "group-consume", "--bootstrap-server", self.cluster.bootstrap, *at,
                       "--group", self.name, "--assignor", self.assignor]
            command += [word for setting in settings for word in ("--command-property", setting)]
        self.members[client] = Member(client, command, self.events)

    def round(self):
        """Writes records and waits until all were returned; returns the members that received some."""
        values = [f"{self.written + n}" for n in range(self.args.records)]
        self.written += len(values)
        lines = "".join(f"key-{int(value) % KEYS}:{value}\n" for value in values)
        produce = [*self.commands["curtail"], "produce", "-b", self.cluster.bootstrap, "-t", self.name, "-K", ":"]
        subprocess.run(produce, input=lines, text=True, check=True, stdout=subprocess.DEVNULL)
        missing, readers, deadline = set(values), set(), time.monotonic() + self.args.limit
        while missing:
            try:
                member, words = self.events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise Problem(f"{self.name}: {len(missing)} records were given to nobody") from None
            if words[0] != "record":
                continue
            partition, value = words[1], words[3]
            self.again += self.given[value] > 0
            self.given[value] += 1
            member.records += 1
            if value in missing:
                missing.discard(value)
                member.partitions.add(partition)
                readers.add(member.client)
        return readers

    def settle(self, what):
        """Rounds until exactly the members that there are were given records."""
        begun, rounds = time.monotonic(), 0
        while self.round() != set(self.members):
            rounds += 1
            if time.monotonic() - begun > self.args.limit:
                raise Problem(f"{self.name}: after '{what}' not all of {sorted(self.members)} read, or others do")
        print(f"  {what:<28} {time.monotonic() - begun:6.1f} s  {rounds + 1:3} rounds", flush=True)

    def play(self):
        for client in self.args.client:
            self.start(client)
            self.settle(f"{client} joins")
        for name in ("leaves", "is killed"):
            for client in self.args.client:
                gone = self.members.pop(client)
                # curtail consume leaves the group on Ctrl-C.
                leave = signal.SIGINT if client == "curtail" else signal.SIGTERM
                gone.end(leave if name == "leaves" else signal.SIGKILL)
                self.settle(f"{client} {name}")
                self.start(client)
                self.settle(f"{client} comes back")
        print(f"  {self.written} records, each returned to a member; {self.again} returned again", flush=True)

    def stop(self):
        for member in self.members.values():
            member.end(signal.SIGKILL)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def words(known):
        def read(text):
            unknown = [word for word in text.split(",") if word not in known]
            if unknown:
                raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: there are {', '.join(known)}")
            return text.split(",")
        return read

    parser.add_argument("--client", type=words(CLIENTS), default=list(CLIENTS), help="which clients are members")
    parser.add_argument("--assignor", type=words(ASSIGNORS), default=list(ASSIGNORS), help="one group for each")
    parser.add_argument("--cluster", type=words(("apache", "embedded")), default=["apache", "embedded"])
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--records", type=int, default=256, help="records in a round")
    parser.add_argument("--limit", type=float, default=120, help="seconds until what must come counts as missing")
    parser.add_argument("--no-build", action="store_true", help="take the drivers as they are")
    parser.add_argument("--curtail", help="the command to take for curtail; without it target/debug/curtail is built")
    args = parser.parse_args()
    args.replication_factor, args.brokers, args.bootstrap_server, args.broker_property = 1, 1, None, []
    return args


def commands(args):
    found = {client: DRIVERS[client](not args.no_build) for client in args.client if client != "curtail"}
    if args.curtail is None and not args.no_build:
        need("cargo")
        build(["cargo", "build", "-q", "--bin", "curtail"], ROOT)
    found["curtail"] = [args.curtail or str(TARGET / "debug/curtail")]
    return found


def main():
    args = parse()
    drivers = commands(args)
    for kind in args.cluster:
        cluster = Broker(args) if kind == "apache" else Embedded(drivers["curtail"])
        try:
            for assignor in args.assignor:
                print(f"{kind}, {assignor}", flush=True)
                group = Group(cluster, drivers, assignor, args)
                cluster.create(group.name, args)
                try:
                    group.play()
                finally:
                    group.stop()
        finally:
            cluster.stop()


if __name__ == "__main__":
    sys.path.insert(0, str(PEERS))
    try:
        main()
    except Problem as problem:
        sys.exit(f"error: {problem}")
