"""Sends of many records."""

from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Protocol

from ._call import TURN, Future, apart, finished, pause, settled
from ._native import ArrowRows, ArrowStream, Bulk, Call, RecordMetadata
from ._partition import TopicPartition
from ._sender import ArrowExportable, Bytes, Delivered, HeaderLike, NewRecord, Written


class Send(Protocol):
    def __call__(
        self,
        topic: str,
        value: Bytes = None,
        *,
        key: Bytes = None,
        partition: int | None = None,
        headers: HeaderLike | None = None,
        timestamp: int | None = None,
    ) -> Future[RecordMetadata]: ...


class Pace:
    """Lets the event loop run between the items of a long loop."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begins a turn."""
        self._ends = perf_counter() + TURN

    def is_over(self) -> bool:
        """Whether the turn has ended."""
        return perf_counter() >= self._ends

    async def kept(self) -> None:
        """Yields to the event loop if the turn has ended."""
        if self.is_over():
            await pause()
            self.begin()


async def send_all(send: Send, topic: str, records: Iterable[NewRecord]) -> list[RecordMetadata]:
    """Sends records, and waits for all outcomes. Raises failures as one group.

    ``send`` returns futures whose failures asyncio does not report: they need not be awaited.
    """
    sent: list[Future[RecordMetadata]] = []
    errors: list[Exception] = []
    pace = Pace()
    try:
        for one in records:
            if not isinstance(one, NewRecord):
                raise TypeError(f"records must be NewRecord each, not {type(one).__name__}")
            future = send(
                topic,
                one.value,
                key=one.key,
                partition=one.partition,
                headers=one.headers,
                timestamp=one.timestamp,
            )
            sent.append(future)
            await pace.kept()
    except Exception as error:
        errors.append(error)
    written: list[RecordMetadata] = []
    # Not `gather`: it adds a callback to every future, and collects all results, in one turn each.
    for future in sent:
        try:
            written.append(await settled(future))
        except Exception as error:
            errors.append(error)
        await pace.kept()
    if errors:
        raise ExceptionGroup(f"{len(errors)} records were not acknowledged", errors)
    return written


async def send_rows(
    start: "Callable[[str], Call[Bulk]]",
    topic: str,
    data: ArrowExportable,
    value: str,
    key: str | None,
    partition: str | None,
    timestamp: str | None,
    headers: str | None,
) -> Delivered:
    """Sends rows of columns, and waits for all outcomes. Raises failures as one group."""
    bulk = await finished(start(topic))
    errors: list[Exception] = []
    try:
        # The library of the columns may compute them in these calls.
        rows = await apart(ArrowRows, data, value, key, partition, timestamp, headers)
        while (size := await apart(bulk.stage, rows)) is not None:
            if size:
                await finished(bulk.start_room(size))
    except Exception as error:
        failure = _typed(data, error)
        if not bulk.accepted:
            raise failure from None
        errors.append(failure)
    finally:
        bulk.stop()
    partitions, failed, failures = await finished(bulk.start_outcomes())
    for reason, count, row in failures:
        where = f"row {row}" if count == 1 else f"{count} records, the first of them row {row}"
        reason.add_note(where)
        errors.append(reason)
    if errors:
        text = f"{failed} of {bulk.accepted} records were not acknowledged"
        raise ExceptionGroup(text, errors)
    pace = Pace()
    written: dict[TopicPartition, Written] = {}
    for at, offsets in partitions.items():
        written[at] = Written(*offsets)
        await pace.kept()
    return Delivered(sum(one.count for one in written.values()), written)


def _typed(data: object, error: Exception) -> Exception:
    """The exception of a scan that could not be read: the Arrow interface has only its text."""
    if isinstance(error, OSError) and isinstance(data, ArrowStream):
        reason = data.error
        if isinstance(reason, Exception):
            return reason
    return error
