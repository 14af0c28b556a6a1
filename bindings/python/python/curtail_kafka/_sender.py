"""Records to send, for producers and transactions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

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
