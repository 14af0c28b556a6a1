"""Programs that tests start and interrupt."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def started(*command: str, **options: Any) -> Iterator["subprocess.Popen[str]"]:
    """A program whose output is read. It does not outlast the block: a failed test would wait."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options) as program:
        try:
            yield program
        finally:
            program.kill()
