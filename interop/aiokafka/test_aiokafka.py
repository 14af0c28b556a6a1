"""aiokafka against a cluster of three brokers."""

import asyncio
import os
import re

import pytest
from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    IllegalOperation, MessageSizeTooLargeError, ProducerFenced, UnknownTopicOrPartitionError, for_code)
from aiokafka.structs import OffsetAndMetadata
from conftest import BROKERS, CONTROL, control, read, unique, until


def texts(first, end):
    return [b"value %d" % number for number in range(first, end)]


async def send(producer, topic, values, **options):
    """Appends all values before it waits for their acknowledgements."""
    sent = [await producer.send(topic, value, **options) for value in values]
    return await asyncio.gather(*sent)


async def configs(admin, resource):
    response, = await admin.describe_configs([resource])
    (code, message, *_, entries), = response.resources
    assert code == 0, message
    return {entry[0]: entry[1] for entry in entries}


async def test_describes_the_cluster(clients):
    admin = await clients.admin()
    cluster = await admin.describe_cluster()
    assert sorted(f"{broker['host']}:{broker['port']}" for broker in cluster["brokers"]) == sorted(BROKERS)
    assert cluster["controller_id"] in [broker["node_id"] for broker in cluster["brokers"]]
    assert re.fullmatch(r"[\w-]{22}", cluster["cluster_id"])


async def test_creates_lists_describes_and_deletes_topics(clients):
    admin = await clients.admin()
    topic = unique("topic")
    await admin.create_topics([NewTopic(topic, 3, 2)], validate_only=True)
    assert topic not in await admin.list_topics()
    response = await admin.create_topics([NewTopic(topic, 3, 2)])
    assert [error[:2] for error in response.topic_errors] == [(topic, 0)]
    response = await admin.create_topics([NewTopic(topic, 3, 2)])
    assert for_code(response.topic_errors[0][1]).__name__ == "TopicAlreadyExistsError"

    async def listed():
        return topic in await admin.list_topics()
    await until("topic listed", listed)
    described, = await admin.describe_topics([topic])
    assert described["topic"] == topic
    assert sorted(partition["partition"] for partition in described["partitions"]) == [0, 1, 2]
    for partition in described["partitions"]:
        assert len(partition["replicas"]) == 2
        assert sorted(partition["isr"]) == sorted(partition["replicas"])
        assert partition["leader"] in partition["replicas"]
    response = await admin.delete_topics([topic])
    assert list(response.topic_error_codes) == [(topic, 0)]

    async def gone():
        return topic not in await admin.list_topics()
    await until("topic no longer listed", gone)


@pytest.mark.parametrize("name, replicas, settings, error", [
    ("a/b", 1, {}, "InvalidTopicError"),
    (None, 9, {}, "InvalidReplicationFactorError"),
    (None, 1, {"retention.ms": "x"}, "InvalidConfigurationError"),
])
async def test_refuses_invalid_topics(clients, name, replicas, settings, error):
    admin = await clients.admin()
    response = await admin.create_topics([NewTopic(name or unique("topic"), 1, replicas, topic_configs=settings)])
    assert for_code(response.topic_errors[0][1]).__name__ == error


async def test_describes_and_alters_configs(clients):
    admin = await clients.admin()
    topic = await clients.topic(**{"retention.ms": "3600000"})
    before = await configs(admin, ConfigResource(ConfigResourceType.TOPIC, topic))
    assert before["retention.ms"] == "3600000"
    assert before["cleanup.policy"] == "delete"
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"cleanup.policy": "compact"})])

    # AlterConfigs replaces all settings of the topic.
    async def altered():
        after = await configs(admin, ConfigResource(ConfigResourceType.TOPIC, topic))
        return after["cleanup.policy"] == "compact" and after["retention.ms"] == "604800000"
    await until("altered config", altered)


async def test_describes_the_configs_of_a_broker(clients):
    admin = await clients.admin()
    broker = (await admin.describe_cluster())["brokers"][0]["node_id"]
    found = await configs(admin, ConfigResource(ConfigResourceType.BROKER, str(broker)))
    assert found["message.max.bytes"] == "1048588"


async def test_adds_partitions(clients):
    admin = await clients.admin()
    topic = await clients.topic()
    await admin.create_partitions({topic: NewPartitions(3)})

    async def added():
        described, = await admin.describe_topics([topic])
        return len(described["partitions"]) == 3
    await until("three partitions", added)


