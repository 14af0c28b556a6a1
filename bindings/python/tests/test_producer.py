import array
import asyncio
import gc
import itertools
import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from eventloop import assert_loop_runs, watched_loop

import curtail_kafka as curtail
from curtail_kafka.testing import Cluster


async def test_send_returns_a_future_of_the_metadata(servers: str, curtail_topic: str) -> None:
    async with curtail.Producer(servers) as producer:
        sent = producer.send(curtail_topic, b"value", key="key", timestamp=1_700_000_000_000)
        assert isinstance(sent, asyncio.Future)
        written = await sent
        assert (written.topic, written.partition, written.offset) == (curtail_topic, 0, 0)
        assert written.timestamp == 1_700_000_000_000
        assert written.log_append_time is None
        again = await producer.send(curtail_topic, b"value")
        assert again.offset == 1 and again.timestamp > 1_700_000_000_000
        assert repr(again).startswith(f"RecordMetadata(topic='{curtail_topic}', partition=0")


async def test_many_sends_keep_their_order(servers: str, curtail_topic: str) -> None:
    async with curtail.Producer(servers, linger_ms=0) as producer:
        sent = [producer.send(curtail_topic, str(n)) for n in range(5_000)]
        written = await asyncio.gather(*sent)
        assert [one.offset for one in written] == list(range(5_000))


async def test_any_buffer_is_a_value(servers: str, curtail_topic: str) -> None:
    values: list[Any] = [b"a", bytearray(b"b"), memoryview(b"xcx")[1:2], "d", None]
    values += [array.array("i", [1, 2]), memoryview(b"abcdef")[::2]]
    async with curtail.Producer(servers) as producer:
        written = [await producer.send(curtail_topic, value, key=value) for value in values]
        assert [one.offset for one in written] == list(range(len(values)))


async def test_other_types_raise_type_error(servers: str, curtail_topic: str) -> None:
    async with curtail.Producer(servers) as producer:
        for arguments in [
            {"value": 1},
            {"value": {"a": 1}},
            {"key": 1.5},
            {"headers": 5},
            {"headers": [("name",)]},
            {"headers": {"name": 1}},
            {"headers": {1: b"value"}},
        ]:
            with pytest.raises(TypeError):
                producer.send(curtail_topic, **arguments)  # type: ignore[arg-type]


async def test_flush_returns_after_the_futures_are_done(servers: str, curtail_topic: str) -> None:
    async with curtail.Producer(servers, linger_ms=60_000) as producer:
        sent = [producer.send(curtail_topic, b"x") for _ in range(1_000)]
        await producer.flush()
        assert all(one.done() for one in sent)


async def test_failed_record_raises_its_error(servers: str, curtail_topic: str) -> None:
    async with curtail.Producer(servers, max_request_size=1000) as producer:
        await producer.warm_up(curtail_topic)
        with pytest.raises(curtail.RecordTooLargeError) as large:
            await producer.send(curtail_topic, bytes(2000))
        assert large.value.limit == 1000 and not large.value.retriable
        with pytest.raises(curtail.UnknownPartitionError) as unknown:
            await producer.send(curtail_topic, b"x", partition=7)
        assert (unknown.value.topic, unknown.value.partition) == (curtail_topic, 7)
        # Other records are not affected.
        assert (await producer.send(curtail_topic, b"x")).offset == 0


async def test_refused_batch_has_code_and_cause(servers: str, curtail_cluster: Cluster) -> None:
    curtail_cluster.create_topic("small", max_message_bytes=100)
    async with curtail.Producer(servers) as producer:
        with pytest.raises(curtail.NotAcknowledgedError) as refused:
            await producer.send("small", bytes(1000))
    assert refused.value.code == 10
    assert not refused.value.may_have_been_written
    assert isinstance(refused.value.__cause__, curtail.BrokerError)


async def test_cancelled_send_stays_in_flight(servers: str, curtail_topic: str) -> None:
    async with curtail.Producer(servers, linger_ms=200) as producer:
        await producer.warm_up(curtail_topic)
        sent = producer.send(curtail_topic, b"cancelled")
        waiting = asyncio.ensure_future(asyncio.wait_for(sent, 10))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert sent.cancelled()
        after = await producer.send(curtail_topic, b"after")
        assert after.offset == 1


async def test_cancelled_flush_leaves_the_producer_usable(
    curtail_cluster: Cluster, servers: str, curtail_topic: str
) -> None:
    async with curtail.Producer(servers) as producer:
        await producer.warm_up(curtail_topic)
        with curtail_cluster.slow(0.3):
            sent = producer.send(curtail_topic, b"x")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.flush(), 0.05)
            assert (await sent).offset == 0


async def test_closed_producer_refuses_records(servers: str, curtail_topic: str) -> None:
    producer = curtail.Producer(servers)
    sent = producer.send(curtail_topic, b"x")
    await producer.close()
    assert sent.done() and sent.result().offset == 0
    with pytest.raises(curtail.ClosedError):
        producer.send(curtail_topic, b"x")
    with pytest.raises(curtail.ClosedError):
        await producer.warm_up(curtail_topic)
    await producer.close()


