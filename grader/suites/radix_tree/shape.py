"""What is wrong with the shape of a tree that is made of the given nodes, in a sentence."""

from collections.abc import Iterator
from typing import Any

from grader.kit import quietly
from grader.kit.script import show

MOST_SAID = 2
"""Of faults of one kind that are told."""
MOST_NODES = 10_000
"""Nodes that are looked at: a tree that leads back to itself has no end."""
KEYS = "A child hangs under a tuple of the tokens of its first block."


def key_of(node: Any, size: int) -> tuple[int, ...]:
    """What a node hangs under in its parent's children."""
    return tuple(node.tokens[:size])


def fault_in(tree: Any) -> str:
    """What is found of the first of these kinds: a node without the tokens of its blocks, a key that can
    be none, a node in two places, a node under another's key, a parent that is not. "" if none is found,
    or if the tree is made of other nodes than the given."""
    tree = quietly(tree)
    root, size = getattr(tree, "_root", None), getattr(tree, "block_size", 0)
    if not hasattr(root, "children"):
        return ""
    looks = (_tokens, _no_key, _two_places(), _other_key, _parent)
    try:
        edges = list(_edges(root))
        found = ([said for edge in edges if (said := look(*edge, size))] for look in looks)
        return " ".join(next(filter(None, found), [])[:MOST_SAID])
    except (AttributeError, TypeError):
        return ""


def _edges(root: Any) -> Iterator[tuple[Any, Any, Any]]:
    """(parent, key, child), each node's children once."""
    stack, seen = [root], {id(root)}
    while stack and len(seen) < MOST_NODES:
        node = stack.pop()
        for key, child in node.children.items():
            yield node, key, child
            if id(child) not in seen:
                seen.add(id(child))
                stack.append(child)


def _tokens(parent: Any, key: Any, child: Any, size: int) -> str:
    if len(child.tokens) == size * len(child.blocks):
        return ""
    return (
        f"The node with the blocks {show(child.blocks)} has the tokens {show(child.tokens)}, "
        f"{len(child.tokens)} of them. A node has block_size tokens for each of its blocks, "
        f"{size * len(child.blocks)} here."
    )


def _no_key(parent: Any, key: Any, child: Any, size: int) -> str:
    if isinstance(key, tuple) and len(key) == size:
        return ""
    return f"{_hangs(key, child)}. {KEYS} That is {show(key_of(child, size))} here."


def _two_places() -> Any:
    parents: dict[int, Any] = {}

    def look(parent: Any, key: Any, child: Any, size: int) -> str:
        if id(child) not in parents:
            parents[id(child)] = (parent, key)
            return ""
        first, its_key = parents[id(child)]
        if first.children is parent.children:
            return (
                "Two nodes have one and the same `children`, a dict that both changed: the node with "
                f"the blocks {show(child.blocks)} hangs {_below(first)} and {_below(parent)}."
            )
        return (
            f"The node with the blocks {show(child.blocks)} hangs in two places: {_below(first)} under "
            f"the key {show(its_key)}, and {_below(parent)} under {show(key)}."
        )

    return look


def _other_key(parent: Any, key: Any, child: Any, size: int) -> str:
    if key == key_of(child, size):
        return ""
    return f"{_hangs(key, child)}, but its first block has {show(key_of(child, size))}. {KEYS}"


def _parent(parent: Any, key: Any, child: Any, size: int) -> str:
    if child.parent is parent:
        return ""
    its = (
        "None" if child.parent is None else f"the node with the blocks {show(child.parent.blocks)}"
    )
    return (
        f"The node with the blocks {show(child.blocks)} is a child {_of(parent)}, but its `parent` is "
        f"{its if child.parent is None or child.parent.blocks else 'the root'}."
    )


def _hangs(key: Any, child: Any) -> str:
    return f"The node with the blocks {show(child.blocks)} hangs under the key {show(key)}"


def _below(node: Any) -> str:
    return f"below {show(node.blocks)}" if node.blocks else "below the root"


def _of(node: Any) -> str:
    return f"of the node with the blocks {show(node.blocks)}" if node.blocks else "of the root"
