"""From rank to rank over a process group of torch.distributed: the `Link` that lab 20 is given."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from yaie.core.errors import RankError

if TYPE_CHECKING:
    from torch import Tensor

SECONDS = 30.0
"""How long a transfer waits for the other rank."""


class GroupTransfer:
    """See `yaie.core.contracts.ranks.Transfer`."""

    def __init__(self, work: Any, what: str, seconds: float | None) -> None:
        """work: of torch.distributed, None if nothing was begun. what: names it in an error.

        seconds: None if kernels wait rather than this process: its stream goes on when the transfer is
        done.
        """
        self._work = work
        self._what = what
        self._seconds = seconds

    def wait(self) -> None:
        """Raises RankError. Gloo would wait in vain for a transfer that is over: it is asked once."""
        if self._work is None:
            return
        try:
            if self._seconds is None:
                self._work.wait()
            else:
                self._work.wait(timedelta(seconds=self._seconds))
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            raise RankError(f"{self._what} failed: {reason}") from error
        self._work = None


class GroupLink:
    """See `yaie.core.contracts.ranks.Link`. Tensors go as they lie: those of a CPU over gloo.

    group: of torch.distributed, the default one if None.
    """

    def __init__(self, group: Any = None, seconds: float = SECONDS) -> None:
        import torch.distributed as dist

        self._dist = dist
        self._group = group if group is not None else dist.group.WORLD
        self._seconds = seconds
        self.rank: int = dist.get_rank(group)
        self.size: int = dist.get_world_size(group)

    def send(self, tensor: "Tensor", to: int) -> GroupTransfer:
        return self._begin(self._dist.isend, tensor, f"sending to rank {to}", group_dst=to)

    def receive(self, into: "Tensor", source: int) -> GroupTransfer:
        what = f"receiving from rank {source}"
        return self._begin(self._dist.irecv, into, what, group_src=source)

    def _begin(self, call: Any, tensor: "Tensor", what: str, **peer: int) -> GroupTransfer:
        # Both sides know the shape: an empty tensor need not be sent.
        work = None
        if tensor.numel():
            try:
                work = call(tensor, group=self._group, **peer)
            except RuntimeError as error:
                reason = str(error).partition("\n")[0]
                raise RankError(f"{what} failed: {reason}") from error
        return GroupTransfer(work, what, self._seconds)
