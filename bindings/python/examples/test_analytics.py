"""Runs analytics.py on the embedded cluster, if Polars and DuckDB are installed.

python -m pytest examples/test_analytics.py
"""

import pytest

import curtail_kafka as curtail
from curtail_kafka import sync
from curtail_kafka.testing import Cluster

pytest.importorskip("polars", reason="polars is not installed", exc_type=ImportError)
pytest.importorskip("duckdb", reason="duckdb is not installed", exc_type=ImportError)
import analytics


def test_polars_and_duckdb_read_the_same_scan(
    curtail_cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    curtail_cluster.create_topic("events", partitions=3)
    servers = curtail_cluster.bootstrap_servers
    with sync.Producer(servers) as producer, producer.pipeline() as pipeline:
        for n in range(10_000):
            # Values of any size: views contain the short ones, and refer to the long ones.
            pipeline.send("events", f"{n:0{1 + n % 18}}", key=f"key-{n % 3}")
    stream = sync.scan(servers, "events", columns=["key", "value"])
    expected = [(f"key-{k}", len(range(k, 10_000, 3)), sum(range(k, 10_000, 3))) for k in range(3)]
    assert analytics.sums(stream).rows() == expected
    assert analytics.sums_by_query(stream) == expected
    analytics.main(servers, "events")
    assert "key-0 3334 16668333\n" in capsys.readouterr().out


def test_frame_has_all_columns(curtail_cluster: Cluster, curtail_topic: str) -> None:
    import polars as pl

    servers = curtail_cluster.bootstrap_servers
    with sync.Producer(servers) as producer:
        producer.send(
            curtail_topic, "value", key=None, headers={"h": b"1"}, timestamp=1_000
        ).result(20)
    frame = pl.DataFrame(curtail.scan(servers, curtail_topic))
    [row] = frame.rows(named=True)
    assert row["timestamp"].timestamp() == 1.0
    del row["timestamp"]
    assert row == {
        "topic": curtail_topic,
        "partition": 0,
        "offset": 0,
        "key": None,
        "value": b"value",
        "headers": [{"name": "h", "value": b"1"}],
    }
