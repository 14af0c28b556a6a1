"""An embedded cluster of brokers for tests, with faults. It needs no JVM."""

import asyncio
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike, fspath
from types import TracebackType
from typing import Literal, Self

from .. import _native
from .._config import Setting, text
from ..errors import ClusterError, ConfigError, IllegalStateError

__all__ = ["Cluster", "ClusterError", "Sync"]


class Cluster:
    """Brokers in this process, each on a port of its own. Their ids are 1 and up.

    ``with`` and ``async with`` start and stop it. Faults apply at once; methods that wait are
    asynchronous, and :attr:`sync` has them for threads.

    With ``security`` the brokers have certificates (SSL), users with passwords (SASL), or both.
    Clients connect with :meth:`client_config`. ``users`` are names and passwords; without them
    there is one user, ``test``, with a random password.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        config: Mapping[str, Setting] | None = None,
        security: Literal["SSL", "SASL_PLAINTEXT", "SASL_SSL"] | None = None,
        users: Mapping[str, str] | None = None,
        data: str | PathLike[str] | None = None,
        port: int | None = None,
    ) -> None:
        self._brokers = brokers
        self._config = [(name, text(name, value)) for name, value in (config or {}).items()]
        self._security = (security or "PLAINTEXT").upper()
        if security is not None and any(name == "listeners" for name, _ in self._config):
            raise ConfigError("security and the setting listeners exclude each other")
        self._users = dict(users or {})
        if self._security.startswith("SASL") and not self._users:
            self._users["test"] = secrets.token_urlsafe()
        self._data = None if data is None else fspath(data)
        self._port = port
        self._cluster: _native.Cluster | None = None
        self.sync: Sync = Sync(self)

    async def start(self) -> None:
        """Starts the brokers."""
        await asyncio.to_thread(self.sync.start)

    async def shutdown(self) -> None:
        """Stops the brokers at once. Data in a temporary directory is removed."""
        await asyncio.to_thread(self.sync.shutdown)

    @property
    def _native(self) -> _native.Cluster:
        if self._cluster is None:
            raise IllegalStateError("the cluster does not run")
        return self._cluster

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of the brokers."""
        return self._native.bootstrap()

    def client_config(self, user: str | None = None) -> dict[str, str]:
        """Settings with which clients of a user connect, or of the first one.

        They include ``bootstrap.servers``: ``Producer(config=cluster.client_config())``. They lack
        clients' certificates, and the truststore for an ``ssl.keystore.location`` of yours.
        """
        settings = self._native.client_config(user)
        if settings is None and user is None:
            raise ConfigError("no user has a password for one of sasl.enabled.mechanisms")
        if settings is None:
            raise ConfigError(f"the cluster has no user {user!r}")
        return dict(settings)

    @property
    def broker_ids(self) -> list[int]:
        return self._native.broker_ids()

    @property
    def live_brokers(self) -> list[int]:
        """Brokers with a session, from the controller."""
        return self._native.live_brokers()

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = -1,
        **config: Setting,
    ) -> None:
        """Creates a topic, and returns once the brokers know it."""
        configs = [(key.replace("_", "."), text(key, value)) for key, value in config.items()]
        self._native.create_topic(name, partitions, replication_factor, configs)

    def leader(self, topic: str, partition: int) -> int | None:
        """The leader of a partition, from the controller."""
        return self._native.leader(topic, partition)

    def isr(self, topic: str, partition: int) -> list[int] | None:
        """The in-sync replicas of a partition, from the controller."""
        return self._native.isr(topic, partition)

    def move_leader(self, topic: str, partition: int, to: int) -> None:
        """Makes an in-sync replica the leader of a partition."""
        self._native.move_leader(topic, partition, to)

    def kill(self, broker: int) -> None:
        """Kills a broker as ``kill -9`` does."""
        self._native.kill(broker)

    @contextmanager
    def frozen(self, broker: int) -> Iterator[None]:
        """Freezes a broker as SIGSTOP does, until the end of the block."""
        self._native.freeze(broker)
        try:
            yield
        finally:
            self._native.thaw(broker)

    @contextmanager
    def cut_off(self, broker: int) -> Iterator[None]:
        """Disconnects a broker from the controller, until the end of the block."""
        self._native.cut_off(broker, True)
        try:
            yield
        finally:
            self._native.cut_off(broker, False)

    @contextmanager
    def slow(
        self, by: float, *, broker: int | None = None, api: int | None = None
    ) -> Iterator[None]:
        """Delays responses by this many seconds, until the end of the block."""
        self._native.delay(broker, api, by)
        try:
            yield
        finally:
            self._native.delay(broker, api, 0.0)

    @contextmanager
    def receiving_metrics(self) -> Iterator[None]:
        """Accepts the metrics that clients push (KIP-714), and drops them, until the block ends.

        Brokers assign a client instance id only during that time.
        """
        self._native.receive_client_metrics(True)
        try:
            yield
        finally:
            self._native.receive_client_metrics(False)

    async def restart(self, broker: int) -> None:
        """Restarts a broker that was killed or stopped."""
        await asyncio.to_thread(self.sync.restart, broker)

    async def roll(self) -> None:
        """Restarts every broker in turn, each once the one before is in sync again.

        If the call is cancelled, the restarts go on.
        """
        await asyncio.to_thread(self.sync.roll)

    async def stop(self, broker: int) -> None:
        """Stops a broker cleanly: its leaderships move away first."""
        await asyncio.to_thread(self.sync.stop, broker)

    async def settled(self) -> None:
        """Waits until every running broker has the controller's metadata."""
        await asyncio.to_thread(self.sync.settled)

    async def heal(self) -> None:
        """Ends every fault, and restarts every broker that does not run."""
        await asyncio.to_thread(self.sync.heal)

    def __enter__(self) -> Self:
        self.sync.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.sync.shutdown()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.shutdown()


class Sync:
    """The methods of :class:`Cluster` that wait, for threads."""

    def __init__(self, cluster: Cluster) -> None:
        self._of = cluster

    def start(self) -> None:
        of = self._of
        if of._cluster is not None:
            raise IllegalStateError("the cluster runs")
        of._cluster = _native.Cluster(
            of._brokers, of._config, of._data, of._port, of._security, list(of._users.items())
        )

    def shutdown(self) -> None:
        self._of._cluster = None

    def restart(self, broker: int) -> None:
        self._of._native.restart(broker)

    def roll(self) -> None:
        if not self._of._native.roll():
            raise ClusterError("a broker is not in sync again")

    def stop(self, broker: int) -> None:
        self._of._native.stop(broker)

    def settled(self) -> None:
        self._of._native.settled()

    def heal(self) -> None:
        if not self._of._native.heal():
            raise ClusterError("a broker has no session with the controller")
