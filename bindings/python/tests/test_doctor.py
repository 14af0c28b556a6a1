"""The doctor, against the embedded cluster."""

import asyncio
import dataclasses
import signal
import subprocess
import time
from typing import Any

import pytest
from programs import started

import curtail_kafka as curtail
from curtail_kafka import DoctorReport, sync

SHORT: dict[str, Any] = {"throughput": 100e3, "duration": 1.0}
"""Runs of 0.2 s, the shortest."""
LONG: dict[str, Any] = {"target_p99": 1.0, "throughput": 100e3, "duration": 3600.0}


def topics(servers: str) -> list[str]:
    with sync.Admin(servers) as admin:
        names = [topic.name for topic in admin.list_topics()]
    return [name for name in names if name.startswith("curtail-doctor")]


def wait_for_topic(servers: str) -> None:
    ends = time.monotonic() + 20
    while not topics(servers):
        assert time.monotonic() < ends, "the doctor has no topic"
        time.sleep(0.02)


async def test_report_has_the_figures_of_the_text(servers: str) -> None:
    report = await curtail.doctor(servers, target_p99=3600.0, **SHORT)
    assert isinstance(report, DoctorReport)
    # No latency misses this target: a throughput that was not reached, on a busy machine, does.
    assert report.holds == (report.throughput >= 0.95 * 100e3)
    verdict = "holds" if report.holds else "does NOT hold"
    assert str(report).startswith(f"The target {verdict}: the 99th percentile is ")
    assert "the target 3600000 ms, at " in str(report) and " of 100000 B/s." in str(report)
    assert 0 < report.latency.p50 <= report.latency.p99 <= report.latency.p999
    assert report.latency.p999 <= report.latency.max < 60
    assert report.target_p99 == 3600.0 and report.target_throughput == 100e3
    assert (report.errors, report.first_error, report.missing) == (0, None, 0)
    names = [phase.name for phase in report.phases]
    assert names == ["produce", "publish", "commit", "catch_up", "fetch"]
    assert report.blamed == max(report.phases, key=lambda phase: phase.duration).name
    assert report.tried[0].setting == "acks=1" and not report.tried[0].recommended
    assert sum(broker.records for broker in report.brokers) > 0
    figures = report.to_dict()
    assert figures["latency_us"]["p99"] == pytest.approx(report.latency.p99 * 1e6)
    assert figures["holds"] == report.holds
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.holds = True  # type: ignore[misc]
    assert topics(servers) == []


def test_missed_target_tries_other_settings(servers: str) -> None:
    report = sync.doctor(servers, target_p99=1e-6, config={"linger.ms": 20}, **SHORT)
    assert not report.holds and "The target does NOT hold" in str(report)
    settings = [one.setting for one in report.tried]
    assert "linger.ms=0" in settings and len(settings) > 3
    for one in report.tried:
        assert len(one.p99) == len(one.base_p99) == 3, "three rounds"
        assert one.setting in str(report) and not one.holds
    assert set(report.recommended) == {one for one in report.tried if one.recommended}
    assert len(repr(report)) < 240 and "holds=False" in repr(report)
    # The topic with more partitions is deleted, too.
    assert topics(servers) == []


async def test_cancellation_deletes_the_topic_and_the_event_loop_stays_free(servers: str) -> None:
    examining = asyncio.create_task(curtail.doctor(servers, **LONG))
    await asyncio.to_thread(wait_for_topic, servers)
    longest, last = 0.0, time.monotonic()
    for _ in range(50):
        await asyncio.sleep(0.01)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    assert longest < 2, "the measurement runs on other threads"
    examining.cancel()
    begun = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await examining
    assert time.monotonic() - begun < 10
    assert await asyncio.to_thread(topics, servers) == []


async def test_timeout_deletes_the_topic(servers: str) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2):
            await curtail.doctor(servers, **LONG)
    assert await asyncio.to_thread(topics, servers) == []


INTERRUPTED = """
import sys
import curtail_kafka as curtail

try:
    curtail.sync.doctor(sys.argv[1], target_p99=1.0, throughput=100e3, duration=3600)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""

ASYNCHRONOUS = """
import asyncio, sys
import curtail_kafka as curtail

