"""Examinations in progress, which the interpreter's exit ends."""

import atexit
import warnings
from weakref import WeakSet

from . import _native

EXIT_SECONDS = 5.0
"""Longest wait for the end of an examination, at the interpreter's exit."""

running: WeakSet[_native.Examination] = WeakSet()


def _end_all() -> None:
    for examination in list(running):
        if not examination._end_at_exit(EXIT_SECONDS):
            text = f"a topic of the doctor was not deleted within {EXIT_SECONDS:.0f} s"
            warnings.warn(text, ResourceWarning, stacklevel=1)


atexit.register(_end_all)
