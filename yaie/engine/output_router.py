"""Who gets which output, where several callers take turns at stepping one engine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from yaie.core.output import RequestOutput
from yaie.core.request import Request


@dataclass(slots=True, eq=False)
class Claim:
    """Outputs for one caller. num_unfinished: its requests whose last output has not come."""

    num_unfinished: int
    outputs: list[RequestOutput] = field(default_factory=list)

    def take(self) -> Iterator[RequestOutput]:
        """What has come, in order."""
        while self.outputs:
            waiting, self.outputs = self.outputs, []
            yield from waiting


class OutputRouter:
    """Outputs that wait for their takers.

    A caller who runs requests to their end claims them. Their outputs are kept for that caller, in
    whichever call the engine was stepped; those of all other requests are kept for the caller of
    `LLMEngine.step`.
    """

    def __init__(self) -> None:
        self._claims: dict[str, Claim] = {}
        self._unclaimed: list[RequestOutput] = []

    @property
    def has_unclaimed(self) -> bool:
        """Whether outputs wait for the caller of `LLMEngine.step`."""
        return bool(self._unclaimed)

    @property
    def is_idle(self) -> bool:
        """Whether there is no claim and no output waiting."""
        return not self._claims and not self._unclaimed

    def claim(self, requests: Sequence[Request]) -> Claim:
        """Keep the outputs of these requests, which have just been queued."""
        claim = Claim(len(requests))
        self._claims |= {request.request_id: claim for request in requests}
        return claim

    def put(self, outputs: Sequence[RequestOutput]) -> None:
        """A step has yielded these."""
        if not self._claims:
            self._unclaimed += outputs
            return
        for output in outputs:
            claim = self._claims.get(output.request_id)
            (self._unclaimed if claim is None else claim.outputs).append(output)
            if output.finish_reason is not None:
                self.drop(output.request_id)

    def drop(self, request_id: str) -> None:
        """A request is over: nothing more of it comes. Harmless if it is not claimed."""
        if (claim := self._claims.pop(request_id, None)) is not None:
            claim.num_unfinished -= 1

    def take_unclaimed(self) -> list[RequestOutput]:
        """What waits for the caller of `LLMEngine.step`."""
        unclaimed, self._unclaimed = self._unclaimed, []
        return unclaimed
