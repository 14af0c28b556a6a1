"""Arguments of :class:`Admin` as the native code takes them."""

from collections.abc import Iterable, Mapping
from typing import TypeAlias, TypeVar

from ._config import text
from ._partition import partitions as _partitions
from .admin import Acl, AclFilter, ConfigChange, ConfigResource, QuotaMatch
from .errors import Error

K = TypeVar("K")
T = TypeVar("T")
Each: TypeAlias = dict[K, T | Error]
"""A result for each item, in the order of the items."""
At: TypeAlias = tuple[str, int]


def all_of(kind: type[T], what: str, items: Iterable[T]) -> list[T]:
    """The items as a list. A string in place of its list would count as its characters."""
    if isinstance(items, str | bytes | kind):
        raise TypeError(f"{what} must be an iterable of {kind.__name__}, not one")
    every = list(items)
    for one in every:
        if not isinstance(one, kind):
            raise TypeError(f"{what} must be {kind.__name__} each, not {type(one).__name__}")
    return every


def entries(what: str, kind: type[K], values: Mapping[K, T]) -> list[tuple[K, T]]:
    """The keys with their values, or one clear error."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{what} must be a mapping, not {type(values).__name__}")
    for key in values:
        if not isinstance(key, kind):
            raise TypeError(f"{what} must have {kind.__name__} keys, not {type(key).__name__}")
    return list(values.items())


def pairs_of(partitions: Iterable[At]) -> list[At]:
    return _partitions("partitions", partitions)


def resource(resource: ConfigResource) -> tuple[str, str]:
    return resource.kind, resource.name


def change(change: ConfigChange) -> tuple[str, str, str | None]:
    value = None if change.value is None else text(change.name, change.value)
    return change.action, change.name, value


def acl(acl: Acl) -> tuple[str, str, str, str, str, str, str]:
    return (
        acl.resource,
        acl.name,
        acl.pattern,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission,
    )


def filter(
    filter: AclFilter,
) -> tuple[str | None, str | None, str, str | None, str | None, str | None, str | None]:
    return (
        filter.resource,
        filter.name,
        filter.pattern,
        filter.principal,
        filter.host,
        filter.operation,
        filter.permission,
    )


def component(kind: str, match: str | QuotaMatch) -> tuple[str, str, str]:
    if isinstance(match, QuotaMatch):
        return kind, match.value, ""
    return kind, "name", match
