"""The vocabulary as a trie: tokens that begin alike share the walk through what they share."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


# ANCHOR: trie
class TokenTrie:
    """Nodes are numbered from the root, 0, level by level, so the children of a node are a range.

    tokens: the bytes of each token; b"" for one that adds no text.
    first_child, num_children: [nodes]. byte: [nodes], the one that leads to a node; the root's says
    nothing. node_of: [vocab], where a token ends; the root for one without text. Several tokens with the
    same bytes end at the same node.
    """

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self.tokens = tuple(tokens)
        children: list[dict[int, int]] = [{}]
        node_of = []
        for token in self.tokens:
            node = 0
            for byte in token:
                below = children[node]
                if byte not in below:
                    below[byte] = len(children)
                    children.append({})
                node = below[byte]
            node_of.append(node)
        self._number(children, node_of)

    # ANCHOR_END: trie

    def _number(self, children: list[dict[int, int]], node_of: list[int]) -> None:
        """Number the nodes anew, level by level."""
        order, values = [0], [0]
        first_child = []
        for node in order:  # which grows meanwhile
            first_child.append(len(order))
            for byte in sorted(children[node]):
                order.append(children[node][byte])
                values.append(byte)
        number = np.empty(len(order), np.int64)
        number[order] = np.arange(len(order))
        self.first_child: Ints = np.array(first_child, np.int64)
        self.num_children: Ints = np.array([len(children[node]) for node in order], np.int64)
        self.byte: Ints = np.array(values, np.int64)
        self.node_of: Ints = number[np.array(node_of, np.int64)]

    @property
    def num_nodes(self) -> int:
        """Nodes, the root among them."""
        return len(self.byte)

    def children_of(self, nodes: Ints) -> tuple[Ints, Ints]:
        """All children of these nodes [n], in a row: (children [m], for each the index of its parent in
        `nodes` [m])."""
        counts = self.num_children[nodes]
        parents = np.repeat(np.arange(len(nodes)), counts)
        begins = np.cumsum(counts) - counts
        return self.first_child[nodes][parents] + np.arange(len(parents)) - begins[parents], parents
