"""Tokens of SASL/OAUTHBEARER. The embedded cluster accepts unsecured ones, for tests."""

import asyncio
import base64
import contextlib
import gc
import json
import subprocess
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from test_process import run

import curtail_kafka as curtail
from curtail_kafka import Setting, Token, sync
from curtail_kafka.testing import Cluster

BEARER = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
}
PLAINTEXT = {"security.protocol": "SASL_PLAINTEXT"}
pytestmark = pytest.mark.curtail(brokers=1, config=BEARER)


def unsecured(lifetime: float = 3600.0, user: str = "alice") -> str:
    """A JWT without a signature."""

    def part(content: object) -> str:
        text = json.dumps(content).encode()
        return base64.urlsafe_b64encode(text).decode().rstrip("=")

    claims = {"sub": user, "iat": time.time() - 1, "exp": time.time() + lifetime}
    return f"{part({'alg': 'none'})}.{part(claims)}."


class Tokens:
    """Counts the calls of a function for tokens."""

    def __init__(self, lifetime: float = 3600.0) -> None:
        self.lifetime = lifetime
        self.calls = 0
        self.threads: set[str] = set()
        self.loops: set[object] = set()

    async def __call__(self) -> str:
        self.loops.add(asyncio.get_running_loop())
        return self.plain()

    def plain(self) -> str:
        self.calls += 1
        self.threads.add(threading.current_thread().name)
        return unsecured(self.lifetime)


async def test_every_client_logs_in_with_tokens(servers: str, curtail_topic: str) -> None:
    tokens = Tokens()
    async with curtail.Producer(servers, oauth_token=tokens, config=PLAINTEXT) as producer:
        assert (await producer.send(curtail_topic, b"1")).offset == 0
    async with curtail.TransactionalProducer(
        servers, oauth_token=tokens, config=PLAINTEXT, transactional_id=curtail_topic
    ) as transactional:
        async with transactional.transaction() as tx:
            tx.send(curtail_topic, b"2")
    async with curtail.Consumer(
        servers, curtail_topic, oauth_token=tokens, config=PLAINTEXT, auto_offset_reset="earliest"
    ) as consumer:
        found: list[bytes | None] = []
        while len(found) < 2:
            found += [record.value for record in await consumer.poll()]
        assert found == [b"1", b"2"]
    async with curtail.Admin(servers, oauth_token=tokens, config=PLAINTEXT) as admin:
        assert curtail_topic in {topic.name for topic in await admin.list_topics()}
    assert tokens.loops == {asyncio.get_running_loop()}
    # Connections of a client share a token until it is due for renewal.
    assert tokens.calls == 4


async def test_plain_function_runs_on_a_separate_thread(servers: str, curtail_topic: str) -> None:
    tokens = Tokens()
    async with curtail.Producer(servers, oauth_token=tokens.plain, config=PLAINTEXT) as producer:
        await producer.send(curtail_topic, b"x")
    assert tokens.threads == {"curtail-oauth-token"}


def test_threads_take_both_kinds_of_functions(servers: str, curtail_topic: str) -> None:
    tokens = Tokens()
    for function in (tokens, tokens.plain):
        with sync.Producer(servers, oauth_token=function, config=PLAINTEXT) as producer:
            producer.send(curtail_topic, b"x").result(30)
    with sync.Consumer(
        servers,
        curtail_topic,
        oauth_token=tokens.plain,
        config=PLAINTEXT,
        auto_offset_reset="earliest",
    ) as consumer:
        assert next(iter(consumer)).value == b"x"
    assert tokens.threads == {"curtail-oauth-token"}


def test_function_for_threads_may_use_another_client(servers: str, curtail_topic: str) -> None:
    with sync.Producer(servers, oauth_token=unsecured, config=PLAINTEXT) as other:

        def token() -> str:
            other.send(curtail_topic, b"asked").result(30)
            return unsecured()

        with sync.Producer(servers, oauth_token=token, config=PLAINTEXT) as producer:
            assert producer.send(curtail_topic, b"x").result(30).offset == 1


async def test_token_is_renewed_before_its_session_ends(servers: str, curtail_topic: str) -> None:
    tokens = Tokens(lifetime=1.5)
    async with curtail.Producer(servers, oauth_token=tokens, config=PLAINTEXT) as producer:
        await producer.send(curtail_topic, b"0")
        before = producer.metrics()["all_brokers"]
        sent = 1
        while tokens.calls < 3:
            await producer.send(curtail_topic, str(sent))
            sent += 1
            await asyncio.sleep(0.02)
        measured = producer.metrics()["all_brokers"]
        assert measured["connection_creation_total"] == before["connection_creation_total"]
        assert measured["record_retry_total"] == before["record_retry_total"]


