"""What ingress and replica tell each other about one HTTP request. Plain data: it crosses processes."""

from dataclasses import dataclass

from yaie.core.errors import YaieError

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Asked:
    """A whole HTTP request.

    For the router: beginnings, of its prompt (`prefixes.chain`); avoid, replicas that were lost with it.
    """

    method: str
    path: str
    raw_path: bytes
    query_string: bytes
    headers: Headers
    body: bytes
    beginnings: tuple[bytes, ...] = ()
    avoid: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Begun:
    """The first piece of an answer: its head, and the start of its body. Further pieces are bytes."""

    status: int
    headers: Headers
    body: bytes

    @property
    def media_type(self) -> str:
        """Without parameters."""
        for name, value in self.headers:
            if name.lower() == b"content-type":
                return value.partition(b";")[0].strip().decode("latin-1")
        return ""


class ReplicaLostError(YaieError):
    """A replica died, or its engine did, before it had answered in full.

    replica: which one, if it could still say so; Serve knows of those that could not.
    """

    status = 503

    def __init__(self, message: str, replica: str = "") -> None:
        super().__init__(message)
        self.replica = replica
