"""Sends of many records."""

from collections.abc import Iterable
from time import perf_counter
from typing import Protocol

from ._call import Future, pause, settled
from ._native import RecordMetadata
from ._sender import Bytes, HeaderLike, NewRecord

TURN = 0.0005
"""Seconds after which a loop over records lets the event loop run."""


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
        self._ends = perf_counter() + TURN

    async def kept(self) -> None:
        """Yields to the event loop if the turn has ended."""
        if perf_counter() >= self._ends:
            await pause()
            self._ends = perf_counter() + TURN


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