@pytest.mark.curtail(brokers=1, config={**BEARER, "connections.max.reauth.ms": 2000})
async def test_failed_renewal_keeps_the_current_token(
    servers: str, curtail_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    calls = 0

    async def token() -> str:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError("the provider is down")
        return unsecured(8.0)

    # Due after 4 s. Of the sessions, which last 2 s, the third or fourth needs the second call.
    config = {**PLAINTEXT, "sasl.login.refresh.window.factor": "0.5"}
    async with curtail.Producer(servers, oauth_token=token, config=config) as producer:
        # A broker that has not applied the new topic yet refuses the first record.
        await producer.send(curtail_topic, b"x")
        before = producer.metrics()["all_brokers"]
        while calls < 3:
            await producer.send(curtail_topic, b"x")
            await asyncio.sleep(0.02)
        after = producer.metrics()["all_brokers"]
        assert after["connection_creation_total"] == before["connection_creation_total"]
        assert after["record_retry_total"] == before["record_retry_total"]
    assert "oauth_token has raised OSError: the provider is down" in caplog.text


async def test_refused_token_is_an_authentication_error(servers: str, curtail_topic: str) -> None:
    for token in (lambda: "no.token.", lambda: Token("text", time.time() + 60)):
        producer = curtail.Producer(servers, oauth_token=token, config=PLAINTEXT)
        with pytest.raises(curtail.AuthenticationError, match="invalid_token"):
            await producer.connect()
        with pytest.raises(curtail.NotAcknowledgedError) as caught:
            await producer.send(curtail_topic, b"x")
        assert isinstance(caught.value.__cause__, curtail.AuthenticationError)
        await producer.close()


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_broker_is_not_blamed_for_a_missing_token(tmp_path: Path, protocol: str) -> None:
    def token() -> str:
        raise LookupError("no key")

    listeners = {**BEARER, "listeners": f"{protocol}://127.0.0.1:0"}
    with Cluster(1, config=listeners, data=tmp_path) as cluster:
        config = {"security.protocol": protocol}
        if protocol == "SASL_SSL":
            config["ssl.truststore.location"] = str(next(tmp_path.rglob("ca.pem")))
        began = time.monotonic()
        with pytest.raises(curtail.TokenError) as caught:
            sync.Consumer(cluster.bootstrap_servers, oauth_token=token, config=config).connect()
        # Without a wait for the broker, which sends nothing.
        assert time.monotonic() - began < 8
        assert str(caught.value).endswith("has raised LookupError: no key")


async def test_exception_of_the_function_is_the_cause(servers: str, curtail_topic: str) -> None:
    raised = ValueError("no\nkey")

    async def token() -> str:
        raise raised

    producer = curtail.Producer(servers, oauth_token=token, config=PLAINTEXT, max_block_ms=500)
    with pytest.raises(curtail.TokenError) as caught:
        await producer.connect()
    assert caught.value.__cause__ is raised
    assert "oauth_token has raised ValueError: no key" in str(caught.value)
    assert caught.value.retriable
    # A send tries for `max.block.ms`, as while brokers are down.
    with pytest.raises(curtail.Error) as late:
        await producer.send(curtail_topic, b"x")
    chain: list[BaseException] = [late.value]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    assert isinstance(chain[-2], curtail.TokenError)
    assert chain[-1] is raised
    await producer.close()
    admin = curtail.Admin(
        servers,
        oauth_token=token,
        config=PLAINTEXT,
        default_api_timeout_ms=400,
        request_timeout_ms=300,
    )
    with pytest.raises(curtail.Error):
        await admin.list_topics()
    await admin.close()


def test_exception_reaches_a_thread(servers: str) -> None:
    def token() -> str:
        raise LookupError("no key")

    with pytest.raises(curtail.TokenError) as caught:
        sync.Consumer(servers, oauth_token=token, config=PLAINTEXT).connect()
    assert isinstance(caught.value.__cause__, LookupError)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (None, "must return a curtail_kafka.Token or a str, not NoneType"),
        (("token", 3600), "must return a curtail_kafka.Token or a str, not tuple"),
        (Token("token", 3600.0), "the token has expired: expires_at=3600"),
        (Token("token", float("nan")), "the token has expired"),
    ],
)
async def test_wrong_result_names_the_right_one(servers: str, found: object, text: str) -> None:
    async def token() -> object:
        return found

    producer = curtail.Producer(servers, oauth_token=token, config=PLAINTEXT)  # type: ignore[arg-type]
    with pytest.raises(curtail.TokenError) as caught:
        await producer.connect()
    assert text in str(caught.value)
    await producer.close()


