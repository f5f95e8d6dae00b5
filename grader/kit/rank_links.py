"""Links between the ranks of one process: strict ones, on which what may go wrong does.

A send is over only when it has been received, what is received arrives when it is waited for, and until
then nonsense stands in its place. Links in real life are kinder, most of the time.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from grader.kit.expect import Fault
from grader.kit.ranks import Ranks
from grader.kit.script import note, start_script


@dataclass(slots=True)
class Message:
    """One side of a transfer. bits: of the tensor when it was begun. line: where that was."""

    rank: int
    is_send: bool
    tensor: Tensor
    bits: Tensor
    line: str
    is_over: bool = False


@dataclass(slots=True)
class Channel:
    """From one rank to another: the first send belongs to the first receive, and so on."""

    sends: list[Message] = field(default_factory=list)
    receives: list[Message] = field(default_factory=list)


class Channels(defaultdict[tuple[int, int], Channel]):
    """All channels of a run, by (from, to). ended: ranks whose work is done."""

    def __init__(self) -> None:
        super().__init__(Channel)
        self.ended: set[int] = set()

    def expect_over(self, rank: int) -> None:
        """That a rank has waited for all that it began, and no rank asks it for more than it has sent.
        Raises Mismatch."""
        self.ended.add(rank)
        for (source, to), channel in self.items():
            if {source, to} <= self.ended:
                _expect_enough(channel, source, to)
            mine = [(m, f"sending to rank {to}") for m in channel.sends if source == rank]
            # What has not been sent may still be: that is known when its rank ends.
            came = channel.receives[: len(channel.sends)]
            mine += [(m, f"receiving from rank {source}") for m in came if to == rank]
            for message, what in mine:
                if not message.is_over:
                    problem = f"rank {rank} has returned without waiting for a transfer: {what}"
                    why = "Until `wait` has returned the tensor is still on its way."
                    raise Fault(problem, why=why, where=message.line)

    def why_stuck(self, size: int) -> str:
        """That each rank receives from the one that it sends to, if no rank can go on for that."""
        sent = {
            ends for ends, channel in self.items() if len(channel.sends) > len(channel.receives)
        }
        asked = {
            ends for ends, channel in self.items() if len(channel.sends) < len(channel.receives)
        }
        if len(sent) != size or sent != {(to, source) for source, to in asked}:
            return ""
        to = dict(sent)
        return (
            f"Rank 0 sends to rank {to[0]} and waits for rank {to[0]}, which sends to rank {to[to[0]]}: "
            "a rank receives from the one that sends to it."
        )


def _expect_enough(channel: Channel, source: int, to: int) -> None:
    """Of two ranks that have ended: that one has not asked for more than the other has sent."""
    sends, receives = len(channel.sends), len(channel.receives)
    if receives > sends:
        problem = f"rank {to} asks rank {source} for {receives} tensors, and it sends {sends}"
        raise Fault(problem, where=channel.receives[sends].line)


class SimLink:
    """A `Link` between ranks of one process. ranks: of its run, for the grader to look at."""

    def __init__(self, ranks: Ranks, channels: Channels, rank: int) -> None:
        self.rank = rank
        self.size = ranks.size
        self.ranks = ranks
        self._channels = channels

    def send(self, tensor: Tensor, to: int) -> "SimTransfer":
        self._expect_usable(tensor, to, "send")
        note(f"rank {self.rank} sends {_shown(tensor)} to rank {to}")
        self.ranks.sent[self.rank] += tensor.nbytes
        self.ranks.log[self.rank].append(("send", to))
        channel = self._channels[self.rank, to]
        message = Message(self.rank, True, tensor, _bits(tensor).clone(), self.ranks.line())
        channel.sends.append(message)
        return self._begun(channel, len(channel.sends) - 1, message, f"for rank {to} to receive")

    def receive(self, into: Tensor, source: int) -> "SimTransfer":
        self._expect_usable(into, source, "receive")
        note(f"rank {self.rank} receives {_shown(into)} from rank {source}")
        self.ranks.log[self.rank].append(("receive", source))
        channel = self._channels[source, self.rank]
        # What stands in it until it has arrived is of no use.
        _bits(into).fill_(0xFF if into.is_floating_point() else 0x7F)
        message = Message(self.rank, False, into, _bits(into).clone(), self.ranks.line())
        channel.receives.append(message)
        index = len(channel.receives) - 1
        return self._begun(channel, index, message, f"for rank {source} to send")

    def _begun(self, channel: Channel, index: int, message: Message, what: str) -> "SimTransfer":
        if index < min(len(channel.sends), len(channel.receives)):
            _expect_alike(channel.sends[index], channel.receives[index], self.ranks.line())
        return SimTransfer(self.ranks, channel, index, message, what)

    def _expect_usable(self, tensor: Any, other: Any, verb: str) -> None:
        line = self.ranks.line()
        if not isinstance(tensor, Tensor):
            raise Fault(f"{verb}: not a tensor", "a tensor", type(tensor).__name__, where=line)
        if not tensor.is_contiguous():
            why = "A link takes a run of memory, from the first number to the last."
            raise Fault(f"{verb}: the tensor is not contiguous", why=why, where=line)
        if other not in range(self.size) or other == self.rank:
            problem = f"rank {self.rank} of {self.size} cannot {verb}: no such other rank"
            raise Fault(problem, f"0 to {self.size - 1}, not itself", str(other), where=line)


class SimTransfer:
    """A `Transfer` between ranks of one process."""

    def __init__(
        self, ranks: Ranks, channel: Channel, index: int, message: Message, what: str
    ) -> None:
        self._ranks = ranks
        self._channel = channel
        self._index = index
        self._message = message
        self._what = what

    def wait(self) -> None:
        message = self._message
        if message.is_over:
            return
        channel, index = self._channel, self._index
        self._ranks.wait(
            message.rank,
            lambda: index < min(len(channel.sends), len(channel.receives)),
            lambda: self._what,
        )
        self._ranks.log[message.rank].append(("sent" if message.is_send else "received", index))
        if not torch.equal(_bits(message.tensor), message.bits):
            what = "what it sends" if message.is_send else "what it receives into"
            problem = f"rank {message.rank} writes to {what} before `wait` has returned"
            why = "A transfer reads or writes the tensor at any time until `wait` returns."
            raise Fault(problem, why=why, where=message.line)
        if not message.is_send:
            _bits(message.tensor).copy_(channel.sends[index].bits)
        message.is_over = True


def _expect_alike(send: Message, receive: Message, line: str) -> None:
    one, other = send.tensor, receive.tensor
    if (one.numel(), one.dtype) != (other.numel(), other.dtype):
        problem = f"rank {receive.rank} receives another tensor than rank {send.rank} sends"
        sends = f"{_shown(one)} ({send.line})"
        raise Fault(problem, sends, f"{_shown(other)} ({receive.line})", where=line)


def _bits(tensor: Tensor) -> Tensor:
    """The bytes of a contiguous tensor, as a view."""
    return tensor.detach().view(-1).view(torch.uint8)


def _shown(tensor: Tensor) -> str:
    numbers = "1 number" if tensor.numel() == 1 else f"{tensor.numel()} numbers"
    dtype = str(tensor.dtype).removeprefix("torch.")
    return numbers if dtype == "float32" else f"{numbers} of {dtype}"


def run_on(
    part: Any, size: int, work: Callable[[SimLink], Any], order: Sequence[int] = ()
) -> tuple[list[Any], Ranks]:
    """What `work` returns with each rank's link, and the ranks afterwards. Begins a new script."""
    start_script()
    note(f"# {size} ranks" if size > 1 else "# 1 rank")
    ranks, channels = Ranks(part, size, order), Channels()
    ranks.at_end = channels.expect_over
    ranks.why_stuck = partial(channels.why_stuck, size)
    return ranks.run(lambda rank: work(SimLink(ranks, channels, rank))), ranks
