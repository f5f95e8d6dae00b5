from contextlib import suppress
from typing import Any

from yaie.core.errors import OutOfBlocksError


def attack_all_or_nothing(part: Any) -> Any:
    """A request that asks for too much gets nothing, and has no table."""
    blocks = part.BlockManager(4, 2)
    blocks.allocate("a", 3)
    with suppress(OutOfBlocksError):
        blocks.allocate("b", 2)
    return blocks.num_free, blocks.get_physical_blocks("b")