async def test_deletes_records(clients):
    topic = await clients.topic()
    await send(await clients.producer(acks="all"), topic, texts(0, 10))
    admin = await clients.admin()
    partition = TopicPartition(topic, 0)
    assert await admin.delete_records({partition: RecordsToDelete(4)}) == {partition: 4}
    consumer = await clients.reader(topic)
    assert await consumer.beginning_offsets([partition]) == {partition: 4}
    assert await clients.values(topic, 6) == texts(4, 10)


async def test_finds_offsets_by_timestamp(clients):
    topic = await clients.topic()
    producer = await clients.producer(acks="all")
    base = 1_700_000_000_000
    for number in range(5):
        await producer.send_and_wait(topic, b"x", timestamp_ms=base + number)
    consumer = await clients.reader(topic)
    partition = TopicPartition(topic, 0)
    found = await consumer.offsets_for_times({partition: base + 2})
    assert (found[partition].offset, found[partition].timestamp) == (2, base + 2)
    assert await consumer.offsets_for_times({partition: base + 9}) == {partition: None}
    assert await consumer.end_offsets([partition]) == {partition: 5}


async def test_lists_and_describes_groups_and_their_offsets(clients):
    topic, group = await clients.topic(), unique("group")
    await send(await clients.producer(), topic, texts(0, 5))
    consumer = await clients.consumer(topic, group_id=group)
    await read(consumer, 5)
    await consumer.commit()
    admin = await clients.admin()
    assert (group, "consumer") in [entry[:2] for entry in await admin.list_consumer_groups()]
    response, = await admin.describe_consumer_groups([group])
    (code, found, state, kind, protocol, members, *_), = response.groups
    assert (code, found, state, kind, protocol) == (0, group, "Stable", "consumer", "roundrobin")
    assert len(members) == 1
    assert await admin.find_coordinator(group) in [1, 2, 3]
    offsets = await admin.list_consumer_group_offsets(group)
    assert {partition: offset.offset for partition, offset in offsets.items()} == {TopicPartition(topic, 0): 5}


async def test_keeps_keys_values_headers_timestamps_and_order(clients):
    topic = await clients.topic()
    producer = await clients.producer()
    binary = os.urandom(100)
    sent = [
        {"key": b"key", "value": b"value", "headers": [("text", b"x"), ("text", binary)], "timestamp_ms": 1_700_000_000_000},
        {"key": None, "value": binary, "headers": [], "timestamp_ms": 1_600_000_000_000},
        {"key": b"tombstone", "value": None, "headers": [], "timestamp_ms": 1_700_000_000_001},
        {"key": binary, "value": b"", "headers": [], "timestamp_ms": 1_700_000_000_002},
    ]
    pending = [await producer.send(topic, **record) for record in sent]
    metadata = await asyncio.gather(*pending)
    assert [one.offset for one in metadata] == [0, 1, 2, 3]
    found = await clients.records(topic, 4)
    assert [record.offset for record in found] == [0, 1, 2, 3]
    assert [{"key": record.key, "value": record.value, "headers": list(record.headers), "timestamp_ms": record.timestamp}
            for record in found] == sent


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_sends_with_acks(clients, acks):
    topic = await clients.topic()
    await send(await clients.producer(acks=acks), topic, texts(0, 50))
    assert await clients.values(topic, 50) == texts(0, 50)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_compresses(clients, codec):
    topic = await clients.topic()
    await send(await clients.producer(compression_type=codec), topic, texts(0, 1000))
    assert await clients.values(topic, 1000) == texts(0, 1000)


async def test_sends_a_batch(clients):
    topic = await clients.topic(2)
    producer = await clients.producer()
    batch = producer.create_batch()
    for value in texts(0, 10):
        batch.append(key=None, value=value, timestamp=None)
    metadata = await (await producer.send_batch(batch, topic, partition=1))
    assert (metadata.partition, metadata.offset) == (1, 0)
    assert await clients.values(topic, 10, partitions=2) == texts(0, 10)


async def test_sends_to_several_topics(clients):
    topics = [await clients.topic(3) for _ in range(3)]
    producer = await clients.producer()
    pending = [await producer.send(topic, b"%d" % number, key=b"%d" % number) for topic in topics for number in range(30)]
    await asyncio.gather(*pending)
    for topic in topics:
        found = await clients.values(topic, 30, partitions=3)
        assert sorted(map(int, found)) == list(range(30))


async def test_sends_as_an_idempotent_producer(clients):
    topic = await clients.topic(3)
    producer = await clients.producer(enable_idempotence=True)
    pending = [await producer.send(topic, b"%d" % number, key=b"%d" % (number % 7)) for number in range(700)]
    await asyncio.gather(*pending)
    found = await clients.records(topic, 700, partitions=3)
    for key in range(7):
        values = [int(record.value) for record in found if record.key == b"%d" % key]
        assert values == list(range(key, 700, 7))


