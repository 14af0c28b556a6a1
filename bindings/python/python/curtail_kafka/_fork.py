import os

from . import _native


def install() -> None:
    """Abandons the inherited runtime in forked children."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_native.after_fork_in_child)
