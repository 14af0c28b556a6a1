import asyncio
import dataclasses
import inspect
import itertools
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest
from eventloop import assert_loop_runs, watched_loop

import curtail_kafka as curtail
import curtail_kafka.admin
from curtail_kafka import TopicPartition
from curtail_kafka.admin import (
    AbortTransaction,
    Acl,
    AclFilter,
    ConfigChange,
    ConfigResource,
    FencedProducer,
    LogDirMove,
    NewPartitions,
    NewTopic,
    OffsetAndMetadata,
    QuotaEntity,
    QuotaMatch,
    ScramChange,
    ScramCredential,
)
from curtail_kafka.testing import Cluster

T = TypeVar("T")
RUST = Path(__file__).parents[3] / "crates" / "curtail" / "src" / "admin"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_names = itertools.count(1)


@pytest.fixture
def topic(curtail_cluster: Cluster) -> str:
    name = f"admin-{next(_names)}"
    curtail_cluster.create_topic(name, partitions=2)
    return name


async def until(ask: Callable[[], Awaitable[T]], holds: Callable[[T], bool]) -> T:
    """Brokers apply changes of the controller a moment later."""
    async with asyncio.timeout(20):
        while not holds(seen := await ask()):
            await asyncio.sleep(0.01)
    return seen


def error_of(result: object) -> curtail.Error:
    assert isinstance(result, curtail.Error)
    return result


def test_every_method_of_the_rust_client_exists() -> None:
    sources = "".join(path.read_text() for path in RUST.glob("*.rs"))
    rust = set(re.findall(r"^    pub fn (\w+)[^{]*-> Call<", sources, re.MULTILINE))
    assert len(rust) > 30
    members = inspect.getmembers(curtail.Admin, inspect.iscoroutinefunction)
    python = {name for name, _ in members if not name.startswith("_")}
    assert python - {"connect", "close"} == rust


def test_data_classes_have_the_fields_of_the_native_code() -> None:
    """Also of results that the embedded cluster never returns."""
    source = (Path(__file__).parents[1] / "src" / "admin" / "to_tree.rs").read_text()
    native = source[source.index("data_classes! {") :].partition("\n}\n")[0]
    classes = re.findall(r"(\w+) \{([\w\s]+)\}", native)
    assert len(classes) > 20
    for name, fields in classes:
        assert set(fields.split()) == {
            field.name for field in dataclasses.fields(getattr(curtail.admin, name))
        }, name


async def test_large_results_do_not_hold_the_event_loop(servers: str) -> None:
    async with curtail.Admin(servers) as admin:
        names = [f"unknown-{n}" for n in range(5_000)]
        asking = asyncio.create_task(admin.delete_topics(names))
        # The arguments are converted here.
        await asyncio.sleep(0)
        async with watched_loop() as gaps:
            results = await asking
        assert list(results) == names
        assert {type(one) for one in results.values()} == {curtail.UnknownTopicError}
        assert_loop_runs(gaps)


async def test_large_nested_results_do_not_hold_the_event_loop(
    curtail_cluster: Cluster, servers: str
) -> None:
    curtail_cluster.create_topic("wide", partitions=2_000)
    async with curtail.Admin(servers) as admin:
        asking = asyncio.create_task(admin.describe_topics(["wide"]))
        await asyncio.sleep(0)
        async with watched_loop() as gaps:
            results = await asking
        wide = results["wide"]
        assert not isinstance(wide, curtail.Error)
        assert [one.partition for one in wide.partitions] == list(range(2_000))
        assert_loop_runs(gaps)
        await admin.delete_topics(["wide"])


