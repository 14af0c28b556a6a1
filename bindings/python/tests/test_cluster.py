import asyncio
from typing import Literal

import pytest

import curtail_kafka as curtail
from curtail_kafka.testing import Cluster, ClusterError


async def test_cluster_starts_and_stops_in_a_block() -> None:
    async with Cluster(1) as cluster:
        assert cluster.live_brokers == [1]
        async with curtail.Producer(cluster.bootstrap_servers) as producer:
            cluster.create_topic("t", partitions=2)
            assert await producer.partitions_for("t") == 2
    with pytest.raises(curtail.IllegalStateError):
        _ = cluster.bootstrap_servers


def test_topic_that_exists_is_an_error(curtail_cluster: Cluster, curtail_topic: str) -> None:
    with pytest.raises(ClusterError) as raised:
        curtail_cluster.create_topic(curtail_topic)
    assert raised.value.code == 36


def test_unknown_broker_and_setting_are_errors(curtail_cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match="no broker 9"):
        curtail_cluster.kill(9)
    with pytest.raises(curtail.ConfigError, match=r"num\.partitions"):
        Cluster(1, config={"num.partition": 3}).sync.start()


def test_topic_has_its_replicas_and_settings(curtail_cluster: Cluster) -> None:
    curtail_cluster.create_topic("replicas", 2, 3, min_insync_replicas=2)
    assert len(curtail_cluster.isr("replicas", 1) or ()) == 3
    with pytest.raises(ClusterError):
        curtail_cluster.create_topic("refused", no_such_setting=2)


async def test_killed_broker_restarts(curtail_cluster: Cluster, curtail_topic: str) -> None:
    leader = curtail_cluster.leader(curtail_topic, 0)
    assert leader is not None
    async with curtail.Producer(curtail_cluster.bootstrap_servers) as producer:
        curtail_cluster.kill(leader)
        written = await producer.send(curtail_topic, b"x")
        assert written.offset == 0
    await curtail_cluster.restart(leader)
    with pytest.raises(ClusterError, match="already running"):
        await curtail_cluster.restart(leader)


async def test_brokers_restart_in_turn_and_lose_nothing(
    curtail_cluster: Cluster, curtail_topic: str
) -> None:
    # The last broker to restart; leaderships that have moved away stay there.
    curtail_cluster.move_leader(curtail_topic, 0, 3)
    async with curtail.Producer(curtail_cluster.bootstrap_servers) as producer:
        sending = True

        async def send() -> int:
            sent = 0
            while sending:
                await producer.send(curtail_topic, b"%d" % sent)
                sent += 1
            return sent

        sends = asyncio.create_task(send())
        await curtail_cluster.roll()
        sending = False
        sent = await sends
    assert curtail_cluster.leader(curtail_topic, 0) != 3
    assert curtail_cluster.live_brokers == [1, 2, 3]
    assert len(curtail_cluster.isr(curtail_topic, 0) or ()) == 3
    servers = curtail_cluster.bootstrap_servers
    values: list[bytes | None] = []
    async with (
        curtail.Consumer(servers, curtail_topic, auto_offset_reset="earliest") as consumer,
        asyncio.timeout(60),
    ):
        while len(values) < sent:
            values += [record.value for record in await consumer.poll(10)]
    assert values == [b"%d" % number for number in range(sent)]


async def test_brokers_that_do_not_run_are_started_first(curtail_cluster: Cluster) -> None:
    curtail_cluster.kill(2)
    await curtail_cluster.roll()
    assert curtail_cluster.live_brokers == [1, 2, 3]


@pytest.mark.parametrize("security", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
async def test_secured_brokers_admit_their_users(
    security: Literal["SSL", "SASL_PLAINTEXT", "SASL_SSL"],
) -> None:
    users = {"alice": 'pass"word\\', "bob": "x"} if security.startswith("SASL") else None
    async with Cluster(1, security=security, users=users) as cluster:
        cluster.create_topic("t")
        for user in users or [None]:
            config = cluster.client_config(user)
            assert config["security.protocol"] == security
            async with curtail.Producer(config=config) as producer:
                await producer.send("t", b"x")
        if users:
            wrong = config | {"sasl.jaas.config": config["sasl.jaas.config"].replace("x", "y")}
            with pytest.raises(curtail.AuthenticationError):
                async with curtail.Producer(config=wrong) as producer:
                    await producer.connect()
        with pytest.raises(curtail.ConfigError, match="no user 'carol'"):
            cluster.client_config("carol")


def test_unknown_security_is_an_error() -> None:
    with pytest.raises(curtail.ConfigError, match="TLS"):
        Cluster(1, security="TLS").sync.start()  # type: ignore[arg-type]
    with pytest.raises(curtail.ConfigError, match="listeners"):
        Cluster(1, security="SSL", config={"listeners": "PLAINTEXT://localhost:0"})


def test_moved_leader_leads(curtail_cluster: Cluster, curtail_topic: str) -> None:
    leader = curtail_cluster.leader(curtail_topic, 0)
    other = next(broker for broker in curtail_cluster.broker_ids if broker != leader)
    curtail_cluster.move_leader(curtail_topic, 0, other)
    assert curtail_cluster.leader(curtail_topic, 0) == other


async def test_slow_broker_delays_acknowledgements(
    curtail_cluster: Cluster, curtail_topic: str
) -> None:
    async with curtail.Producer(curtail_cluster.bootstrap_servers) as producer:
        await producer.send(curtail_topic, b"x")
        loop = asyncio.get_running_loop()
        with curtail_cluster.slow(0.2):
            began = loop.time()
            await producer.send(curtail_topic, b"x")
            assert loop.time() - began >= 0.2


@pytest.mark.curtail(brokers=1, config={"num.partitions": 5})
def test_mark_selects_brokers_and_settings(curtail_cluster: Cluster) -> None:
    assert curtail_cluster.broker_ids == [1]
    curtail_cluster.create_topic("defaults", partitions=-1)
    assert curtail_cluster.leader("defaults", 4) == 1


def test_faults_end_after_each_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_1(curtail_cluster):
            curtail_cluster.kill(1)
            curtail_cluster.frozen(2).__enter__()

        def test_2(curtail_cluster):
            assert curtail_cluster.live_brokers == [1, 2, 3]
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=2)
