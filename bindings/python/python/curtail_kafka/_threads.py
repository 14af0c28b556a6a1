"""The thread that resolves the futures of :mod:`curtail_kafka.sync`."""

import atexit
import os
import threading
from concurrent.futures import Future
from typing import Any

from . import _native
from .errors import IllegalStateError

_running: list[tuple[int, _native.Port, threading.Thread]] = []
"""The thread of this process, and those of the processes that it was forked from."""
_has_ended = threading.Event()


def start(port: _native.Port) -> None:
    """Starts the thread, for the first call of a process. Called by native code."""
    thread = threading.Thread(target=_run, args=(port,), name="curtail-sync", daemon=True)
    thread.start()
    _running.append((os.getpid(), port, thread))


def may_wait(future: Future[Any]) -> None:
    """Refuses a wait that nothing could end."""
    if future.done():
        return
    if _has_ended.is_set():
        raise IllegalStateError("the interpreter is exiting; close clients before")
    if any(thread is threading.current_thread() for _, _, thread in _running):
        raise IllegalStateError("a callback of a future must not wait for a client")


def _run(port: _native.Port) -> None:
    is_open = True
    while is_open:
        try:
            is_open = port.serve()
        except BaseException as error:
            # The other futures still need this thread.
            args = (type(error), error, error.__traceback__, threading.current_thread())
            threading.excepthook(threading.ExceptHookArgs(args))


def _stop() -> None:
    # A daemon thread that waits in native code must not outlive the interpreter.
    for process, port, thread in _running:
        if process == os.getpid():
            port.end()
            thread.join(5.0)
    _has_ended.set()


# At the import, so that handlers registered later, which run first, can close clients.
atexit.register(_stop)
