"""Apache Kafka for tests with the mark `apache`, by the program of the crate curtail-apache."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from curtail_kafka import sync
from curtail_kafka.admin import NewTopic

ROOT = Path(__file__).parent.parent.parent.parent
BUILD = "cargo build -p curtail-apache"


def program() -> Path | None:
    """The program, if it is built: `CURTAIL_APACHE`, or that of the workspace."""
    given = os.environ.get("CURTAIL_APACHE")
    places = [ROOT / "target" / kind / "curtail-apache" for kind in ("debug", "release")]
    return next((at for at in ([Path(given)] if given else places) if at.exists()), None)


class Unavailable(Exception):
    """The brokers cannot be started, for example without Java 17 or Maven."""


class Apache:
    """Three brokers, with the methods of `curtail_kafka.testing.Cluster` that the tests need."""

    broker_ids = (1, 2, 3)

    def __init__(self, running: "subprocess.Popen[str]", servers: str) -> None:
        self._running = running
        self.bootstrap_servers = servers

    def create_topic(self, name: str, partitions: int = 1) -> None:
        with sync.Admin(self.bootstrap_servers) as admin:
            topic = NewTopic(name, partitions=partitions, replication_factor=3)
            assert admin.create_topics([topic]) == {name: None}

    def kill(self, broker: int) -> None:
        self._command(f"kill {broker}")

    async def restart(self, broker: int) -> None:
        await asyncio.to_thread(self._command, f"restart {broker}")

    def _command(self, text: str) -> None:
        assert self._running.stdin and self._running.stdout
        self._running.stdin.write(f"{text}\n")
        self._running.stdin.flush()
        answer = self._running.stdout.readline().strip()
        assert answer == "done", answer


@contextmanager
def running(program: Path) -> Iterator[Apache]:
    command = [str(program), "start", "--brokers", "3", "--short-lived"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as started:
        assert started.stdin and started.stdout and started.stderr
        try:
            line = started.stdout.readline()
            if not line.startswith("bootstrap: "):
                raise Unavailable(started.stderr.read().strip())
            yield Apache(started, line.removeprefix("bootstrap: ").strip())
        finally:
            # The brokers end with the input.
            started.stdin.close()
