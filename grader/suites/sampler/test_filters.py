"""Tasks 1.3 to 1.5: what rules tokens out."""

import math
from collections.abc import Callable
from types import ModuleType

import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from grader.kit import Mismatch, examples, expect, expect_equal, note, start_script, task
from grader.kit.mistakes import told_by
from grader.suites.sampler.rows import (
    INF,
    ROWS_APART,
    distinct,
    expect_kept,
    filtered,
    logs,
    of_one_row,
    readable,
)

ROW = torch.tensor([[1.0, 4.0, 2.0, 3.0]])


def tokens_left(logits: torch.Tensor) -> list[list[int]]:
    return [(row > -INF).nonzero().flatten().tolist() for row in logits]


@task("1.3")
def test_top_k_keeps_the_k_largest(part: ModuleType) -> None:
    """Of a row the k largest logits are kept."""
    for k, kept in ((1, [1]), (2, [1, 3]), (3, [1, 2, 3]), (4, [0, 1, 2, 3])):
        got = filtered(part, "apply_top_k", ROW, torch.tensor([k]))
        why = "The k-th largest is one of the k: it stays."
        expect_kept(got, ROW, [kept], f"top_k = {k} of logits 1, 4, 2, 3", why=why)


@task("1.3")
def test_top_k_keeps_ties_with_the_last(part: ModuleType) -> None:
    """Tokens tied with the k-th largest are kept too."""
    logits = torch.tensor([[3.0, 2.0, 2.0, 1.0, 2.0]])
    got = filtered(part, "apply_top_k", logits, torch.tensor([2]))
    why = "Which of equals goes would be arbitrary, so ties with the k-th largest all stay."
    expect_kept(got, logits, [[0, 1, 2, 4]], "top_k = 2 of logits 3, 2, 2, 1, 2", why=why)


@task("1.3")
def test_top_k_is_off(part: ModuleType) -> None:
    """k of 0 or less, and of the vocabulary's size or more, keeps all."""
    for k in (0, -1, 4, 9, 2**62):
        got = filtered(part, "apply_top_k", ROW, torch.tensor([k]))
        why = f"The {k} largest of 4 tokens are all of them." if k > 0 else ""
        why = why or "A k of 0 or less says that the filter is off."
        expect_kept(got, ROW, [[0, 1, 2, 3]], f"top_k = {k} of 4 tokens", why=why)


@task("1.3")
def test_top_k_of_each_row(part: ModuleType) -> None:
    """Every row has its own k; 0 or less, and the vocabulary's size or more, keep all."""
    top_k = torch.tensor([2, 0, 1, -1, 4, 9, 2**62])
    logits = ROW.expand(len(top_k), -1).clone()
    got = filtered(part, "apply_top_k", logits, top_k)
    everything = [0, 1, 2, 3]
    rows = [[1, 3], everything, [1], everything, everything, everything, everything]
    why = of_one_row("apply_top_k", logits, top_k, got)
    what = "top_k = 2, 0, 1, -1, 4, 9, 2**62, each of logits 1, 4, 2, 3,"
    expect_kept(got, logits, rows, what, why=why)
    got = filtered(part, "apply_top_k", logits[:2], top_k[:1].expand(2))
    expect_kept(got, logits[:2], [[1, 3]] * 2, "top_k = 2 in both rows")


@task("1.3")
def test_top_k_brings_nothing_back(part: ModuleType) -> None:
    """A row with fewer than k possible tokens keeps those, and no other."""
    logits = torch.tensor([[-INF, 1.0, -INF, 2.0]])
    got = filtered(part, "apply_top_k", logits, torch.tensor([3]))
    expect_kept(got, logits, [[1, 3]], "top_k = 3 of -inf, 1, -inf, 2")


@task("1.3")
def test_top_k_of_a_long_row(part: ModuleType) -> None:
    """k may be in the thousands, as the vocabulary is."""
    for vocab, k in ((20_000, 5000), (70_000, 66_000)):
        start_script()
        logits = distinct(1, vocab, seed=5)
        count = len(tokens_left(filtered(part, "apply_top_k", logits, torch.tensor([k])))[0])
        why = "Nothing bounds k but the vocabulary."
        expect_equal(count, k, f"how many of {vocab:,} tokens top_k = {k} keeps", why=why)


