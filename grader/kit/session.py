"""How this process grades: set by the worker before any suite is imported, read by the kit."""

from dataclasses import dataclass


@dataclass(slots=True)
class Session:
    """seed: of every generated example. shrink: look for the shortest counterexample.
    effort: multiplies the number of examples."""

    seed: int = 0
    shrink: bool = True
    effort: float = 1.0


SESSION = Session()
