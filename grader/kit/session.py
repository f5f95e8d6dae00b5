"""How this process grades: set by the worker before any suite is imported, read by the kit."""

from dataclasses import dataclass


@dataclass(slots=True)
class Session:
    """seed: of every generated example. shrink: look for the shortest counterexample.
    effort: multiplies the number of examples.

    searches: how many searches for counterexamples the test that runs has begun; its recorder sets it
    to 0. is_searching: whether one is under way, or has found something.
    left_open: what a test that passes has not verified, in a few words; its recorder sets it to "".
    only: in a replay the one search that is made, 0 for none; in a grading None, for all. pinned: the
    example that it makes do with, a version of Hypothesis and what its `reproduce_failure` wants.
    """

    seed: int = 0
    shrink: bool = True
    effort: float = 1.0
    searches: int = 0
    is_searching: bool = False
    left_open: str = ""
    only: int | None = None
    pinned: tuple[str, bytes] | None = None


SESSION = Session()
