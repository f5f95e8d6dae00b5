"""The figure `pass-time` has the numbers of its page's table, and its bars cross where the book says."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from book.tools.figures import load_figure

BOOK = Path(__file__).parents[2] / "book"
DATA = json.loads((BOOK / "traces/roofline.json").read_text("utf-8"))
PAGE = (BOOK / "src/inference.md").read_text("utf-8")


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    """A page with the figures' scripts and nothing else."""
    page = browser.new_page()
    for name in ("base", "stage", "timeline", "calculator", "roofline", "pass-time"):
        page.add_script_tag(path=str(BOOK / f"theme/figures/{name}.js"))
    yield page
    page.close()


def times(page: Any, tokens: int, *, prompt: bool, model: str = "llama-8b") -> dict[str, float]:
    found: dict[str, float] = page.evaluate(
        "([model, machine, set]) => passTime.times(model, machine, set)",
        [DATA["models"][model], DATA["machines"]["h200"], {"tokens": tokens, "prompt": prompt}],
    )
    return found


def row(begin: str) -> list[str]:
    """The cells of the page's table in the row that begins so."""
    [line] = [line for line in PAGE.splitlines() if line.startswith(f"| {begin}")]
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize(
    ("begin", "tokens", "prompt"), [("1 token", 1, False), ("1,000 tokens", 1000, True)]
)
def test_the_numbers_are_those_of_the_page_s_table(
    page: Any, begin: str, tokens: int, prompt: bool
) -> None:
    _, work, read, arithmetic, reading = row(begin)
    found = times(page, tokens, prompt=prompt)
    digits = 0 if tokens > 1 else 2
    assert f"{found['best'] * 1e3:.{digits}f} ms" == arithmetic
    assert f"{found['read'] * 1e3:.1f} ms" == reading
    assert f"{found['bytes'] / 1e9:.0f} GB" == read
    size, unit = (1e12, "TFLOP") if tokens > 1 else (1e9, "GFLOP")
    assert f"{found['flops'] / size:.0f} {unit}" == work
    assert f"at most {1 / times(page, 1, prompt=False)['read']:.0f} a second" in PAGE


def test_the_bars_cross_between_159_and_185_requests(page: Any) -> None:
    borders = page.evaluate("machine => passTime.borders(machine)", DATA["machines"]["h200"])
    assert [round(border) for border in borders] == [159, 185]
    for border, rate in zip(borders, ("worst", "best"), strict=True):
        for model in DATA["models"]:
            below, above = (
                times(page, number, prompt=False, model=model)
                for number in (int(border), int(border) + 1)
            )
            assert below[rate] < below["read"] < above[rate]
    predict = load_figure("pass-time")["predict"]
    [right] = [choice for choice in predict["choice"] if choice.get("right")]
    told = [int(number) for number in re.findall(r"\d+", right["why"])]
    assert told == [159, 185]


def test_a_token_of_each_request_is_a_step_of_the_roofline_without_its_keys(page: Any) -> None:
    for model, shape in DATA["models"].items():
        for tokens, prompt in ((1, False), (64, False), (1000, True)):
            found = times(page, tokens, prompt=prompt, model=model)
            step = page.evaluate(
                "([model, machine, step]) => roofline.step(model, machine, step)",
                [
                    shape,
                    DATA["machines"]["h200"],
                    {"sequences": 1 if prompt else tokens, "tokens": tokens if prompt else 1}
                    | {"cached": 0},
                ],
            )
            pairs = tokens * (tokens + 1) / 2 if prompt else tokens
            attention = 4 * shape["layers"] * shape["heads"] * shape["head_dim"] * pairs
            assert found["flops"] == step["flops"] - attention
            assert found["bytes"] == step["weightBytes"]
