import re
from pathlib import Path
from typing import Any, get_type_hints
from uuid import UUID

import pytest

import curtail_kafka as curtail
from curtail_kafka import metrics, sync
from curtail_kafka.testing import Cluster

RUST = Path(__file__).parents[3] / "crates" / "curtail" / "src" / "metrics"
CLASSES = ["ProducerMetrics", "BrokerMetrics", "ConsumerMetrics", "FetchMetrics", "GroupMetrics"]


@pytest.mark.parametrize("name", CLASSES)
def test_dictionaries_have_the_fields_of_the_rust_client(name: str) -> None:
    source = "".join(path.read_text() for path in RUST.glob("*.rs"))
    body = re.search(rf"^pub struct {name} \{{(.*?)^\}}", source, re.MULTILINE | re.DOTALL)
    assert body
    fields = set(re.findall(r"^    pub (\w+):", body[1], re.MULTILINE)) - {"taken"}
    names = set(getattr(metrics, name).__annotations__) - {"all_brokers"}
    assert names == fields


def assert_shape(value: Any, expected: Any) -> None:
    """The dictionary has exactly the keys of its type, also those inside."""
    assert set(value) == set(expected.__annotations__)
    for name, kind in get_type_hints(expected).items():
        if hasattr(kind, "__annotations__") and isinstance(value[name], dict):
            assert_shape(value[name], kind)
        elif isinstance(kind, type):
            assert isinstance(value[name], kind), name


async def test_metrics_of_producer_and_consumer(servers: str, curtail_topic: str) -> None:
    async with curtail.Producer(servers, client_id="measured") as producer:
        for _ in range(5):
            await producer.send(curtail_topic, bytes(100))
        of_producer = producer.metrics()
        assert_shape(of_producer, metrics.ProducerMetrics)
        assert of_producer["client_id"] == "measured"
        [broker] = of_producer["brokers"].values()
        assert_shape(broker, metrics.BrokerMetrics)
        assert broker["record_send_total"] == 5
        assert of_producer["all_brokers"]["delivery_time"]["count"] == 5
        times = broker["delivery_time"]
        assert 0 < times["p50"] <= times["p99"] <= times["p999"] <= times["p9999"] < 20
        assert broker["batch_size"]["max"] > 100
        text = producer.prometheus()
        assert re.search(r'^curtail_producer\w*\{.*client_id="measured".*\} 5$', text, re.MULTILINE)
    settings: dict[str, Any] = {"auto_offset_reset": "earliest", "group_id": f"g-{curtail_topic}"}
    async with curtail.Consumer(servers, curtail_topic, **settings) as consumer:
        read = 0
        while read < 5:
            read += len(await consumer.poll())
        of_consumer = consumer.metrics()
        assert_shape(of_consumer, metrics.ConsumerMetrics)
        assert of_consumer["records_consumed_total"] == 5
        assert of_consumer["partitions"][(curtail_topic, 0)]["lag"] == 0  # type: ignore[index]
        assert of_consumer["all_brokers"]["fetch_total"] > 0
        assert of_consumer["group"] is not None
        assert_shape(of_consumer["group"], metrics.GroupMetrics)
        assert of_consumer["group"]["rebalance_latency"]["count"] == 1
        assert re.search(r"^curtail_consumer\w*\{.*\} 5$", consumer.prometheus(), re.MULTILINE)
    with pytest.raises(curtail.ClosedError):
        consumer.metrics()
    # A producer's last values can be read after its close.
    assert producer.metrics()["all_brokers"]["record_send_total"] == 5


async def test_metrics_of_a_transactional_producer(servers: str, curtail_topic: str) -> None:
    async with curtail.TransactionalProducer(servers, transactional_id=curtail_topic) as producer:
        async with producer.transaction() as tx:
            await tx.send(curtail_topic, b"x")
            # While a transaction is open.
            assert producer.metrics()["all_brokers"]["record_send_total"] == 1
            assert "curtail_producer" in producer.prometheus()
    with pytest.raises(curtail.ClosedError):
        producer.metrics()


async def test_clients_have_an_id_for_their_metrics(curtail_cluster: Cluster) -> None:
    servers = curtail_cluster.bootstrap_servers
    with curtail_cluster.receiving_metrics():
        async with (
            curtail.Producer(servers) as producer,
            curtail.TransactionalProducer(servers, transactional_id="measured") as transactional,
            curtail.Consumer(servers) as consumer,
            curtail.Admin(servers, enable_metrics_push=True) as admin,
        ):
            ids = set()
            for client in (producer, transactional, consumer, admin):
                assigned = await client.client_instance_id(20)
                assert isinstance(assigned, UUID) and assigned.int
                assert await client.client_instance_id(0) == assigned
                ids.add(assigned)
            assert len(ids) == 4


async def test_clients_have_no_id_without_a_receiver_of_metrics(servers: str) -> None:
    async with (
        curtail.Producer(servers) as producer,
        curtail.Consumer(servers) as consumer,
        curtail.Admin(servers, enable_metrics_push=True) as admin,
        curtail.Admin(servers) as off,
    ):
        for client in (producer, consumer):
            with pytest.raises(curtail.TimeoutError):
                await client.client_instance_id(0.1)
        with pytest.raises(curtail.UnsupportedVersionError):
            await admin.client_instance_id(20)
        with pytest.raises(curtail.IllegalStateError):
            await off.client_instance_id(20)


def test_threads_have_the_call(curtail_cluster: Cluster) -> None:
    servers = curtail_cluster.bootstrap_servers
    with curtail_cluster.receiving_metrics(), sync.Producer(servers) as producer:
        assert producer.client_instance_id(20).int
        with pytest.raises(ValueError, match="timeout must be seconds"):
            producer.client_instance_id(-1)
