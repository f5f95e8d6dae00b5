"""Tasks 18.3 and 18.4: the residual, and rejection sampling."""

import sys
from itertools import product
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from grader.kit import Mismatch, examples, expect, expect_equal, note, start_script, task
from grader.kit.apart import expect_unchanged
from grader.kit.expect import claiming
from grader.kit.session import SESSION
from grader.suites.speculative.drawn_kinds import (
    Drawn,
    is_one_number,
    kind_of,
    replaced_from,
    shares,
    wrongly_accepted,
)
from grader.suites.speculative.probabilities import (
    DRAFT,
    LAST_TARGET,
    SECOND_DRAFT,
    SECOND_TARGET,
    SURELY_NOT,
    TARGET,
    Probs,
    chance,
    sure,
)
from solutions import speculative as reference

MISSING = "The residual is what the target has more of than the draft, and 0 wherever it has less."
NEGATIVE = "A probability is not negative: what the target has less of is 0, not below."
DIVIDED = "Probabilities sum to 1: divide what is missing by its sum."
ALIKE = (
    "Target and draft may be equal, and then nothing is missing and nothing can be divided: the target "
    "itself is the answer."
)
FINE = (
    "Probabilities are float64, and none is too small to count: nothing is rounded or cut off, and "
    "nothing is added to make a division safe."
)
CLOSE = (
    "The target is the answer only where nothing at all is missing. Rows that differ little have a "
    "residual of their own: a small sum is divided by like any other."
)
ARGUMENTS = "The caller goes on using both arrays: make new ones."

STARTS = (
    "A draft is accepted with probability min(1, p / q): what the target likes as much as the draft "
    "model does, always; what it likes half as much, in half of the cases."
)
REPLACED = (
    "A rejected draft is replaced by a draw from the residual of *its* place, what the target "
    "has more of."
)
NO_MORE = (
    "The replacement is the last token: the drafts behind it belong to a text that does not exist."
)
GONE = "A rejected draft is not in the output: the replacement stands in its place."
BONUS = "When all drafts are accepted, one more token is drawn from the target's last row."
DRAWN = (
    "Replacement and bonus are drawn by their probabilities; the likeliest is not always the one."
)
EACH = "Each draft has a random number of its own; one for all makes what follows depend on it."
WIDE, FEW_OF_RARE = 1024, 6
"""Tokens of a row; how often of 3,000 cases something comes that comes once in 10,000."""
FINE_NUMBERS = (
    "A random number is as fine as a float64. One of a few values is 0 in many cases, and below every "
    "probability then."
)
ALL_OF_THEM = (
    "Each token comes by its probability, however many have more: no row is cut to the likeliest."
)
INTEGERS = "Tokens are Python's int: what NumPy returns is another type, which `json` refuses."
GENERATOR = "All random numbers come from `rng`: the same seed must give the same tokens."


def residual(part: Any, target: Probs, draft: Probs) -> Probs:
    start_script()
    note(f"residual({target.tolist()}, {draft.tolist()})")
    one, other = target.copy(), draft.copy()
    with np.errstate(all="ignore"):
        got: Probs = part.residual(one, other)
    with claiming("residual changes neither of its arguments."):
        for name, given, now in (("target", target, one), ("draft", draft, other)):
            what = f"`{name}` after the call"
            expect_equal(now.round(12).tolist(), given.round(12).tolist(), what, why=ARGUMENTS)
            expect(bool((now == given).all()), f"{what} has changed", why=ARGUMENTS)
    return np.asarray(got, dtype=np.float64)


def expect_probs(got: Probs, wanted: Probs, what: str) -> None:
    """Equal up to rounding, or the mistake that leads to it."""
    if not np.isfinite(got).all() or not got.any():
        why = ALIKE
    elif (got < 0).any():
        why = NEGATIVE
    elif abs(got.sum() - 1) > 1e-6:
        why = DIVIDED
    else:
        why = MISSING
    same = got.shape == wanted.shape and bool(np.allclose(got, wanted, rtol=1e-9, atol=1e-18))
    if not same:
        if got.shape == wanted.shape and np.allclose(got, wanted, rtol=0, atol=1e-6):
            why = why if why == NEGATIVE else FINE
        raise Mismatch(f"{what}: not as expected", told(wanted), told(got), why)


def told(row: Probs) -> str:
    """Probabilities with the digits that tell apart what was rounded."""
    return f"[{', '.join(f'{value:.12g}' for value in row.ravel().tolist())}]"


