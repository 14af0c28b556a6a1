import warnings
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack
from uuid import UUID

from . import _native
from ._call import THREADED, Future, finished
from ._client import Client
from ._config import Setting, properties
from ._consumer import Consumer
from ._group import GroupMetadata
from ._native import RecordMetadata
from ._offset import Offset, offset_list
from ._partition import ByPartition
from ._sender import ArrowExportable, Bytes, Delivered, HeaderLike, NewRecord
from ._sending import send_all, send_rows
from ._tokens import Source, TokenFunction, key_of, source
from .errors import Error
from .metrics import ProducerMetrics

if TYPE_CHECKING:
    from ._options import ProducerOptions


class TransactionalProducer(Client, _native.TransactionalProducer):
    """Sends records and commits offsets in transactions: all become visible, or none.

    It needs a ``transactional_id`` that no other running program uses. ``async with`` takes over
    the id, which fences an earlier producer with it and ends that one's transaction, and closes.
    One transaction is open at a time.
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
        return self

    async def connect(self) -> None:
        """Takes over the ``transactional_id``; later calls do nothing.

        Waits up to ``max.block.ms``. May be cancelled and repeated.
        """
        await finished(self._start_init())

    async def warm_up(self, *topics: str) -> None:
        """Prepares sends to these topics, so that the first record does not wait.

        Outside a transaction only.
        """
        await finished(self._start_warm_up(list(topics)))

    async def partitions_for(self, topic: str) -> int:
        """Returns the number of partitions of a topic. Outside a transaction only."""
        count: int = await finished(self._start_partitions_for(topic))
        return count

    async def client_instance_id(self, timeout: float) -> UUID:
        """Returns the client's id, as :meth:`Producer.client_instance_id`.

        Outside a transaction only.
        """
        id: UUID = await finished(self._start_client_instance_id(timeout))
        return id

    def transaction(self, consumer: Consumer | None = None) -> "Transaction":
        """Returns a transaction for ``async with``.

        With a consumer it includes the offsets of the records that the program has received from
        it. The consumer needs a ``group_id``, ``enable_auto_commit=False`` and
        ``isolation_level="read_committed"``; otherwise raises :class:`ConfigError`.
        """
        return Transaction(self, consumer)

    async def close(self) -> None:
        """Aborts an open transaction, waits for one that is being committed, and closes.

        Waits up to ``max.block.ms``. A cancelled close continues.
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
                "unclosed transactional producer: an open transaction blocks readers until "
                "transaction.timeout.ms",
                ResourceWarning,
                stacklevel=2,
            )


class Transaction(_native.Transaction):
    """A transaction, from :meth:`TransactionalProducer.transaction`. Of one event loop.

    A block that ends normally commits. It repeats a commit that timed out, because a commit cannot
    be withdrawn. If a record or the offsets were not written, the transaction is aborted and the
    block raises the error. A block that is left by an exception aborts.

    After an abort, the consumer continues at the first record that no transaction has committed:
    poll again, and send the results again. A cancelled commit or abort continues; the consumer, and
    the next transaction, wait for its outcome.
    """

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

    async def send_many(self, topic: str, records: Iterable[NewRecord]) -> list[RecordMetadata]:
        """Sends records, and waits until each is acknowledged or failed.

        Failures are raised together, as an :class:`ExceptionGroup`.
        """
        return await send_all(self.send, topic, records)

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
        """Sends the rows of a table, as :meth:`Producer.send_arrow`."""
        return await send_rows(
            self._start_bulk, topic, data, value, key, partition, timestamp, headers
        )

    async def send_offsets(self, offsets: ByPartition[Offset], group: GroupMetadata) -> None:
        """Adds offsets, each that of the next record to read, for the commit to commit.

        For consumers that :meth:`TransactionalProducer.transaction` did not receive. ``group`` is
        :attr:`Consumer.group_metadata`, taken after the poll that returned the records. Waits up
        to ``max.block.ms``; a cancelled or timed-out call may be repeated.
        """
        if not isinstance(group, GroupMetadata):
            raise TypeError(f"group must be a GroupMetadata, not {type(group).__name__}")
        await finished(self._start_send_offsets(offset_list(offsets), group))

    async def flush(self) -> None:
        """Waits until each earlier record is acknowledged, without lingering."""
        await finished(self._start_flush())

    async def __aenter__(self) -> Self:
        try:
            await finished(self._start_begin())
        except BaseException:
            # The block does not run, so nothing else ends the transaction.
            self._abandon()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            await finished(self._start_end(True))
            return
        try:
            await finished(self._start_end(False))
        except Error as failed:
            error.add_note(f"the transaction's abort failed: {failed}")
