"""What `yaie.cluster.prefixes` does, without hashes: a list of texts a replica, scanned. Its oracle."""

from collections.abc import Collection

from yaie.cluster.prefixes import CHUNK, MOST_CHUNKS


def beginnings(text: bytes) -> list[bytes]:
    """The beginnings of a text that are a whole number of chunks, the shortest first."""
    number = min(len(text) // CHUNK, MOST_CHUNKS)
    return [text[: CHUNK * (index + 1)] for index in range(number)]


class NaivePrefixes:
    """The texts that each replica was sent lately, the latest last."""

    def __init__(self, capacity: int) -> None:
        """capacity: beginnings of a replica, at most."""
        self._capacity = capacity
        self._seen: dict[str, list[bytes]] = {}

    def add(self, replica: str, text: bytes) -> None:
        """The replica was sent this text."""
        seen = self._seen.get(replica, [])
        for one in reversed(beginnings(text)):
            seen = [*(other for other in seen if other != one), one]
        self._seen[replica] = seen[-self._capacity :]

    def match(self, replica: str, text: bytes) -> int:
        """How many chunks of the text the replica has seen."""
        seen = self._seen.get(replica, [])
        return max((len(one) // CHUNK for one in seen if one in beginnings(text)), default=0)

    def keep(self, replicas: Collection[str]) -> None:
        """Forget all other replicas."""
        self._seen = {name: seen for name, seen in self._seen.items() if name in replicas}
