"""Tasks 18.3 and 18.4: the residual, and rejection sampling."""

from itertools import product
from typing import Any

import numpy as np

from grader.kit import expect, expect_equal, task

Probs = np.ndarray
P = np.array([0.5, 0.3, 0.15, 0.05])
Q = np.array([0.1, 0.4, 0.3, 0.2])
CLAMPED = "Where the draft model is likelier than the target, nothing is left: max(p - q, 0)."
NORMALISED = "What is left sums to less than 1. Divide it by its sum to draw from it."
NOTHING = (
    "If p equals q nothing is left, and no draft is rejected but by rounding: return p itself."
)
UNCHANGED = "The arguments belong to the caller, who uses them again."
RIGHT = (
    "Accept a draft x with probability min(1, p(x) / q(x)), and in the place of the first rejected one "
    "draw from the residual of its row. Then the tokens are distributed as the target's."
)
RATE = "A draft x is accepted with probability min(1, p(x) / q(x)): no more often, and no less."
STOP = "The token in the place of a rejected draft is the last: what was drafted behind it is void."
BONUS = "If all drafts are accepted, one more token is drawn, from the last row of the target."
OWN = "Take every random number from `rng`: whoever gives its seed gets the same tokens again."
APART = "Each draft is accepted or not by a random number of its own."


@task("18.3")
def test_residual(part: Any) -> None:
    """The residual is max(p - q, 0), divided by its sum."""
    for p, q, wanted, why in (
        ([0.5, 0.5, 0.0], [0.25, 0.75, 0.0], [1.0, 0.0, 0.0], CLAMPED),
        ([0.6, 0.3, 0.1], [0.1, 0.1, 0.8], [5 / 7, 2 / 7, 0.0], NORMALISED),
        ([0.5, 0.3, 0.2], [0.2, 0.8, 0.0], [0.6, 0.0, 0.4], NORMALISED),
        ([0.2, 0.8], [1.0, 0.0], [0.0, 1.0], CLAMPED),
        ([0.0, 1.0], [1.0, 0.0], [0.0, 1.0], CLAMPED),
    ):
        target, draft = np.array(p), np.array(q)
        with np.errstate(all="ignore"):
            got = np.asarray(part.residual(target, draft))
        expect(
            got.shape == target.shape and np.allclose(got, wanted),
            f"residual({p}, {q}) is {np.round(got, 4).tolist()}, not {np.round(wanted, 4).tolist()}",
            why=why,
        )
        unchanged = target.tolist() == p and draft.tolist() == q
        expect(unchanged, f"residual({p}, {q}) has changed an argument", why=UNCHANGED)


@task("18.3")
def test_residual_of_equals(part: Any) -> None:
    """The residual of two equal rows is the row itself."""
    with np.errstate(all="ignore"):
        got = np.asarray(part.residual(P.copy(), P.copy()))
    expect(np.allclose(got, P), f"residual(p, p) is {got.tolist()}, not {P.tolist()}", why=NOTHING)


@task("18.3")
def test_residuals_sum_to_one(part: Any) -> None:
    """Whatever the rows, the residual is a distribution, and what is left of p above q."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        p, q = rng.dirichlet(np.ones(6), 2)
        got = np.asarray(part.residual(p, q))
        rest = np.maximum(p - q, 0)
        expect(abs(got.sum() - 1) < 1e-9, f"a residual sums to {got.sum():.4f}", why=NORMALISED)
        expect(np.allclose(got, rest / rest.sum()), "a residual is another one", why=CLAMPED)


def sample(part: Any, drafts: list[int], draft: Probs, target: Probs, rng: Any) -> list[int]:
    got = part.rejection_sample(drafts, draft, target, rng)
    expect(isinstance(got, list), f"rejection_sample returns {got!r:.60}, which is no list")
    return [int(token) for token in got]


@task("18.4")
def test_certain_cases(part: Any) -> None:
    """A draft that the target is surer of is accepted, one that it excludes is not."""
    rng = np.random.default_rng(1)
    one = np.eye(4)
    for _ in range(40):
        got = sample(part, [2, 1], np.stack([Q, P]), np.stack([one[2], one[1], one[3]]), rng)
        expect_equal(got, [2, 1, 3], "two drafts of which the target is certain", why=BONUS)
        got = sample(part, [0], one[[0]], np.stack([one[1], one[3]]), rng)
        expect_equal(got, [1], "a draft that the target excludes", why=STOP)
        got = sample(part, [1, 0, 2], np.stack([Q, Q, Q]), one[[1, 2, 2, 0]], rng)
        expect_equal(got, [1, 2], "three drafts of which the target excludes the second", why=STOP)
        got = sample(part, [], np.zeros((0, 4)), one[[3]], rng)
        expect_equal(got, [3], "no draft at all", why=BONUS)
        got = sample(part, [3, 3], np.stack([P, P]), np.stack([P, P, one[1]]), rng)
        expect_equal(got, [3, 3, 1], "drafts of a model that equals the target", why=RATE)


def far(counts: Probs, wanted: Probs) -> bool:
    """Whether counts are no sample of these probabilities, by chi-square."""
    total = counts.sum()
    if (counts[wanted == 0] > 0).any():
        return True
    kept = wanted > 0
    expected = wanted[kept] / wanted.sum() * total
    statistic = ((counts[kept] - expected) ** 2 / expected).sum()
    free = max(1, kept.sum() - 1)
    return bool(statistic > free + 5 * np.sqrt(2 * free) + 6)


@task("18.4")
def test_one_draft(part: Any) -> None:
    """The first token is distributed as the target's, whatever the drafts are drawn from."""
    rng = np.random.default_rng(2)
    for p, q in ((P, Q), (Q, P), (np.array([0.25] * 4), np.array([0.7, 0.1, 0.1, 0.1]))):
        counts, accepted = np.zeros(4), 0
        for token in rng.choice(4, size=4000, p=q).tolist():
            got = sample(part, [token], q[None], np.stack([p, p[::-1]]), rng)
            counts[got[0]] += 1
            accepted += len(got) == 2
        expect(not far(counts, p), _told(counts, p), why=RIGHT)
        share = np.minimum(p, q).sum()
        both = np.array([accepted, 4000 - accepted])
        expect(
            not far(both, np.array([share, 1 - share])),
            f"{accepted} of 4,000 drafts are accepted, where sum(min(p, q)) is {share:.2f}",
            why=RATE,
        )


