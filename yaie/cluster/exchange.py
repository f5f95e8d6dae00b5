"""What ingress and replica tell each other about one HTTP request. Plain data: it crosses processes.

An answer is ASGI's messages as they are, several at a time.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from starlette.types import Scope

from yaie.core.errors import YaieError


@dataclass(frozen=True, slots=True)
class Asked:
    """A whole HTTP request. scope: see `http_scope`.

    For the router: beginnings, of its prompt (`prefixes.chain`); avoid, replicas that were lost with it.
    """

    scope: Scope
    body: bytes = b""
    beginnings: tuple[bytes, ...] = ()
    avoid: frozenset[str] = frozenset()


def http_scope(
    method: str,
    path: str,
    raw_path: bytes | None = None,
    query_string: bytes = b"",
    headers: Iterable[tuple[bytes, bytes]] = (),
) -> Scope:
    """ASGI's scope of a request, for an application that no web server calls."""
    return {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1",
        "scheme": "http", "root_path": "", "client": None, "server": None,
        "method": method, "path": path, "raw_path": raw_path or path.encode(),
        "query_string": query_string, "headers": list(headers),
    }  # fmt: skip


class ReplicaLostError(YaieError):
    """A replica died, or its engine did, before it had answered in full.

    replica: which one, if it could still say so; Serve knows of those that could not.
    """

    status = 503

    def __init__(self, message: str, replica: str = "") -> None:
        super().__init__(message)
        self.replica = replica
