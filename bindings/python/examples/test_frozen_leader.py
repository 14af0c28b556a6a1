"""A test of an application's code against a broker that freezes, as a long pause of a host does.

python -m pytest examples/test_frozen_leader.py
"""

import curtail_kafka as curtail
from curtail_kafka.testing import Cluster


async def test_frozen_leader(curtail_cluster: Cluster, curtail_topic: str) -> None:
    leader = curtail_cluster.leader(curtail_topic, 0)
    assert leader is not None
    async with curtail.Producer(curtail_cluster.bootstrap_servers) as producer:
        with curtail_cluster.frozen(leader):
            written = await producer.send(curtail_topic, b"x")
    assert written.offset == 0
