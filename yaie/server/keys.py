"""API keys: 401 for a request without a known one."""

import hmac
from collections.abc import Callable, Collection, Sequence
from hashlib import sha256

from starlette.types import ASGIApp, Receive, Scope, Send

from yaie.server.tenants import tenant


class KeyGuard:
    """Plain ASGI middleware: every path asks for a key, those in `exempt` do not. It may come as
    `Authorization: Bearer KEY` or, as some of Anthropic's clients send it, as `x-api-key: KEY`.

    It holds digests alone, all of one length, and compares with every one of them: the time of an
    answer tells nothing about any key.
    """

    def __init__(
        self,
        app: ASGIApp,
        refuse: Callable[[int, str, dict[str, str] | None], ASGIApp],
        keys: Sequence[str],
        exempt: Collection[str],
        *,
        are_tenants: bool = False,
    ) -> None:
        """`refuse`: the response with a status, a message and headers. `are_tenants`: requests of
        different keys share no cached prefix."""
        self._app = app
        self._refuse = refuse
        self._digests = [sha256(key.encode()).digest() for key in keys]
        self._exempt = exempt
        self._are_tenants = are_tenants

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._exempt or self._lets_in(scope):
            await self._app(scope, receive, send)
        else:
            message = (
                "The API key is missing or wrong; send Authorization: Bearer YOUR_KEY "
                "or x-api-key: YOUR_KEY."
            )
            response = self._refuse(401, message, {"WWW-Authenticate": "Bearer"})
            await response(scope, receive, send)

    def _lets_in(self, scope: Scope) -> bool:
        """A client with two settings sends both headers; one right key is enough. Of two right ones that
        of `Authorization` says who it is."""
        scheme, _, key = _only(scope, b"authorization").partition(b" ")
        shown = [key.strip() if scheme.lower() == b"bearer" else b"", _only(scope, b"x-api-key")]
        digests = [sha256(one).digest() for one in shown]
        known = [one for one in digests if self._is_known(one)]
        if known and self._are_tenants:
            tenant.set(known[0])
        return bool(known)

    def _is_known(self, digest: bytes) -> bool:
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return any(matches)  # only now: with all of them


def _only(scope: Scope, wanted: bytes) -> bytes:
    """The value of a header; nothing if it is there twice, since a proxy may have checked the other."""
    values: list[bytes] = [value for name, value in scope["headers"] if name == wanted]
    return values[0].strip() if len(values) == 1 else b""
