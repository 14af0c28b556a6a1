"""Passes events of the native code to ``logging.getLogger("curtail_kafka")``."""

import atexit
import logging
import threading

from . import _native

logger = logging.getLogger("curtail_kafka")

LOOK_SECONDS = 1.0
"""A change of the logger's level takes effect within this time."""


def start() -> None:
    """Starts the thread that logs, for the first client of a process. Called by native code."""
    _native.set_log_level(logger.getEffectiveLevel())
    thread = threading.Thread(target=_run, name="curtail-logging", daemon=True)
    thread.start()
    # A daemon thread that waits in native code must not outlive the interpreter.
    atexit.register(_stop, thread)


def _stop(thread: threading.Thread) -> None:
    _native.close_log()
    thread.join(5.0)


def _run() -> None:
    while (taken := _native.take_log(LOOK_SECONDS)) is not None:
        events, dropped = taken
        for level, target, message, fields in events:
            _log(level, target, message, dict(fields))
        if dropped:
            _log(logging.WARNING, "curtail", f"{dropped} events were dropped", {})
        _native.set_log_level(logger.getEffectiveLevel())


def _log(level: int, target: str, message: str, fields: dict[str, str]) -> None:
    if not logger.isEnabledFor(level):
        return
    text = " ".join([message, *(f"{name}={value}" for name, value in fields.items())])
    logger.log(level, "%s", text.strip(), extra={"target": target, "fields": fields})
