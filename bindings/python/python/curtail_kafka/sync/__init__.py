"""The clients for threads, with the names and arguments of :mod:`curtail_kafka`.

A call waits for its result, without the GIL and without an event loop. ``send`` returns a
:class:`concurrent.futures.Future`. Ctrl-C ends a wait. Clients may be used, and closed, by several
threads; a closed one raises :class:`ClosedError` in the calls of the others.
"""

from .._scan import ArrowStream, scan
from ._admin import Admin
from ._consumer import Consumer
from ._doctor import doctor
from ._pipeline import Pipeline
from ._producer import Producer
from ._transaction import Transaction, TransactionalProducer

__all__ = [
    "Admin",
    "ArrowStream",
    "Consumer",
    "Pipeline",
    "Producer",
    "Transaction",
    "TransactionalProducer",
    "doctor",
    "scan",
]
