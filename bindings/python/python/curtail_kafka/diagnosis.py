"""The report of :func:`curtail_kafka.doctor`. Times are in seconds, throughputs in bytes/s."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

__all__ = [
    "Broker",
    "Comparison",
    "DoctorReport",
    "Finding",
    "Latency",
    "Phase",
    "PhaseName",
    "Tried",
]

MICROSECOND = 1e-6
PhaseName = Literal["produce", "publish", "commit", "catch_up", "fetch"]


def _seconds(microseconds: Iterable[float]) -> tuple[float, ...]:
    return tuple(one * MICROSECOND for one in microseconds)


@dataclass(frozen=True)
class Latency:
    """A distribution of latencies."""

    mean: float
    p50: float
    p95: float
    p99: float
    p999: float
    max: float

    @classmethod
    def _of(cls, figures: Mapping[str, float]) -> Self:
        names = ("avg", "p50", "p95", "p99", "p999", "max")
        return cls(*_seconds(figures[name] for name in names))


@dataclass(frozen=True)
class Phase:
    """A phase of the slowest 1% of records."""

    name: PhaseName
    duration: float
    """Mean over those records."""
    error: float
    """How much more or less it may be."""
    is_estimate: bool
    """Whether it is an estimate from outside the brokers, and not measured."""

    @classmethod
    def _of(cls, figures: Mapping[str, Any]) -> Self:
        duration, error = _seconds((figures["us"], figures["error_us"]))
        return cls(figures["phase"], duration, error, figures["estimate"])


@dataclass(frozen=True)
class Comparison:
    """Rounds with a setting, against rounds without it that ran in turn."""

    verdict: Literal["better", "worse", "no-difference"]
    """Better or worse: in every round, and by more than the rounds differ."""
    gain: float
    """Reduction of the mean 99th percentile, as a share; negative if it rose."""
    noise: float
    """Spread between rounds of the same setting, as a share."""


@dataclass(frozen=True)
class Tried:
    """A setting that the doctor has tried."""

    setting: str
    """Kafka's name and the value, ``linger.ms=0``, or a number of partitions or consumers."""
    base_p99: tuple[float, ...]
    """99th percentile of each round without it."""
    p99: tuple[float, ...]
    """99th percentile of each round with it."""
    throughput: float
    base_busy: float
    """CPU utilisation of this machine without it, from 0 to 1."""
    busy: float
    """CPU utilisation of this machine with it."""
    comparison: Comparison
    holds: bool
    """Whether the target holds with it, in each round."""
    recommended: bool
    """Whether it is better, without a loss of durability or throughput."""
    caution: str | None
    """Caution to read before it is applied."""

    @classmethod
    def _of(cls, figures: Mapping[str, Any]) -> Self:
        return cls(
            setting=figures["setting"],
            base_p99=_seconds(figures["base_p99_us"]),
            p99=_seconds(figures["p99_us"]),
            throughput=figures["bytes_per_second"],
            base_busy=figures["base_busy"],
            busy=figures["busy"],
            comparison=Comparison(**figures["comparison"]),
            holds=figures["holds"],
            recommended=figures["recommended"],
            caution=figures["caution"],
        )


@dataclass(frozen=True)
class Broker:
    """Observations of one broker."""

    id: int
    records: int
    """Records that it acknowledged."""
    request: Latency
    """From the write to the socket until the acknowledgement."""
    clock: tuple[float, float] | None
    """Bounds of its clock's offset from this machine's; negative if it is late."""

    @classmethod
    def _of(cls, figures: Mapping[str, Any]) -> Self:
        clock = figures["clock"]
        if clock is not None:
            clock = (clock["at_least_ms"] / 1000, clock["at_most_ms"] / 1000)
        return cls(figures["id"], figures["records"], Latency._of(figures["request_us"]), clock)


@dataclass(frozen=True)
class Finding:
    """A finding about the cluster."""

    severity: Literal["warning", "note"]
    text: str


@dataclass(frozen=True, repr=False)
class DoctorReport:
    """Result of :func:`curtail_kafka.doctor`. ``str`` is the whole report."""

    holds: bool
    """Whether the target holds at the throughput, without a missing record."""
    target_p99: float
    latency: Latency
    """From the intended send time to the poll, with the current settings."""
    rounds_p99: tuple[float, ...]
    """99th percentile of each round."""
    target_throughput: float
    throughput: float
    """Throughput reached, the mean of the rounds."""
    errors: int
    """Records that were not acknowledged."""
    first_error: str | None
    missing: int
    """Records that were acknowledged and not read."""
    phases: tuple[Phase, ...]
    """Phases of the slowest 1% of records."""
    blamed: PhaseName
    """The phase that takes most of their time."""
    limit: Literal["machine", "link", "brokers"] | None
    """A limit of the throughput other than settings."""
    busy: float
    """CPU utilisation of this machine, from 0 to 1."""
    tried: tuple[Tried, ...]
    brokers: tuple[Broker, ...]
    findings: tuple[Finding, ...]
    _figures: str = field(compare=False)
    _text: str = field(compare=False)

    @classmethod
    def _of(cls, figures: str, text: str) -> Self:
        of: dict[str, Any] = json.loads(figures)
        (target,) = _seconds([of["target_p99_us"]])
        return cls(
            holds=of["holds"],
            target_p99=target,
            latency=Latency._of(of["latency_us"]),
            rounds_p99=_seconds(of["rounds_p99_us"]),
            target_throughput=of["plan"]["bytes_per_second"],
            throughput=of["bytes_per_second"],
            errors=of["errors"],
            first_error=of["first_error"],
            missing=of["missing"],
            phases=tuple(map(Phase._of, of["phases"])),
            blamed=of["blamed"],
            limit=of["limit"],
            busy=of["busy"],
            tried=tuple(map(Tried._of, of["tried"])),
            brokers=tuple(map(Broker._of, of["brokers"])),
            findings=tuple(Finding(**one) for one in of["findings"]),
            _figures=figures,
            _text=text,
        )

    @property
    def recommended(self) -> tuple[Tried, ...]:
        """Recommended settings, the largest gain first."""
        helpful = (one for one in self.tried if one.recommended)
        return tuple(sorted(helpful, key=lambda one: -one.comparison.gain))

    def to_dict(self) -> dict[str, Any]:
        """Returns the figures as ``curtail doctor --json`` writes them, with its names and units:
        a time whose name ends with ``_us`` is in microseconds.
        """
        figures: dict[str, Any] = json.loads(self._figures)
        return figures

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        # pytest shows it for `assert report.holds, report`, and shortens it to 240 characters.
        settings = ", ".join(one.setting for one in self.recommended) or "none"
        return (
            f"<DoctorReport holds={self.holds} p99={self.latency.p99:.6g} of {self.target_p99:g} s "
            f"throughput={self.throughput:.0f} of {self.target_throughput:.0f} bytes/s "
            f"blamed={self.blamed} recommended={settings}>"
        )
