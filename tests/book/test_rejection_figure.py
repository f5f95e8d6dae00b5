"""The figure `rejection` draws what the samplers draw, and its rounds end where they must."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from grader.kit.kernels import sampling_batch
from solutions.sampler import Sampler

pytestmark = pytest.mark.nightly

FIGURES = Path(__file__).parents[2] / "book/theme/figures"


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    """A page with the figure's scripts and nothing else."""
    page = browser.new_page()
    for name in ("base", "stage", "sampling", "rejection"):
        page.add_script_tag(path=str(FIGURES / f"{name}.js"))
    yield page
    page.close()


@pytest.mark.parametrize("p", [0.05, 0.5, 0.95])
def test_the_last_candidate_is_the_draw_of_lab_1(page: Any, p: float) -> None:
    logits = torch.tensor([page.evaluate("rejection.LOGITS")])
    seeds = list(range(1, 41))
    batch = sampling_batch(40, top_p=p, seeds=seeds)
    drawn = Sampler().sample(logits.repeat(40, 1), batch).tolist()
    rounds = [
        page.evaluate("([s, p]) => rejection.rounds(rejection.LOGITS, s, p)", [s, p]) for s in seeds
    ]
    assert [each[-1]["candidate"] for each in rounds] == drawn
    assert all(each[-1]["mass"] < p or each[-1]["mass"] == 0 for each in rounds)
    assert all(one["mass"] >= p for each in rounds for one in each[:-1])


def test_the_figure_opens_with_a_row_of_several_rounds(page: Any) -> None:
    assert page.evaluate("rejection.rounds(rejection.LOGITS, 37, 0.5).length") == 3
