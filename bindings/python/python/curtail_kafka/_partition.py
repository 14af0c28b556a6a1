from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias, TypeVar


class TopicPartition(NamedTuple):
    topic: str
    partition: int


T = TypeVar("T")
ByPartition: TypeAlias = Mapping[tuple[str, int], T] | Mapping[TopicPartition, T]
"""Values by partition. The type of a mapping's keys is invariant, hence both."""


def partitions(what: str, all: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """The partitions as a list, or one clear error."""
    every = list(all)
    for one in every:
        match one:
            case (str(), int()) if isinstance(one, tuple):
                pass
            case _:
                text = f"{what} must have pairs such as ('orders', 0) for partitions, not {one!r}"
                raise TypeError(text)
    return every


def pairs(what: str, values: ByPartition[T]) -> list[tuple[tuple[str, int], T]]:
    """The partitions with their values."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{what} must be a mapping of partitions, not {type(values).__name__}")
    return list(zip(partitions(what, values), values.values(), strict=True))
