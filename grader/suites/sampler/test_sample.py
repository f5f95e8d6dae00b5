"""Task 1.7: one call for the batch. Filters and noise are the reference's here; see `rows.draw`."""

import math
from dataclasses import fields
from types import ModuleType

import torch
from torch import Tensor

from grader.kit import expect, expect_equal, note, start_script, task
from grader.kit.expect import claiming
from grader.kit.mistakes import told_by
from grader.suites.sampler.rows import (
    CALLED,
    FILTERED,
    GREEDY,
    INF,
    PLAIN,
    ROWS_APART,
    TENSORS,
    batch_of,
    draw,
    given_in,
    logs,
    penalties_of,
    readable,
    reference_filters,
)
from yaie.core.params import SamplingParams


def drawn_set(part: ModuleType, logits: Tensor, params: SamplingParams) -> list[int]:
    """Which tokens 400 draws from one row of logits find."""
    shares = ", ".join(f"{share:.3g}" for share in logits[0].softmax(-1).tolist())
    note(f"# 400 draws from tokens with probabilities {shares} at temperature 1:")
    rows = logits.expand(400, -1)
    return sorted(set(draw(part, rows, [params] * 400, [3] * 400, list(range(400)))))


@task("1.7")
def test_greedy_takes_the_best(part: ModuleType) -> None:
    """At temperature 0 every row takes its largest logit."""
    logits = torch.tensor([[1.0, 3.0, 2.0], [5.0, -1.0, 4.0], [-9.0, -8.0, -7.0]])
    got = draw(part, logits, [GREEDY] * 3, [1, 2, 3], [0, 1, 2])
    why = "temperature = 0 is a way to ask for the best token, not an error and not a division by zero."
    expect_equal(got, [1, 0, 2], "the tokens of three greedy rows", why=why)


@task("1.7")
def test_greedy_rows_beside_rows_that_draw(part: ModuleType) -> None:
    """Greedy rows take the best token at every step, beside rows that sample."""
    logits = readable(6, 20, seed=2) + torch.linspace(0, 0.1, 20)
    params = [GREEDY, SamplingParams(temperature=5.0)] * 3
    best = logits.argmax(dim=-1)[::2].tolist()
    for step in range(10):
        start_script()
        got = draw(part, logits, params, list(range(6)), [step] * 6)
        why = "Noise is for the rows with a temperature; a greedy row gets none."
        expect_equal(got[::2], best, "the tokens of the greedy rows in a mixed batch", why=why)


@task("1.7")
def test_steps_decide(part: ModuleType) -> None:
    """Other steps of a request give other tokens."""
    got = draw(part, torch.zeros(64, 50), [PLAIN] * 64, [7] * 64, list(range(64)))
    why = "The step of a row is part of what its noise is made from, as its seed is."
    many = len(set(got))
    expect(many > 20, f"64 steps of one seed draw only {many} of 50 equally likely tokens", why=why)


@task("1.7")
def test_noise_comes_last(part: ModuleType) -> None:
    """Noise is added to what temperature and filters leave."""
    row = torch.tensor([[2.0, 1.5, 0.0, 1.0]])
    for params, why in (
        (
            SamplingParams(temperature=1e-3),
            "Noise that is added before the division is divided too, and counts as much as at 1.",
        ),
        (
            SamplingParams(top_k=1),
            "Noise that is added before top_k has a say in which token is the one that stays.",
        ),
    ):
        got = drawn_set(part, row, params)
        name = given_in(params).split()[0]
        if not CALLED[f"apply_{name}"]:
            why = f"sample has not called apply_{name}: {name} was not applied, or in another way."
        expect_equal(got, [0], f"the tokens sampled with {given_in(params)}", why=why)


@task("1.7")
def test_zero_alone_is_greedy(part: ModuleType) -> None:
    """At the smallest temperature above 0 equally likely tokens are sampled equally often."""
    for tiny in (1e-3, 1e-30):
        got = drawn_set(part, torch.tensor([[2.0, 2.0, 1.0]]), SamplingParams(temperature=tiny))
        why = "A row is greedy at temperature 0. At any other it samples, and of two best ones either."
        expect_equal(got, [0, 1], f"the tokens sampled at temperature {tiny}", why=why)


@task("1.7")
def test_tiny_temperatures_draw_the_best(part: ModuleType) -> None:
    """A tiny temperature gives the best token, a large one still gives a token."""
    logits = torch.tensor([[80.0, 0.0, 79.0], [-9.0, -2.0, -3.0], [1.0, 2.0, 1.5]])
    for tiny in (1e-3, 1e-30, 1e-45):
        got = draw(part, logits, [SamplingParams(temperature=tiny)] * 3, [1, 2, 3], [0] * 3)
        expect_equal(got, [0, 1, 1], f"the tokens at temperature {tiny}")
    got = draw(part, logits, [SamplingParams(temperature=100.0)] * 3, [1, 2, 3], [0] * 3)
    expect(all(0 <= token < 3 for token in got), f"temperature 100 gives {got} of tokens 0 to 2")


