"""Whose cached prefixes a request shares: those of its salt, and of its key where keys are tenants.

Whether a prefix was cached shows in the time to the first token and in `cached_tokens`. Requests that
share none learn nothing of each other by that.
"""

from contextvars import ContextVar
from hashlib import sha256

tenant: ContextVar[bytes | None] = ContextVar("tenant", default=None)
"""A digest of the key by which the request that this task answers was let in, if keys are tenants."""


def salt_of(wanted: str | None) -> str | None:
    """The salt of a request that wants this one: of the same tenant the same."""
    own = tenant.get()
    if own is None:
        return wanted
    return sha256(own + (wanted or "").encode("utf-8", "surrogatepass")).hexdigest()
