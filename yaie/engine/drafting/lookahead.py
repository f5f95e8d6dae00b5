"""Drafts that the worker has made already, behind the step before: `AheadProposer`."""

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from yaie.core.batch import StepPlan
from yaie.core.request import Request
from yaie.core.step import Arrays, StepResult
from yaie.engine.drafting.proposals import Proposals


class AheadProposer:
    """See `yaie.core.contracts.Proposer`. A head on the model's states drafts where the states are: on
    the worker's side, when a step has been computed. What it made comes back with the result."""

    is_free = True

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[Request, tuple[int, Sequence[int]]] = WeakKeyDictionary()

    def take(self, plan: StepPlan, result: StepResult) -> None:
        """A step has been carried out."""
        gains, drafts = iter(result.token_ids), _by_row(result.extras.get(Proposals.name))
        for row, item in enumerate(plan.scheduled):
            gained = next(gains) if item.samples else []
            self._made.pop(item.request, None)
            if row in drafts:
                length = len(item.request.token_ids) + len(gained)
                self._made[item.request] = length, drafts[row]

    def propose(self, asked: Sequence[tuple[Request, int]]) -> list[Sequence[int]]:
        """See the contract. What was made for a text that has become another one since is dropped."""
        found: list[Sequence[int]] = []
        for request, most in asked:
            length, drafts = self._made.pop(request, (-1, ()))
            found.append(drafts[:most] if length == len(request.token_ids) else ())
        return found


def _by_row(made: Arrays | None) -> dict[int, list[int]]:
    """The drafts behind each row."""
    if made is None:
        return {}
    columns = (made[name].tolist() for name in ("rows", "counts", "tokens"))
    return {row: tokens[:count] for row, count, tokens in zip(*columns, strict=True)}
