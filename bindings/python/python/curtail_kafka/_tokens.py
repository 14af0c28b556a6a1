"""Tokens of SASL/OAUTHBEARER, from functions of the program."""

import asyncio
import base64
import inspect
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from . import _native


@dataclass(frozen=True, slots=True)
class Token:
    """A token of SASL/OAUTHBEARER."""

    value: str = field(repr=False)
    """The token, usually a JWT in its compact form."""
    expires_at: float | None = None
    """Seconds since the epoch, as of :func:`time.time`. By default the claim ``exp`` of a JWT."""
    extensions: Mapping[str, str] = field(default_factory=dict)
    """SASL extensions (KIP-342)."""


TokenFunction: TypeAlias = Callable[[], Token | str | Awaitable[Token | str]]
"""Returns a token, or the text of a JWT with the claim ``exp``. It may be asynchronous."""

_logger = logging.getLogger("curtail_kafka")
_keys = count(1)
_LONGEST = 400


class Source:
    """The function of one client. The client owns it, and native code knows its key."""

    def __init__(self, function: TokenFunction, is_threaded: bool) -> None:
        if not callable(function):
            raise TypeError("oauth_token must be a function that returns a token")
        self._function = function
        self._is_threaded = is_threaded
        # Awaited on the client's event loop.
        self.has_loop: bool = not is_threaded and (
            inspect.iscoroutinefunction(function)
            or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
        )
        self._running: set[asyncio.Task[None]] = set()
        self.failure: tuple[str, BaseException] | None = None
        """The reason and the exception of the last call without a token."""
        self.key: int = next(_keys)
        _sources[self.key] = self

    def begin(self, request: _native.TokenRequest, limit: float) -> None:
        """Starts a call: as a task of the running event loop, or on a separate thread."""
        if self.has_loop:
            task = asyncio.get_running_loop().create_task(self._await(request, limit))
            # The event loop has weak references.
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        else:
            # The thread that resolves futures must not wait for the program.
            name = "curtail-oauth-token"
            threading.Thread(target=self._call, args=(request,), name=name, daemon=True).start()

    async def _await(self, request: _native.TokenRequest, limit: float) -> None:
        try:
            async with asyncio.timeout(limit) as within:
                found: Any = self._function()
                self._succeed(request, await found)
        except TimeoutError as error:
            late = f"oauth_token has not returned within {limit:g} s"
            self._fail(request, error, late if within.expired() else None)
        except Exception as error:
            self._fail(request, error)
        except BaseException as error:
            self._fail(request, error)
            raise

    def _call(self, request: _native.TokenRequest) -> None:
        try:
            found: Any = self._function()
            if inspect.isawaitable(found):
                found = self._awaited(found)
            self._succeed(request, found)
        except BaseException as error:
            self._fail(request, error)

    def _awaited(self, found: Awaitable[Token | str]) -> Token | str:
        """Runs an asynchronous function of a client for threads, or of a scan."""

        async def result() -> Token | str:
            return await found

        if self._is_threaded:
            return asyncio.run(result())
        if inspect.iscoroutine(found):
            found.close()
        raise TypeError(
            "oauth_token has returned a coroutine; an asynchronous function is one of `async def`"
        )

    def _succeed(self, request: _native.TokenRequest, found: Any) -> None:
        if isinstance(found, str):
            found = Token(found)
        if not isinstance(found, Token) or not isinstance(found.value, str):
            kind = type(found).__name__
            raise TypeError(f"oauth_token must return a curtail_kafka.Token or a str, not {kind}")
        expires_at = found.expires_at
        if expires_at is None:
            expires_at = _expiry(found.value)
        request.answer(found.value, expires_at, list(found.extensions.items()))
        self.failure = None

    def _fail(
        self, request: _native.TokenRequest, error: BaseException, reason: str | None = None
    ) -> None:
        text = reason or f"oauth_token has raised {type(error).__name__}: {error}"
        text = " ".join("".join(c if c.isprintable() else " " for c in text).split())[:_LONGEST]
        if self.failure is None and isinstance(error, Exception):
            # The client may continue with an earlier token, and report nothing.
            _logger.warning("%s", text, exc_info=error)
        # Before the answer, whose receiver looks it up.
        self.failure = text, error
        request.fail(text)


_sources: WeakValueDictionary[int, Source] = WeakValueDictionary()
_kept: dict[int, Source] = {}
"""Functions whose clients the program may have dropped."""


def source(function: TokenFunction | None, is_threaded: bool) -> Source | None:
    """Registers the function of a client."""
    return None if function is None else Source(function, is_threaded)


def key_of(source: Source | None) -> tuple[int, bool] | None:
    """The key of a function, and whether an event loop calls it, for native code."""
    return None if source is None else (source.key, source.has_loop)


def begin(key: int, request: _native.TokenRequest, limit: float) -> None:
    """Calls the function of a client. Called by native code."""
    found = _sources.get(key)
    if found is None:
        request.fail("the client of oauth_token was dropped")
        return
    try:
        found.begin(request, limit)
    except RuntimeError as error:
        request.fail(f"oauth_token cannot be called: {error}")


def keep(key: int) -> None:
    """Keeps a function until :func:`release`. Called by native code."""
    _kept[key] = _sources[key]


def release(key: int) -> None:
    _kept.pop(key, None)


def cause_of(reason: str) -> BaseException | None:
    """Returns the exception of a call by its reason, which ends the text. Called by native code."""
    for found in list(_sources.values()):
        failure = found.failure
        if failure is not None and reason.endswith(failure[0]):
            return failure[1]
    return None


def _expiry(token: str) -> float | None:
    """The claim ``exp`` of a JWT (RFC 7519); ``None`` if it has none, or is not a JWT."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"])
    except (ValueError, KeyError, TypeError):
        return None