async def test_sends_a_record_near_the_maximum_size_and_is_refused_a_larger_one(clients):
    topic = await clients.topic()
    value = os.urandom(1_048_000)
    producer = await clients.producer(max_request_size=2_000_000)
    await producer.send_and_wait(topic, value)
    with pytest.raises(MessageSizeTooLargeError):
        await producer.send_and_wait(topic, os.urandom(1_100_000))
    assert await clients.values(topic, 1) == [value]


async def test_creates_a_topic_by_sending(clients):
    topic = unique("topic")
    await send(await clients.producer(), topic, texts(0, 3))
    assert await clients.values(topic, 3) == texts(0, 3)


class Assigned(ConsumerRebalanceListener):
    """The partitions that a consumer has been assigned."""

    def __init__(self):
        self.partitions = set()

    async def on_partitions_revoked(self, revoked):
        self.partitions = set()

    async def on_partitions_assigned(self, assigned):
        self.partitions = {partition.partition for partition in assigned}


async def test_rebalances_when_a_member_joins_and_when_it_leaves(clients):
    topic, group = await clients.topic(4), unique("group")
    producer = await clients.producer()
    received = []

    async def member():
        consumer, assigned, mine = await clients.consumer(group_id=group), Assigned(), []
        consumer.subscribe([topic], listener=assigned)

        async def run():
            async for record in consumer:
                mine.append(record)
        task = asyncio.create_task(run())
        clients.stack.callback(task.cancel)
        received.append(mine)
        return consumer, assigned

    async def count(*expected):
        async def counted():
            return tuple(map(len, received)) == expected
        await until(f"{expected} records", counted)

    first, of_first = await member()

    async def all_of_first():
        return of_first.partitions == {0, 1, 2, 3}
    await until("all partitions", all_of_first)
    second, of_second = await member()

    async def two_each():
        return len(of_first.partitions) == len(of_second.partitions) == 2
    await until("two partitions each", two_each)
    assert of_first.partitions | of_second.partitions == {0, 1, 2, 3}
    for partition in range(4):
        await producer.send_and_wait(topic, b"a", partition=partition)
    await count(2, 2)
    await second.stop()
    await until("all partitions again", all_of_first)
    for partition in range(4):
        await producer.send_and_wait(topic, b"b", partition=partition)
    await count(6, 2)


async def test_resumes_after_its_committed_offsets(clients):
    topic, group = await clients.topic(), unique("group")
    await send(await clients.producer(), topic, texts(0, 10))
    partition = TopicPartition(topic, 0)
    first = await clients.consumer(topic, group_id=group, enable_auto_commit=False)
    await read(first, 10)
    assert await first.committed(partition) is None
    await first.commit({partition: OffsetAndMetadata(6, "of a test")})
    assert await first.committed(partition) == 6
    await first.stop()
    second = await clients.consumer(topic, group_id=group)
    assert [record.value for record in await read(second, 4)] == texts(6, 10)
    # An automatic commit when it stops.
    await second.stop()
    third = await clients.consumer(topic, group_id=group)
    assert await third.committed(partition) == 10


async def test_subscribes_by_a_pattern(clients):
    topics = [await clients.topic() for _ in range(2)]
    producer = await clients.producer()
    for topic in topics:
        await producer.send_and_wait(topic, b"x")
    consumer = await clients.consumer(group_id=unique("group"))
    consumer.subscribe(pattern=f"^({'|'.join(topics)})$")
    assert {record.topic for record in await read(consumer, 2)} == set(topics)


async def test_seeks(clients):
    topic = await clients.topic()
    await send(await clients.producer(), topic, texts(0, 10))
    consumer = await clients.reader(topic)
    partition = TopicPartition(topic, 0)
    await read(consumer, 10)
    consumer.seek(partition, 7)
    assert [record.offset for record in await read(consumer, 3)] == [7, 8, 9]
    await consumer.seek_to_beginning(partition)
    assert (await consumer.getone()).offset == 0
    await consumer.seek_to_end(partition)
    assert await consumer.position(partition) == 10


async def test_an_offset_out_of_range_is_reset(clients):
    topic = await clients.topic()
    await send(await clients.producer(acks="all"), topic, texts(0, 3))
    consumer = await clients.reader(topic)
    consumer.seek(TopicPartition(topic, 0), 1000)
    assert [record.offset for record in await read(consumer, 3)] == [0, 1, 2]


