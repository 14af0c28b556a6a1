from asyncio import CancelledError
from typing import Any

from ._native import Call


async def finished(call: Call) -> Any:
    """Waits for a call of the runtime; cancellation stops the call."""
    try:
        return await call.future
    except CancelledError:
        call.cancel()
        raise
