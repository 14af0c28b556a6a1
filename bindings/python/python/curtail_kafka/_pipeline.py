"""Sends whose outcomes are reported together."""

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from . import _native
from ._call import Line, finished
from ._sender import Bytes, HeaderLike
from ._sending import Pace
from .errors import ConfigError, IllegalStateError

if TYPE_CHECKING:
    from ._producer import Producer


class Pipeline:
    """Sends records without a future for each, from :meth:`Producer.pipeline`.

    ``async with`` waits at its end for every record, and raises the failures together as an
    :class:`ExceptionGroup`: one for each batch or record that failed, of which it has the first
    100. Later sends continue after a failure: :attr:`failed` counts them. Records with the same
    key keep the order of the calls.
    """

    def __init__(self, producer: "Producer", limit: int) -> None:
        if limit < 1:
            raise ConfigError(f"limit={limit}: must be at least 1")
        self._producer = producer
        self._limit = limit
        self._pace = Pace()
        self._block: _native.Pipeline | None = None
        self._open = False
        self._line = Line(self._opened)

    @property
    def delivered(self) -> int:
        """Acknowledged records."""
        return self._block.delivered if self._block else 0

    @property
    def failed(self) -> int:
        """Records that failed."""
        return self._block.failed if self._block else 0

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
        """Accepts a record.

        Waits only while ``limit`` records are not acknowledged, or 8 MiB of records wait for room
        in ``buffer.memory``. A cancelled call has not accepted the record, unless the cancellation
        comes in the turn of the event loop that accepts it.
        """
        if headers is not None and not isinstance(headers, Mapping):
            # Read again if the record has to wait.
            headers = list(headers)
        block = self._opened()
        # Behind the calls that wait: records with the same key keep their order.
        if (
            self._line
            or self._pace.is_over()
            or block.offer(topic, value, key, partition, headers, timestamp) is not None
        ):
            await self._line.wait(topic, value, key, partition, headers, timestamp)
            self._pace.begin()

    def _opened(self) -> _native.Pipeline:
        if self._block is None or not self._open:
            raise IllegalStateError("a pipeline sends inside its 'async with' block")
        return self._block

    async def __aenter__(self) -> Self:
        if self._open:
            raise IllegalStateError("the pipeline is open")
        self._line.begin()
        self._block = self._producer._pipeline(self._limit)
        self._open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        block = self._opened()
        self._open = False
        self._line.end()
        try:
            await self._producer.flush()
            failed, failures = await finished(block.start_outcomes())
        except BaseException as interrupted:
            if block.failed:
                interrupted.add_note(self._summary(block.failed))
            raise
        if not failed:
            return
        if error is not None:
            error.add_note(self._summary(failed))
            return
        reasons: list[Exception] = []
        for reason, count, _ in failures:
            if count > 1:
                reason.add_note(f"{count} records")
            reasons.append(reason)
        raise ExceptionGroup(self._summary(failed), reasons)

    def _summary(self, failed: int) -> str:
        return f"{failed} records were not acknowledged"