@task("18.3")
def test_the_chapters_example(part: Any) -> None:
    """What is missing, and nothing else, divided by its sum."""
    got = residual(part, TARGET, DRAFT)
    expect_probs(got, np.array([4, 0, 0, 1, 0]) / 5, "the residual")


@task("18.3")
def test_nothing_in_common(part: Any) -> None:
    """A draft that the target never says leaves the whole target."""
    got = residual(part, np.array([0.25, 0.75, 0.0]), np.array([0.0, 0.0, 1.0]))
    expect_probs(got, np.array([0.25, 0.75, 0.0]), "the residual")


@task("18.3")
def test_target_and_draft_alike(part: Any) -> None:
    """If nothing is missing, it is the target."""
    for row in (TARGET, sure(3), np.full(4, 0.25)):
        expect_probs(residual(part, row, row.copy()), row, "the residual of equal probabilities")


@task("18.3")
@examples(100)
@given(st.data(), st.integers(2, 6))
def test_any_two_distributions(part: Any, data: st.DataObject, vocab: int) -> None:
    """Never negative, sum 1, in proportion to what is missing."""
    weights = st.lists(st.integers(0, 9), min_size=vocab, max_size=vocab).filter(any)
    target, draft = (np.array(data.draw(weights), dtype=np.float64) for _ in range(2))
    target, draft = target / target.sum(), draft / draft.sum()
    missing = np.clip(target - draft, 0, None)
    wanted = missing / missing.sum() if missing.sum() > 0 else target
    expect_probs(residual(part, target, draft), wanted, "the residual")


@task("18.3")
def test_target_and_draft_nearly_alike(part: Any) -> None:
    """However little is missing, it alone is drawn from."""
    for little in (1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-13):
        target = np.array([0.25, 0.5, 0.25])
        got = residual(part, target, target - [little, 0, -little])
        if not np.allclose(got, sure(0, 3), rtol=0, atol=1e-9):
            raise Mismatch(
                f"the residual of rows that differ by {little:g}: not as expected",
                told(sure(0, 3)), told(got), CLOSE,
            )  # fmt: skip
    target, draft = np.array([0.5, 1e-9, 0.5 - 1e-9]), np.array([0.25, 0, 0.75])
    missing = np.array([0.25, 1e-9, 0])
    expect_probs(residual(part, target, draft), missing / missing.sum(), "the residual")


def on_the_reference(part: Any) -> Any:
    """The part's rejection_sample, with the reference's residual: that is another task's."""
    module = sys.modules[part.rejection_sample.__module__]
    if hasattr(module, "residual"):
        module.residual = reference.residual  # type: ignore[attr-defined]
    return part.rejection_sample


def sample(
    part: Any, drafts: list[int], draft: Probs, target: Probs, rng: np.random.Generator
) -> list[int]:
    given = list(drafts)
    got: list[int] = list(on_the_reference(part)(given, draft, target, rng))
    expect_unchanged(given, drafts, "the list of drafts that rejection_sample was given")
    foreign = {type(token).__name__ for token in got if not isinstance(token, int)}
    expect(not foreign, f"rejection_sample returns a token as {', '.join(foreign)}", why=INTEGERS)
    return got


def certain(part: Any, drafts: list[int], draft: list[Probs], target: list[Probs]) -> list[int]:
    """A call whose outcome does not depend on luck."""
    made = np.stack(draft) if draft else np.zeros((0, len(target[0])))
    aim = np.stack(target)
    start_script()
    note(f"rejection_sample({drafts}, {made.tolist()}, {aim.tolist()}, rng)")
    one, other = made.copy(), aim.copy()
    got = sample(part, drafts, one, other, np.random.default_rng(SESSION.seed))
    untouched = bool((one == made).all() and (other == aim).all())
    expect(untouched, "an argument of rejection_sample was changed", why=ARGUMENTS)
    return got


@task("18.4")
def test_without_drafts(part: Any) -> None:
    """Without drafts one token is drawn from the target's only row."""
    expect_equal(certain(part, [], [], [sure(3)]), [3], "the tokens gained", why=BONUS)


@task("18.4")
def test_certain_drafts_and_the_bonus(part: Any) -> None:
    """Drafts that the target is as sure of are accepted, and a token of its last row follows."""
    rows = [sure(1), sure(2)]
    got = certain(part, [1, 2], rows, [*rows, sure(4)])
    expect_equal(got, [1, 2, 4], "the tokens gained", why=BONUS)
    got = certain(part, [2], [np.array([0.2, 0.2, 0.2, 0.2, 0.2])], [sure(2), sure(0)])
    expect_equal(
        got, [2, 0], "the tokens gained by a draft that the target likes better", why=STARTS
    )