@task("1.3")
def test_nearly_equal_is_not_a_tie(part: ModuleType) -> None:
    """A logit that is the least bit below the k-th largest goes."""
    above = float(torch.tensor(1.0).nextafter(torch.tensor(2.0)))
    logits = torch.tensor([[2.0, above, 1.0, 0.5]])
    got = filtered(part, "apply_top_k", logits, torch.tensor([2]))
    why = of_ties(part) if tokens_left(got) == [[0, 1, 2]] else ""
    expect_kept(got, logits, [[0, 1]], "top_k = 2 of logits 2, 1.0000001, 1, 0.5", why=why)


def of_ties(part: ModuleType) -> str:
    """Down to what distance logits count as ties, near 1 and near 1024, and what that tells."""

    def least_apart(size: float) -> float:
        tied, told = 0.0, size / 2
        for _ in range(24):
            middle = (tied + told) / 2
            logits = torch.tensor([[2 * size, size + middle, size, 0.0]])
            is_tied = bool(part.filters.apply_top_k(logits, torch.tensor([2]))[0, 2] > -INF)
            tied, told = (middle, told) if is_tied else (tied, middle)
        return told

    try:
        small, large = least_apart(1.0), least_apart(1024.0)
    except Exception:  # noqa: BLE001, a part may raise anything
        return ""
    for dtype, bits in ((torch.bfloat16, 8), (torch.float16, 11)):
        apart = 2.0**-bits
        if abs(small / apart - 1) < 0.01 and abs(large / apart / 1024 - 1) < 0.01:
            return (
                f"Ties are those of {dtype} here, in which 1.0000001 is 1: it has nothing between 1 and "
                f"{1 + 2 * apart:.4g}. Compare in float32."
            )
    if abs(large / small - 1) < 0.2:
        return f"Logits less than {small:.2g} apart count as ties here. Ties are equal logits."
    return ""


@task("1.3")
@examples(80)
@given(st.lists(st.integers(-1, 9), min_size=1, max_size=4), st.integers(1, 8), st.integers(0, 999))
def test_any_top_k(part: ModuleType, top_k: list[int], vocab: int, seed: int) -> None:
    """Whatever each row's k is, what transformers' TopKLogitsWarper keeps is kept."""
    from transformers.generation.logits_process import TopKLogitsWarper

    logits = readable(len(top_k), vocab, seed)
    got = filtered(part, "apply_top_k", logits, torch.tensor(top_k))
    rows = [
        TopKLogitsWarper(k if k > 0 else vocab)(None, row[None])[0]
        for k, row in zip(top_k, logits, strict=True)
    ]
    expect_kept(got, logits, tokens_left(torch.stack(rows)), f"top_k = {top_k}")


@task("1.4")
def test_top_p_keeps_the_token_that_crosses_p(part: ModuleType) -> None:
    """The token with which the sum reaches p is kept."""
    logits = logs([0.5, 0.3, 0.15, 0.05])
    for p, kept in ((0.6, [0, 1]), (0.9, [0, 1, 2]), (0.97, [0, 1, 2, 3])):
        got = filtered(part, "apply_top_p", logits, torch.tensor([p]))
        why = "Without the token that crosses p the set has less than p: it is part of the set."
        what = f"top_p = {p} of probabilities 0.5, 0.3, 0.15, 0.05"
        expect_kept(got, logits, [kept], what, why=why)


@task("1.4")
def test_top_p_keeps_at_least_one(part: ModuleType) -> None:
    """The most likely token is kept, however small p is."""
    logits = logs([0.5, 0.3, 0.2])
    for p in (0.4, 1e-6, 1e-30, 0.0):
        got = filtered(part, "apply_top_p", logits, torch.tensor([p]))
        why = "A row without any token cannot be sampled: the most likely one always stays."
        expect_kept(got, logits, [[0]], f"top_p = {p} of probabilities 0.5, 0.3, 0.2", why=why)