try:
    asyncio.run(curtail.doctor(sys.argv[1], target_p99=1.0, throughput=100e3, duration=3600))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize("program", [INTERRUPTED, ASYNCHRONOUS], ids=["sync", "asyncio"])
def test_ctrl_c_deletes_the_topic(python: str, servers: str, program: str) -> None:
    with started(python, "-c", program, servers) as running:
        wait_for_topic(servers)
        running.send_signal(signal.SIGINT)
        out, _ = running.communicate(timeout=20)
    assert (out, running.returncode) == ("interrupted\n", 0)
    assert topics(servers) == []


EXITS = """
import sys, threading, time
import curtail_kafka as curtail

def examine():
    curtail.sync.doctor(sys.argv[1], target_p99=1.0, throughput=100e3, duration=3600)

threading.Thread(target=examine, daemon=True).start()
with curtail.sync.Admin(sys.argv[1]) as admin:
    while not any(one.name.startswith("curtail-doctor") for one in admin.list_topics()):
        time.sleep(0.02)
"""


def test_exit_deletes_the_topic(python: str, servers: str) -> None:
    ended = subprocess.run(
        [python, "-W", "always", "-c", EXITS, servers], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0 and "ResourceWarning" not in ended.stderr, ended.stderr
    assert topics(servers) == []


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"target_p99": -0.05}, "the target must be above 0"),
        ({"target_p99": float("nan")}, "the target must be above 0"),
        ({"throughput": 0.0}, "the throughput must be at least one record a second"),
        ({"throughput": float("inf")}, "the throughput must be at least one record a second"),
        ({"duration": 0.0}, "the duration must be above 0"),
        ({"record_size": -1}, "the record size must be at least 16 bytes"),
        ({"record_size": 2_000_000, "throughput": 1e7}, "max.request.size"),
        ({"duration": 3600.0, "throughput": 1e9}, "too many records"),
        ({"config": {"liner.ms": 1}}, "linger.ms"),
        ({"config": {"linger.ms": "soon"}}, "linger.ms"),
        ({"config": {"acks": 0}}, "acks=0 acknowledges nothing"),
        ({"config": {"curtail.io.thread": True}}, "curtail.io.thread is not supported"),
        ({"config": {"bootstrap.servers": "127.0.0.1:9"}}, "given twice"),
    ],
)
async def test_wrong_input_is_a_config_error(
    servers: str, options: dict[str, Any], text: str
) -> None:
    arguments: dict[str, Any] = {"target_p99": 1.0, "throughput": 1e6, **options}
    with pytest.raises(curtail.ConfigError, match=text) as raised:
        await curtail.doctor(servers, **arguments)
    assert "\n" not in str(raised.value)
    with pytest.raises(curtail.ConfigError, match=text):
        await asyncio.to_thread(sync.doctor, servers, **arguments)


def test_no_cluster_is_a_config_error() -> None:
    with pytest.raises(curtail.ConfigError, match=r"bootstrap\.servers"):
        sync.doctor(target_p99=1.0, throughput=1e6)


async def test_unreachable_broker_is_one_error() -> None:
    with pytest.raises(curtail.UnreachableError, match=r"127\.0\.0\.1:9") as raised:
        async with asyncio.timeout(30):
            await curtail.doctor("127.0.0.1:9", target_p99=1.0, throughput=1e6)
    assert "\n" not in str(raised.value)


@pytest.mark.curtail(brokers=1, config={"message.max.bytes": 500})
async def test_records_that_no_broker_accepts_are_a_doctor_error(servers: str) -> None:
    with pytest.raises(curtail.DoctorError, match="no record was delivered") as raised:
        await curtail.doctor(servers, target_p99=1.0, **SHORT)
    assert "\n" not in str(raised.value)
    assert await asyncio.to_thread(topics, servers) == []


def test_failed_test_shows_the_whole_report(pytester: pytest.Pytester, servers: str) -> None:
    pytester.makepyfile(f"""
        import curtail_kafka as curtail

        def test_p99():
            report = curtail.sync.doctor(
                {servers!r}, target_p99=1e-6, throughput=100e3, duration=1.0
            )
            assert report.holds, report
    """)
    ran = pytester.runpytest_subprocess()
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(
        ["*<DoctorReport holds=False *", "*- curtail doctor -*", "The target does NOT hold: *"]
    )
    ran.stdout.fnmatch_lines(["Settings tried in turn with the current ones*"])
