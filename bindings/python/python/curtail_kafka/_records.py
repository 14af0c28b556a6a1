from collections.abc import Sequence
from typing import Literal, TypeAlias

from ._native import Records

Layout: TypeAlias = Literal["view", "binary"]
Column: TypeAlias = Literal["topic", "partition", "offset", "timestamp", "key", "value", "headers"]


class Headers(tuple[tuple[str, bytes | None], ...]):
    """Headers of a record, in order, duplicates included."""

    __slots__ = ()

    def get(self, name: str) -> bytes | None:
        """Returns the value of the last header of this name; ``None`` without one."""
        return next((value for key, value in reversed(self) if key == name), None)

    def get_all(self, name: str) -> list[bytes | None]:
        """Returns the values of all headers of this name."""
        return [value for key, value in self if key == name]


Sequence.register(Records)
