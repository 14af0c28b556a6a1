import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import apache
import pytest

from curtail_kafka.testing import Cluster

pytest_plugins = ["pytester"]

# A shell's background commands ignore SIGINT, and so would the programs that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def servers(curtail_cluster: Cluster) -> Iterator[str]:
    yield curtail_cluster.bootstrap_servers


@pytest.fixture
def python() -> str:
    """The interpreter, for tests of a whole process."""
    return sys.executable


@pytest.fixture(params=["asyncio", "uvloop"])
def new_loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    """Makes event loops of each kind."""
    if request.param == "asyncio":
        return asyncio.new_event_loop
    make: Callable[[], asyncio.AbstractEventLoop] = pytest.importorskip("uvloop").new_event_loop
    return make


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


# In one process: its brokers run for the whole session.
ON_APACHE = (pytest.mark.apache, pytest.mark.xdist_group("apache"))


@pytest.fixture(params=["embedded", pytest.param("apache", marks=ON_APACHE)])
def each_cluster(request: pytest.FixtureRequest) -> "Cluster | apache.Apache":
    """The embedded cluster, and Apache Kafka."""
    name = {"embedded": "curtail_cluster", "apache": "apache_cluster"}[request.param]
    cluster: Cluster | apache.Apache = request.getfixturevalue(name)
    return cluster
