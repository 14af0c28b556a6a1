import asyncio
import logging
import subprocess
from pathlib import Path

import pytest

import curtail_kafka as curtail

PROVIDER = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
UNSET = {
    "config.providers": "env",
    "config.providers.env.class": PROVIDER,
    "client.id": "${env:NO_SUCH_VARIABLE}",
}


async def until_logged(caplog: pytest.LogCaptureFixture, text: str) -> logging.LogRecord:
    async with asyncio.timeout(20):
        while True:
            for record in caplog.records:
                if text in record.getMessage():
                    return record
            await asyncio.sleep(0.01)


async def test_warnings_go_to_the_logger(servers: str, caplog: pytest.LogCaptureFixture) -> None:
    producer = curtail.Producer(servers, config=UNSET)
    record = await until_logged(caplog, "no config provider has a value")
    assert (record.name, record.levelname) == ("curtail_kafka", "WARNING")
    assert record.target.startswith("curtail::")  # type: ignore[attr-defined]
    assert record.fields["variable"] == "${env:NO_SUCH_VARIABLE}"  # type: ignore[attr-defined]
    assert "variable=${env:NO_SUCH_VARIABLE}" in record.getMessage()
    await producer.close()


async def test_level_of_the_logger_selects_events(
    servers: str, curtail_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Also events of the runtime's threads, and also if the level changes later."""
    logger = logging.getLogger("curtail_kafka")
    async with curtail.Producer(servers) as running:
        before = logger.level
        logger.setLevel(logging.DEBUG)
        try:
            caplog.clear()
            async with asyncio.timeout(20):
                while not any(one.levelno == logging.DEBUG for one in caplog.records):
                    unreachable = curtail.Producer("127.0.0.1:9", max_block_ms=50)
                    with pytest.raises(curtail.Error):
                        await unreachable.send(curtail_topic, b"x")
                    await unreachable.close()
            # Kept quiet: events of the embedded cluster.
            targets = {one.target for one in caplog.records}  # type: ignore[attr-defined]
            assert targets and not any("cluster" in target for target in targets)
        finally:
            logger.setLevel(before)
        assert running._is_open


PROGRAM = """
import logging, os, sys
import curtail_kafka as curtail

logging.basicConfig(format="%(levelname)s %(name)s %(message)s", stream=sys.stdout)

def client():
    producer = curtail.Producer("127.0.0.1:9", config={config!r})
    producer._abandon()

client()
child = os.fork()
if child == 0:
    client()
    sys.exit(0)
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_events_are_logged_before_exit_and_in_forked_children(python: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(config=UNSET))
    ended = subprocess.run([python, str(program)], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    expected = "WARNING curtail_kafka no config provider has a value for a variable"
    assert ended.stdout.count(expected) == 2, ended.stdout + ended.stderr