@task("1.4")
def test_top_p_keeps_the_order_of_tokens(part: ModuleType) -> None:
    """What is dropped in sorted order is dropped at the tokens' own columns."""
    logits = logs([0.15, 0.5, 0.3, 0.05], [0.3, 0.05, 0.5, 0.15])
    got = filtered(part, "apply_top_p", logits, torch.tensor([0.7, 0.7]))
    back = "The row is sorted to find the set; the answer must go back to where the tokens were."
    why = told_by(
        tokens_left(got),
        {
            f"{back} Here the first places of the row itself stayed.": [[0, 1], [0, 1]],
            f"{back} Place i of the sorted row belongs to token order[i]: scatter by order does that, "
            "gather its inverse, which is what came out.": [[0, 2], [1, 3]],
        },
    )
    expect_kept(got, logits, [[1, 2], [0, 2]], "top_p = 0.7 of unsorted probabilities", why=why)


@task("1.4")
def test_every_p_below_one_counts(part: ModuleType) -> None:
    """A p of 0.9999 still rules out what comes after it."""
    logits = logs([0.9, 0.09, 0.009, 0.00099, 0.00001])
    for p, kept in ((0.98, [0, 1]), (0.9985, [0, 1, 2]), (0.9999, [0, 1, 2, 3])):
        start_script()
        got = filtered(part, "apply_top_p", logits, torch.tensor([p]))
        left, why = tokens_left(got), ""
        if left == [list(range(5))]:
            why = f"{p} is taken for 1: nothing was ruled out. p = 1 alone is off."
        elif left in halved(logits, p):
            why = "In half precision the sum comes out like this. Sum in float32."
        what = f"top_p = {p} of probabilities 0.9, 0.09, 0.009, 0.00099, 0.00001"
        expect_kept(got, logits, [kept], what, why=why)


@task("1.4")
def test_top_p_of_a_long_row(part: ModuleType) -> None:
    """Thousands of small probabilities add up as exactly as four large ones."""
    logits = torch.randn(1, 20_000, generator=torch.Generator().manual_seed(4))
    shares = logits.double().softmax(dim=-1).sort(descending=True).values.cumsum(dim=-1)[0]
    for p in (0.5, 0.9, 0.99, 0.999):
        start_script()
        count = len(tokens_left(filtered(part, "apply_top_p", logits, torch.tensor([p])))[0])
        right = 1 + int((shares < p).sum())
        problem = f"top_p = {p} keeps {count:,} of 20,000 tokens, instead of about {right:,}"
        if abs(count - right) > 20:
            raise Mismatch(problem, why=cut_elsewhere(logits, p, count))


def halved(logits: torch.Tensor, p: float) -> list[list[list[int]]]:
    """What top-p may keep if probabilities are made or added up in half precision."""
    ordered, order = logits.sort(dim=1, descending=True)
    kept = []
    for dtype in (torch.bfloat16, torch.float16):
        probs = ordered.softmax(dim=1)
        for shares in (ordered.to(dtype).softmax(dim=1), probs.to(dtype)):
            for sums in (shares.cumsum(dim=1), shares.float().cumsum(dim=1)):
                count = 1 + int((sums - shares)[0, 1:].lt(p).sum())
                kept.append([sorted(order[0, :count].tolist())])
    return kept


def cut_elsewhere(logits: torch.Tensor, p: float, count: int) -> str:
    """Why top-p may have kept so many of a long row; "" if no mistake is known that does."""
    ordered = logits.sort(descending=True).values[0]
    if count == len(ordered):
        return "Nothing was ruled out: every p below 1 counts."

    def kept(values: torch.Tensor, dtype: torch.dtype = torch.float64) -> int:
        shares = values.double().softmax(dim=-1).to(dtype)
        return 1 + int((shares.cumsum(dim=-1) < p).sum())

    for some in (100, 256, 500, 512, 1000, 1024, 2000, 2048, 4096, 5000, 8192, 10_000):
        if abs(kept(ordered[:some]) - count) <= 2:
            return (
                f"This many stay if only the {some:,} likeliest tokens take part in the sum. Every "
                "token of the row does."
            )
    halves = [kept(ordered, dtype) for dtype in (torch.bfloat16, torch.float16)]
    if any(abs(half - count) <= 2 for half in halves):
        return "A sum in half precision gives this: it loses shares this small. Sum in float32."
    return (
        "A sum in half precision loses shares this small, for example. A sum in float32 keeps them."
    )


