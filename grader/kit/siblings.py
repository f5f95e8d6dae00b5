"""Which of several mistakes gives just what a part gave.

    with telling(lambda: fitting(out, right, [("acc is not rescaled: ...", lambda: ...), ...])):
        expect_near(out, right, ...)

Mistakes that fail one check are siblings. What each would give is computed, and one is told only if it
fits and none of the others does. Where nothing fits, the check's own words stay.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor

from grader.kit.expect import Mismatch

FITS = 0.1
"""What a sibling leaves of the error, as a share of it, if it explains it."""
APART = 0.3
"""What another one must leave at least."""

Sibling = tuple[str, Callable[[], Tensor]]
"""What to say, and what the mistake would give."""


def fitting(got: Any, right: Tensor, siblings: Sequence[Sibling]) -> str:
    """The words of the one sibling that gives `got`; "" if there is none, or more than one."""
    if not isinstance(got, Tensor) or got.shape != right.shape:
        return ""
    left = []
    for words, compute in siblings:
        with suppress(Exception):  # what a mistake makes of sizes may fail in any way
            left.append((_left(got.double(), right.double(), compute().double()), words))
    left.sort()
    if not left or left[0][0] > FITS:
        return ""
    others = [share for share, words in left if words != left[0][1]]
    return left[0][1] if not others or others[0] >= APART else ""


def _left(got: Tensor, right: Tensor, sibling: Tensor) -> float:
    """The share of the error that is left if `got` is compared with what the sibling gives."""
    if got.shape != sibling.shape or not torch.equal(got.isfinite(), sibling.isfinite()):
        return 1.0
    known = got.isfinite() & right.isfinite()
    error = float((got - right)[known].norm())
    if not torch.equal(got.isfinite(), right.isfinite()):
        # Values that should be there and are not: the rest must be the sibling's.
        error = max(error, float(sibling[known].norm()))
    return float((got - sibling)[known].norm()) / error if error > 0 else 1.0


@contextmanager
def telling(words: Callable[[], str]) -> Iterator[None]:
    """Where a check inside fails, `words` says why, if it says anything."""
    try:
        yield
    except Mismatch as error:
        with suppress(Exception):  # the check's own words are there
            error.why = words() or error.why
        raise
