"""Records to send, for producers and transactions."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ._native import RecordMetadata

if TYPE_CHECKING:
    from typing_extensions import Buffer

    Bytes: TypeAlias = Buffer | str | None
    HeaderLike: TypeAlias = Mapping[str, Bytes] | Iterable[tuple[str, Bytes]]
else:
    Bytes = Any
    HeaderLike = Any


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to send with others."""

    value: Bytes = None
    key: Bytes = None
    partition: int | None = None
    headers: HeaderLike = ()
    timestamp: int | None = None


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
    ) -> asyncio.Future[RecordMetadata]: ...


async def send_all(send: Send, topic: str, records: Iterable[NewRecord]) -> list[RecordMetadata]:
    """Sends records, and waits for all outcomes. Raises failures as one group."""
    sent: list[asyncio.Future[RecordMetadata]] = []
    errors: list[Exception] = []
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
    except Exception as error:
        errors.append(error)
    written: list[RecordMetadata] = []
    for result in await asyncio.gather(*sent, return_exceptions=True):
        if isinstance(result, Exception):
            errors.append(result)
        elif isinstance(result, BaseException):
            raise result
        else:
            written.append(result)
    if errors:
        raise ExceptionGroup(f"{len(errors)} records were not acknowledged", errors)
    return written
