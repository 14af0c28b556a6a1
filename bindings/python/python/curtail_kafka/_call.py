from asyncio import CancelledError
from typing import TypeVar

from ._native import Call

T = TypeVar("T")


async def finished(call: "Call[T]") -> T:
    """Waits for a call of the runtime; cancellation stops the call."""
    try:
        return await call.future
    except CancelledError:
        call.cancel()
        raise