async def test_topics_are_created_described_and_deleted(servers: str) -> None:
    name = f"created-{next(_names)}"
    async with curtail.Admin(servers) as admin:
        new = NewTopic(name, partitions=2, configs={"retention.ms": 60_000})
        assert await admin.create_topics([new]) == {name: None}
        again = error_of((await admin.create_topics([new]))[name])
        assert again.code == 36 and not again.retriable

        async def described() -> Any:
            return (await admin.describe_topics([name]))[name]

        seen = await until(described, lambda topic: not isinstance(topic, curtail.Error))
        assert seen.name == name and isinstance(seen.id, UUID) and not seen.internal
        assert [one.partition for one in seen.partitions] == [0, 1]
        assert all(one.leader in one.isr and len(one.replicas) == 3 for one in seen.partitions)
        listed = {one.name: one.partitions for one in await admin.list_topics()}
        assert listed[name] == 2

        more = [NewPartitions(name, 3)]
        assert await admin.create_partitions(more, validate_only=True) == {name: None}
        assert await admin.create_partitions(more) == {name: None}
        await until(described, lambda topic: len(topic.partitions) == 3)
        fewer = (await admin.create_partitions([NewPartitions(name, 1)]))[name]
        assert error_of(fewer).code == 37

        absent = UUID(int=1)

        async def described_by_id() -> Any:
            return await admin.describe_topics_by_id([absent, seen.id])

        def is_known(all: Any) -> bool:
            return not isinstance(all[seen.id], curtail.Error)

        by_id = await until(described_by_id, is_known)
        assert list(by_id) == [absent, seen.id] and by_id[seen.id].name == name
        assert error_of(by_id[absent]).code == 100
        gone = await admin.delete_topics_by_id([seen.id, absent])
        assert gone[seen.id] is None and error_of(gone[absent]).code == 100
        with pytest.raises(TypeError, match="ids"):
            await admin.delete_topics_by_id([name])  # type: ignore[list-item]

        assert await admin.create_topics([new]) == {name: None}
        deleted = await admin.delete_topics([name, "no-such-topic"])
        assert deleted[name] is None
        assert isinstance(deleted["no-such-topic"], curtail.UnknownTopicError)


async def test_settings_are_changed(servers: str, topic: str) -> None:
    at = ConfigResource.topic(topic)
    async with curtail.Admin(servers) as admin:

        async def entries() -> dict[str, Any]:
            found = (await admin.describe_configs([at]))[at]
            assert not isinstance(found, curtail.Error)
            return {one.name: one for one in found}

        assert (await entries())["retention.ms"].source == "DEFAULT_CONFIG"
        changes = {at: [ConfigChange.set("retention.ms", 5_000)]}
        assert await admin.incremental_alter_configs(changes, validate_only=True) == {at: None}
        assert await admin.incremental_alter_configs(changes) == {at: None}
        set_to = await until(entries, lambda all: all["retention.ms"].value == "5000")
        assert set_to["retention.ms"].source == "DYNAMIC_TOPIC_CONFIG"
        changes = {at: [ConfigChange.delete("retention.ms")]}
        await admin.incremental_alter_configs(changes)
        await until(entries, lambda all: all["retention.ms"].value != "5000")
        bad = await admin.incremental_alter_configs({at: [ConfigChange.set("no.such", 1)]})
        assert error_of(bad[at]).code == 40
        broker = ConfigResource.broker(1)
        of_broker = await admin.describe_configs([broker, ConfigResource.all_brokers()])
        assert isinstance(of_broker[broker], list)


async def test_cluster_is_described(servers: str, topic: str) -> None:
    async with curtail.Admin(servers) as admin:
        cluster = await admin.describe_cluster()
        assert [broker.id for broker in cluster.brokers] == [1, 2, 3]
        assert cluster.brokers[0].port > 0 and cluster.cluster_id
        features = await admin.describe_features()
        lowest, highest = features.supported["transaction.version"]
        assert lowest <= features.finalized["transaction.version"] == 2 <= highest
        quorum = await admin.describe_metadata_quorum()
        assert [voter.id for voter in quorum.voters] == [1]
        with pytest.raises(curtail.Error, match=r"no\.such\.feature"):
            await admin.update_features({"no.such.feature": 1}, validate_only=True)
        await admin.update_features({"transaction.version": 2}, kind="upgrade")
        with pytest.raises(curtail.ConfigError, match="safe-downgrade"):
            await admin.update_features({"transaction.version": 2}, kind="down")  # type: ignore[arg-type]
        with pytest.raises(curtail.Error, match="77"):
            await admin.unregister_broker(77)
        assert ConfigResource.topic(topic) in await admin.list_config_resources(["topic"])
        dirs = await admin.describe_log_dirs([1, 2, 3, 9])
        assert isinstance(dirs[9], curtail.Error)
        first = dirs[1]
        assert not isinstance(first, curtail.Error) and first[0].error is None
        assert first[0].replicas[TopicPartition(topic, 0)].size == 0
        own = LogDirMove(1, TopicPartition(topic, 0), first[0].path)
        other = LogDirMove(1, TopicPartition(topic, 1), "/nowhere")
        moved = await admin.alter_replica_log_dirs([own, other])
        assert moved[own] is None and isinstance(moved[other], curtail.Error)


