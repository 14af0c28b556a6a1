import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import apache
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


@pytest.fixture(scope="session")
def apache_cluster() -> Iterator[apache.Apache]:
    """Three brokers of Apache Kafka, for the whole session."""
    program = apache.program()
    if program is None:
        pytest.skip(f"Apache Kafka: {apache.BUILD} first, or set CURTAIL_APACHE to the program")
    with ExitStack() as stack:
        try:
            brokers = stack.enter_context(apache.running(program))
        except apache.Unavailable as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(f"Apache Kafka: {error}")
        yield brokers


@pytest.fixture(params=["embedded", pytest.param("apache", marks=pytest.mark.apache)])
def each_cluster(request: pytest.FixtureRequest) -> "Cluster | apache.Apache":
    """The embedded cluster, and Apache Kafka."""
    name = {"embedded": "curtail_cluster", "apache": "apache_cluster"}[request.param]
    cluster: Cluster | apache.Apache = request.getfixturevalue(name)
    return cluster
