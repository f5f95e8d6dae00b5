"""Given, no lab: what carries out steps. Control calls an Executor, which talks to a Worker in data."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from yaie.core.batch import StepOutcome, StepPlan
    from yaie.core.step import StepInput, StepMasks, StepResult


# ANCHOR: worker
class StepHandle(Protocol):
    """A step that a worker has begun."""

    def mask(self, masks: "StepMasks") -> None:
        """What the constrained seats of the step may draw. Called once, before `result`, for a step that
        is `masked`."""
        ...

    def result(self) -> "StepResult":
        """Wait for the end of the step. Steps are waited for in order, each once."""
        ...


class Worker(Protocol):
    """The data plane: one device, or one rank of several, and all that lies on it.

    It owns the model, the KV pool, attention and sampler, and keeps the state of each seat.
    """

    def execute(self, step: "StepInput") -> StepHandle:
        """Begin a step. Steps are carried out in the order of the calls; a further one may be sent
        before the result of the last has been read."""
        ...

    def close(self) -> None:
        """End whatever thread or process it runs in. No step follows."""
        ...


# ANCHOR_END: worker


# ANCHOR: executor
class PendingStep(Protocol):
    """A plan that is being carried out."""

    def result(self) -> "StepOutcome":
        """Wait until it is, and take over what came out."""
        ...


class Executor(Protocol):
    """Given to lab 7. Turns a plan into data, and sends it to the worker."""

    def execute(self, plan: "StepPlan") -> PendingStep:
        """Begin to carry out a plan; an empty one ends at once. Its tokens may come later."""
        ...


# ANCHOR_END: executor