def _told(counts: Probs, p: Probs) -> str:
    shares = np.round(counts / counts.sum(), 3).tolist()
    return f"tokens come in the shares {shares}, and the target has {p.tolist()}"


def _row(rows: Probs, before: tuple[int, ...]) -> Probs:
    """The distribution behind these tokens."""
    row: Probs = rows[sum(token * 3**place for place, token in enumerate(before)) % len(rows)]
    return row


@task("18.4")
def test_joint_distribution(part: Any) -> None:
    """Three tokens are distributed together as the target's, drawn one by one: chi-square."""
    rng = np.random.default_rng(3)
    p_rows, q_rows = rng.dirichlet(np.ones(3), 7), rng.dirichlet(np.ones(3), 7)
    counts = np.zeros((3, 3, 3))
    for _ in range(6000):
        drafts: list[int] = []
        for _ in range(2):
            drafts.append(int(rng.choice(3, p=_row(q_rows, tuple(drafts)))))
        befores = [tuple(drafts[:count]) for count in range(3)]
        draft = np.stack([_row(q_rows, before) for before in befores[:2]])
        target = np.stack([_row(p_rows, before) for before in befores])
        got = sample(part, drafts, draft, target, rng)
        while len(got) < 3:
            got.append(int(rng.choice(3, p=_row(p_rows, tuple(got)))))
        counts[tuple(got)] += 1
    wanted = np.zeros((3, 3, 3))
    for tokens in product(range(3), repeat=3):
        wanted[tokens] = np.prod([_row(p_rows, tokens[:at])[tokens[at]] for at in range(3)])
    expect(not far(counts.ravel(), wanted.ravel()), "three tokens together are distributed otherwise",
           why=RIGHT)  # fmt: skip


@task("18.4")
def test_drafts_are_accepted_apart(part: Any) -> None:
    """How many of three drafts are accepted is as if each were tossed for by itself."""
    rng = np.random.default_rng(4)
    p, q = np.array([0.5, 0.5]), np.array([1.0, 0.0])
    counts = np.zeros(4)
    for _ in range(3000):
        got = sample(part, [0, 0, 0], np.stack([q] * 3), np.stack([p] * 4), rng)
        expect(1 <= len(got) <= 4, f"three drafts bring {len(got)} tokens", why=BONUS)
        right = next((at for at, token in enumerate(got[:3]) if token == 1), 3)
        counts[right] += 1
    wanted = np.array([1 / 2, 1 / 4, 1 / 8, 1 / 8])
    expect(not far(counts, wanted), f"0, 1, 2 and 3 of three are accepted {counts.tolist()} times of "
           "3,000, each at one half", why=APART)  # fmt: skip


@task("18.4")
def test_seed_settles_it(part: Any) -> None:
    """The same generator gives the same tokens again, and the arguments stay as they are."""
    draft, target = np.stack([Q, P, Q]), np.stack([P, Q, P, Q])
    runs = []
    for _ in range(2):
        rng = np.random.default_rng(5)
        runs.append([sample(part, [1, 2, 3], draft, target, rng) for _ in range(60)])
    expect(runs[0] == runs[1], "the same seed gives other tokens", why=OWN)
    expect(
        len({tuple(tokens) for tokens in runs[0]}) > 3, "the tokens are always the same", why=OWN
    )
    kept = np.array_equal(draft, np.stack([Q, P, Q])) and np.array_equal(
        target, np.stack([P, Q, P, Q])
    )
    expect(kept, "rejection_sample has changed an argument", why=UNCHANGED)


@task("18.4")
def test_bonus_is_drawn(part: Any) -> None:
    """The token behind drafts that are all accepted is distributed as the target's last row."""
    rng = np.random.default_rng(6)
    counts = np.zeros(4)
    one = np.eye(4)
    for _ in range(3000):
        got = sample(part, [1], one[[1]], np.stack([one[1], P]), rng)
        expect_equal(len(got), 2, "tokens of one draft that is certain", why=BONUS)
        counts[got[1]] += 1
    expect(not far(counts, P), "the bonus: " + _told(counts, P), why=BONUS)
