import subprocess
from pathlib import Path

import pytest

import curtail_kafka as curtail
from curtail_kafka import _native

SERVERS = "127.0.0.1:9"


def error_of(**arguments: object) -> str:
    with pytest.raises(curtail.ConfigError) as raised:
        curtail.Producer(SERVERS, **arguments)  # type: ignore[arg-type]
    return str(raised.value)


def test_unknown_setting_names_the_nearest_one() -> None:
    assert error_of(config={"linger.mss": 5}).endswith("did you mean 'linger.ms'?")
    assert error_of(linger_mss=5).endswith("did you mean 'linger.ms'?")


def test_setting_of_librdkafka_names_kafkas() -> None:
    assert error_of(queue_buffering_max_ms=5).endswith("use linger.ms")


def test_setting_of_experiments_names_its_feature() -> None:
    text = error_of(config={"curtail.leader.discovery": "hint"})
    assert text.endswith("it is for experiments, and needs the cargo feature `arms`")


def test_setting_given_twice_is_an_error() -> None:
    assert error_of(config={"linger.ms": 5}, linger_ms=5).startswith("linger.ms is given twice")
    assert "bootstrap.servers is given twice" in error_of(config={"bootstrap.servers": SERVERS})


def test_value_out_of_range_is_an_error() -> None:
    assert error_of(linger_ms=-1).startswith("linger.ms=-1")
    assert error_of(linger_ms=object()).startswith("linger.ms")
    assert "curtail.io.thread" in error_of(curtail_io_thread=True)


def test_config_error_is_a_value_error() -> None:
    with pytest.raises(ValueError, match=r"linger\.ms"):
        curtail.Producer(SERVERS, linger_ms=-1)


def test_missing_servers_are_an_error() -> None:
    with pytest.raises(curtail.ConfigError, match=r"bootstrap\.servers"):
        curtail.Producer()


async def test_values_have_kafkas_syntax() -> None:
    producer = curtail.Producer(
        ["127.0.0.1:9", "127.0.0.1:10"], config={"enable.idempotence": True}, linger_ms=0
    )
    await producer.close()


def test_option_types_match_the_settings() -> None:
    import sys

    tool = Path(__file__).parent.parent / "tools" / "options.py"
    subprocess.run([sys.executable, tool, "--check"], check=True)
    assert dict(_native.producer_properties())["linger.ms"]