async def test_members_are_removed_and_producers_fenced(servers: str, topic: str) -> None:
    group = f"group-{next(_names)}"
    async with curtail.Admin(servers) as admin:
        async with curtail.Consumer(
            servers, topic, group_id=group, group_instance_id="pod-1"
        ) as consumer:
            while not consumer.assignment:
                await consumer.poll(0.1)
        removed = await admin.remove_group_members(
            group, instance_ids=["pod-1", "pod-2"], member_ids=["nobody"]
        )
        assert removed["pod-1"] is None
        assert error_of(removed["pod-2"]).code == error_of(removed["nobody"]).code == 25
        fenced = await admin.fence_producers([f"tx-{group}"])
        [first] = fenced.values()
        assert isinstance(first, FencedProducer) and first.producer_epoch == 0


async def test_groups_and_offsets_are_managed(servers: str, topic: str) -> None:
    group = f"group-{next(_names)}"
    at = TopicPartition(topic, 0)
    async with curtail.Admin(servers) as admin, curtail.Producer(servers) as producer:
        for n in range(4):
            await producer.send(topic, str(n), partition=0, timestamp=1_000 + n)
        latest = (await admin.list_offsets({at: "latest"}))[at]
        assert not isinstance(latest, curtail.Error) and latest.offset == 4
        by_time = (await admin.list_offsets({at: 1_002}, isolation_level="read_committed"))[at]
        assert not isinstance(by_time, curtail.Error)
        assert (by_time.offset, by_time.timestamp) == (2, 1_002)
        before: dict[TopicPartition, int] = {at: 1}
        assert await admin.delete_records(before) == {at: 1}
        earliest = (await admin.list_offsets({at: "earliest"}))[at]
        assert not isinstance(earliest, curtail.Error) and earliest.offset == 1

        altered: dict[TopicPartition, int | OffsetAndMetadata]
        altered = {at: OffsetAndMetadata(2, metadata="by hand"), TopicPartition(topic, 1): 0}
        assert set((await admin.alter_group_offsets(group, altered)).values()) == {None}
        offsets = (await admin.list_group_offsets([group]))[group]
        assert not isinstance(offsets, curtail.Error)
        assert (offsets[at].offset, offsets[at].metadata) == (2, "by hand")
        async with curtail.Consumer(servers, topic, group_id=group) as consumer:
            async with asyncio.timeout(20):
                while not consumer.assignment:
                    await consumer.poll(0.1)
            described = (await admin.describe_groups([group]))[group]
            assert not isinstance(described, curtail.Error)
            assert (described.state, described.kind) == ("Stable", "classic")
            [member] = described.members
            assert sorted(member.assignment) == [(topic, 0), (topic, 1)]
            assert error_of((await admin.delete_groups([group]))[group]).code == 68
        listed = await admin.list_groups()
        ids = [one.group_id for some in listed.values() if isinstance(some, list) for one in some]
        assert group in ids
        assert await admin.delete_group_offsets(group, [at]) == {at: None}
        assert await admin.delete_groups([group]) == {group: None}


async def test_replicas_and_leaders_are_moved(servers: str, topic: str) -> None:
    at = TopicPartition(topic, 0)
    async with curtail.Admin(servers) as admin:
        assert await admin.alter_partition_reassignments({at: [2, 1]}) == {at: None}
        await until(lambda: admin.list_partition_reassignments([at]), lambda moves: not moves)
        assert await admin.list_partition_reassignments() == {}

        async def replicas() -> list[int]:
            described = (await admin.describe_topics([topic]))[topic]
            assert not isinstance(described, curtail.Error)
            return described.partitions[0].replicas

        await until(replicas, lambda seen: seen == [2, 1])
        cancelled = await admin.alter_partition_reassignments({at: None})
        assert error_of(cancelled[at]).code == 85
        elected = await admin.elect_leaders("preferred", [at])
        assert elected[at] in ("now", "already")


