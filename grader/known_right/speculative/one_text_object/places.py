"""Each text is an object; a table is cut by lending its first blocks to another key for a moment, and it
grows by one block at a time."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from yaie.core.contracts import BlockManager


@dataclass(slots=True)
class Text:
    """A draft model's place in it: `known` tokens hold, and `newer` were written behind them."""

    blocks: BlockManager
    key: str
    known: int = 0
    newer: list[int] = field(default_factory=list)

    def fit(self, wanted: int) -> None:
        table = list(self.blocks.get_physical_blocks(self.key))
        for _ in range(wanted - len(table)):
            self.blocks.allocate(self.key, 1)
        if wanted < len(table):
            lent = f"{self.key}, for a moment"
            self.blocks.share(lent, table[:wanted])
            self.blocks.free(self.key)
            self.blocks.share(self.key, table[:wanted])
            self.blocks.free(lent)

    def compare(self, text: Sequence[int]) -> int:
        for token in self.newer:
            if self.known == len(text) or text[self.known] != token:
                break
            self.known += 1
        self.newer = []
        self.known = min(self.known, len(text) - 1)
        return self.known


class DraftPlaces:
    def __init__(self, blocks: BlockManager) -> None:
        self._blocks = blocks
        self._texts: dict[str, Text] = {}

    def begin(self, key: str, text: Sequence[int], num_drafts: int) -> int | None:
        slots = len(text) + num_drafts - 1
        wanted = (slots + self._blocks.block_size - 1) // self._blocks.block_size
        if wanted - len(self._blocks.get_physical_blocks(key)) > self._blocks.num_free:
            return None
        found = self._texts.setdefault(key, Text(self._blocks, key))
        found.fit(wanted)
        return found.compare(text)

    def wrote(self, key: str, tokens: Sequence[int]) -> None:
        self._texts[key].newer.extend(tokens)

    def table(self, key: str) -> Sequence[int]:
        return tuple(self._blocks.get_physical_blocks(key))

    def end(self, key: str) -> None:
        if key in self._texts:
            del self._texts[key]
            if self._blocks.get_physical_blocks(key):
                self._blocks.free(key)
