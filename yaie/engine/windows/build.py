"""Puts together what stands in the place of lab 3's manager where layers have a window."""

from typing import Any

from yaie.core.config import EngineConfig
from yaie.core.contracts import BlockManager, KVCacheManager, RadixTree
from yaie.engine.windows.blocks import make_blocks
from yaie.engine.windows.cache import WindowedCache
from yaie.engine.windows.encoder import GroupedEncoder
from yaie.engine.windows.grouped import GroupedCache, make_grouped
from yaie.parts import Parts
from yaie.worker.build import Sizes
from yaie.worker.windows import Held


def make_caches(
    config: EngineConfig, parts: Parts, sizes: Sizes, held: Held, tree: RadixTree | None
) -> tuple[KVCacheManager, BlockManager, RadixTree | None]:
    """(the cache, the blocks and the tree whose entries they are, for those who watch)."""
    if not held.full:
        blocks = make_blocks(parts, sizes.num_blocks, config.block_size)
        return WindowedCache(blocks, tree, held), blocks, None
    places: RadixTree | None = None
    if tree is not None:
        places = parts["radix_tree"].RadixTree(config.block_size)
    num_windowed = sizes.num_windowed_blocks
    behind = make_blocks(parts, num_windowed, config.block_size)
    windowed = WindowedCache(behind, places, held)
    part = parts["paged_cache"]
    blocks = part.BlockManager(sizes.num_blocks, config.block_size, 0)
    return make_grouped(part, blocks, tree, windowed, num_windowed), blocks, tree


def make_encoder(cache: KVCacheManager, held: Held, *settings: Any) -> GroupedEncoder:
    """What sends both tables of a request. settings: see StepEncoder."""
    assert isinstance(cache, GroupedCache)
    return GroupedEncoder(*settings, second_table=cache.windowed_table, width=held.whole)
