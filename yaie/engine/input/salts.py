"""Whether the radix tree in use tells salted prompts apart: a learner's may look at numbers alone."""

from contextlib import suppress
from typing import Any

from yaie.core.errors import InvalidRequestError
from yaie.core.salted import salted
from yaie.parts import Parts

_PROMPT = [1, 2]


def check_salts(parts: Parts) -> None:
    """Raise InvalidRequestError for a tree that would share prefixes between salts. The reference
    compares tokens, and is not asked."""
    if any(part.is_yours for part in parts.table() if part.lab == "radix_tree"):
        tree = parts["radix_tree"].RadixTree(1)
        if not _tells_apart(tree):
            raise InvalidRequestError(
                "cache_salt: the radix tree in use does not tell salted prompts apart, so they would "
                "share their prefixes with all others. It must compare and hash the tokens that it is "
                "given as they are, not numbers or bytes made of them.",
                param="cache_salt",
            )


def _tells_apart(tree: Any) -> bool:
    """Asked of a tree of its own, with blocks of one token."""
    with suppress(Exception):  # whatever it raises, it does not tell
        tree.insert(salted(_PROMPT, "a"), [0, 1])
        others = (tree.peek(_PROMPT, 2), tree.peek(salted(_PROMPT, "b"), 2))
        return not any(others) and list(tree.peek(salted(_PROMPT, "a"), 2)) == [0, 1]
    return False
