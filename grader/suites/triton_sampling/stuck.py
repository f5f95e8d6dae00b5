"""A row whose rounds repeat themselves: told at once, where a loop without end would only take long."""

import inspect
import sys
from typing import Any

from grader.kit.expect import Fault

MOST_ALIKE = 3
"""Rounds in a row that leave a row as it was. Nothing else decides the next one."""
NO_TOKEN = 2**31 - 1
NOBODY_LEFT = (
    "Nothing is above the candidate: with nobody left to ask, the most likely token is the draw. The "
    "row is not open any more."
)
ITSELF = (
    "The winner among the tokens above the candidate is the candidate. It is not above itself, and "
    "has no share in the mass."
)
NO_STEP = (
    "A round decides the row, or its bound rises: low becomes the logit of the rejected candidate, "
    "and the winner among those above it is the next one."
)


class WatchedJudge:
    """Stands in for a learner's `judge` in a kernel. race_above: what finds the mass and the winner."""

    def __init__(self, judge: Any, race_above: Any) -> None:
        self.fn = judge.fn
        self._judge, self._race_above = judge, race_above
        self._loop: Any = None
        self._alike = 0

    def __call__(self, candidate: Any, low: Any, total: Any, p: Any, mass: Any, *rest: Any) -> Any:
        after = self._judge(candidate, low, total, p, mass, *rest)
        loop = sys._getframe(1)  # of the kernel, whose `while` this is
        before = [_number(x) for x in (candidate, low, total)]
        is_same = _number(after[3]) != 0 and [_number(x) for x in after[:3]] == before
        self._alike = self._alike + 1 if is_same and loop is self._loop else int(is_same)
        self._loop = loop
        if self._alike >= MOST_ALIKE:
            self._loop = None
            row = loop.f_locals.get("row")
            raise self._fault(before, _number(p), _number(mass), _number(rest[0]), row)
        return after

    def _fault(
        self, before: list[float], p: float, mass: float, following: float, row: Any
    ) -> Fault:
        candidate, low, total = before
        whose = "A row" if row is None else f"Row {_number(row):g}"
        why = NOBODY_LEFT if mass == 0 else ITSELF if following == candidate else NO_STEP
        fault = Fault(
            f"{whose} is never decided: a round finds a mass of {mass:.6g} and as next winner "
            f"{_token(following)}, and leaves the row open, with candidate {_token(candidate)}, low "
            f"{low:.6g}, total {total:.6g} and p {p:.6g}, as it was before.",
            why=why,
        )
        function = self._race_above.fn if why == ITSELF else self.fn
        code = function.__code__
        source, first = inspect.getsourcelines(function)
        line = next((i for i, text in enumerate(source) if text.lstrip().startswith("def ")), 0)
        fault.frames = [(code.co_filename, first + line, code.co_name)]
        return fault


def _number(value: Any) -> float:
    """Of a number of Python's or of the interpreter's."""
    value = getattr(value, "value", value)
    data = getattr(getattr(value, "handle", None), "data", value)
    return float(data.ravel()[0]) if hasattr(data, "ravel") else float(data)


def _token(number: float) -> str:
    return "NO_TOKEN" if number == NO_TOKEN else f"token {number:g}"
