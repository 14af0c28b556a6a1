"""Requests over HTTP to orders_service.py, which uvicorn serves in a separate process.

python -m pytest examples/test_orders_service.py
"""

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from apache import Apache

from curtail_kafka.testing import Cluster

httpx = pytest.importorskip("httpx")
pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")


@contextmanager
def served(python: str, servers: str, topic: str) -> Iterator[str]:
    """The address of the service, until the end of the block, which ends it with SIGTERM."""
    # The service inherits a socket that listens, so a request waits until its startup is complete.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        command = [python, "-m", "uvicorn", "orders_service:app", "--fd", str(listener.fileno())]
        variables = {**os.environ, "KAFKA": servers, "TOPIC": topic}
        with subprocess.Popen(
            command, cwd=Path(__file__).parent, env=variables, pass_fds=[listener.fileno()]
        ) as service:
            try:
                yield f"http://127.0.0.1:{port}"
            finally:
                service.terminate()
                try:
                    ended = service.wait(20)
                except subprocess.TimeoutExpired:
                    service.kill()
                    raise
    # After its shutdown uvicorn ends by the signal.
    assert ended == -signal.SIGTERM


async def test_orders_are_written_before_the_response(
    python: str, each_cluster: Cluster | Apache
) -> None:
    each_cluster.create_topic("ordered")
    with served(python, each_cluster.bootstrap_servers, "ordered") as address:
        async with httpx.AsyncClient(base_url=address, timeout=20) as client:
            first = await client.post("/orders", content=b"one order")
            assert (first.status_code, first.text) == (201, "0:0")
            others = (client.post("/orders", content=b"another") for _ in range(100))
            offsets = sorted(int(one.text.split(":")[1]) for one in await asyncio.gather(*others))
            assert offsets == list(range(1, 101))


async def test_refused_order_is_a_503(python: str, each_cluster: Cluster | Apache) -> None:
    each_cluster.create_topic("refused")
    with served(python, each_cluster.bootstrap_servers, "refused") as address:
        async with httpx.AsyncClient(base_url=address, timeout=20) as client:
            refused = await client.post("/orders", content=bytes(2_000_000))
            assert refused.status_code == 503 and "max.request.size" in refused.text
