"""Which web pages may ask: a request's Host and Origin, which a browser sets and no page can.

A browser runs pages of strangers on the machine that a server listens on. Two ways lead from such a page
past "it listens on 127.0.0.1 alone":

    DNS rebinding   the page's own name comes to mean 127.0.0.1. The browser takes the server for the
                    page's origin and lets the page read answers. Host then holds that name.
    a plain POST    a page may send one anywhere, without a body or headers that need a preflight. It
                    reads no answer, but what was asked for is done. Origin then holds the page's.
"""

from collections.abc import Collection

from starlette.types import ASGIApp, Receive, Scope, Send

from yaie.server.allowed import Allowed
from yaie.server.limits import Refuse

LOOKED_AT = (b"host", b"origin")
MOST_KNOWN = 256
"""Heads that are remembered, since clients send the same Host and Origin with each request."""


class OriginGuard:
    """Plain ASGI middleware: 403 for a Host that is not this server's, and for a foreign Origin."""

    def __init__(
        self,
        app: ASGIApp,
        refuse: Refuse,
        allowed: Allowed,
        exempt: Collection[str],
    ) -> None:
        """allowed: says which are. exempt: paths that tell nothing of requests."""
        self._app = app
        self._refuse = refuse
        self._allowed = allowed
        self._exempt = exempt
        self._known: set[tuple[tuple[bytes, bytes], ...]] = set()  # which were let in

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._exempt:
            await self._app(scope, receive, send)
            return
        heads = tuple((name, value) for name, value in scope["headers"] if name in LOOKED_AT)
        if heads not in self._known:
            if complaint := self._allowed.complaint(heads):
                await self._refuse(403, complaint, None)(scope, receive, send)
                return
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known.add(heads)
        await self._app(scope, receive, send)
