"""Properties that all clients share."""

import pytest

import curtail_kafka as curtail

CLIENTS = [curtail.Producer, curtail.TransactionalProducer, curtail.Consumer, curtail.Admin]


@pytest.mark.parametrize("method", ["__aenter__", "__aexit__"])
def test_clients_enter_and_leave_blocks_in_the_same_way(method: str) -> None:
    assert len({getattr(client, method) for client in CLIENTS}) == 1
