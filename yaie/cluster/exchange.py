"""What ingress and replica tell each other about one HTTP request. Plain data: it crosses processes."""

from dataclasses import dataclass

from yaie.core.errors import YaieError

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Asked:
    """A whole HTTP request. beginnings: of its prompt, for the router; see `prefixes.chain`."""

    method: str
    path: str
    raw_path: bytes
    query_string: bytes
    headers: Headers
    body: bytes
    beginnings: tuple[bytes, ...] = ()


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
    """The replica's engine died or was stopped before it began to answer: another one may do it."""

    status = 503
