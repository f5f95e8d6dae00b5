"""`make watch` without the terminal: what keys and saved files lead to, and what the screen shows.

`terminal.py` has the loop around it. Nothing here waits, so tests feed it keys and folders as they like.
"""

from collections.abc import Callable
from typing import Protocol

from rich.text import Text

from grader.report.text import report_lines
from grader.verdict import LabResult
from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import Lab

Graded = tuple[LabResult, tuple[str, ...]]
"""A result, and the tasks that passed before and now fail."""


class Grading(Protocol):
    """A grading under way."""

    def poll(self) -> Graded | None:
        """What came of it; None while it runs."""

    def cancel(self) -> None:
        """Stop it; returns once its worker is gone."""


class Desk(Protocol):
    """What `Watch` needs of the world."""

    def digest(self, lab: Lab) -> str:
        """Names the source of the learner's part, as it is now."""

    def start(self, lab: Lab) -> Grading: ...

    def hint(self, lab: Lab, width: int) -> list[Text]: ...

    def reset(self, lab: Lab) -> str:
        """Restore the stubs; returns what was done, in a sentence."""

    def next_lab(self, lab: Lab) -> Lab | None:
        """The first one after it, on the path, that is not complete."""


class Watch:
    """Grades whenever what was saved has settled. Never goes on to the next lab by itself.

    is_stale: the screen should be drawn again. is_over: the learner wants to leave.
    """

    def __init__(self, lab: Lab, desk: Desk, width: int = 80) -> None:
        self.width = width
        self.is_stale = True
        self.is_over = False
        self._desk = desk
        self._keys: dict[str, Callable[[], None]] = {
            "h": self._hint,
            "n": self._next,
            "r": self._ask_to_reset,
            "g": self._grade,
            "q": self._quit,
        }
        self._grading: Grading | None = None
        self._enter(lab)

    def _enter(self, lab: Lab) -> None:
        self.lab = lab
        self._last: Graded | None = None
        self._below: list[Text] = []  # the hint
        self._notice = ""  # until the next key
        self._is_asking = False
        self._digest = self._desk.digest(lab)
        self._grade()

    def tick(self) -> None:
        """Look at the folder and at the grading; to be called a few times a second."""
        if self._grading is not None and (graded := self._grading.poll()) is not None:
            if self._last is not None and self._last[0].passed != graded[0].passed:
                self._below = []  # a hint for what was open then
            self._grading, self._last, self.is_stale = None, graded, True
        if (digest := self._desk.digest(self.lab)) != self._digest:
            # Editors write in steps: grade what has not changed since the last look.
            self._digest, self._has_settled = digest, False
        elif not self._has_settled:
            self._grade()

    def key(self, key: str) -> None:
        """A key was pressed; one that means nothing does nothing."""
        self._notice, self.is_stale = "", True
        if self._is_asking:
            self._is_asking = False
            if key == "y":
                self._below, self._notice = [], self._reset()
        elif act := self._keys.get(key.lower()):
            act()

    def close(self) -> None:
        """Nothing runs any more afterwards."""
        if self._grading is not None:
            self._grading.cancel()
            self._grading = None

    @property
    def is_complete(self) -> bool:
        return self._last is not None and self._last[0].is_complete

    def _grade(self) -> None:
        self.close()
        self._has_settled, self.is_stale = True, True
        self._grading = self._desk.start(self.lab)

    def _hint(self) -> None:
        try:
            self._below = self._desk.hint(self.lab, self.width)
        except ConfigError as error:
            self._notice = error.message

    def _next(self) -> None:
        following = self._desk.next_lab(self.lab) if self.is_complete else None
        if following is not None:
            self._enter(following)
        elif self.is_complete:
            self._notice = "No lab after this one is open."
        else:
            self._notice = "n works once every task of this lab has passed."

    def _ask_to_reset(self) -> None:
        self._is_asking = True

    def _reset(self) -> str:
        try:
            return self._desk.reset(self.lab)
        except ConfigError as error:
            return error.message

    def _quit(self) -> None:
        self.is_over = True

    def screen(self) -> list[Text]:
        """The last report, what was asked for since, and the keys."""
        lines = [Text(f"Lab {self.lab.number}: {self.lab.title}", style="bold")]
        if self._last is not None:
            lines = report_lines(self._last[0], self.width, self._last[1])
        if self._below:
            lines += [Text(""), *self._below]
        if self._notice:
            lines += [Text(""), Text(self._notice, style="yellow")]
        state = "grading ..." if self._grading is not None else f"watching labs/{self.lab.key}"
        return [*lines, Text(""), Text(state, style="dim"), self._footer()]

    def _footer(self) -> Text:
        if self._is_asking:
            question = f"Restore the stubs of {self.lab.key}? Your files go to .yaie/backups. y/n"
            return Text(question, style="bold yellow")
        keys = ["h hint", *(["n next"] if self.is_complete else []), "r reset", "g grade", "q quit"]
        return Text("   ".join(keys), style="bold")
