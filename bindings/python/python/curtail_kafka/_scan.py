"""Topics as streams of Arrow columns."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Self, TypeAlias, Unpack

from . import _native
from ._config import Setting, properties
from ._offset import milliseconds
from ._partition import TopicPartition
from ._records import Column, Layout
from ._tokens import Source, TokenFunction, key_of, source
from .errors import ConfigError

if TYPE_CHECKING:
    from ._options import ConsumerOptions

Place: TypeAlias = int | datetime | Literal["beginning", "end"]
"""An offset, the first record at a time or later, or an end of each partition."""


DEFAULTS = [("allow.auto.create.topics", "false"), ("auto.offset.reset", "none")]
"""Settings of a scan, which neither creates topics nor skips records."""


class ArrowStream(_native.ArrowStream):
    """Records between fixed offsets as Arrow columns, from :func:`scan`.

    Other libraries read it by the Arrow PyCapsule interface, also several times. They receive the
    text of an error only; :attr:`error` is its exception. Iteration raises it, and returns a
    :class:`RecordBatch` each time. A reading that makes no progress for ``default.api.timeout.ms``
    fails with :class:`TimeoutError`.
    """

    @property
    def offsets(self) -> dict[TopicPartition, range]:
        """The offsets that are read. There may be offsets without records."""
        return {
            TopicPartition(topic, partition): range(start, end)
            for topic, partition, start, end in self._ranges()
        }

    def __new__(
        cls,
        settings: list[tuple[str, str]],
        topics: list[str],
        start: tuple[str, int],
        end: tuple[str, int],
        columns: list[str] | None,
        layout: str,
        token: Source | None = None,
    ) -> Self:
        native = key_of(token)
        return super().__new__(cls, settings, topics, start, end, columns, layout, native)


def scan(
    bootstrap_servers: str | Iterable[str] | None,
    *topics: str,
    start: Place = "beginning",
    end: Place = "end",
    columns: Sequence[Column] | None = None,
    layout: Layout = "view",
    oauth_token: TokenFunction | None = None,
    config: Mapping[str, Setting] | None = None,
    **options: "Unpack[ConsumerOptions]",
) -> ArrowStream:
    """Returns the records of topics as a stream of Arrow columns, for a data frame or a query.

    Looks up the offsets, and waits for them: with asyncio, call it by :func:`asyncio.to_thread`.
    Records that are written later are not read. An offset, for ``start`` or ``end``, applies to
    each partition, and counts as the nearest end of those that do not reach so far. A ``datetime``
    stands for the first record with this timestamp or a later one. ``end`` is exclusive.

    ``columns`` selects columns, all by default. With the layout ``"view"``, keys and values are not
    copied; ``"binary"`` is for readers without views. Records that retention removes before they
    are read are an :class:`OffsetOutOfRangeError`, unless ``auto_offset_reset`` is set.
    ``oauth_token`` is called on a separate thread; an asynchronous one in a separate event loop.
    """
    if not topics:
        raise ConfigError("a scan needs at least one topic")
    if isinstance(columns, str):
        raise TypeError("columns must be a sequence of names, not one")
    settings = properties(bootstrap_servers, config, options)  # type: ignore[arg-type]
    given = {name for name, _ in settings}
    settings += [(name, value) for name, value in DEFAULTS if name not in given]
    return ArrowStream(
        settings,
        list(dict.fromkeys(topics)),
        _place("start", start),
        _place("end", end),
        None if columns is None else list(columns),
        layout,
        source(oauth_token, True),
    )


def _place(what: str, place: Place) -> tuple[str, int]:
    match place:
        case datetime():
            return "time", milliseconds(place)
        case "beginning" | "end":
            return place, 0
        case bool():
            pass
        case int() if place >= 0:
            return "offset", place
    raise ConfigError(
        f"{what}={place!r}: must be an offset from 0 on, a datetime, 'beginning' or 'end'"
    )