async def test_transactions_are_described_and_aborted(servers: str, topic: str) -> None:
    name = f"tx-{next(_names)}"
    at = TopicPartition(topic, 0)
    async with (
        curtail.Admin(servers) as admin,
        curtail.TransactionalProducer(servers, transactional_id=name) as producer,
    ):
        with pytest.raises(curtail.Error):
            async with producer.transaction() as tx:
                await tx.send(topic, b"x", partition=0)
                described = (await admin.describe_transactions([name]))[name]
                assert not isinstance(described, curtail.Error)
                assert described.state == "Ongoing" and described.partitions == [at]
                assert described.timeout == 60.0
                listed = await admin.list_transactions(states=["Ongoing"])
                found = [one for some in listed.values() if isinstance(some, list) for one in some]
                assert name in [one.transactional_id for one in found]
                states = (await admin.describe_producers([at]))[at]
                assert not isinstance(states, curtail.Error)
                [open_one] = [one for one in states if one.transaction_start is not None]
                await admin.abort_transaction(AbortTransaction.of(at, open_one))
                states = (await admin.describe_producers([at]))[at]
                assert not isinstance(states, curtail.Error)
                assert states[0].transaction_start is None
                raise curtail.Error("ends the block")


@pytest.mark.curtail(
    brokers=1,
    config={"authorizer.class.name": AUTHORIZER, "allow.everyone.if.no.acl.found": True},
)
async def test_acls_are_created_and_deleted(servers: str) -> None:
    async with curtail.Admin(servers) as admin:
        read = Acl("topic", "ledger", "User:alice", "read")
        deny = Acl("group", "bill", "User:*", "delete", "deny", "prefixed", "127.0.0.1")
        bad = Acl("topic", "ledger", "nobody", "read")
        created = await admin.create_acls([read, deny, bad])
        assert created[read] is None and created[deny] is None
        assert error_of(created[bad]).code == 67
        await until(admin.describe_acls, lambda acls: set(acls) == {read, deny})
        of_alice = AclFilter(principal="User:alice")
        assert await admin.describe_acls(of_alice) == [read]
        filters = [of_alice, AclFilter.of(deny)]
        deleted = await admin.delete_acls(filters)
        assert deleted == {of_alice: {read: None}, AclFilter.of(deny): {deny: None}}
        await until(admin.describe_acls, lambda acls: not acls)


async def test_quotas_are_set(servers: str) -> None:
    async with curtail.Admin(servers) as admin:
        alice, others = QuotaEntity({"user": "alice"}), QuotaEntity({"user": None})
        changes = {alice: {"producer_byte_rate": 1000.0}, others: {"producer_byte_rate": 500.0}}
        assert set((await admin.alter_client_quotas(changes, validate_only=True)).values()) == {
            None
        }
        assert set((await admin.alter_client_quotas(changes)).values()) == {None}
        expected: Any = changes
        await until(admin.describe_client_quotas, lambda quotas: quotas == expected)
        default = await admin.describe_client_quotas({"user": QuotaMatch.DEFAULT}, strict=True)
        assert default == {others: {"producer_byte_rate": 500.0}}
        assert set(await admin.describe_client_quotas({"user": QuotaMatch.ANY})) == {alice, others}
        gone = {alice: {"producer_byte_rate": None}, others: {"producer_byte_rate": None}}
        await admin.alter_client_quotas(gone)
        await until(admin.describe_client_quotas, lambda quotas: not quotas)


