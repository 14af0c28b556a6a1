import sys
from collections.abc import Iterator

import pytest

from curtail_kafka.testing import Cluster

pytest_plugins = ["pytester"]


@pytest.fixture
def servers(curtail_cluster: Cluster) -> Iterator[str]:
    yield curtail_cluster.bootstrap_servers


@pytest.fixture
def python() -> str:
    """The interpreter, for tests of a whole process."""
    return sys.executable
