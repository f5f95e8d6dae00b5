"""What a chat template may do in one prompt: how many steps, and how large a value it may make or write.

Each turn of a loop, each call and each filter is a step, large values are several, and what would make
one too large is looked at before it does. `bounded_templates.py` puts this into templates.
"""

import re
import threading
from collections.abc import Callable
from typing import Any

MOST_STEPS = 1_000_000
"""In one prompt: a few seconds at most. A long conversation takes a few for each message."""
MOST_CHARS = 1 << 26
"""Of a text that a template makes, and of all that it writes. The largest body has 16 MB."""
MOST_BITS = 4096
"""Of a whole number."""
LARGEST_ARGUMENT = 1_000_000
"""Among the whole numbers that a function is called with: widths, counts, indentations."""
CHARS_A_STEP = 1024

OPERATORS = ("+", "*", "**", "%")
_WIDTH = re.compile(r"\d{7,}")


class TemplateWorkError(Exception):
    """A template would do more than it may; "it" in the message is the template."""


class _Meter(threading.local):
    """What the template that this thread renders may still do."""

    steps = MOST_STEPS
    chars = MOST_CHARS


_meter = _Meter()


def begin_prompt() -> None:
    """The template that this thread renders next has done nothing yet."""
    _meter.steps, _meter.chars = MOST_STEPS, MOST_CHARS


def step(many: int = 1) -> bool:
    """So many more; True, as Jinja's conditions want it."""
    _meter.steps -= many
    if _meter.steps < 0:
        raise TemplateWorkError(f"it takes more than {MOST_STEPS:,} steps")
    return True


def turn(environment: Any) -> bool:
    """One of a loop begins, or a macro. environment: of the template."""
    return step()


def charged(value: Any) -> Any:
    """A value that was made, or read: a large one is several steps."""
    if hasattr(value, "__len__"):
        step(len(value) // CHARS_A_STEP)
    return value


def fits(size: int) -> None:
    """Raises for more entries than a value may have."""
    if size > MOST_CHARS:
        raise TemplateWorkError(f"it makes a text or a list of more than {MOST_CHARS:,} entries")


def written(value: Any) -> Any:
    """Each value that is written, before it is."""
    _meter.chars -= len(value) if isinstance(value, str) else 1
    if _meter.chars < 0:
        raise TemplateWorkError(f"it writes more than {MOST_CHARS:,} characters")
    return value


def checked_operator(call: Callable[..., Any]) -> Callable[..., Any]:
    """Of two values."""

    def checked(context: Any, operator: str, left: Any, right: Any) -> Any:
        if isinstance(left, int) and isinstance(right, int):
            size = left.bit_length() + right.bit_length()
            if operator == "**":
                size = left.bit_length() * max(right, 1)
            if size > MOST_BITS:
                raise TemplateWorkError(f"it makes a number of more than {MOST_BITS:,} bits")
        elif operator == "*":
            many, times = (left, right) if hasattr(left, "__len__") else (right, left)
            if hasattr(many, "__len__") and isinstance(times, int):
                fits(len(many) * times)
        elif operator == "+" and hasattr(left, "__len__") and hasattr(right, "__len__"):
            fits(len(left) + len(right))
        elif operator == "%" and isinstance(left, str):
            values = right if isinstance(right, tuple) else (right,)
            check_widths((left, *values))
        return charged(call(context, operator, left, right))

    return checked


def check_widths(values: tuple[Any, ...]) -> None:
    """The format, and the texts and numbers that may become widths in it."""
    form, *others = values
    given = [str(one) for one in others if isinstance(one, str | int) and len(str(one)) < 20]
    takes_widths = "{" in str(form) or "*" in str(form)
    if _WIDTH.search(str(form)) or (takes_widths and any(map(_WIDTH.search, given))):
        raise TemplateWorkError(f"it formats with a width above {LARGEST_ARGUMENT:,}")
