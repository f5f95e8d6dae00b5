"""The figure `causal-mask` draws the mask of lab 2, and beside it what torch.tril makes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from solutions.transformer_ops.attention import causal_mask

FIGURES = Path(__file__).parents[2] / "book/theme/figures"
SIZES = [(keys, tokens) for keys in range(1, 9) for tokens in range(1, keys + 1)]


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    """A page with the figure's scripts and nothing else."""
    page = browser.new_page()
    for name in ("base", "stage", "causal-mask"):
        page.add_script_tag(path=str(FIGURES / f"{name}.js"))
    yield page
    page.close()


def drawn(page: Any, **every: Any) -> list[list[list[bool]]]:
    """The figure's masks for SIZES. every: what holds for all of them."""
    sets = [{"keys": keys, "tokens": tokens, **every} for keys, tokens in SIZES]
    masks: list[list[list[bool]]] = page.evaluate(
        "sets => sets.map((set) => causalMask.mask(set))", sets
    )
    return masks


@pytest.mark.parametrize("window", [0, 3])
def test_the_mask_is_that_of_the_lab(page: Any, window: int) -> None:
    for (keys, tokens), mask in zip(SIZES, drawn(page, window=window), strict=True):
        [added] = causal_mask(torch.tensor([keys]), tokens, keys, window or None, torch.float32)
        assert mask == (added == 0).tolist(), (keys, tokens)


def test_the_one_beside_it_is_torch_s_triangle(page: Any) -> None:
    for (keys, tokens), mask in zip(SIZES, drawn(page, corner=True), strict=True):
        assert mask == torch.tril(torch.ones(tokens, keys, dtype=torch.bool)).tolist()


def test_a_whole_prompt_hides_the_mistake_and_a_decode_step_sees_one_key(page: Any) -> None:
    right, corner = drawn(page), drawn(page, corner=True)
    agree = {size for size, one, other in zip(SIZES, right, corner, strict=True) if one == other}
    assert agree == {(keys, keys) for keys in range(1, 9)}
    steps = [mask[0] for (_, tokens), mask in zip(SIZES, corner, strict=True) if tokens == 1]
    assert [(sum(row), row[0]) for row in steps] == [(1, True)] * 8
