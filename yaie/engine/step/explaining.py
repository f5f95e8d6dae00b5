"""Which of a learner's parts an exception comes from, in a sentence for whoever sent the request."""

from yaie.core.errors import YaieError
from yaie.core.step import Fault
from yaie.parts import Part, Parts
from yaie.worker.faults import fault_of

NOT_IN_A_STEP = frozenset({"api_server"})
"""Labs whose part does not belong to the machine."""


class StepFaultError(YaieError):
    """A worker could not carry out a step. fault: what it told of it."""

    def __init__(self, fault: Fault) -> None:
        where = f" ({fault.where})" if fault.where else ""
        super().__init__(f"a step failed: {fault.message}{where}")
        self.fault = fault


def parts_in_steps(parts: Parts) -> list[Part]:
    """The learner's parts that the machine runs."""
    return [part for part in parts.table() if part.is_yours and part.lab not in NOT_IN_A_STEP]


def explained(error: BaseException, parts: Parts) -> str:
    """Which of the learner's parts failed, why and in which line; with no line in one, which ran."""
    fault = error.fault if isinstance(error, StepFaultError) else fault_of(error, parts)
    if fault.lab:
        return f"your part {fault.lab} failed: {fault.message} ({fault.where})"
    names = ", ".join(part.lab for part in parts_in_steps(parts))
    return f"the engine failed on your {names}: {fault.message} ({fault.where})"
