"""A web service that writes each order to Kafka before it responds.

uvicorn orders_service:app

KAFKA names the brokers, TOPIC the topic. It needs fastapi and uvicorn.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response

import curtail_kafka as curtail


def orders(servers: str, topic: str) -> FastAPI:
    """The application, with one producer from its startup to its shutdown."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with curtail.Producer(servers, linger_ms=0) as app.state.producer:
            await app.state.producer.warm_up(topic)
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/orders", status_code=201)
    async def create(request: Request) -> Response:
        producer: curtail.Producer = request.app.state.producer
        try:
            written = await producer.send(topic, await request.body())
        except curtail.Error as error:
            # The client may repeat its request, unless the order may have been written.
            return Response(str(error), 500 if error.may_have_been_written else 503)
        return Response(f"{written.partition}:{written.offset}", 201)

    return app


app = orders(os.environ.get("KAFKA", "localhost:9092"), os.environ.get("TOPIC", "orders"))
