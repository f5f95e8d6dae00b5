"""A stepped figure's trace while it grows."""

from typing import Any, ClassVar

from book.tools.traces import Trace


class StoryError(RuntimeError):
    """A part did what the rest of the story cannot go on from. The message says what."""


class Story:
    """What the figure needs to know once, and the steps so far.

    The latest one is kept for `make show` to tell how far a part came before it failed.
    """

    latest: ClassVar["Story | None"] = None

    def __init__(self, **once: Any) -> None:
        self.trace: Trace = {**once, "steps": []}
        Story.latest = self

    def add(self, say: str, **facts: Any) -> None:
        """One more step: its caption, and what is drawn."""
        self.trace["steps"].append({"say": say, **facts})

    @property
    def steps(self) -> list[dict[str, Any]]:
        steps: list[dict[str, Any]] = self.trace["steps"]
        return steps


def listed(items: list[int] | list[str], noun: str = "") -> str:
    """'block 3', 'blocks 3 and 4', '0, 1 and 2': for captions."""
    if not items:
        return f"no {noun}" if noun else "none"
    words = [str(item) for item in items]
    text = " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
    return f"{noun}{'' if len(words) == 1 else 's'} {text}" if noun else text


def counted(count: int, noun: str) -> str:
    """'1 block', '2 blocks'."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