@task("18.4")
def test_impossible_drafts(part: Any) -> None:
    """A draft that the target never says is replaced, and nothing follows."""
    got = certain(part, [1], [sure(1)], [sure(3), sure(4)])
    why = GONE if 1 in got else NO_MORE if len(got) > 1 else REPLACED
    expect_equal(got, [3], "the tokens gained", why=why)
    rows = [sure(0), sure(1), sure(2)]
    got = certain(part, [0, 1, 2], rows, [sure(0), sure(3), sure(2), sure(4)])
    why = GONE if 1 in got else NO_MORE if len(got) > 2 else REPLACED
    expect_equal(got, [0, 3], "the tokens gained when the second draft is impossible", why=why)


ROWS = (np.stack([DRAFT, SECOND_DRAFT]), np.stack([TARGET, SECOND_TARGET, LAST_TARGET]))


def many(part: Any, count: int = 8000) -> Drawn:
    """Outcomes of two drafts each, drawn from the rows of the draft model."""
    draft, target = ROWS
    start_script()
    note(f"# draft = {draft.tolist()}")
    note(f"# target = {target.tolist()}")
    note(f"rejection_sample(drafts, draft, target, rng)    # {count:,} times; drafts as draft says")
    rng = np.random.default_rng(1000 + SESSION.seed)
    guesses = np.stack([rng.choice(5, count, p=row) for row in draft], axis=1).tolist()
    outcomes = [sample(part, drafts, draft, target, rng) for drafts in guesses]
    return Drawn(draft, target, guesses, outcomes)


def expect_place_drawn(drawn: Drawn, place: int) -> None:
    """That tokens come as the target says at a place; if not, by which of its rules they do not."""
    tokens = [outcome[place] for outcome in drawn.outcomes if len(outcome) > place]
    counts = np.bincount(tokens, minlength=5).astype(np.float64)
    row = drawn.target[place]
    if chance(counts, row) > SURELY_NOT:
        return
    if place == len(drawn.draft):
        likeliest = np.eye(5)[int(row.argmax())]
        rows = {
            "the likeliest": lambda: likeliest,
            "the last draft's": lambda: drawn.target[place - 1],
        }
        kind = kind_of(counts, list(rows.items()))
        why = DRAWN if kind == "the likeliest" else BONUS
        raise Mismatch("shares of the tokens behind two accepted drafts: not as expected",
                       str(row.tolist()), shares(counts), why)  # fmt: skip
    if problem := wrongly_accepted(drawn, place):
        is_same_number = place == 1 and is_one_number(drawn)
        why = EACH if is_same_number else STARTS if place == 0 else ""
        with claiming("A draft is accepted with probability min(1, p / q)."):
            raise Mismatch(problem, why=why)
    replaced = drawn.replacements(place)
    wanted = reference.residual(row, drawn.draft[place])
    if chance(replaced, wanted) > SURELY_NOT:
        problem = f"shares of tokens at place {place}: not as expected"
        raise Mismatch(problem, str(row.tolist()), shares(counts))
    found = replaced_from(drawn, place)
    raise Mismatch(
        f"shares of what replaces rejected drafts at place {place}: not as expected",
        str(wanted.round(3).tolist()),
        shares(replaced),
        f"{REPLACED} What comes instead is {found}." if found else REPLACED,
    )


@task("18.4")
def test_tokens_come_as_the_target_says(part: Any) -> None:
    """At each place tokens come as often as the target's probabilities say (chi-square)."""
    drawn = many(part)
    longest = max(map(len, drawn.outcomes))
    expect(longest <= 3, f"two drafts brought {longest} tokens", why=GONE)
    expect(longest == 3, "two drafts never brought three tokens", why=BONUS if longest == 2 else "")
    for place in range(3):
        expect_place_drawn(drawn, place)


@task("18.4")
def test_drafts_are_accepted_as_often_as_can_be(part: Any) -> None:
    """The first draft is accepted in as many cases as both distributions have in common."""
    drawn = many(part, 4000)
    kept = float(np.minimum(DRAFT, TARGET).sum())
    share = sum(len(tokens) > 1 for tokens in drawn.outcomes) / len(drawn.outcomes)
    problem = f"{share:.1%} of the drafts were accepted, where {kept:.0%} are wanted"
    expect(
        abs(share - kept) < 6 * (kept * (1 - kept) / len(drawn.outcomes)) ** 0.5,
        wrongly_accepted(drawn, 0) or problem,
        why=STARTS,
    )


