"""Which reading of a contract gives what a part gives: an explanation that the evidence decides.

    why = reading_of(part.most_worth, [(ROWS, without_rows), (OTHERS, without_others)], cases)

A wrong answer fits many mistakes. The part is asked all cases; a reading is told if it gives the same
answer to each of them, and no other reading does.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from grader.kit.script import current_script, resume_script, start_script

Reading = tuple[str, Callable[..., Any]]
"""A sentence, and what its mistake gives for the arguments of a case. Sentences may come twice."""


def reading_of(
    call: Callable[..., Any], readings: Iterable[Reading], cases: Sequence[tuple[Any, ...]]
) -> str:
    """The one sentence whose reading answers all cases as the part does; "" if none or several do, or
    if the part fails in one. Writes nothing down."""
    script = current_script()
    start_script()
    try:
        got = [call(*case) for case in cases]
        found = {why for why, reading in readings if _answers(reading, cases, got)}
    except Exception:  # noqa: BLE001, a part may raise anything
        return ""
    finally:
        resume_script(script)
    return found.pop() if len(found) == 1 else ""


def _answers(
    reading: Callable[..., Any], cases: Sequence[tuple[Any, ...]], got: Sequence[Any]
) -> bool:
    try:
        return all(reading(*case) == one for case, one in zip(cases, got, strict=True))
    except Exception:  # noqa: BLE001, a mistake may have no answer
        return False
