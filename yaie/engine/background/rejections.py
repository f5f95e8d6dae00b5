"""Which limit a request ran into that found no room. `/metrics` shows the numbers.

Counted where each limit is kept: by `AsyncEngine`, and by the server before a request reaches it.
"""

from yaie.core.compat import StrEnum


class Rejection(StrEnum):
    """Limits that answer 503 when they are reached, each by the name of its setting."""

    MAX_WAITING = "max_waiting"
    QUEUE_TIMEOUT = "queue_timeout"
    MAX_CONCURRENT_REQUESTS = "max_concurrent_requests"
    MAX_BODY_BYTES = "max_body_bytes"  # of all bodies that are held at once
    MAX_CONNECTIONS = "max_connections"


Rejections = dict[Rejection, int]
"""How many requests each limit has refused. An HTTP request is one, whatever its `n`. Belongs to the
event loop."""


def no_rejections() -> Rejections:
    """All at 0: a counter that is there from the start shows its first increase."""
    return dict.fromkeys(Rejection, 0)
