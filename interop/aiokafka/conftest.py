"""Runs coroutine tests, and gives each its clients, with aiokafka's default settings. They stop when the test ends."""

import asyncio
import contextlib
import json
import os
import urllib.request
import uuid

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

BROKERS = os.environ["INTEROP_BOOTSTRAP"].split(",")
# URL of the control endpoint of the embedded cluster. Other clusters, such as Apache Kafka, have none.
CONTROL = os.environ.get("INTEROP_CONTROL")
LIMIT = 120


def unique(what):
    """A name for a topic, group or transactional id that no other test has."""
    return f"{what}-{uuid.uuid4()}"


async def until(what, condition, limit=60):
    """Polls until the coroutine function `condition` returns a true value, and returns it."""
    end = asyncio.get_running_loop().time() + limit
    while not (value := await condition()):
        assert asyncio.get_running_loop().time() < end, f"{what}: not within {limit} s"
        await asyncio.sleep(0.02)
    return value


async def control(method, path):
    def ask():
        with urllib.request.urlopen(urllib.request.Request(CONTROL + path, method=method), timeout=60) as response:
            return json.load(response)
    return await asyncio.to_thread(ask)


class Clients:
    def __init__(self):
        self.stack = contextlib.AsyncExitStack()

    async def started(self, client, stop):
        await client.start()
        self.stack.push_async_callback(stop)
        return client

    async def admin(self, brokers=BROKERS):
        admin = AIOKafkaAdminClient(bootstrap_servers=brokers)
        return await self.started(admin, admin.close)

    async def producer(self, **settings):
        producer = AIOKafkaProducer(bootstrap_servers=BROKERS, **settings)
        return await self.started(producer, producer.stop)

    async def consumer(self, *topics, **settings):
        consumer = AIOKafkaConsumer(*topics, bootstrap_servers=BROKERS, auto_offset_reset="earliest", **settings)
        return await self.started(consumer, consumer.stop)

    async def topic(self, partitions=1, **configs):
        """A topic of a new name, once each broker has it in its metadata."""
        topic = unique("topic")
        admin = await self.admin()
        await admin.create_topics([NewTopic(topic, partitions, 3, topic_configs=configs)])
        for broker in BROKERS:
            one = await self.admin(broker)

            async def described(one=one):
                found, = await one.describe_topics([topic])
                return found["error_code"] == 0 and len(found["partitions"]) == partitions
            await until("topic in metadata", described)
        return topic

    async def reader(self, topic, partitions=1, **settings):
        """A consumer without a group, of all partitions of a topic."""
        consumer = await self.consumer(**settings)
        consumer.assign([TopicPartition(topic, partition) for partition in range(partitions)])
        return consumer

    async def records(self, topic, count, partitions=1, **settings):
        """The first `count` records of a topic, as a consumer without a group reads them."""
        consumer = await self.reader(topic, partitions, **settings)
        return await read(consumer, count)

    async def values(self, topic, count, **settings):
        return [record.value for record in await self.records(topic, count, **settings)]


async def read(consumer, count):
    return [await asyncio.wait_for(consumer.getone(), 60) for _ in range(count)]


@pytest.fixture
def clients():
    return Clients()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

    async def test():
        async with asyncio.timeout(LIMIT), arguments["clients"].stack:
            await pyfuncitem.obj(**arguments)
    asyncio.run(test())
    return True
