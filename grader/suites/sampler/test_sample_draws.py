"""Task 1.7, the samples: what they depend on, and how often each token is sampled."""

from dataclasses import replace
from types import ModuleType
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from grader.kit import Mismatch, examples, expect, expect_equal, note, start_script, task
from grader.kit.script import current_script, resume_script
from grader.kit.session import SESSION
from grader.suites.sampler.rows import (
    FILTERED,
    GREEDY,
    PLAIN,
    TENSORS,
    batch_of,
    chi_square_chance,
    draw,
    expect_on_its_device,
    given_in,
    of_the_seed,
    readable,
    reference_filters,
)
from solutions.sampler.naive import probabilities
from yaie.core.params import SamplingParams

SURELY_NOT = 1e-9
"""A right sampler is this unlucky once in a thousand million gradings."""

KINDS = [GREEDY, PLAIN, FILTERED, SamplingParams(temperature=2.0, top_p=0.5)]

ALONE = "A draw depends on the row's logits, parameters, seed and step, and on nothing else."


def of_the_place(part: ModuleType, seed: int, place: int, size: int) -> str:
    """What a draw in this row of a batch depends on, if draws at thirty steps tell; "" if not."""
    script = current_script()
    try:
        return _of_the_place(part, seed, place, size)
    except Exception:  # noqa: BLE001, a part may raise anything
        return ""
    finally:
        resume_script(script)


def _of_the_place(part: ModuleType, seed: int, place: int, size: int) -> str:
    logits = readable(1, 40, seed=11)

    def in_row(own: int, row: int, count: int, other: int = -1) -> list[int]:
        """What a seed draws there, step by step, beside rows with the seeds 100, 101, ...; other: a row
        whose seed is 500 instead."""
        seeds = [500 if i == other else 100 + i for i in range(count)]
        seeds[row] = own
        start_script()
        rows = logits.expand(count, -1)
        return [
            draw(part, rows, [FILTERED] * count, seeds, [step] * count)[row] for step in range(30)
        ]

    def alone(own: int) -> list[int]:
        return in_row(own, 0, 1)

    if alone(seed) != alone(seed):
        return "Asked twice alone, it draws other tokens too: a generator or a state is in it."
    if seed == 0 and all(in_row(other, place, size) == alone(other) for other in (7, 42, 900)):
        return (
            "Seeds 7, 42 and 900 draw the same there as alone, and seed 0 does not: 0 is a seed like "
            "any other."
        )
    there = in_row(7, place, size)
    if place and there == alone(7 + place):
        return f"In row {place} seed 7 draws what seed {7 + place} draws alone: the row is in the seed."
    deciding = [row for row in range(size) if row != place and in_row(7, place, size, row) != there]
    if deciding:
        rows = f"row{'s' * (len(deciding) > 1)} {', '.join(map(str, deciding))}"
        if in_row(11, place, size) == there:
            return f"The seed of {rows} decides what row {place} draws. Its own has no say."
        return f"What row {place} draws changes with the seed of {rows}."
    if in_row(7, 0, size) != alone(7):
        return f"In row 0 of {size} it is another one too: the shape of the batch is in it."
    if place:
        return (
            f"In row 0 of {size} it is the one that is drawn alone: the number of the row is in it."
        )
    return ""


@task("1.7")
def test_a_draw_is_the_same_in_any_batch(part: ModuleType) -> None:
    """A request gets the same tokens alone, in any row of any batch, and when asked again."""
    logits = readable(1, 40, seed=11)
    for place, size in ((0, 1), (1, 2), (0, 3), (2, 3), (4, 6)):
        for step in range(20):
            seed = 42 if step % 2 else 0
            start_script()
            alone = draw(part, logits, [FILTERED], [seed], [step])
            rows = readable(size, 40, seed=step)
            rows[place] = logits[0]
            params = [KINDS[i % 4] for i in range(size)]
            params[place] = FILTERED
            seeds = [100 + i for i in range(size)]
            seeds[place] = seed
            got = draw(part, rows, params, seeds, [step] * size)
            what = (
                f"the draw of seed {seed} at step {step}, in row {place} of {size} instead of alone"
            )
            is_same = got[place] == alone[0]
            why = ALONE if is_same else of_the_place(part, seed, place, size) or ALONE
            expect_equal(got[place], alone[0], what, why=why)


@task("1.7")
def test_a_sampler_remembers_nothing(part: ModuleType) -> None:
    """A sampler that was used before gives what a new one gives."""
    for params in ([PLAIN], [PLAIN, FILTERED, SamplingParams(top_k=9)]):
        start_script()
        logits, seeds = readable(len(params), 40, seed=3), [7, 8, 9][: len(params)]
        sampler = part.Sampler()
        for step in range(6):
            steps, script = [step] * len(params), current_script()
            start_script()
            new = draw(part, logits, params, seeds, steps)
            resume_script(script)
            note("# by one Sampler for all steps:" if step == 0 else "# by the same Sampler:")
            got = draw(part, logits, params, seeds, steps, sampler=sampler)
            what = f"the draw at step {step} of a Sampler that was used before, and of a new one"
            expect_equal(got, new, what, why=of_the_past(part) if got != new else "")