async def test_unreachable_brokers_raise_connection_error() -> None:
    with pytest.raises(ConnectionError) as raised:
        async with curtail.Producer("127.0.0.1:9", max_block_ms=1000):
            pass
    assert isinstance(raised.value, curtail.UnreachableError)
    assert raised.value.bootstrap_servers == "127.0.0.1:9"


@pytest.mark.curtail(brokers=1, config={"auto.create.topics.enable": False})
async def test_record_of_an_unknown_topic_fails_after_max_block(servers: str) -> None:
    async with curtail.Producer(servers, max_block_ms=200) as producer:
        with pytest.raises(curtail.Error) as raised:
            await producer.send("no-such-topic", b"x")
        assert not raised.value.may_have_been_written


async def test_full_buffer_delays_records_and_keeps_their_order(
    servers: str, curtail_topic: str
) -> None:
    settings = {"buffer.memory": 100_000, "batch.size": 1000}
    async with curtail.Producer(servers, config=settings) as producer:
        await producer.warm_up(curtail_topic)
        # Four times what fits.
        sent = [producer.send(curtail_topic, bytes(1000), key="k") for _ in range(400)]
        offsets = [one.offset for one in await asyncio.gather(*sent)]
    assert offsets == list(range(400))


async def test_second_close_waits_for_records_without_room(
    curtail_cluster: Cluster, servers: str, curtail_topic: str
) -> None:
    settings = {"buffer.memory": 20_000, "batch.size": 1000}
    producer = curtail.Producer(servers, config=settings)
    await producer.warm_up(curtail_topic)
    with curtail_cluster.slow(0.02):
        sent = [producer.send(curtail_topic, bytes(1000), key="k") for _ in range(100)]
        first = asyncio.create_task(producer.close())
        await asyncio.wait(sent[:1])
        # The feeder has ended, and records wait in a lane.
        await producer.close()
        assert first.done()
    assert [one.result().offset for one in sent] == list(range(100))


async def test_cancelled_close_continues(
    curtail_cluster: Cluster, servers: str, curtail_topic: str
) -> None:
    producer = curtail.Producer(servers)
    await producer.warm_up(curtail_topic)
    with curtail_cluster.slow(0.3):
        sent = producer.send(curtail_topic, b"x")
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        closing.cancel()
        await producer.close()
        assert sent.done()


async def test_full_buffer_fails_records_after_max_block(
    curtail_cluster: Cluster, servers: str, curtail_topic: str
) -> None:
    settings = {"buffer.memory": 100_000, "max.block.ms": 500, "batch.size": 1000}
    async with curtail.Producer(servers, config=settings) as producer:
        await producer.warm_up(curtail_topic)
        with curtail_cluster.slow(2.0):
            sent = [producer.send(curtail_topic, bytes(1000), key="k") for _ in range(400)]
            await asyncio.wait(sent[-1:])
        results = await asyncio.gather(*sent, return_exceptions=True)
    full = [one for one in results if isinstance(one, curtail.BufferFullError)]
    assert full and all(one.retriable for one in full)
    assert any(isinstance(one, curtail.RecordMetadata) for one in results)


async def test_staged_bytes_are_bounded(servers: str) -> None:
    producer = curtail.Producer("127.0.0.1:9", max_block_ms=2_000, buffer_memory=1_000_000)
    sent = []
    with pytest.raises(curtail.BufferFullError):
        for _ in range(100):
            sent.append(producer.send("t", bytes(900_000)))
    assert 30 <= len(sent) <= 40
    results = await asyncio.gather(*sent, return_exceptions=True)
    assert all(isinstance(one, curtail.Error) for one in results)
    await producer.close()


async def test_frozen_leader_delays_but_loses_nothing(
    curtail_cluster: Cluster, curtail_topic: str
) -> None:
    async with curtail.Producer(curtail_cluster.bootstrap_servers) as producer:
        leader = curtail_cluster.leader(curtail_topic, 0)
        assert leader is not None
        with curtail_cluster.frozen(leader):
            await producer.send(curtail_topic, b"x")
        assert curtail_cluster.leader(curtail_topic, 0) != leader


def test_producer_serves_several_event_loops(servers: str, curtail_topic: str) -> None:
    producer = curtail.Producer(servers)

    async def send() -> int | None:
        return (await producer.send(curtail_topic, b"x")).offset

    assert [asyncio.run(send()) for _ in range(3)] == [0, 1, 2]
    asyncio.run(producer.close())


def test_uvloop_is_an_event_loop(servers: str, curtail_topic: str) -> None:
    uvloop = pytest.importorskip("uvloop")

    async def send() -> list[int | None]:
        async with curtail.Producer(servers) as producer:
            sent = [producer.send(curtail_topic, b"x") for _ in range(1000)]
            return [one.offset for one in await asyncio.gather(*sent)]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(send()) == list(range(1000))


def test_send_outside_a_loop_is_an_error(servers: str) -> None:
    producer = curtail.Producer(servers)
    with pytest.raises(RuntimeError, match="no running event loop"):
        producer.send("t", b"x")
    asyncio.run(producer.close())