@task("1.4")
def test_top_p_of_one_keeps_all(part: ModuleType) -> None:
    """p = 1 keeps every token, though rounded probabilities may add up to 1 too early."""
    unlikely = torch.tensor([[0.0, -40.0, -90.0, -200.0]])
    long = readable(1, 30_000, seed=3)
    why = "A sum in float32 reaches 1 before the last tokens: p = 1 means that the filter is off."
    for logits, shown in ((unlikely, "0, -40, -90, -200"), (long, "of 30,000 tokens")):
        got = filtered(part, "apply_top_p", logits, torch.tensor([1.0]))
        everything = list(range(logits.shape[1]))
        expect_kept(got, logits, [everything], f"top_p = 1 for logits {shown}", why=why)


@task("1.4")
def test_top_p_of_each_row(part: ModuleType) -> None:
    """Every row has its own p, and tokens that are ruled out already have no share."""
    logits = logs([0.5, 0.3, 0.15, 0.05]).expand(4, -1).clone()
    logits[3, 0] = -INF
    top_p = torch.tensor([0.6, 1.0, 0.4, 0.55])
    got = filtered(part, "apply_top_p", logits, top_p)
    rows = [[0, 1], [0, 1, 2, 3], [0], [1]]
    what = (
        "top_p = 0.6, 1, 0.4, 0.55 of probabilities 0.5, 0.3, 0.15, 0.05 (the first at 0 in row 3)"
    )
    expect_kept(got, logits, rows, what, why=of_one_row("apply_top_p", logits, top_p, got))


@task("1.4")
def test_top_p_reached_exactly_is_enough(part: ModuleType) -> None:
    """A sum that is exactly p has reached it: the next token goes."""
    got = filtered(part, "apply_top_p", torch.zeros(1, 4), torch.tensor([0.5]))
    count = len(tokens_left(got)[0])
    why = (
        "Two tokens of 0.25 have reached 0.5, so a third is one too many. (Or four: ties may stay.)"
    )
    expect(count in (2, 4), f"top_p = 0.5 of four times 0.25 keeps {count} tokens", why=why)


@task("1.4")
def test_top_p_of_equals_where_the_set_ends(part: ModuleType) -> None:
    """Of equally likely tokens where the set ends, as many as p needs are kept, or all of them."""
    logits = logs([0.2, 0.4, 0.2, 0.2])
    others = readable(9, 4, seed=4)
    for p, needed in ((0.5, 1), (0.7, 2)):
        top_p = torch.tensor([p])
        alone = tokens_left(filtered(part, "apply_top_p", logits, top_p))[0]
        what = f"top_p = {p} of probabilities 0.2, 0.4, 0.2, 0.2"
        why = (
            f"0.4 has not reached {p}: of the three equal tokens {needed} must stay, no matter which, "
            "or all three."
        )
        if alone == [1]:
            why += (
                " A threshold that drops every token as likely as the first dropped one leaves what is "
                "not a smallest set that reaches p."
            )
        is_right = 1 in alone and len(alone) in (1 + needed, 4)
        expect(is_right, f"{what} keeps the tokens {alone}", why=why)
        rows = torch.cat((others, logits, others))
        together = tokens_left(filtered(part, "apply_top_p", rows, top_p.expand(len(rows))))
        expect_equal(together[len(others)], alone, f"what {what} keeps in a batch", why=ROWS_APART)


def clear_cut(logits: torch.Tensor, top_p: list[float]) -> bool:
    """Whether no sum of probabilities is so near to p that rounding decides."""
    sums = logits.double().sort(dim=-1, descending=True).values.softmax(dim=-1).cumsum(dim=-1)
    return bool(((sums - torch.tensor(top_p)[:, None]).abs() > 1e-4).all())


