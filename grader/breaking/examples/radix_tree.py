from typing import Any


def attack_two_prompts(part: Any) -> Any:
    """A second prompt finds the blocks that it shares with the first, and no more."""
    tree = part.RadixTree(2)
    tree.insert([1, 2, 3, 4, 5, 6], [10, 11, 12])
    blocks, node = tree.match_prefix([1, 2, 3, 4, 7, 8], 3)
    return blocks, tree.path_blocks(node), tree.num_blocks