async def test_pauses_and_resumes_a_partition(clients):
    topic = await clients.topic(2)
    producer = await clients.producer()
    consumer = await clients.reader(topic, 2)

    async def send_to_both(value):
        for partition in range(2):
            await producer.send_and_wait(topic, value, partition=partition)
    await send_to_both(b"a")
    await read(consumer, 2)
    consumer.pause(TopicPartition(topic, 0))
    await send_to_both(b"b")
    await send_to_both(b"c")
    assert [(record.partition, record.value) for record in await read(consumer, 2)] == [(1, b"b"), (1, b"c")]
    consumer.resume(TopicPartition(topic, 0))
    assert [(record.partition, record.value) for record in await read(consumer, 2)] == [(0, b"b"), (0, b"c")]


async def test_fails_for_a_commit_without_a_group(clients):
    topic = await clients.topic()
    consumer = await clients.reader(topic)
    assert await consumer.position(TopicPartition(topic, 0)) == 0
    with pytest.raises(IllegalOperation):
        await consumer.commit()


async def test_describes_an_unknown_topic_as_unknown(clients):
    admin = await clients.admin()
    described, = await admin.describe_topics([unique("topic")])
    assert for_code(described["error_code"]) is UnknownTopicOrPartitionError


async def test_a_transaction_commits_and_aborts(clients):
    topics = [await clients.topic() for _ in range(2)]
    producer = await clients.producer(transactional_id=unique("id"))
    for value, commits in ((b"a", True), (b"b", False), (b"c", True)):
        await producer.begin_transaction()
        for topic in topics:
            await producer.send_and_wait(topic, value)
        await (producer.commit_transaction() if commits else producer.abort_transaction())
    for topic in topics:
        assert await clients.values(topic, 2, isolation_level="read_committed") == [b"a", b"c"]
        assert await clients.values(topic, 3) == [b"a", b"b", b"c"]


async def test_read_committed_hides_an_open_transaction(clients):
    topic = await clients.topic()
    producer = await clients.producer(transactional_id=unique("id"))
    committed = await clients.reader(topic, isolation_level="read_committed")
    await producer.begin_transaction()
    await send(producer, topic, texts(0, 5))
    assert await clients.values(topic, 5) == texts(0, 5)
    assert await committed.getmany(timeout_ms=200) == {}
    await producer.commit_transaction()
    assert [record.value for record in await read(committed, 5)] == texts(0, 5)


async def test_a_transaction_commits_offsets(clients):
    topic, group = await clients.topic(), unique("group")
    producer = await clients.producer(transactional_id=unique("id"))
    consumer = await clients.consumer(topic, group_id=group, enable_auto_commit=False)
    partition = TopicPartition(topic, 0)
    for offset, commits in ((5, True), (8, False), (9, True)):
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({partition: offset}, group)
        await producer.send(topic, b"x")
        await (producer.commit_transaction() if commits else producer.abort_transaction())
        if commits:
            async def is_committed(offset=offset):
                return await consumer.committed(partition) == offset
            await until("committed offset", is_committed)


async def test_the_previous_producer_of_a_transactional_id_is_fenced(clients):
    topic, identity = await clients.topic(), unique("id")
    first = await clients.producer(transactional_id=identity)
    await first.begin_transaction()
    await first.send_and_wait(topic, b"fenced")
    second = await clients.producer(transactional_id=identity)
    with pytest.raises(ProducerFenced):
        await first.send_and_wait(topic, b"fenced")
    async with second.transaction():
        await second.send_and_wait(topic, b"kept")
    assert await clients.values(topic, 1, isolation_level="read_committed") == [b"kept"]


@pytest.mark.skipif(CONTROL is None, reason="only the embedded cluster has a control endpoint")
async def test_a_broker_is_killed_while_records_are_sent_and_read(clients):
    topic = await clients.topic(3)
    producer = await clients.producer(acks="all")
    consumer = await clients.consumer(topic, group_id=unique("group"))
    admin = await clients.admin()
    sent, received = 0, set()

    async def run():
        async for record in consumer:
            received.add(record.value)
    task = asyncio.create_task(run())
    clients.stack.callback(task.cancel)

    async def send_to_all():
        nonlocal sent
        pending = [await producer.send(topic, b"%d" % (sent + partition), partition=partition) for partition in range(3)]
        await asyncio.gather(*pending)
        sent += 3

    async def all_received():
        return len(received) == sent
    await send_to_all()
    await until("first records", all_received)
    described, = await admin.describe_topics([topic])
    leader = described["partitions"][0]["leader"]
    await control("POST", f"/v1/brokers/{leader}/kill")
    try:
        for _ in range(100):
            await send_to_all()
        await until("all records with a broker down", all_received)
    finally:
        await control("POST", f"/v1/brokers/{leader}/restart")
    for _ in range(100):
        await send_to_all()
    await until("all records with the broker back", all_received)
