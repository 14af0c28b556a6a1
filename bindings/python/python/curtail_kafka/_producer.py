import atexit
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Self, Unpack
from uuid import UUID
from weakref import WeakSet

from . import _native
from ._call import THREADED, Future, finished
from ._client import Client
from ._config import Setting, properties
from ._native import RecordMetadata
from ._pipeline import Pipeline
from ._sender import ArrowExportable, Bytes, Delivered, HeaderLike, NewRecord
from ._sending import send_all, send_rows
from ._tokens import Source, TokenFunction, key_of, source
from .metrics import ProducerMetrics

if TYPE_CHECKING:
    from ._options import ProducerOptions

EXIT_SECONDS = 5.0
"""Longest flush at the interpreter's exit."""


class Producer(Client, _native.Producer):
    """Sends records to Kafka, in batches, idempotently and in order.

    A producer may be created anywhere and used from several event loops. ``async with`` connects
    and closes. ``config`` takes settings by Kafka's names, keywords take them with ``_`` for ``.``.
    ``oauth_token`` is a function that returns the tokens of SASL/OAUTHBEARER.
    """

    _oauth_token: Source | None

    def __new__(
        cls,
        bootstrap_servers: str | Iterable[str] | None = None,
        *,
        oauth_token: TokenFunction | None = None,
        config: Mapping[str, Setting] | None = None,
        **options: "Unpack[ProducerOptions]",
    ) -> Self:
        settings = properties(bootstrap_servers, config, options)  # type: ignore[arg-type]
        token = source(oauth_token, THREADED)
        self = super().__new__(cls, settings, THREADED, key_of(token))
        self._oauth_token = token
        _open.add(self)
        return self

    if TYPE_CHECKING:

        def send(
            self,
            topic: str,
            value: Bytes = None,
            *,
            key: Bytes = None,
            partition: int | None = None,
            headers: HeaderLike | None = None,
            timestamp: int | None = None,
        ) -> Future[RecordMetadata]:
            """Accepts a record, and returns a future of its metadata."""

    async def connect(self) -> None:
        """Connects to a bootstrap server, to fail early and clearly if none is usable."""
        await finished(self._start_connect())

    async def warm_up(self, *topics: str) -> None:
        """Prepares sends to these topics, so that the first record does not wait."""
        await finished(self._start_warm_up(list(topics)))

    async def partitions_for(self, topic: str) -> int:
        """Returns the number of partitions of a topic."""
        count: int = await finished(self._start_partitions_for(topic))
        return count

    async def client_instance_id(self, timeout: float) -> UUID:
        """Returns the id that a broker assigns to this client for its metrics (KIP-714).

        Waits for it up to ``timeout`` seconds. Brokers assign none without a receiver of metrics.
        """
        id: UUID = await finished(self._start_client_instance_id(timeout))
        return id

    async def send_many(self, topic: str, records: Iterable[NewRecord]) -> list[RecordMetadata]:
        """Sends records, and waits until each is acknowledged or failed.

        Failures are raised together, as an :class:`ExceptionGroup`.
        """
        return await send_all(self._send_quietly, topic, records)

    async def send_arrow(
        self,
        topic: str,
        data: ArrowExportable,
        *,
        value: str,
        key: str | None = None,
        partition: str | None = None,
        timestamp: str | None = None,
        headers: str | None = None,
    ) -> Delivered:
        """Sends the rows of a table, and waits until each record is acknowledged or failed.

        The keywords name columns. ``value`` and ``key`` have strings or binary values,
        ``partition`` has integers, ``timestamp`` has timestamps or milliseconds, and ``headers``
        has lists of structs with a ``name`` and a ``value``. A null stands for a record without
        it. Without a timestamp, a record has the time of the send.

        Another thread reads ``data``, without the GIL. It pauses while 8 MiB of records wait for
        room in ``buffer.memory``. Failures are raised together, as an :class:`ExceptionGroup` with
        the first 100 of them. A cancelled call sends no further rows; those already accepted stay
        in flight.
        """
        return await send_rows(
            self._start_bulk, topic, data, value, key, partition, timestamp, headers
        )

    def pipeline(self, limit: int = 10_000) -> Pipeline:
        """Returns a :class:`Pipeline` for ``async with``: sends without a future for each record.

        ``limit`` is the largest number of records that are not acknowledged.
        """
        return Pipeline(self, limit)

    async def flush(self) -> None:
        """Waits until each earlier record is acknowledged or failed, without lingering."""
        await finished(self._start_flush())

    async def close(self) -> None:
        """Refuses later records, and waits until each earlier one is acknowledged or failed.

        A cancelled close continues.
        """
        await finished(self._start_close())

    def metrics(self) -> ProducerMetrics:
        """Returns what the client has measured, since it was created."""
        measured: ProducerMetrics = self._metrics()
        return measured

    async def _discard(self) -> None:
        self._abandon()

    def __del__(self) -> None:
        if self._is_open:
            warnings.warn(
                "unclosed producer: its open records are lost", ResourceWarning, stacklevel=2
            )


_open: WeakSet[Producer] = WeakSet()


def _flush_at_exit() -> None:
    for producer in list(_open):
        if not producer._is_open:
            continue
        settled = producer._flush_at_exit(EXIT_SECONDS)
        lost = "" if settled else f"; some records were not settled within {EXIT_SECONDS:.0f} s"
        warnings.warn(f"producer was not closed before exit{lost}", ResourceWarning, stacklevel=1)


atexit.register(_flush_at_exit)
