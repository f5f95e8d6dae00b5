"""A copy of the tokens in the cache for each text, and how many of them were compared."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from yaie.core.contracts import BlockManager


@dataclass
class Cached:
    """tokens: whose K and V lie in the table. num_same: of them, those that the text has."""

    tokens: list[int] = field(default_factory=list)
    num_same: int = 0


class DraftPlaces:
    """See `yaie.core.contracts.drafting.DraftPlaces`."""

    def __init__(self, blocks: BlockManager) -> None:
        self._blocks = blocks
        self._texts: dict[str, Cached] = {}

    def begin(self, key: str, text: Sequence[int], num_drafts: int) -> int | None:
        """Make the table fit; returns how many leading tokens need no computing, or None."""
        size = self._blocks.block_size
        wanted = (len(text) + num_drafts - 1 + size - 1) // size
        table = list(self._blocks.get_physical_blocks(key))
        if wanted - len(table) > self._blocks.num_free:
            return None
        if wanted < len(table):
            aside = f"{key}, kept aside"
            self._blocks.share(aside, table[:wanted])
            self._blocks.free(key)
            self._blocks.share(key, table[:wanted])
            self._blocks.free(aside)
        elif wanted > len(table):
            self._blocks.allocate(key, wanted - len(table))
        cached = self._texts.setdefault(key, Cached())
        last = min(len(cached.tokens), len(text) - 1)
        while cached.num_same < last and cached.tokens[cached.num_same] == text[cached.num_same]:
            cached.num_same += 1
        cached.num_same = min(cached.num_same, last)
        del cached.tokens[cached.num_same :]
        return cached.num_same

    def wrote(self, key: str, tokens: Sequence[int]) -> None:
        """The K and V of the next tokens in line have been written."""
        self._texts[key].tokens.extend(tokens)

    def table(self, key: str) -> Sequence[int]:
        """The blocks of a text."""
        return tuple(self._blocks.get_physical_blocks(key))

    def end(self, key: str) -> None:
        """Forget a text and free its blocks."""
        if key in self._texts:
            del self._texts[key]
            self._blocks.free(key)