async def test_burst_does_not_hold_the_event_loop(servers: str, curtail_topic: str) -> None:
    """Resolving 20,000 records takes many turns, and other callbacks run between them."""
    async with curtail.Producer(servers, linger_ms=50) as producer:
        sent = [producer.send(curtail_topic, b"x") for _ in range(20_000)]
        done = [sum(one.done() for one in sent)]
        while not all(one.done() for one in sent[-1:]):
            await asyncio.sleep(0)
            done.append(sum(one.done() for one in sent))
        assert max(b - a for a, b in itertools.pairwise(done)) <= 2 * 256


async def test_send_many_does_not_hold_the_event_loop(servers: str, curtail_topic: str) -> None:
    async with curtail.Producer(servers) as producer:
        await producer.warm_up(curtail_topic)
        records = (curtail.NewRecord(b"x") for _ in range(20_000))
        async with watched_loop() as gaps:
            written = await producer.send_many(curtail_topic, records)
    assert [one.offset for one in written] == list(range(20_000))
    assert_loop_runs(gaps)


async def test_cancelled_send_many_leaves_its_records_in_flight(
    servers: str, curtail_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    taken = 0

    def records() -> Iterator[curtail.NewRecord]:
        nonlocal taken
        yield curtail.NewRecord(bytes(2000))
        for _ in range(10):
            taken += 1
            yield curtail.NewRecord(b"x")

    async with curtail.Producer(servers, linger_ms=60_000, max_request_size=1000) as producer:
        await producer.warm_up(curtail_topic)
        sending = asyncio.create_task(producer.send_many(curtail_topic, records()))
        while not taken:
            await asyncio.sleep(0)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        # On a busy machine the call yields to the event loop before it has taken all of them.
        after = producer.send(curtail_topic, b"after")
        await producer.flush()
        assert (await after).offset == taken
    gc.collect()
    # The program has stopped waiting for the failure.
    assert "never retrieved" not in caplog.text


async def test_forgotten_failure_is_logged(
    servers: str, curtail_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with curtail.Producer(servers, max_request_size=1000) as producer:
        producer.send(curtail_topic, bytes(2000))
        await producer.flush()
        gc.collect()
    assert "exception was never retrieved" in caplog.text


async def test_unclosed_producer_warns(servers: str) -> None:
    producer = curtail.Producer(servers)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del producer
        gc.collect()
    assert any("unclosed producer" in str(one.message) for one in caught)


async def test_send_many_settles_all_and_raises_a_group(servers: str, curtail_topic: str) -> None:
    records = [curtail.NewRecord(str(n), key="k", headers=[("h", b"v")]) for n in range(10)]
    async with curtail.Producer(servers, max_request_size=1000) as producer:
        written = await producer.send_many(curtail_topic, iter(records))
        assert [one.offset for one in written] == list(range(10))
        records[3] = curtail.NewRecord(bytes(2000))
        records[5] = curtail.NewRecord(partition=7)
        with pytest.raises(ExceptionGroup) as raised:
            await producer.send_many(curtail_topic, records)
        kinds = [type(error) for error in raised.value.exceptions]
        assert kinds == [curtail.RecordTooLargeError, curtail.UnknownPartitionError]
        assert (await producer.send(curtail_topic, b"x")).offset == 18


async def test_send_many_settles_the_records_before_a_wrong_one(
    servers: str, curtail_topic: str
) -> None:
    def broken() -> Iterator[curtail.NewRecord]:
        yield curtail.NewRecord(b"sent")
        raise ZeroDivisionError

    async with curtail.Producer(servers) as producer:
        with pytest.raises(ExceptionGroup) as raised:
            await producer.send_many(curtail_topic, [curtail.NewRecord(b"x"), b"y"])  # type: ignore[list-item]
        [error] = raised.value.exceptions
        assert isinstance(error, TypeError) and "NewRecord each, not bytes" in str(error)
        with pytest.raises(ExceptionGroup) as raised:
            await producer.send_many(curtail_topic, broken())
        assert [type(error) for error in raised.value.exceptions] == [ZeroDivisionError]
        assert (await producer.send(curtail_topic, b"z")).offset == 2


async def test_longest_max_block_is_accepted(servers: str, curtail_topic: str) -> None:
    async with curtail.Producer(servers, max_block_ms=2**63 - 1) as producer:
        assert (await producer.send(curtail_topic, b"x")).offset == 0


async def test_timing_is_in_seconds_of_the_monotonic_clock(
    servers: str, curtail_topic: str
) -> None:
    async with curtail.Producer(servers, linger_ms=20) as producer:
        begun = time.monotonic()
        written = await producer.send(curtail_topic, b"x")
        ended = time.monotonic()
    timing = written.timing
    order = [begun, timing.created, timing.first_written, timing.acknowledged, ended]
    # The two clocks are read one after the other when they are compared.
    assert all(late - early > -0.001 for early, late in itertools.pairwise(order)), order
    assert timing.written == timing.first_written, "one attempt"
    assert timing.first_written - timing.created > 0.015, "it has lingered"
    assert written.timing.created == timing.created
    assert repr(timing).startswith("Timing(created=")
