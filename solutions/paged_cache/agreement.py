"""What holds between the block manager, the radix tree and the tables that the cache manager keeps.

Called by `KVCacheManager.check`, after each of the two has verified itself.
"""

from collections.abc import Mapping

from yaie.core.contracts import BlockManager, RadixTree
from yaie.core.errors import InvariantError


# ANCHOR: check_agreement
def check_agreement(
    blocks: BlockManager, tree: RadixTree, nodes: Mapping[str, object], filed: Mapping[str, int]
) -> None:
    """Raise InvariantError unless tables, tree and blocks agree.

    Every block is free, cached or in use, once; a table's filed entries are the tree's own blocks,
    and their path is locked; an evictable block is in no table.

    nodes, filed: by request, the node that it has locked and how many blocks that path has.
    """
    in_tree = tree.all_blocks()
    for block in in_tree:
        if blocks.ref_count(block) == 0:
            raise InvariantError(f"block {block} is in the tree and on the free list")
    if nodes.keys() != filed.keys():
        odd = sorted(nodes.keys() ^ filed.keys())
        raise InvariantError(
            f"requests {odd} have a locked node or a number of filed blocks, not both"
        )
    for key, node in nodes.items():
        path, table = tree.path_blocks(node), blocks.get_physical_blocks(key)
        if path != table[: filed[key]]:
            raise InvariantError(f"request {key}: table {table[: filed[key]]} but tree path {path}")
    in_tables = {block for key in filed for block in blocks.get_physical_blocks(key)}
    idle = sum(block not in in_tables for block in in_tree)
    if idle != tree.num_evictable:
        raise InvariantError(
            f"{idle} tree blocks are in no table, but {tree.num_evictable} count as evictable"
        )


# ANCHOR_END: check_agreement
