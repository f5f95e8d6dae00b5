"""What tokens that were drawn say of the rule that drew them: by acceptance, replacement and bonus."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from grader.suites.speculative.probabilities import SURELY_NOT, Probs, chance
from solutions.speculative import residual

FAR = 6
"""Standard deviations between what is and what should be that are no chance."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Outcomes of many calls with the same rows. drafts: [calls, k]; outcomes: of each call."""

    draft: Probs
    target: Probs
    drafts: list[list[int]]
    outcomes: list[list[int]]

    def reached(self, place: int) -> list[tuple[int, list[int]]]:
        """(draft, outcome) where all drafts before this place were accepted."""
        return [
            (drafts[place], outcome)
            for drafts, outcome in zip(self.drafts, self.outcomes, strict=True)
            if len(outcome) > place
        ]

    def accepted_of(self, place: int) -> list[tuple[int, int, int, float]]:
        """(draft, how often it was accepted, how often drawn, the share that should be accepted)."""
        found = []
        for token in range(len(self.draft[place])):
            those = [outcome for draft, outcome in self.reached(place) if draft == token]
            likes = min(1.0, self.target[place, token] / max(self.draft[place, token], 1e-300))
            taken = sum(len(outcome) > place + 1 for outcome in those)
            if those:
                found.append((token, taken, len(those), likes))
        return found

    def replacements(self, place: int) -> Probs:
        """How often each token came where the draft of this place was not accepted."""
        tokens = [outcome[place] for _, outcome in self.reached(place) if len(outcome) == place + 1]
        return np.bincount(tokens, minlength=self.draft.shape[1]).astype(np.float64)


def wrongly_accepted(drawn: Drawn, place: int) -> str:
    """A draft that was accepted too often or too seldom, in words; "" if there is none."""
    for token, taken, count, likes in drawn.accepted_of(place):
        if abs(taken - count * likes) > FAR * (count * likes * (1 - likes)) ** 0.5 + 1e-9:
            p, q = drawn.target[place, token], drawn.draft[place, token]
            return (
                f"draft {token} at place {place} is accepted in {taken / count:.1%} of {count:,} cases, "
                f"and not in {likes:.1%}: the target gives it {p:.4g}, the draft model {q:.4g}"
            )
    return ""


def is_one_number(drawn: Drawn) -> bool:
    """Whether the second drafts are accepted as if the first one's random number decided again."""
    wanted, taken, spread = 0.0, 0, 0.0
    for (first, second), outcome in zip(drawn.drafts, drawn.outcomes, strict=True):
        if len(outcome) > 1:
            one = min(1.0, drawn.target[0, first] / drawn.draft[0, first])
            likes = min(1.0, drawn.target[1, second] / drawn.draft[1, second] / one)
            wanted += likes
            spread += likes * (1 - likes)
            taken += len(outcome) > 2
    return abs(taken - wanted) < FAR * spread**0.5 + 1e-9


def kind_of(counts: Probs, kinds: Sequence[tuple[str, Callable[[], Probs]]]) -> str:
    """The name of the one kind of probabilities that the counts follow; "" if none or several fit."""
    found = [name for name, row in kinds if chance(counts, row()) > SURELY_NOT]
    return found[0] if len(found) == 1 else ""


def replaced_from(drawn: Drawn, place: int) -> str:
    """Where the replacements of a place come from, in words; "" if that is not known."""
    counts, target, draft = drawn.replacements(place), drawn.target, drawn.draft
    rest = residual(target[place], draft[place])
    likeliest = np.zeros(len(rest))
    likeliest[int(rest.argmax())] = 1.0
    return kind_of(
        counts,
        [
            ("the likeliest token of the residual, each time", lambda: likeliest),
            ("the target's row of this place", lambda: target[place]),
            ("the target's next row", lambda: target[place + 1]),
            ("the residual of the next row", lambda: residual(target[place + 1], draft[-1])),
            ("the draft model's row", lambda: draft[place]),
            ("the target's row without the rejected draft", lambda: _without(drawn, place)),
        ],
    )


def _without(drawn: Drawn, place: int) -> Probs:
    """What comes of the target's row if the rejected draft alone may not come."""
    mixed = np.zeros(drawn.draft.shape[1])
    for draft, outcome in drawn.reached(place):
        if len(outcome) == place + 1:
            row = drawn.target[place].copy()
            row[draft] = 0
            mixed += row / row.sum()
    whole: Probs = mixed / mixed.sum()
    return whole


def shares(counts: Probs) -> str:
    """Counts as shares of all."""
    total = counts.sum()
    return str((counts / total).round(3).tolist()) if total else "none at all"
