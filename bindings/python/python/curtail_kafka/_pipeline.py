"""Sends whose outcomes are reported together."""

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ._call import Future, Semaphore
from ._native import RecordMetadata
from ._sender import Bytes, HeaderLike
from ._sending import Pace
from .errors import BufferFullError, ConfigError, IllegalStateError

if TYPE_CHECKING:
    from ._producer import Producer

KEPT = 100
"""Exceptions that a pipeline keeps; it counts the others."""


class Pipeline:
    """Sends records without a future for each, from :meth:`Producer.pipeline`.

    ``async with`` waits at its end for every record, and raises the failures together as an
    :class:`ExceptionGroup`. Of many failures it has the first 100. Later sends continue after a
    failure: :attr:`failed` counts them. Records with the same key keep the order of the calls.
    """

    delivered: int
    """Acknowledged records."""
    failed: int
    """Records that failed."""

    def __init__(self, producer: "Producer", limit: int) -> None:
        if limit < 1:
            raise ConfigError(f"limit={limit}: must be at least 1")
        self._producer = producer
        self._room = Semaphore(limit)
        self._pace = Pace()
        self._errors: list[BaseException] = []
        self._open = False
        self.delivered = self.failed = 0

    async def send(
        self,
        topic: str,
        value: Bytes = None,
        *,
        key: Bytes = None,
        partition: int | None = None,
        headers: HeaderLike | None = None,
        timestamp: int | None = None,
    ) -> None:
        """Accepts a record. Waits only while ``limit`` records, or 32 MiB, are not acknowledged.

        A cancelled call has not accepted the record.
        """
        self._check_open()
        if headers is not None and not isinstance(headers, Mapping):
            # Read again if the record has to wait.
            headers = list(headers)
        await self._pace.kept()
        await self._room.acquire()
        try:
            while True:
                self._check_open()
                try:
                    sent = self._producer._send_quietly(
                        topic,
                        value,
                        key=key,
                        partition=partition,
                        headers=headers,
                        timestamp=timestamp,
                    )
                    break
                except BufferFullError:
                    await self._producer.flush()
        except BaseException:
            self._room.release()
            raise
        sent.add_done_callback(self._done)

    def _check_open(self) -> None:
        if not self._open:
            raise IllegalStateError("a pipeline sends inside its 'async with' block")

    def _done(self, sent: Future[RecordMetadata]) -> None:
        if sent.cancelled() or (error := sent.exception()) is None:
            self.delivered += 1
        else:
            self.failed += 1
            if len(self._errors) < KEPT:
                self._errors.append(error)
        self._room.release()

    async def __aenter__(self) -> Self:
        if self._open:
            raise IllegalStateError("the pipeline is open")
        self._open = True
        self._errors = []
        self.delivered = self.failed = 0
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open = False
        try:
            await self._producer.flush()
        except BaseException as interrupted:
            if self._errors:
                interrupted.add_note(self._summary())
            raise
        if not self._errors:
            return
        if error is not None:
            error.add_note(self._summary())
            return
        raise BaseExceptionGroup(self._summary(), self._errors)

    def _summary(self) -> str:
        return f"{self.failed} records were not acknowledged"