async def test_coroutine_of_a_plain_function_is_refused(servers: str) -> None:
    tokens = Tokens()
    producer = curtail.Producer(servers, oauth_token=lambda: tokens(), config=PLAINTEXT)
    with pytest.raises(curtail.TokenError, match="async def"):
        await producer.connect()
    await producer.close()


async def test_function_that_hangs_ends_at_a_limit(servers: str) -> None:
    ends = threading.Event()
    cancelled = asyncio.Event()

    async def never() -> str:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return ""

    def blocks() -> str:
        ends.wait()
        return unsecured()

    short: dict[str, Setting] = {**PLAINTEXT, "socket.connection.setup.timeout.ms": 500}
    producer = curtail.Producer(servers, oauth_token=never, config=short)
    with pytest.raises(curtail.TokenError, match=r"has not returned within (0\.4 s|400ms)"):
        await producer.connect()
    await asyncio.wait_for(cancelled.wait(), 10)
    await producer.close()

    producer = curtail.Producer(servers, oauth_token=blocks, config=short)
    with pytest.raises(curtail.TokenError, match="has not returned within 400ms"):
        await producer.connect()
    threads = [one for one in threading.enumerate() if one.name == "curtail-oauth-token"]
    # A second attempt waits for the same call.
    with pytest.raises(curtail.TokenError):
        await producer.connect()
    assert [one for one in threading.enumerate() if one.name == "curtail-oauth-token"] == threads
    ends.set()
    # On a busy machine, an attempt may exceed the short limit.
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(curtail.Error):
                await producer.connect()
                break
    await producer.close()


def test_closed_event_loop_is_replaced_by_the_next(servers: str, curtail_topic: str) -> None:
    tokens = Tokens(lifetime=2.0)
    producer = curtail.Producer(servers, oauth_token=tokens, config=PLAINTEXT)

    async def send() -> int | None:
        return (await producer.send(curtail_topic, b"x")).offset

    assert asyncio.run(send()) == 0
    # The session ends in this time, and nothing can renew it.
    time.sleep(2.5)
    assert asyncio.run(send()) == 1
    asyncio.run(producer.close())
    assert len(tokens.loops) == 2