@task("1.7")
def test_one_possible_token_is_drawn(part: ModuleType) -> None:
    """-inf for some tokens is not an error of a row: it samples among the others only."""
    logits = torch.full((200, 30), -INF)
    logits[:, 7] = -50.0
    got = draw(part, logits[:3], [GREEDY, PLAIN, FILTERED], [1, 2, 3], [0] * 3)
    why = "Only NaN, +inf, or nothing but -inf gives -1."
    expect_equal(got, [7] * 3, "the tokens of rows in which only token 7 is possible", why=why)
    got = draw(part, logits, [SamplingParams(temperature=9.0)] * 200, [1] * 200, list(range(200)))
    expect_equal(
        sorted(set(got)), [7], "the tokens sampled where only token 7 is possible", why=why
    )
    start_script()
    got = draw(part, torch.zeros(3, 1), [GREEDY, PLAIN, FILTERED], [1, 2, 3], [0] * 3)
    with claiming("A vocabulary of one token gives that token in every row."):
        expect_equal(got, [0, 0, 0], "the tokens of a vocabulary of one")


@task("1.7")
def test_tokens_of_a_large_vocabulary(part: ModuleType) -> None:
    """A token's number may be in the ten thousands, as the vocabulary is."""
    logits = torch.zeros(3, 70_000)
    logits[:, 66_000] = 50.0
    got = draw(part, logits, [GREEDY, PLAIN, SamplingParams(top_k=1)], [1, 2, 3], [0] * 3)
    why = "A vocabulary is as large as the logits are wide, and its tokens need more than 16 bits."
    expect_equal(
        got, [66_000] * 3, "the tokens where token 66,000 of 70,000 is far the best", why=why
    )


@task("1.7")
def test_penalties_reach_greedy_rows_and_the_others(part: ModuleType) -> None:
    """Penalties change the logits before anything else: the best one, and what temperature divides."""
    logits = torch.tensor([[2.0, 1.5, 0.0]])
    penalties = penalties_of([[1, 0, 0]], [[0, 0, 0]], presence=[1.0])
    for params in (GREEDY, SamplingParams(temperature=1e-3), SamplingParams(top_k=1)):
        got = draw(part, logits, [params], [4], [0], penalties)
        why = (
            "Token 0 was generated already: with presence 1 its logit is 1.0, and token 1 is best."
        )
        expect_equal(got, [1], f"the best token after penalties, with {given_in(params)}", why=why)


@task("1.7")
def test_temperature_comes_before_top_p(part: ModuleType) -> None:
    """top_p looks at the probabilities that the temperature made."""
    params = SamplingParams(temperature=0.5, top_p=0.6)
    got = drawn_set(part, logs([0.5, 0.3, 0.2]), params)
    why = told_by(
        got,
        {
            "At temperature 0.5 the best token has 0.66 alone; without it 0.5, and a second joins the "
            "set.": [0, 1],
            "No token was ruled out: top_p was not applied. Its flag is any_top_p.": [0, 1, 2],
        },
    )
    expect_equal(got, [0], "the tokens that top_p = 0.6 lets through at temperature 0.5", why=why)


@task("1.7")
def test_top_k_comes_before_top_p(part: ModuleType) -> None:
    """top_p looks at the probabilities of what top_k left."""
    got = drawn_set(part, logs([0.4, 0.3, 0.2, 0.1]), SamplingParams(top_k=2, top_p=0.5))
    why = "Of the two that top_k leaves the best has 0.57, enough for p = 0.5; before, it has 0.4."
    expect_equal(got, [0], "the tokens that top_p = 0.5 lets through after top_k = 2", why=why)


@task("1.7")
def test_top_p_comes_before_min_p(part: ModuleType) -> None:
    """min_p comes last: top_p still counts the tokens that min_p rules out."""
    got = drawn_set(part, logs([0.5, 0.25, 0.13, 0.12]), SamplingParams(top_p=0.6, min_p=0.4))
    why = "min_p first would leave 0.67 and 0.33: then the best token alone reaches p = 0.6."
    expect_equal(got, [0, 1], "the tokens that top_p = 0.6 and min_p = 0.4 let through", why=why)


@task("1.7")
def test_every_filter_reaches_its_own_rows(part: ModuleType) -> None:
    """Each row is filtered by its own parameters, beside rows with others."""
    logits = logs([0.4, 0.3, 0.2, 0.1]).expand(400, -1)
    kinds = [
        (SamplingParams(top_k=3), [0, 1, 2]),
        (SamplingParams(top_p=0.6), [0, 1]),
        (SamplingParams(min_p=0.9), [0]),
        (PLAIN, [0, 1, 2, 3]),
    ]
    got = draw(part, logits, [kinds[i % 4][0] for i in range(400)], [9] * 400, list(range(400)))
    for number, (params, tokens) in enumerate(kinds):
        what = (
            f"the tokens of the rows with {given_in(params)}, of probabilities 0.4, 0.3, 0.2, 0.1"
        )
        expect_equal(sorted(set(got[number::4])), tokens, what, why=ROWS_APART)


