"""Spans of sends, and trace context in headers, with OpenTelemetry's names for messaging.

It needs the package ``opentelemetry-api``.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, TracerProvider

from ._native import Record
from ._producer import Producer
from ._transaction import Transaction, TransactionalProducer
from .sync import Pipeline as SyncPipeline
from .sync import Producer as SyncProducer
from .sync import Transaction as SyncTransaction
from .sync import TransactionalProducer as SyncTransactionalProducer

if TYPE_CHECKING:
    from ._sender import HeaderLike

__all__ = ["context_of", "instrument"]

T = TypeVar(
    "T", Producer, TransactionalProducer, SyncProducer, SyncTransactionalProducer, Transaction,
    SyncTransaction,
)  # fmt: skip
_INSTRUMENTED = "_curtail_is_instrumented"


def instrument(client: T, tracer_provider: TracerProvider | None = None) -> T:
    """Makes a span of each send, from the call until the outcome, and returns the client.

    The record's headers receive the span's context, ``traceparent`` with the default propagator. A
    span ends with the partition and the offset, or with the error. ``send_many`` and transactions
    are included. The span of a pipeline's record ends when the record is accepted. An instrumented
    client is left as it is.
    """
    if getattr(client, _INSTRUMENTED, False):
        return client
    tracer = trace.get_tracer("curtail_kafka", tracer_provider=tracer_provider)
    if isinstance(client, TransactionalProducer | SyncTransactionalProducer):
        begin = client.transaction

        def transaction(*arguments: Any, **options: Any) -> Any:
            return instrument(begin(*arguments, **options), tracer_provider)

        setattr(client, "transaction", transaction)  # noqa: B010
    elif isinstance(client, Producer | SyncProducer | Transaction | SyncTransaction):
        for name in ("send", "_send_quietly"):
            if hasattr(client, name):
                setattr(client, name, _traced(tracer, getattr(client, name)))
        if isinstance(client, Producer | SyncProducer):
            _trace_pipelines(tracer, client)
    else:
        raise TypeError(f"client must be a producer or a transaction, not {type(client).__name__}")
    setattr(client, _INSTRUMENTED, True)
    return client


def context_of(record: Record) -> Context:
    """Returns the trace context in the headers of a record, for the span that processes it."""
    carrier = {
        name: value.decode(errors="replace") for name, value in record.headers if value is not None
    }
    return propagate.extract(carrier)


def _trace_pipelines(tracer: trace.Tracer, client: Producer | SyncProducer) -> None:
    make: Callable[..., Any] = client.pipeline

    def pipeline(*arguments: Any, **options: Any) -> Any:
        made = make(*arguments, **options)
        is_threaded = isinstance(made, SyncPipeline)
        made.send = (_accepted_by_thread if is_threaded else _accepted)(tracer, made.send)
        return made

    setattr(client, "pipeline", pipeline)  # noqa: B010


class _Sent:
    """The span of a record, and the record's headers with its context."""

    def __init__(
        self, tracer: trace.Tracer, topic: str, key: object, headers: "HeaderLike | None"
    ) -> None:
        self.span = tracer.start_span(
            f"send {topic}", kind=SpanKind.PRODUCER, attributes=_attributes(topic, key)
        )
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(self.span))
        with _ended_by_errors(self.span):
            # A forwarded record has the trace context of an earlier send.
            others = [pair for pair in _pairs(headers) if pair[0] not in carrier]
        self.headers: list[Any] = [*others, *carrier.items()]


def _traced(tracer: trace.Tracer, send: Callable[..., Any]) -> Callable[..., Any]:
    def traced(
        topic: str,
        value: Any = None,
        *,
        headers: "HeaderLike | None" = None,
        **others: Any,
    ) -> Any:
        record = _Sent(tracer, topic, others.get("key"), headers)
        with _ended_by_errors(record.span):
            sent = send(topic, value, headers=record.headers, **others)
        sent.add_done_callback(lambda done: _end(record.span, done))
        return sent

    return traced


def _accepted(tracer: trace.Tracer, send: Callable[..., Any]) -> Callable[..., Any]:
    """As `_traced`, for a send without a future."""

    async def accepted(
        topic: str,
        value: Any = None,
        *,
        headers: "HeaderLike | None" = None,
        **others: Any,
    ) -> None:
        with _accepting(tracer, topic, others.get("key"), headers) as extended:
            await send(topic, value, headers=extended, **others)

    return accepted


def _accepted_by_thread(tracer: trace.Tracer, send: Callable[..., Any]) -> Callable[..., Any]:
    def accepted(
        topic: str,
        value: Any = None,
        *,
        headers: "HeaderLike | None" = None,
        **others: Any,
    ) -> None:
        with _accepting(tracer, topic, others.get("key"), headers) as extended:
            send(topic, value, headers=extended, **others)

    return accepted


@contextmanager
def _accepting(
    tracer: trace.Tracer, topic: str, key: object, headers: "HeaderLike | None"
) -> Iterator[list[Any]]:
    record = _Sent(tracer, topic, key, headers)
    with _ended_by_errors(record.span):
        yield record.headers
    record.span.end()


@contextmanager
def _ended_by_errors(span: Span) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        _fail(span, error)
        raise


def _pairs(headers: "HeaderLike | None") -> list[Any]:
    if headers is None:
        return []
    return list(headers.items() if isinstance(headers, Mapping) else headers)


def _attributes(topic: str, key: object) -> dict[str, str]:
    attributes = {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": topic,
    }
    if isinstance(key, str):
        attributes["messaging.kafka.message.key"] = key
    return attributes


def _end(span: Span, sent: Any) -> None:
    if sent.cancelled():
        # The record stays in flight.
        span.end()
    elif (error := sent.exception()) is not None:
        _fail(span, error)
    else:
        written = sent.result()
        span.set_attribute("messaging.destination.partition.id", str(written.partition))
        if written.offset is not None:
            span.set_attribute("messaging.kafka.offset", written.offset)
        span.end()


def _fail(span: Span, error: BaseException) -> None:
    span.set_attribute("error.type", type(error).__name__)
    span.set_status(Status(StatusCode.ERROR, str(error)))
    span.end()
