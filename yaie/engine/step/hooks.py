"""Where techniques hang on the step loop: before a plan is sent, and behind its result.

Both lists hold what is on, and nothing else; a technique is a class and the line that hangs it here.
"""

from dataclasses import dataclass, field
from typing import Protocol

from yaie.core.batch import StepPlan
from yaie.core.step import StepResult


class PlanStage(Protocol):
    """Changes a plan, or looks at it."""

    def extend(self, plan: StepPlan) -> None:
        """A plan is about to be sent. Shares may grow as far as budget and blocks allow, or shrink;
        requests may be taken off it, and single tokens stay first."""
        ...


class StepObserver(Protocol):
    """Learns from what steps took and brought."""

    def stepped(self, plan: StepPlan, result: StepResult, seconds: float) -> None:
        """A plan has been carried out, in so many seconds from its encoding to its result."""
        ...


@dataclass(frozen=True, slots=True)
class Hooks:
    """Of one machine, each in the order of its calls."""

    stages: list[PlanStage] = field(default_factory=list)
    observers: list[StepObserver] = field(default_factory=list)
