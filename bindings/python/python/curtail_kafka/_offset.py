from typing import TypeAlias

from ._partition import ByPartition, pairs
from .admin import OffsetAndMetadata

Listed: TypeAlias = tuple[tuple[str, int], int, int | None, str]
Offset: TypeAlias = int | OffsetAndMetadata
"""The offset of the next record to read, alone or with a leader epoch and a text."""


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