@task("1.4")
@examples(80)
@given(
    st.lists(st.sampled_from([0.05, 0.3, 0.7, 0.95]), min_size=1, max_size=4),
    st.integers(1, 8),
    st.integers(0, 999),
)
def test_any_top_p(part: ModuleType, top_p: list[float], vocab: int, seed: int) -> None:
    """Whatever each row's p is, what transformers' TopPLogitsWarper keeps is kept."""
    from transformers.generation.logits_process import TopPLogitsWarper

    logits = distinct(len(top_p), vocab, seed)
    assume(clear_cut(logits, top_p))
    got = filtered(part, "apply_top_p", logits, torch.tensor(top_p))
    rows = [TopPLogitsWarper(p)(None, row[None])[0] for p, row in zip(top_p, logits, strict=True)]
    expect_kept(got, logits, tokens_left(torch.stack(rows)), f"top_p = {top_p}")


@task("1.5")
def test_min_p_is_relative_to_the_best(part: ModuleType) -> None:
    """The threshold is min_p times the probability of the most likely token."""
    logits = logs([0.15, 0.5, 0.05, 0.3])
    for min_p, kept in ((0.2, [0, 1, 3]), (0.5, [1, 3]), (0.9, [1]), (0.05, [0, 1, 2, 3])):
        got = filtered(part, "apply_min_p", logits, torch.tensor([min_p]))
        why = "min_p is a share of the best token's probability, not a probability of its own."
        what = f"min_p = {min_p} of probabilities 0.15, 0.5, 0.05, 0.3"
        expect_kept(got, logits, [kept], what, why=why)


@task("1.5")
def test_min_p_is_exact(part: ModuleType) -> None:
    """Just below the threshold a token goes, just above it stays, be min_p small or close to 1."""
    for min_p in SHARES:
        start_script()
        bar = math.log(min_p)
        logits = torch.tensor([[0.0, bar + 1e-4, bar - 1e-4]])
        note(
            f"# token 1 has 1.0001 and token 2 has 0.9999 of the share that min_p = {min_p} asks for"
        )
        got = filtered(part, "apply_min_p", logits, torch.tensor([min_p]))
        left = tokens_left(got) if isinstance(got, torch.Tensor) else []
        why = of_thresholds(part) if left != [[0, 1]] else ""
        expect_kept(got, logits, [[0, 1]], f"min_p = {min_p}", why=why)


SHARES = (1e-6, 1e-3, 0.5, 0.999)
EXACT = 3e-5
"""How far, relative, a threshold may be off where float32 rounds."""
Apply = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def least_kept(apply: Apply, min_p: float) -> float:
    """The logit down to which a token stays beside one at 0; -40 if all stay."""
    kept, gone = 0.0, -40.0
    for _ in range(32):
        middle = (kept + gone) / 2
        left = apply(torch.tensor([[0.0, middle]]), torch.tensor([min_p]))
        kept, gone = (middle, gone) if left[0, 1] > -INF else (kept, middle)
    return kept


