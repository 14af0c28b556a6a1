"""Fixtures for pytest. Installing the package makes them available."""

from collections.abc import Generator, Iterator
from contextlib import ExitStack
from itertools import count

import pytest

from .._config import text
from ..diagnosis import DoctorReport
from . import Cluster

_numbers = count(1)
_Key = tuple[int, tuple[tuple[str, str], ...]]


class _Clusters:
    """The clusters of a session, one for each combination of brokers and settings."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._running: dict[_Key, Cluster] = {}

    def get(self, brokers: int, config: tuple[tuple[str, str], ...]) -> Cluster:
        key = (brokers, config)
        if key not in self._running:
            cluster = Cluster(brokers, config=dict(config))
            self._running[key] = self._stack.enter_context(cluster)
        return self._running[key]

    def close(self) -> None:
        self._stack.close()


def pytest_configure(config: pytest.Config) -> None:
    line = "curtail(brokers=3, config={}): the brokers and settings of the test's curtail_cluster"
    config.addinivalue_line("markers", line)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds reports of the doctor to a failed test, whose message has only one shortened line."""
    report = yield
    if call.excinfo is not None and report.failed:
        found = (one for at in call.excinfo.traceback for one in at.frame.f_locals.values())
        texts = {str(one) for one in found if isinstance(one, DoctorReport)}
        report.sections += [("curtail doctor", text) for text in sorted(texts)]
    return report


@pytest.fixture(scope="session")
def _curtail_clusters() -> Iterator[_Clusters]:
    clusters = _Clusters()
    yield clusters
    clusters.close()


@pytest.fixture
def curtail_cluster(
    request: pytest.FixtureRequest, _curtail_clusters: _Clusters
) -> Iterator[Cluster]:
    """A cluster that runs for the whole session. After each test its faults end."""
    mark = request.node.get_closest_marker("curtail")
    wanted = dict(mark.kwargs) if mark else {}
    config = {name: text(name, value) for name, value in wanted.pop("config", {}).items()}
    brokers = int(wanted.pop("brokers", 3))
    if wanted:
        raise pytest.UsageError(f"mark curtail has no argument {', '.join(wanted)}")
    cluster = _curtail_clusters.get(brokers, tuple(sorted(config.items())))
    yield cluster
    cluster.sync.heal()


@pytest.fixture
def curtail_topic(curtail_cluster: Cluster) -> str:
    """A new topic with one partition."""
    name = f"topic-{next(_numbers)}"
    curtail_cluster.create_topic(name)
    return name
