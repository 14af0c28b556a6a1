"""The thread that resolves the futures of :mod:`curtail_kafka.sync`."""

import atexit
import threading

from . import _native


def start(port: _native.Port) -> None:
    """Starts the thread, for the first call of a process. Called by native code."""
    thread = threading.Thread(target=_run, args=(port,), name="curtail-sync", daemon=True)
    thread.start()
    # A daemon thread that waits in native code must not outlive the interpreter.
    atexit.register(_stop, port, thread)


def _run(port: _native.Port) -> None:
    while port.serve():
        pass


def _stop(port: _native.Port, thread: threading.Thread) -> None:
    port.end()
    thread.join(5.0)