def of_the_past(part: ModuleType) -> str:
    """What of earlier calls is in a draw, if draws of 64 rows tell; "" if not."""
    script = current_script()
    start_script()
    logits, seeds = readable(1, 40, seed=3).expand(64, -1), list(range(64))

    def at(step: int, sampler: Any = None) -> list[int]:
        return draw(part, logits, [PLAIN] * 64, seeds, [step] * 64, sampler=sampler)

    try:
        used = part.Sampler()
        third, ninth, again = (at(step, used) for step in (3, 9, 9))
        if ninth == third:
            return (
                "At step 9 it draws just what it drew at step 3: the noise of that call was kept."
            )
        if [ninth, again] == [at(10), at(11)]:
            return (
                "After one call it draws at step 9 what a new Sampler draws at step 10, and after two "
                "calls what that draws at step 11: the number of its calls is added to the step."
            )
        if ninth != again:
            return "Asked twice for the same step, it draws other tokens: its calls change a state."
    except Exception:  # noqa: BLE001, a part may raise anything
        return ""
    finally:
        resume_script(script)
    return ""


@task("1.7")
def test_every_bit_of_a_seed_decides(part: ModuleType) -> None:
    """Other seeds give other tokens, whichever of the 64 bits differs, the sign too."""
    steps, rows = list(range(64)), torch.zeros(64, 50)
    drawn: dict[tuple[int, ...], int] = {}

    def given_to(seed: int) -> list[int]:
        return draw(part, rows, [PLAIN] * 64, [seed] * 64, steps)

    for seed in (7, 8, 7 + (1 << 32), 7 + (1 << 62), 7 - (1 << 63), -7):
        tokens = tuple(given_to(seed))
        if (other := drawn.get(tokens)) is not None:
            start_script()
            given_to(other)
            given_to(seed)
            problem = f"seeds {other} and {seed} give the same 64 tokens"
            raise Mismatch(problem, why=of_the_seed(given_to))
        drawn[tokens] = seed


DISTRIBUTIONS = [
    PLAIN,
    SamplingParams(temperature=0.5),
    SamplingParams(temperature=2.0, top_k=5),
    SamplingParams(top_p=0.7),
    SamplingParams(temperature=1.3, min_p=0.2),
    FILTERED,
]


@task("1.7")
def test_draws_follow_the_distribution(part: ModuleType) -> None:
    """Over many steps and many seeds tokens come as often as their probabilities say (chi-square)."""
    logits = torch.tensor([1.0, -0.5, 2.0, 0.0, 1.5, -1.0, 0.75, 0.25, 1.75, -0.25])
    count, first = 10_000, 100_000 * SESSION.seed
    many, rows = list(range(first, first + count)), logits.expand(2 * count, -1)
    for params in DISTRIBUTIONS:
        right = torch.tensor(probabilities(logits.tolist(), params))
        seeds, steps = [5] * count + many, many + [9] * count
        drawn = torch.tensor(draw(part, rows, [params] * 2 * count, seeds, steps))
        counts = drawn.clamp(min=0).bincount(minlength=10)
        wrong = ((counts > 0) & (right == 0)).nonzero().flatten().tolist()
        expect(
            not wrong,
            f"with {given_in(params)}, tokens {wrong} are sampled, which are ruled out",
        )
        chance = chi_square_chance(counts[right > 0], right[right > 0])
        shares = [round(float(share), 3) for share in counts / counts.sum()]
        problem = (
            f"with {given_in(params)}, tokens come with shares {shares} instead of "
            f"{[round(float(p), 3) for p in right]}"
        )
        why = (
            "argmax(logits + Gumbel noise) samples from softmax(logits); noise comes after filters."
        )
        expect(chance > SURELY_NOT, problem, why=why)


@st.composite
def batches(draw: st.DrawFn) -> list[tuple[int, SamplingParams, int, int]]:
    """Rows as (seed of the logits, parameters, seed, step)."""
    seeds = st.integers(-(2**63), 2**63 - 1)
    row = st.tuples(st.integers(0, 99), st.sampled_from(KINDS), seeds, st.integers(0, 999))
    return draw(st.lists(row, min_size=1, max_size=6))


@task("1.7")
@examples(40)
@given(batches(), st.data())
def test_any_row_draws_the_same_alone(
    part: ModuleType, rows: list[tuple[int, SamplingParams, int, int]], data: st.DataObject
) -> None:
    """A row gives the same token alone and beside any other rows."""
    made = [(readable(1, 12, number), params, seed, step) for number, params, seed, step in rows]
    logits, params, seeds, steps = (list(column) for column in zip(*made, strict=True))
    together = draw(part, torch.cat(logits), params, seeds, steps)
    row = data.draw(st.integers(0, len(rows) - 1))
    note(f"# row {row} of these {len(rows)}, alone:")
    alone = draw(part, logits[row], [params[row]], [seeds[row]], [steps[row]])
    expect_equal(
        together[row], alone[0], f"the draw of row {row}, which alone is {alone[0]}", why=ALONE
    )


@task("1.7")
def test_tokens_are_where_the_logits_are(part: ModuleType) -> None:
    """sample works on the device of the logits."""

    given_batch = batch_of([PLAIN, GREEDY], [1, 2], [0, 0])

    def call(device: str) -> torch.Tensor:
        there = {name: getattr(given_batch, name).to(device) for name in TENSORS}
        batch = replace(given_batch, **there)
        with reference_filters(part):
            return part.Sampler().sample(torch.zeros(2, 5, device=device), batch)

    expect_on_its_device(call, "sample(logits, batch)")