NOT_FINITE = {
    "NaN in one place": [0.0, math.nan, 1.0, 2.0],
    "nothing but NaN": [math.nan] * 4,
    "+inf in one place": [0.0, 1.0, INF, 2.0],
    "nothing but -inf": [-INF] * 4,
}


@task("1.7")
def test_a_row_that_is_not_finite_gives_minus_one(part: ModuleType) -> None:
    """A row with NaN or +inf, or nothing but -inf, gives -1 and disturbs no other row."""
    logits = readable(3, 4, seed=5)
    for name, bad in NOT_FINITE.items():
        for params in ([GREEDY] * 3, [PLAIN] * 3, [FILTERED] * 3, [PLAIN, GREEDY, FILTERED]):
            start_script()
            clean = draw(part, logits, params, [1, 2, 3], [4] * 3)
            broken = logits.clone()
            broken[1] = torch.tensor(bad)
            got = draw(part, broken, params, [1, 2, 3], [4] * 3)
            why = "argmax finds some token even in NaN. -1 tells the engine to end that request alone."
            expect_equal(got[1], -1, f"the token of a row with {name}", why=why)
            why = ROWS_APART
            if got[::2] == [-1, -1]:
                why = "Each row of a batch is another request: -1 is for the broken row alone."
            expect_equal(got[::2], clean[::2], f"the rows around one with {name}", why=why)


@task("1.7")
def test_a_row_that_is_not_finite_beside_penalties(part: ModuleType) -> None:
    """-1 is for what the model made: penalties neither hide it nor cause it."""
    logits = torch.tensor([[1.0, -INF, 0.5], [INF, 0.0, 1.0], [-INF, -INF, 0.0]])
    penalties = penalties_of(
        [[1, 1, 1]] * 3, [[1, 1, 1]] * 3, repetition=[2.0] * 3, presence=[1.0] * 3
    )
    for params in (GREEDY, PLAIN):
        got = draw(part, logits, [params] * 3, [1, 2, 3], [0] * 3, penalties)
        expect_equal(got[1:], [-1, 2], "a row with +inf, and one with a single possible token")
    start_script()
    tiny = penalties_of([[0, 1, 0]], [[0, 0, 0]], repetition=[1e-39])
    why = (
        "The model's logits are finite, and 2 / 1e-39 is not: which rows are broken is decided before "
        "penalties."
    )
    got = draw(part, torch.tensor([[1.0, 2.0, 0.5]]), [GREEDY], [1], [0], tiny)
    expect_equal(got, [1], "the best token after repetition 1e-39, which makes it +inf", why=why)


@task("1.7")
def test_the_batch_is_not_changed(part: ModuleType) -> None:
    """sample changes none of the parameters: the engine hands the same tensors over at the next step."""
    seen = torch.arange(30).view(3, 10) % 3
    penalties = penalties_of(seen.tolist(), seen.tolist(), presence=[1.0] * 3, repetition=[1.5] * 3)
    batch = batch_of([PLAIN, GREEDY, FILTERED], [1, 2, 3], [4, 5, 6], penalties)
    given = {f"batch.{name}": getattr(batch, name) for name in TENSORS}
    given |= {f"batch.penalties.{f.name}": getattr(penalties, f.name) for f in fields(penalties)}
    before = {name: tensor.clone() for name, tensor in given.items()}
    with reference_filters(part):
        part.Sampler().sample(readable(3, 10, seed=1), batch)
    why = "Parameters last longer than a step. The engine itself counts the token that was sampled."
    for name, tensor in given.items():
        expect(torch.equal(tensor, before[name]), f"sample changed {name}", why=why)


@task("1.7")
def test_what_no_row_asked_for_is_not_done(part: ModuleType) -> None:
    """A filter that no row uses is not run, and a batch of greedy rows makes no noise."""
    logits = readable(4, 30, seed=1)
    for params, needless in (
        ([PLAIN, GREEDY] * 2, {"apply_penalties", "apply_top_k", "apply_top_p", "apply_min_p"}),
        ([SamplingParams(top_k=3)] * 4, {"apply_penalties", "apply_top_p", "apply_min_p"}),
        ([SamplingParams(top_p=0.5)] * 4, {"apply_penalties", "apply_top_k", "apply_min_p"}),
        ([SamplingParams(min_p=0.5)] * 4, {"apply_penalties", "apply_top_k", "apply_top_p"}),
        ([GREEDY] * 4, {"gumbel_noise", "apply_top_k", "apply_top_p", "apply_min_p"}),
    ):
        with reference_filters(part) as calls:
            part.Sampler().sample(logits.clone(), batch_of(params, [1] * 4, [0] * 4))
        done = sorted(needless & calls.keys())
        why = "The flags of the batch say what is used; sorting the whole vocabulary is most of a step."
        expect(
            not done,
            f"{', '.join(done)} ran with {given_in(params[0])} in every drawn row",
            why=why,
        )
