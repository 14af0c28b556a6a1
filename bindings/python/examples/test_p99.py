"""A latency target as a test, of your own cluster or, without one, of the embedded cluster.

KAFKA=broker:9092 python -m pytest examples/test_p99.py
"""

import os

import curtail_kafka as curtail
from curtail_kafka.testing import Cluster


def test_p99(curtail_cluster: Cluster) -> None:
    servers = os.environ.get("KAFKA", curtail_cluster.bootstrap_servers)
    report = curtail.sync.doctor(servers, target_p99=0.5, throughput=200e3, duration=28)
    assert report.holds, report
