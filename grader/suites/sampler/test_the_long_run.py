"""Tasks 1.1 to 1.7 beyond one call: results that stay, and nothing that is left behind."""

import gc
import weakref
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from itertools import count
from types import ModuleType
from typing import Any

import torch

from grader.kit import expect, expect_close, start_script, task, watch
from grader.kit.expect import claiming
from grader.kit.memory import expect_keeps_nothing
from grader.kit.standing import expect_results_stand
from grader.suites.sampler.rows import (
    PLAIN,
    batch_of,
    expect_on_its_device,
    filtered,
    penalties_of,
    readable,
    reference_filters,
)
from yaie.core.params import SamplingParams

VOCAB = 8
Make = Callable[[int, int], Any]
"""A filter's parameter for so many rows, different for each number."""


def check_filter(part: ModuleType, name: str, parameter: Make) -> None:
    """Of one filter."""

    def call(rows: int, number: int) -> Any:
        return filtered(part, name, readable(rows, VOCAB, seed=number), parameter(rows, number))

    expect_results_stand([lambda number=number: call(2, number) for number in (1, 2, 3)], name)  # type: ignore[misc]
    start_script()
    own, numbers = getattr(part.filters, name), count()
    # Each call with other logits: what is kept by its arguments grows, too.
    expect_keeps_nothing(lambda: own(readable(2, VOCAB, seed=next(numbers)), parameter(2, 1)), name)
    start_script()
    given = parameter(2, 1)

    def on(device: str) -> Any:
        columns = [given] if isinstance(given, torch.Tensor) else vars_of(given).values()
        there = [tensor.to(device) for tensor in columns]
        placed = there[0] if isinstance(given, torch.Tensor) else type(given)(*there)
        return own(torch.ones(2, VOCAB, device=device), placed)

    with claiming(f"{name} works on the device of its logits."):
        expect_on_its_device(on, f"{name}(logits, ...)")


def vars_of(penalties: Any) -> dict[str, torch.Tensor]:
    """The tensors of a PenaltyBatch, by name."""
    return {one.name: getattr(penalties, one.name) for one in fields(penalties)}


def column(*values: float) -> Make:
    """A column of a batch, in which row r of call c has the (r + c)-th of the values."""
    return lambda rows, number: torch.tensor(
        [values[(row + number) % len(values)] for row in range(rows)]
    )


def penalties(rows: int, number: int) -> Any:
    counts = [[(row + token + number) % 3 for token in range(VOCAB)] for row in range(rows)]
    return penalties_of(counts, counts, repetition=[1.5] * rows, presence=[0.25] * rows)


@task("1.1")
def test_penalties_of_many_calls(part: ModuleType) -> None:
    """Results of apply_penalties are made for their call, and nothing is left behind."""
    check_filter(part, "apply_penalties", penalties)


@task("1.1")
def test_frequency_of_a_long_output(part: ModuleType) -> None:
    """A token that was generated hundreds or thousands of times is counted to the last."""
    logits, counts = torch.full((1, 6), 2.0), [127, 128, 300, 513, 4097, 5001]
    got = filtered(
        part, "apply_penalties", logits, penalties_of([counts], [[0] * 6], frequency=[0.5])
    )
    right = torch.tensor([[-61.5, -62.0, -148.0, -254.5, -2046.5, -2498.5]])
    what = f"logits of tokens generated {counts} times"
    expect_close(got, right, what, rtol=0, atol=0, why=of_counts(got, counts))


def of_counts(got: Any, counts: list[int]) -> str:
    """What logits of 2, less 0.5 for each count, tell of how tokens were counted; "" if nothing."""
    if not isinstance(got, torch.Tensor) or list(got.shape) != [1, len(counts)]:
        return ""
    exact = torch.tensor(counts).float()
    used = ((2 - got[0]) * 2).tolist()
    taken = f"The tokens count {', '.join(f'{count:g}' for count in used)} times here"
    for name, least in (("uint8", 0), ("int8", -128)):
        if used == [(count - least) % 256 + least for count in counts]:
            return f"{taken}: counts of {name} wrap around after {least + 255}."
    if used == [min(count, max(used)) for count in counts] and used != counts:
        return f"{taken}: counts end at {max(used):g}. An output may have 100,000 tokens."
    for dtype in (torch.bfloat16, torch.float16):
        narrow = (exact.to(dtype).float(), (exact * 0.5).to(dtype).float() * 2)
        whole = (2 - exact * 0.5).to(dtype).float()
        if any(used == one.tolist() for one in (*narrow, (2 - whole) * 2)):
            wrong = [count for count, own in zip(counts, used, strict=True) if count != own]
            return f"{taken}: {dtype} has too few bits for {wrong[0]:,}, and for half of it."
    return ""


