from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypeAlias

from ._partition import ByPartition, pairs
from .admin import OffsetAndMetadata

Listed: TypeAlias = tuple[tuple[str, int], int, int | None, str]
Offset: TypeAlias = int | OffsetAndMetadata
"""The offset of the next record to read, alone or with a leader epoch and a text."""


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class OffsetAndTimestamp(NamedTuple):
    """A record that was found by time. The timestamp is in milliseconds since 1970-01-01 UTC."""

    offset: int
    timestamp: int


def milliseconds(time: datetime) -> int:
    """The first whole millisecond since 1970-01-01 UTC that is not before the time.

    The timestamp of a record has no microseconds. A time without a zone is local, as everywhere.
    """
    # In integers: the float of `timestamp()` may be below the millisecond.
    return -((_EPOCH - time.astimezone(UTC)) // timedelta(milliseconds=1))


def offset_list(offsets: ByPartition[Offset]) -> list[Listed]:
    """The partitions with their offsets as the native code takes them, or one clear error."""
    every: list[Listed] = []
    for at, offset in pairs("offsets", offsets):
        if isinstance(offset, int):
            every.append((at, offset, None, ""))
        elif isinstance(offset, OffsetAndMetadata):
            every.append((at, offset.offset, offset.leader_epoch, offset.metadata))
        else:
            kind = type(offset).__name__
            raise TypeError(f"offsets must be int or OffsetAndMetadata each, not {kind}")
    return every


def time_list(times: ByPartition[datetime | int]) -> list[tuple[tuple[str, int], int]]:
    """The partitions with their times in milliseconds, or one clear error."""
    every: list[tuple[tuple[str, int], int]] = []
    for at, time in pairs("times", times):
        if isinstance(time, datetime):
            every.append((at, milliseconds(time)))
        elif isinstance(time, int):
            every.append((at, time))
        else:
            raise TypeError(f"times must be datetime or int each, not {type(time).__name__}")
    return every
