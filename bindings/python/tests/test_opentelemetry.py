"""Spans of sends. The tests are skipped without the package opentelemetry-sdk."""

from typing import Any

import pytest

import curtail_kafka as curtail
from curtail_kafka import sync

sdk = pytest.importorskip(
    "opentelemetry.sdk.trace", reason="opentelemetry-sdk is not installed", exc_type=ImportError
)
from opentelemetry import trace  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402

from curtail_kafka.opentelemetry import context_of, instrument  # noqa: E402


@pytest.fixture
def spans() -> tuple[Any, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


def attributes(span: Any) -> dict[str, Any]:
    return dict(span.attributes)


async def test_span_of_a_send_has_the_position_and_is_in_the_headers(
    servers: str, curtail_topic: str, spans: tuple[Any, InMemorySpanExporter]
) -> None:
    provider, exporter = spans
    async with curtail.Producer(servers) as producer:
        assert instrument(producer, provider) is producer
        instrument(producer, provider)
        with provider.get_tracer("test").start_as_current_span("request"):
            await producer.send(
                curtail_topic,
                b"x",
                key="k",
                headers={"a": b"1", "traceparent": b"of an earlier send"},
            )
        await producer.send_many(curtail_topic, [curtail.NewRecord(b"y")])
        async with producer.pipeline() as pipeline:
            await pipeline.send(curtail_topic, b"z")
    first, request, second, third = exporter.get_finished_spans()
    if first.name == "request":
        first, request = request, first
    assert first.name == f"send {curtail_topic}" and first.kind is trace.SpanKind.PRODUCER
    assert first.parent is not None and first.parent.span_id == request.context.span_id
    assert attributes(first) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": curtail_topic,
        "messaging.kafka.message.key": "k",
        "messaging.destination.partition.id": "0",
        "messaging.kafka.offset": 0,
    }
    assert attributes(second)["messaging.kafka.offset"] == 1
    # The span of a pipeline's record ends when the record is accepted.
    assert third.name == f"send {curtail_topic}" and third.status.is_ok
    assert "messaging.kafka.offset" not in attributes(third)
    with sync.Consumer(servers, curtail_topic, auto_offset_reset="earliest") as consumer:
        record = next(iter(consumer))
    assert record.headers[0] == ("a", b"1")
    assert [name for name, _ in record.headers].count("traceparent") == 1
    context = trace.get_current_span(context_of(record)).get_span_context()
    assert (context.trace_id, context.span_id) == (first.context.trace_id, first.context.span_id)


def test_failed_sends_and_transactions(
    servers: str, curtail_topic: str, spans: tuple[Any, InMemorySpanExporter]
) -> None:
    provider, exporter = spans
    with sync.Producer(servers) as producer:
        instrument(producer, provider)
        with pytest.raises(curtail.RecordTooLargeError):
            producer.send(curtail_topic, bytes(2_000_000)).result(20)
        with pytest.raises(TypeError):
            producer.send(curtail_topic, 1)  # type: ignore[arg-type]
    with sync.TransactionalProducer(servers, transactional_id=curtail_topic) as transactional:
        instrument(transactional, provider)
        with transactional.transaction() as tx:
            tx.send(curtail_topic, b"x")
    large, wrong, sent = exporter.get_finished_spans()
    assert attributes(large)["error.type"] == "RecordTooLargeError"
    assert attributes(wrong)["error.type"] == "TypeError"
    assert [one.status.status_code.name for one in (large, wrong, sent)] == [
        "ERROR",
        "ERROR",
        "UNSET",
    ]
    assert attributes(sent)["messaging.kafka.offset"] == 0
    with pytest.raises(TypeError, match="must be a producer"):
        instrument(object())  # type: ignore[type-var]
