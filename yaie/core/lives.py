"""How long a request goes on as it is: what was put aside for it is of no use after that."""

from dataclasses import dataclass

from yaie.core.request import Request, RequestStatus


@dataclass(frozen=True, slots=True)
class Life:
    """Of a request, from one admission to its end or its preemption. number: its `num_preemptions`."""

    request: Request
    number: int

    @classmethod
    def of(cls, request: Request) -> "Life":
        """The one that it has now, or begins with its admission."""
        return cls(request, request.num_preemptions)

    @property
    def is_over(self) -> bool:
        """Whether the request runs no more, or has begun anew."""
        is_running = self.request.status is RequestStatus.RUNNING
        return not is_running or self.request.num_preemptions != self.number
