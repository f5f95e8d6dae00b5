"""Which stride may be taken for which, by their names alone."""

import re
from collections.abc import Iterable

STRIDE = re.compile(r"((^|_)strides?|^[a-z]{1,2}_(token|sequence))$")
"""Names that are strides: k_stride, q_strides, and where a kernel takes many, q_token and k_sequence."""
WIDTH = ("D", "d", "dim")
"""What a stride is if rows follow each other without a gap, by the names that kernels give it."""
MOST = 2
"""Strides that one is replaced by, each in a mutant of its own."""


def is_stride(name: str) -> bool:
    return bool(STRIDE.search(name.rsplit(".", 1)[-1]))


def others_for(name: str, names: Iterable[str]) -> list[str]:
    """Strides that a learner may use in place of this one: of another tensor, of another dimension.

    names: all that stand at hand, in order. Two strides are taken for each other if their names differ
    in one word: k_head_stride and v_head_stride, k_head_stride and k_slot_stride. If there is none, any.
    """
    strides = [
        other
        for other in dict.fromkeys(names)
        if is_stride(other) and other != name and other.endswith("s") == name.endswith("s")
    ]
    alike = [other for other in strides if _distance(name, other) == 1]
    return (alike or strides)[:MOST]


def width_among(names: Iterable[str]) -> str | None:
    """The name of a row's width, if it stands at hand."""
    at_hand = set(names)
    return next((name for name in WIDTH if name in at_hand), None)


def _distance(one: str, other: str) -> int:
    """Words that differ; names of different length have nothing to do with each other."""
    words, others = re.split(r"[_.]", one), re.split(r"[_.]", other)
    if len(words) != len(others):
        return len(words) + len(others)
    return sum(a != b for a, b in zip(words, others, strict=True))
