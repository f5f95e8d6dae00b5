"""The figure `sampling` filters and draws in the page, by the reference's arithmetic."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from solutions.sampler import naive
from solutions.sampler.noise import gumbel_noise
from solutions.sampler.sampler import Sampler
from yaie.core.params import SamplingParams
from yaie.core.request import Request
from yaie.explore.sampling import sampling_batch

BOOK = Path(__file__).parents[2] / "book"
LOGITS: list[float] = json.loads((BOOK / "traces/sampling.json").read_text("utf-8"))["logits"]
TIED = [1.0, 3.0, 2.0, 2.0, 2.0, 0.0]

SETTINGS = [
    {"temperature": 0.0},
    {"temperature": 0.0, "top_k": 5, "top_p": 0.5},
    {"temperature": 1.0},
    {"temperature": 2.0},
    {"temperature": 0.06},
    {"temperature": 1.0, "top_k": 1},
    {"temperature": 1.3, "top_k": 7},
    {"temperature": 1.0, "top_p": 0.8},
    {"temperature": 0.5, "top_p": 0.8},
    {"temperature": 1.5, "top_p": 0.95},
    {"temperature": 1.0, "top_p": 0.05},
    {"temperature": 1.0, "min_p": 0.02},
    {"temperature": 2.0, "min_p": 0.5},
    {"temperature": 1.0, "top_k": 20, "top_p": 0.8},
    {"temperature": 1.7, "top_k": 30, "top_p": 0.95, "min_p": 0.08},
]


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    """A page with the figure's script and nothing else."""
    page = browser.new_page()
    for name in ("base", "stage", "sampling"):
        page.add_script_tag(path=str(BOOK / f"theme/figures/{name}.js"))
    yield page
    page.close()


def in_page(page: Any, logits: list[float], settings: dict[str, float]) -> dict[str, Any]:
    """What the figure makes of a row: scaled logits, which filter removed each token, probabilities."""
    names = {"top_k": "topK", "top_p": "topP", "min_p": "minP"}
    values = {names.get(name, name): value for name, value in settings.items()}
    result: dict[str, Any] = page.evaluate(
        "([logits, values]) => sampling.filter(logits, values)", [logits, values]
    )
    return result


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_figure_leaves_the_tokens_and_probabilities_that_the_reference_leaves(page, settings):
    expected = naive.probabilities(LOGITS, SamplingParams(**settings))
    found = in_page(page, LOGITS, settings)
    assert [why == "" for why in found["out"]] == [probability > 0 for probability in expected]
    assert found["probs"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("settings", [{"temperature": 1.0, "top_k": 2}, {"temperature": 0.0}])
def test_equals_are_treated_as_the_reference_treats_them(page, settings):
    expected = naive.probabilities(TIED, SamplingParams(**settings))
    assert in_page(page, TIED, settings)["probs"] == pytest.approx(expected)


def test_each_token_is_said_to_be_removed_by_the_first_filter_that_removes_it(page):
    settings = {"temperature": 1.0, "top_k": 20, "top_p": 0.8, "min_p": 0.2}
    out = in_page(page, LOGITS, settings)["out"]
    order = sorted(range(len(LOGITS)), key=lambda token: -LOGITS[token])
    # Of the 20 likeliest 4 hold 0.8 of what the 20 hold; 3 of those are at least 0.2 of the best.
    counts = {"": 3, "min-p": 1, "top-p": 16, "top-k": len(LOGITS) - 20}
    assert [out[token] for token in order] == [why for why in counts for _ in range(counts[why])]


def test_the_noise_is_the_reference_s(page):
    expected = gumbel_noise(torch.tensor([7]), torch.tensor([3]), 200)[0].tolist()
    found = page.evaluate("() => [...Array(200).keys()].map((i) => sampling.gumbel(7, 3, i))")
    # The reference is in float32; far out in the tail its noise is known to fewer digits.
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("settings", [SETTINGS[2], SETTINGS[3], SETTINGS[14]], ids=str)
def test_the_figure_draws_the_tokens_that_the_reference_draws(page, settings):
    count, seed = 100, 5
    requests = [Request(f"r{i}", [0], SamplingParams(**settings), seed=seed) for i in range(count)]
    for step, request in enumerate(requests):
        request.token_ids += [0] * step
    batch = sampling_batch(requests, len(LOGITS))
    expected = Sampler().sample(torch.tensor([LOGITS]).repeat(count, 1), batch).tolist()
    found = page.evaluate(
        "([filtered, seed, count]) => sampling.draw(filtered, seed, 0, count)",
        [in_page(page, LOGITS, settings), seed, count],
    )
    assert found == expected
    assert len(set(found)) > 3  # or the draws would prove little


def test_the_numbers_in_the_question_are_those_of_the_row():
    def left(temperature: float) -> int:
        params = SamplingParams(temperature=temperature, top_p=0.8)
        return sum(probability > 0 for probability in naive.probabilities(LOGITS, params))

    assert (left(1.0), left(0.5), left(1.5)) == (5, 2, 17)
    shares = [
        max(naive.probabilities(LOGITS, SamplingParams(temperature=temperature)))
        for temperature in (1.0, 0.5)
    ]
    assert [math.floor(100 * share + 0.5) for share in shares] == [38, 68]