async def test_passwords_are_set(servers: str) -> None:
    async with curtail.Admin(servers) as admin:
        change = ScramChange("alice", "SCRAM-SHA-256", "wonder", iterations=5_000, salt=b"salt")
        assert "wonder" not in repr(change)
        assert await admin.alter_user_scram_credentials([change]) == {"alice": None}
        expected: Any = {"alice": [ScramCredential("SCRAM-SHA-256", 5_000)]}
        await until(admin.describe_user_scram_credentials, lambda users: users == expected)
        gone = ScramChange("alice", "SCRAM-SHA-256", None)
        assert await admin.alter_user_scram_credentials([gone]) == {"alice": None}

        async def alice() -> Any:
            return (await admin.describe_user_scram_credentials(["alice"]))["alice"]

        await until(alice, lambda found: isinstance(found, curtail.Error))


async def test_wrong_arguments_raise_one_clear_error(servers: str, topic: str) -> None:
    at = (topic, 0)
    async with curtail.Admin(servers) as admin:
        wrong: list[tuple[type[Exception], str, Callable[[Any], Awaitable[object]]]] = [
            (TypeError, "iterable of str", lambda a: a.delete_topics(topic)),
            (TypeError, "NewTopic each, not str", lambda a: a.create_topics([topic])),
            (TypeError, "iterable of NewTopic", lambda a: a.create_topics(NewTopic(topic))),
            (TypeError, "AclFilter each", lambda a: a.describe_acls("alice")),
            (TypeError, "pairs such as", lambda a: a.describe_producers(topic)),
            (TypeError, "pairs such as", lambda a: a.delete_records({(topic,): 0})),
            (TypeError, "mapping of partitions", lambda a: a.delete_records([at])),
            (TypeError, "QuotaEntity", lambda a: a.alter_client_quotas({"alice": {}})),
            (TypeError, "must be a mapping", lambda a: a.alter_client_quotas([])),
            (
                TypeError,
                "changes of an entity must be a mapping",
                lambda a: a.alter_client_quotas({QuotaEntity({"user": "alice"}): ["x"]}),
            ),
            (TypeError, "must be a mapping", lambda a: a.describe_client_quotas(["user"])),
            (TypeError, "must be a mapping", lambda a: a.incremental_alter_configs([])),
            (
                TypeError,
                "ConfigResource keys, not tuple",
                lambda a: a.incremental_alter_configs({("topic", topic): []}),
            ),
            (
                TypeError,
                "configs must be a mapping, not NoneType",
                lambda a: a.create_topics([NewTopic("t", configs=None)]),  # type: ignore[arg-type]
            ),
            (curtail.ConfigError, "one of earliest", lambda a: a.list_offsets({at: "first"})),
            (curtail.ConfigError, "not be negative", lambda a: a.list_offsets({at: -1})),
            (curtail.ConfigError, "one of preferred", lambda a: a.elect_leaders("best", [at])),
            (
                curtail.ConfigError,
                "one of topic, broker",
                lambda a: a.describe_configs([ConfigResource("tropic", "x")]),  # type: ignore[arg-type]
            ),
            (
                curtail.ConfigError,
                "must be a number",
                lambda a: a.describe_configs([ConfigResource("broker", "one")]),
            ),
            (
                curtail.ConfigError,
                "set needs a value",
                lambda a: a.incremental_alter_configs(
                    {ConfigResource.topic(topic): [ConfigChange("set", "retention.ms")]}
                ),
            ),
            (
                curtail.ConfigError,
                "operation 'reed'",
                lambda a: a.create_acls([Acl("topic", "t", "User:a", "reed")]),  # type: ignore[arg-type]
            ),
            (
                curtail.ConfigError,
                "password is empty",
                lambda a: a.alter_user_scram_credentials([ScramChange("a", "SCRAM-SHA-256", "")]),
            ),
        ]
        for kind, text, call in wrong:
            with pytest.raises(kind, match=text) as raised:
                await call(admin)
            assert "\n" not in str(raised.value)
    with pytest.raises(curtail.ClosedError):
        await admin.list_topics()


async def test_unreachable_cluster_is_reported_at_once() -> None:
    async with asyncio.timeout(20):
        with pytest.raises(curtail.UnreachableError):
            async with curtail.Admin("127.0.0.1:9"):
                pytest.fail("connected")
    with pytest.raises(curtail.ConfigError, match="did you mean"):
        curtail.Admin("127.0.0.1:9", request_timeout_mss=1)  # type: ignore[call-arg]