@task("1.1")
def test_repetition_of_logits_near_zero(part: ModuleType) -> None:
    """Repetition divides what is above 0, however little, and multiplies the rest."""
    logits = torch.tensor([[1e-4, 1e-7, -1e-7, 1e-3, 0.0]])
    given = penalties_of([[1] * 5], [[0] * 5], repetition=[4.0])
    right = torch.tensor([[2.5e-5, 2.5e-8, -4e-7, 2.5e-4, 0.0]])
    got = filtered(part, "apply_penalties", logits, given)
    why = "The sign of the logit decides, not whether it is large: compare with 0 itself."
    expect_close(got, right, "the logits after repetition 4", rtol=1e-5, atol=0, why=why)


@task("1.2")
def test_temperature_of_many_calls(part: ModuleType) -> None:
    """Results of apply_temperature are made for their call, and nothing is left behind."""
    check_filter(part, "apply_temperature", column(0.5, 1.0, 0.0))


@task("1.3")
def test_top_k_of_many_calls(part: ModuleType) -> None:
    """Results of apply_top_k are made for their call, and nothing is left behind."""
    check_filter(part, "apply_top_k", lambda rows, n: column(2, 3, 5)(rows, n).long())


@task("1.4")
def test_top_p_of_many_calls(part: ModuleType) -> None:
    """Results of apply_top_p are made for their call, and nothing is left behind."""
    check_filter(part, "apply_top_p", column(0.5, 0.9, 0.2))


@task("1.5")
def test_min_p_of_many_calls(part: ModuleType) -> None:
    """Results of apply_min_p are made for their call, and nothing is left behind."""
    check_filter(part, "apply_min_p", column(0.1, 0.5, 0.9))


@task("1.6")
def test_noise_of_many_calls(part: ModuleType) -> None:
    """Noise is made for its call, and nothing is left behind."""

    def call(noise: Any, number: int) -> Any:
        seeds = torch.arange(2) + number
        return noise.gumbel_noise(seeds, seeds + 1, VOCAB)

    watched, numbers = watch(part.noise, "noise"), count()
    expect_results_stand([partial(call, watched, number) for number in (1, 2, 3)], "gumbel_noise")
    start_script()
    expect_keeps_nothing(lambda: call(part.noise, next(numbers)), "gumbel_noise")


@task("1.7")
def test_sample_of_many_calls(part: ModuleType) -> None:
    """The tokens of a call are its own, and nothing is left behind."""
    sampler = part.Sampler()

    def call(rows: int, number: int, params: SamplingParams = PLAIN) -> Any:
        batch = batch_of([params] * rows, list(range(number, number + rows)), [0] * rows)
        with reference_filters(part):
            return sampler.sample(readable(rows, VOCAB, seed=number), batch)

    for params in (PLAIN, SamplingParams(temperature=0)):
        calls = [lambda number=n, params=params: call(2, number, params) for n in range(1, 8)]
        expect_results_stand(calls, "sample")
    numbers = count()
    with reference_filters(part):
        expect_keeps_nothing(lambda: sampler.sample(*arguments(next(numbers))), "sample")


@task("1.7")
def test_a_sampler_lets_its_logits_go(part: ModuleType) -> None:
    """After a call the sampler holds on to none of its arguments."""
    sampler = part.Sampler()
    logits, batch = arguments(1)
    kept = weakref.ref(logits), weakref.ref(batch.seeds)
    with reference_filters(part):
        sampler.sample(logits, batch)
    del logits, batch
    gc.collect()
    why = (
        "The logits of 200 rows of a large vocabulary take 100 MB, and a Sampler that keeps them keeps "
        "them until the next step. It remembers nothing from one call to the next."
    )
    for what, reference in zip(("logits", "batch"), kept, strict=True):
        expect(reference() is None, f"the Sampler keeps the {what} of its last call", why=why)


def arguments(number: int) -> tuple[torch.Tensor, Any]:
    """What two rows are sampled with, other logits and seeds for each number."""
    seeds = [number, number + 1]
    return readable(2, VOCAB, seed=number), batch_of([PLAIN] * 2, seeds, [0, 0])
