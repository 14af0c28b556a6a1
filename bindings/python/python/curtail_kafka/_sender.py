"""Records to send, for producers and transactions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ._partition import TopicPartition

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


class ArrowStreamExportable(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class ArrowArrayExportable(Protocol):
    def __arrow_c_array__(
        self, requested_schema: object | None = None
    ) -> tuple[object, object]: ...


ArrowExportable: TypeAlias = ArrowStreamExportable | ArrowArrayExportable
"""Columns with the Arrow PyCapsule interface: of pyarrow, Polars, DuckDB, a scan or a poll."""


@dataclass(frozen=True, slots=True)
class Written:
    """Records of a partition that were acknowledged."""

    first: int | None
    """Lowest offset; ``None`` with ``acks=0``."""
    last: int | None
    """Highest offset. Between the two there may be records of other sends."""
    count: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """Records that ``send_arrow`` has delivered."""

    count: int
    partitions: dict[TopicPartition, Written]