@task("18.4")
def test_the_replacement_is_drawn(part: Any) -> None:
    """A rejected draft's replacement comes by the residual's probabilities."""
    draft, target = sure(4)[None], np.stack([TARGET, LAST_TARGET])
    note(f"rejection_sample([4], {draft.tolist()}, {target.tolist()}, rng)    # 3,000 times")
    rng = np.random.default_rng(2000 + SESSION.seed)
    tokens = [sample(part, [4], draft, target, rng)[0] for _ in range(3000)]
    counts = np.bincount(tokens, minlength=5).astype(np.float64)
    if chance(counts, TARGET) <= SURELY_NOT:
        kind = kind_of(counts, [("the likeliest", lambda: np.eye(5)[int(TARGET.argmax())])])
        problem = "shares of what replaces rejected drafts: not as expected"
        why = f"{REPLACED} {DRAWN}" if kind else REPLACED
        raise Mismatch(problem, str(TARGET.tolist()), shares(counts), why)


@task("18.4")
def test_what_is_rare(part: Any) -> None:
    """A draft that the target says once in ten thousand cases is hardly ever accepted, and each of many
    tokens may come."""
    start_script()
    rare, calls = 1e-4, 3000
    draft, target = sure(1)[None], np.stack([sure(0) * (1 - rare) + sure(1) * rare, sure(2)])
    note(f"rejection_sample([1], {draft.tolist()}, {target.tolist()}, rng)    # {calls:,} times")
    rng = np.random.default_rng(4000 + SESSION.seed)
    taken = sum(len(sample(part, [1], draft, target, rng)) == 2 for _ in range(calls))
    problem = f"draft 1 is accepted in {taken} of {calls:,} calls, and not in one of 10,000"
    expect(taken <= FEW_OF_RARE, problem, why=FINE_NUMBERS)
    row, none = np.full(WIDE, 1 / WIDE), np.zeros((0, WIDE))
    note(f"rejection_sample([], [], target, rng)    # 300 times; {WIDE:,} tokens, all as likely")
    found = {sample(part, [], none, row[None], rng)[0] for _ in range(300)}
    problem = f"300 draws from {WIDE:,} tokens, all as likely, gave {len(found)} different ones"
    expect(len(found) > 200, problem, why=ALL_OF_THEM)


@task("18.4")
def test_random_numbers_are_the_callers(part: Any) -> None:
    """The same generator in the same state gives the same tokens."""
    draft, target = ROWS
    for seed in range(40):
        one, other = (
            sample(part, [1, 2], draft, target, np.random.default_rng(seed)) for _ in range(2)
        )
        expect_equal(other, one, f"the tokens gained with seed {seed}, once more", why=GENERATOR)


def behind(rows: Probs, before: tuple[int, ...]) -> Probs:
    """The distribution behind these tokens."""
    row: Probs = rows[sum(token * 3**place for place, token in enumerate(before)) % len(rows)]
    return row


@task("18.4")
def test_three_tokens_together(part: Any) -> None:
    """Where each distribution depends on the tokens before, texts come as often as the target's."""
    rng = np.random.default_rng(3000 + SESSION.seed)
    target, draft = rng.dirichlet(np.ones(3), 7), rng.dirichlet(np.ones(3), 7)
    counts, wanted = np.zeros((3, 3, 3)), np.zeros((3, 3, 3))
    for _ in range(4000):
        drafts: list[int] = []
        for _ in range(2):
            drafts.append(int(rng.choice(3, p=behind(draft, tuple(drafts)))))
        before = [tuple(drafts[:count]) for count in range(3)]
        made = np.stack([behind(draft, tokens) for tokens in before[:2]])
        aim = np.stack([behind(target, tokens) for tokens in before])
        got = sample(part, drafts, made, aim, rng)
        while len(got) < 3:
            got.append(int(rng.choice(3, p=behind(target, tuple(got)))))
        counts[tuple(got[:3])] += 1
    for tokens in product(range(3), repeat=3):
        wanted[tokens] = np.prod([behind(target, tokens[:at])[tokens[at]] for at in range(3)])
    likely = chance(counts.ravel(), wanted.ravel()) > SURELY_NOT
    problem = "texts of three tokens do not come as often as the target's"
    expect(likely, problem, why=f"{STARTS} {REPLACED}")
