"""Reads a topic into Polars, and queries the same scan with DuckDB.

python examples/analytics.py SERVERS TOPIC

Needs polars, duckdb and pyarrow. The values are numbers as text.
"""

import sys
from datetime import UTC, datetime, timedelta

import duckdb
import polars as pl
import pyarrow as pa

import curtail_kafka as curtail


def sums(stream: curtail.ArrowStream) -> pl.DataFrame:
    """The number and the sum of the values of each key, with Polars."""
    frame = pl.DataFrame(stream)
    value = pl.col("value").cast(pl.String).cast(pl.Int64)
    by_key = frame.group_by(pl.col("key").cast(pl.String))
    return by_key.agg(pl.len().alias("count"), value.sum().alias("total")).sort("key")


def sums_by_query(stream: curtail.ArrowStream) -> list[tuple[str, int, int]]:
    """The same, with DuckDB. It reads the scan again, and keeps no copy of it."""
    # The name in the query.
    events = pa.RecordBatchReader.from_stream(stream)
    query = """
        select decode(key) as key, count(*), sum(cast(decode(value) as bigint))::bigint
        from events group by 1 order by 1
    """
    with duckdb.connect() as connection:
        connection.register("events", events)
        rows: list[tuple[str, int, int]] = connection.execute(query).fetchall()
    return rows


def main(servers: str, topic: str) -> None:
    yesterday = datetime.now(UTC) - timedelta(days=1)
    stream = curtail.scan(servers, topic, start=yesterday, columns=["key", "value"])
    print(sums(stream))
    for row in sums_by_query(stream):
        print(*row)


if __name__ == "__main__":
    main(*sys.argv[1:])
