"""Requests to orders_service.py, as an ASGI server makes them.

python -m pytest examples/test_orders_service.py
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from apache import Apache
from orders_service import Message, Orders

from curtail_kafka.testing import Cluster


@asynccontextmanager
async def running(app: Orders) -> AsyncIterator[None]:
    """The application, between its startup and its shutdown."""
    incoming: asyncio.Queue[Message] = asyncio.Queue()
    outgoing: asyncio.Queue[Message] = asyncio.Queue()
    serving = asyncio.create_task(app({"type": "lifespan"}, incoming.get, outgoing.put))
    await incoming.put({"type": "lifespan.startup"})
    assert (await outgoing.get())["type"] == "lifespan.startup.complete"
    yield
    await incoming.put({"type": "lifespan.shutdown"})
    assert (await outgoing.get())["type"] == "lifespan.shutdown.complete"
    await serving


async def post(app: Orders, *body: bytes) -> tuple[int, bytes]:
    parts = [{"type": "http.request", "body": part, "more_body": True} for part in body]
    parts[-1]["more_body"] = False
    messages = iter(parts)
    sent: list[Message] = []

    async def receive() -> Message:
        return next(messages)

    async def send(message: Message) -> None:
        sent.append(message)

    await app({"type": "http"}, receive, send)
    return sent[0]["status"], sent[1]["body"]


async def test_orders_are_written_before_the_response(each_cluster: Cluster | Apache) -> None:
    each_cluster.create_topic("ordered")
    app = Orders(each_cluster.bootstrap_servers, "ordered")
    async with running(app):
        assert await post(app, b"one ", b"order") == (201, b"0:0")
        answers = await asyncio.gather(*(post(app, b"another") for _ in range(100)))
        assert sorted(int(body[2:]) for _, body in answers) == list(range(1, 101))


async def test_refused_order_is_a_503(each_cluster: Cluster | Apache) -> None:
    each_cluster.create_topic("refused")
    app = Orders(each_cluster.bootstrap_servers, "refused")
    async with running(app):
        status, body = await post(app, bytes(2_000_000))
        assert status == 503 and b"max.request.size" in body
