"""API keys: 401 for a request without a known one."""

import hmac
from collections.abc import Callable, Collection, Sequence
from hashlib import sha256

from starlette.types import ASGIApp, Receive, Scope, Send


class KeyGuard:
    """Plain ASGI middleware: every path asks for `Authorization: Bearer KEY`, those in `exempt` do not.

    It holds digests alone, all of one length, and compares with every one of them: the time of an
    answer tells nothing about any key.
    """

    def __init__(
        self,
        app: ASGIApp,
        refuse: Callable[[int, str, dict[str, str] | None], ASGIApp],
        keys: Sequence[str],
        exempt: Collection[str],
    ) -> None:
        """`refuse`: the response with a status, a message and headers."""
        self._app = app
        self._refuse = refuse
        self._digests = [sha256(key.encode()).digest() for key in keys]
        self._exempt = exempt

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._exempt or self._is_known(scope):
            await self._app(scope, receive, send)
        else:
            message = "The API key is missing or wrong; send Authorization: Bearer YOUR_KEY."
            response = self._refuse(401, message, {"WWW-Authenticate": "Bearer"})
            await response(scope, receive, send)

    def _is_known(self, scope: Scope) -> bool:
        shown = [value for name, value in scope["headers"] if name == b"authorization"]
        scheme, _, key = (shown[0] if len(shown) == 1 else b"").partition(b" ")
        digest = sha256(key.strip()).digest()
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return any(matches) and scheme.lower() == b"bearer"
