"""What adapters whose layers keep a state share: how they get at the states of a step."""

from yaie.core.contracts import Attend
from yaie.core.contracts.states import StepStates


def states_of(attend: Attend) -> StepStates:
    """The states beside the attention of a step.

    Raises RuntimeError where a model is run by something that keeps keys and values alone.
    """
    states: StepStates | None = getattr(attend, "states", None)
    if states is None:
        raise RuntimeError("a model whose layers keep a state was run without a pool of states")
    return states