async def test_dropped_scan_keeps_its_function_while_it_is_read(
    servers: str, curtail_topic: str
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    tokens = Tokens()
    async with curtail.Producer(servers, oauth_token=tokens, config=PLAINTEXT) as producer:
        await producer.send_many(curtail_topic, [curtail.NewRecord(b"x")] * 10)

    def read(is_async: bool) -> tuple[int, weakref.ref[Tokens]]:
        own = Tokens()
        function = own if is_async else own.plain
        stream = curtail.scan(servers, curtail_topic, oauth_token=function, config=PLAINTEXT)
        gone = weakref.ref(own)
        reader = pyarrow.RecordBatchReader.from_stream(stream)
        del stream, own, function
        gc.collect()
        assert gone() is not None
        return reader.read_all().num_rows, gone

    for is_async in (True, False):
        rows, gone = await asyncio.to_thread(read, is_async)
        assert rows == 10
        deadline = time.monotonic() + 30
        while gone() is not None:
            assert time.monotonic() < deadline
            gc.collect()
            await asyncio.sleep(0.01)


async def test_scan_raises_the_exception_of_the_function(servers: str, curtail_topic: str) -> None:
    def token() -> str:
        raise LookupError("no key")

    with pytest.raises(curtail.TokenError) as caught:
        await asyncio.to_thread(
            curtail.scan, servers, curtail_topic, oauth_token=token, config=PLAINTEXT
        )
    assert isinstance(caught.value.__cause__, LookupError)


async def test_client_in_a_cycle_with_its_function_is_collected(servers: str) -> None:
    class Application:
        def __init__(self) -> None:
            self.producer = curtail.Producer(servers, oauth_token=self.token, config=PLAINTEXT)

        async def token(self) -> str:
            return unsecured()

    application = Application()
    await application.producer.connect()
    await application.producer.close()
    gone = weakref.ref(application)
    del application
    gc.collect()
    assert gone() is None


@pytest.mark.curtail(brokers=3, config=BEARER)
async def test_doctor_logs_in_with_tokens(servers: str) -> None:
    tokens = Tokens()
    report = await curtail.doctor(
        servers,
        target_p99=5.0,
        throughput=100_000,
        duration=3.0,
        oauth_token=tokens,
        config=PLAINTEXT,
    )
    assert report.holds, report
    assert tokens.calls >= 1
    assert tokens.loops == {asyncio.get_running_loop()}


def test_settings_that_contradict_the_function_are_refused() -> None:
    def error_of(**options: object) -> str:
        with pytest.raises(curtail.ConfigError) as caught:
            curtail.Producer("127.0.0.1:9", oauth_token=unsecured, **options)  # type: ignore[arg-type]
        return str(caught.value)

    assert error_of(security_protocol="SSL").startswith("oauth_token needs security.protocol")
    assert error_of(sasl_mechanism="PLAIN") == "oauth_token needs sasl.mechanism=OAUTHBEARER"
    url = "https://127.0.0.1/token"
    assert "cannot be set together" in error_of(sasl_oauthbearer_token_endpoint_url=url)
    with pytest.raises(TypeError, match="oauth_token must be a function"):
        curtail.Producer("127.0.0.1:9", oauth_token="token")  # type: ignore[arg-type]
    assert "secret" not in repr(Token("secret"))


EXITS = """
import asyncio, sys, time
import curtail_kafka as curtail
from test_tokens import unsecured

how, servers, topic = sys.argv[1:]
config = {"security.protocol": "SASL_PLAINTEXT"}
calls = 0

async def token():
    global calls
    calls += 1
    if how == "hangs":
        await asyncio.sleep(3600)
    return unsecured(1.5)

def blocks():
    time.sleep(3600)

function = blocks if how == "blocks" else token
producer = curtail.Producer(servers, oauth_token=function, config=config, linger_ms=60_000)

async def main():
    producer.send(topic, b"x")
    if how == "expires":
        await producer.flush()
        time.sleep(2)
        producer.send(topic, b"y")

asyncio.run(main())
"""


def test_exit_ends_calls_of_the_function(
    python: str,
    tmp_path: Path,
    servers: str,
    curtail_topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))

    def program(how: str) -> subprocess.CompletedProcess[str]:
        directory = tmp_path / how
        directory.mkdir()
        return run(python, directory, EXITS, how, servers, curtail_topic)

    cases = ["returns", "expires", "hangs", "blocks"]
    # Each waits at its exit for a record that cannot be sent.
    with ThreadPoolExecutor(len(cases)) as pool:
        for how, ended in zip(cases, pool.map(program, cases), strict=True):
            assert ended.returncode == 0, (how, ended.stderr)
            assert "producer was not closed before exit" in ended.stderr, how


FORKS = """
import asyncio, os, sys
import curtail_kafka as curtail
from curtail_kafka import sync
from test_tokens import unsecured

servers, topic = sys.argv[1:]
config = {"security.protocol": "SASL_PLAINTEXT"}
asked = asyncio.Event()

async def token():
    asked.set()
    await asyncio.sleep(0.2)
    return unsecured()

def send():
    with sync.Producer(servers, oauth_token=unsecured, config=config) as producer:
        return producer.send(topic, b"child").result(30).offset

async def main():
    async with curtail.Admin(servers, oauth_token=unsecured, config=config):
        pass
    producer = curtail.Producer(servers, oauth_token=token, config=config)
    future = producer.send(topic, b"x")
    await asked.wait()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    child = os.fork()
    if child == 0:
        # Ends the inherited task of the function, whose answer has no receiver.
        for task in tasks:
            task.get_coro().close()
        os._exit(0 if send() is not None else 3)
    await future
    await producer.close()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status

asyncio.run(main())
"""


def test_fork_during_a_call_of_the_function(
    python: str,
    tmp_path: Path,
    servers: str,
    curtail_topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    ended = run(python, tmp_path, FORKS, servers, curtail_topic)
    assert ended.returncode == 0, ended.stderr


async def test_jwt_without_expiry_is_asked_for_each_login(curtail_cluster: Cluster) -> None:
    calls = 0

    async def token() -> Token:
        nonlocal calls
        calls += 1
        text = unsecured()
        return Token(text.replace(".", "..", 1)) if calls == 1 else Token(text)

    servers = curtail_cluster.bootstrap_servers
    producer = curtail.Producer(servers, oauth_token=token, config=PLAINTEXT)
    with pytest.raises(curtail.AuthenticationError):
        await producer.connect()
    await producer.connect()
    assert calls == 2
    await producer.close()
