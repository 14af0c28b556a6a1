"""Clients under anyio, and the refusal of event loops other than asyncio's."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import curtail_kafka as curtail

anyio = pytest.importorskip("anyio")


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    if request.param:
        pytest.importorskip("uvloop")
    return {"use_uvloop": request.param}


def test_clients_work_in_task_groups(
    servers: str, curtail_topic: str, options: dict[str, Any]
) -> None:
    read: list[bytes | None] = []

    async def consume() -> None:
        async with curtail.Consumer(
            servers, curtail_topic, auto_offset_reset="earliest"
        ) as consumer:
            async for record in consumer:
                read.append(record.value)
                if len(read) == 10:
                    return

    async def main() -> None:
        with anyio.fail_after(20):
            async with curtail.Producer(servers) as producer, anyio.create_task_group() as group:
                group.start_soon(consume)
                for n in range(10):
                    await producer.send(curtail_topic, b"%d" % n)
            async with curtail.Admin(servers) as admin:
                assert curtail_topic in {topic.name for topic in await admin.list_topics()}

    anyio.run(main, backend="asyncio", backend_options=options)
    assert read == [b"%d" % n for n in range(10)]


def test_cancel_scopes_end_calls_and_blocks(
    servers: str, curtail_topic: str, options: dict[str, Any]
) -> None:
    """A scope cancels its task at each await until the task leaves it, also in `__aexit__`."""

    async def main() -> None:
        producer = curtail.Producer(servers)
        with anyio.fail_after(20):
            async with curtail.Consumer(
                servers, curtail_topic, auto_offset_reset="earliest"
            ) as consumer:
                with anyio.move_on_after(0.05) as scope:
                    await consumer.poll(3600)
                assert scope.cancelled_caught
                await producer.send(curtail_topic, b"first")
                while not (records := await consumer.poll(1)):
                    pass
                assert [record.value for record in records] == [b"first"]
            with anyio.CancelScope() as scope:
                async with producer, producer.pipeline() as pipeline:
                    await pipeline.send(curtail_topic, b"second")
                    scope.cancel()
                    await anyio.sleep_forever()
            assert scope.cancelled_caught
            # The close that was cancelled has continued.
            await producer.close()
            with pytest.raises(curtail.ClosedError):
                producer.send(curtail_topic, b"late")
            with anyio.CancelScope() as scope:
                async with (
                    curtail.TransactionalProducer(
                        servers, transactional_id=curtail_topic
                    ) as transactional,
                    transactional.transaction() as tx,
                ):
                    tx.send(curtail_topic, b"aborted")
                    scope.cancel()
                    await anyio.sleep_forever()
            assert scope.cancelled_caught
            await transactional.close()
            options: Any = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
            async with curtail.Consumer(servers, curtail_topic, **options) as committed:
                at = (curtail_topic, 0)
                [end] = (await committed.end_offsets([at])).values()
                values: list[bytes | None] = []
                while await committed.position(at) < end:
                    values += [record.value for record in await committed.poll(0.1)]
            assert values == [b"first", b"second"]

    anyio.run(main, backend="asyncio", backend_options=options)


def test_trio_is_refused_with_a_clear_error(servers: str, curtail_topic: str) -> None:
    trio = pytest.importorskip("trio")
    producer, admin = curtail.Producer(servers), curtail.Admin(servers)
    consumer = curtail.Consumer(servers, curtail_topic)
    transactional = curtail.TransactionalProducer(servers, transactional_id=curtail_topic)
    pipeline = producer.pipeline()

    async def enter(client: Any) -> None:
        async with client:
            pytest.fail("entered")

    async def send() -> None:
        await producer.send(curtail_topic, b"x")

    calls: list[Callable[[], Any]] = [
        send,
        producer.flush,
        lambda: producer.send_many(curtail_topic, [curtail.NewRecord(b"x")]),
        lambda: enter(pipeline),
        consumer.poll,
        consumer.commit,
        lambda: anext(aiter(consumer)),
        admin.list_topics,
        transactional.connect,
        lambda: enter(transactional.transaction()),
        *(lambda c=c: enter(c) for c in (producer, consumer, admin, transactional)),
    ]

    async def main() -> None:
        with trio.fail_after(20):
            for call in calls:
                with pytest.raises((curtail.IllegalStateError, ExceptionGroup)) as raised:
                    await call()
                error: BaseException = raised.value
                if isinstance(error, ExceptionGroup):
                    [error] = error.exceptions
                assert isinstance(error, curtail.IllegalStateError)
                assert isinstance(error, RuntimeError)
                text = str(error)
                assert "asyncio" in text and "curtail_kafka.sync" in text and "\n" not in text

    trio.run(main)
    asyncio.run(close(producer, consumer, admin, transactional))


async def close(*clients: Any) -> None:
    for client in clients:
        await client.close()
