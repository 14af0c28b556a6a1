"""What the clients share."""

from types import TracebackType
from typing import Self


class Client:
    """A client for ``async with``, which connects and closes it."""

    async def connect(self) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    async def _discard(self) -> None:
        """Ends a client whose block does not run."""
        raise NotImplementedError

    async def _leave(self, failed: bool) -> None:
        """Closes the client after its block, which an exception may have ended."""
        await self.close()

    async def __aenter__(self) -> Self:
        try:
            await self.connect()
        except BaseException:
            # The block does not run, so nothing else closes the client.
            await self._discard()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._leave(kind is not None)