def in_narrow_floats(dtype: torch.dtype) -> Apply:
    def apply(logits: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
        bar = min_p.log() + logits.amax(dim=1)
        return logits.masked_fill(logits.to(dtype) < bar[:, None].to(dtype), -INF)

    return apply


def of_thresholds(part: ModuleType) -> str:
    """Where the thresholds of several min_p are, and what that tells."""
    every = "Every min_p above 0 is a threshold, and float32 tells these tokens apart."
    try:
        found = [least_kept(part.filters.apply_min_p, min_p) for min_p in SHARES]
    except Exception:  # noqa: BLE001, a part may raise anything
        return every
    off = [logit - math.log(min_p) for logit, min_p in zip(found, SHARES, strict=True)]
    wrong = [p for p, by in zip(SHARES, off, strict=True) if abs(by) > EXACT]
    named = ", ".join(map(str, wrong))
    if any(logit < -39 for logit in found):
        return f"Here nothing is ruled out by min_p = {named}. Only 0 is off."
    if max(off) - min(off) < EXACT:
        return (
            f"Here tokens stay down to {math.exp(off[0]):.4f} of the share that is asked for, whatever "
            "min_p is: no tolerance."
        )
    for dtype in (torch.bfloat16, torch.float16):
        narrow = [least_kept(in_narrow_floats(dtype), min_p) for min_p in SHARES]
        if all(abs(one - other) < EXACT for one, other in zip(found, narrow, strict=True)):
            return f"Tokens stay and go here as if compared in {dtype}: no narrower float."
    if len(wrong) == 1:
        share = math.exp(found[SHARES.index(wrong[0])])
        return f"Here min_p = {wrong[0]} is taken for {share:.4g}: no limit on min_p."
    shares = ", ".join(f"{math.exp(logit):.5g}" for logit in found)
    return f"{every} Here min_p = {', '.join(map(str, SHARES))} keeps tokens down to {shares}."


@task("1.5")
def test_min_p_keeps_the_best_and_its_equals(part: ModuleType) -> None:
    """min_p = 1 keeps the most likely token and those equally likely."""
    logits = torch.tensor([[2.0, 5.0, 5.0, 1.0], [7.0, 0.0, 6.0, -3.0]])
    got = filtered(part, "apply_min_p", logits, torch.tensor([1.0, 1.0]))
    why = "At least min_p times as likely: the best token is as likely as itself, so it stays."
    expect_kept(got, logits, [[1, 2], [0]], "min_p = 1 of 2, 5, 5, 1 and of 7, 0, 6, -3", why=why)


@task("1.5")
def test_min_p_of_zero_keeps_all(part: ModuleType) -> None:
    """min_p = 0 keeps every token, however unlikely, beside rows that use it."""
    logits = torch.tensor([[0.0, -300.0, 1.0, -INF], [0.0, -300.0, 1.0, -INF]])
    off = filtered(part, "apply_min_p", logits[:1], torch.tensor([0.0]))
    why = "A small number in place of 0 still is a bar: at 0 there is none, and log(0) is -inf."
    expect_kept(off, logits[:1], [[0, 1, 2]], "min_p = 0 of logits 0, -300, 1, -inf", why=why)
    min_p = torch.tensor([0.0, 0.1])
    got = filtered(part, "apply_min_p", logits, min_p)
    why = of_one_row("apply_min_p", logits, min_p, got)
    expect_kept(got, logits, [[0, 1, 2], [0, 2]], "min_p = 0 and 0.1", why=why)


@task("1.5")
@examples(60)
@given(
    st.lists(st.sampled_from([0.03, 0.15, 0.55, 0.97]), min_size=1, max_size=4),
    st.integers(1, 8),
    st.integers(0, 999),
)
def test_any_min_p(part: ModuleType, min_p: list[float], vocab: int, seed: int) -> None:
    """Whatever each row's min_p is, what transformers' MinPLogitsWarper keeps is kept."""
    from transformers.generation.logits_process import MinPLogitsWarper

    logits = readable(len(min_p), vocab, seed)
    got = filtered(part, "apply_min_p", logits, torch.tensor(min_p))
    rows = [MinPLogitsWarper(p)(None, row[None])[0] for p, row in zip(min_p, logits, strict=True)]
    expect_kept(got, logits, tokens_left(torch.stack(rows)), f"min_p = {min_p}")


@task("1.5")
def test_min_p_beside_others(part: ModuleType) -> None:
    """A row's result is the same alone and in a batch."""
    logits, min_p = readable(5, 12, seed=8), torch.tensor([0.1, 0.0, 0.6, 0.3, 1.0])
    together = filtered(part, "apply_min_p", logits, min_p)
    for row in range(5):
        alone = filtered(part, "apply_min_p", logits[row : row + 1], min_p[row : row + 1])
        left = tokens_left(together[row : row + 1])
        expect_equal(left, tokens_left(alone), f"the tokens that row {row} keeps", why=ROWS_APART)
