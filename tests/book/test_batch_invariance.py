"""The sums of the chapter on batch invariance: in bfloat16, in the orders that are drawn."""

import re

import torch

from book.tools.mdbook import ROOT
from tests.book.test_hand_tables import _words
from yaie.backends.invariant.attention import SPLITS
from yaie.worker.deterministic import TILE


def add(left: float, right: float) -> float:
    return float(
        torch.tensor(left, dtype=torch.bfloat16) + torch.tensor(right, dtype=torch.bfloat16)
    )


def test_the_sums_that_are_drawn():
    drawing = (ROOT / "book/figures/sum-orders.svg").read_text("utf-8")

    def drawn(order: str) -> list[float]:
        return [float(sum_) for sum_ in re.findall(rf'data-order="{order}">(\d+)<', drawing)]

    first = add(256, 1)
    assert drawn("left") == [first, add(first, 1), add(add(first, 1), 1)]
    assert drawn("halves") == [first, add(1, 1), add(first, add(1, 1))]
    last = add(1, 1)
    assert drawn("right") == [last, add(1, last), add(256, add(1, last))]
    assert len({drawn(order)[-1] for order in ("left", "halves", "right")} | {256 + 3}) == 4


def test_the_sizes_that_the_engine_fixes():
    text = _words("batch-invariance")
    assert f"on tiles of {TILE} rows" in text
    assert f"always cut into {SPLITS} parts" in text
    steps = torch.finfo(torch.bfloat16).eps / torch.finfo(torch.float32).eps
    assert f"which has {steps:,.0f} numbers where bfloat16 has one" in text
