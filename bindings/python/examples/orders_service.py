"""A web service that writes each order to Kafka before it answers. ASGI, without a framework.

uvicorn orders_service:app, with the environment variable KAFKA for the brokers

With FastAPI the producer belongs in the lifespan in the same way:

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with curtail.Producer(KAFKA, linger_ms=0) as app.state.producer:
            yield
"""

import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import curtail_kafka as curtail

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Orders:
    """Accepts orders with POST."""

    def __init__(self, servers: str, topic: str = "orders") -> None:
        self.servers, self.topic = servers, topic

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.lifespan(receive, send)
        elif scope["type"] == "http":
            await self.request(receive, send)

    async def lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        async with curtail.Producer(self.servers, linger_ms=0) as self.producer:
            await self.producer.warm_up(self.topic)
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def request(self, receive: Receive, send: Send) -> None:
        body = b""
        while (part := await receive())["type"] == "http.request":
            body += part.get("body", b"")
            if not part.get("more_body"):
                break
        try:
            written = await self.producer.send(self.topic, body)
            status, answer = 201, f"{written.partition}:{written.offset}"
        except curtail.Error as error:
            # The client may repeat its request, unless the order may have been written.
            status, answer = (500 if error.may_have_been_written else 503), str(error)
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": answer.encode()})


app = Orders(os.environ.get("KAFKA", "localhost:9092"))
