"""Whose BlockManager serves a model of windows: the part's, if it has the optional capability."""

from contextlib import suppress

from yaie.core.contracts import BlockManager
from yaie.parts import Parts, load_part


def make_blocks(parts: Parts, num_blocks: int, block_size: int) -> BlockManager:
    """The BlockManager of the part, or the reference's, if that takes no block twice into a table."""
    part = parts["paged_cache"]
    if parts.is_yours("paged_cache") and not takes_repeats(part.BlockManager(4, 1, 0)):
        part = load_part("paged_cache", "none").package
    blocks: BlockManager = part.BlockManager(num_blocks, block_size, 0)
    return blocks


def takes_repeats(blocks: BlockManager) -> bool:
    """Whether a block may be in a table more than once, with a reference for each entry.

    blocks: an empty one, of four blocks; it is used up.
    """
    with suppress(Exception):
        (blank,) = blocks.allocate("a", 1)
        blocks.hold([blank])
        blocks.free("a")
        blocks.share("b", [blank, blank])
        (own, _) = blocks.allocate("b", 2)
        blocks.replace("b", 2, [blank])
        counts = [blocks.ref_count(block) for block in (blank, own)]
        blocks.check()
        blocks.free("b")
        return [*counts, blocks.ref_count(blank), blocks.num_free] == [4, 0, 1, 3]
    return False
