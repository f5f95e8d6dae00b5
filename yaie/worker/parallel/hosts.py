"""The other ranks as processes that a launcher has started, on this host and others.

Rank 0 broadcasts each message to all, and each of them sends rank 0 its answers, over gloo. Both sides
say something every few seconds, for a host without power says nothing at all.

Each message carries a proof that it comes from a rank of this launch (`session`), and becomes one of a
few dataclasses (`messages`): nothing that arrives is unpickled.
"""

import contextlib
import logging
import threading
from collections.abc import Sequence
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import Any

import torch.distributed as dist
from torch import Tensor

from yaie.core.config import EngineConfig
from yaie.core.errors import RankError
from yaie.worker.parallel.groups import START_SECONDS, Limit, RankLink
from yaie.worker.parallel.launch import Launch
from yaie.worker.parallel.links import GroupTransfer
from yaie.worker.parallel.members import Gone, Heard
from yaie.worker.parallel.messages import MESSAGES, Broken, End
from yaie.worker.parallel.packets import message, packets
from yaie.worker.parallel.rendezvous import channels, meet

logger = logging.getLogger(__name__)

BEAT_SECONDS = 2.0
BEAT = b""
"""A message that says no more than that its sender is there."""
END_SECONDS = 5.0
"""How long ranks may take to end when they are told to."""
LOST_SECONDS = 0.5
"""The same once one is lost: there are requests to end."""


def beat_seconds(limit: float) -> float:
    """How often to say something to one who waits for so long."""
    return min(BEAT_SECONDS, limit / 4)


class _Broadcast:
    """From rank 0 to all others. seconds: that a message may take, or may be waited for."""

    def __init__(self, group: Any) -> None:
        self.seconds = START_SECONDS
        self._group = group

    def carry(self, packet: Tensor) -> None:
        """Send on rank 0, receive on others. Raises RankError."""
        options = dist.BroadcastOptions()
        options.rootRank = 0
        options.timeout = timedelta(seconds=self.seconds)
        try:
            work = self._group.broadcast([packet], options)
        except RuntimeError as error:
            raise RankError(str(error).partition("\n")[0]) from error
        GroupTransfer(work, "the broadcast", self.seconds).wait()


class Hosts:
    """See `members.Members`. rendezvous: where the groups of the ranks are made, too."""

    def __init__(self, launch: Launch, config: EngineConfig) -> None:
        """Wait until all are there. Raises ConfigError and RankError as `rendezvous.meet` does."""
        self.ranks: Sequence[int] = range(1, launch.size)
        self.rendezvous = meet(launch, config)
        steps, answers = channels(launch, self.rendezvous)
        self._steps = _Broadcast(steps)
        self._limit = Limit()
        self._answers = RankLink(answers, self._limit)
        self._session = self.rendezvous.session
        self._seal = self._session.steps()
        self._inbox: SimpleQueue[Heard | Gone | None] = SimpleQueue()
        self._sending = threading.Lock()
        self._pause = BEAT_SECONDS
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(
                target=self._listen, args=(rank,), name=f"yaie-rank-{rank}", daemon=True
            )
            for rank in self.ranks
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()
        threading.Thread(target=self._beat, name="yaie-beat", daemon=True).start()

    def send(self, data: bytes) -> None:
        try:
            with self._sending:
                for packet in packets(self._seal.close(data)):
                    self._steps.carry(packet)
        except RankError as error:
            raise OSError(str(error)) from error

    def hear(self, seconds: float) -> list[Heard | Gone]:
        found: list[Heard | Gone | None] = []
        with contextlib.suppress(Empty):
            found.append(self._inbox.get(timeout=seconds))
            while True:
                found.append(self._inbox.get_nowait())
        return [one for one in found if one is not None]

    def ring(self) -> None:
        self._inbox.put(None)

    def settle(self, seconds: float) -> None:
        self._steps.seconds = self._limit.seconds = seconds
        self._pause = beat_seconds(seconds)

    def end(self, why: str) -> None:
        self._is_over.set()
        seconds = LOST_SECONDS if why else END_SECONDS
        if self._sending.acquire(
            timeout=seconds
        ):  # or one takes nothing, and this is no news to it
            try:
                self._steps.seconds = seconds
                with contextlib.suppress(RankError):
                    for packet in packets(self._seal.close(MESSAGES.encode(End(why)))):
                        self._steps.carry(packet)
            finally:
                self._sending.release()
        for thread in self._threads:
            thread.join(seconds / len(self._threads))

    def _listen(self, rank: int) -> None:
        """A thread for each rank: what it says, until it says no more."""
        has_said = False
        seal = self._session.answers(rank)
        try:
            while True:
                sealed = message(lambda packet: self._answers.receive(packet, rank).wait())
                data = seal.open(sealed)
                if data != BEAT:
                    heard = MESSAGES.decode(data)
                    has_said = has_said or isinstance(heard, Broken)
                    self._inbox.put(Heard(rank, heard))
        except RankError as error:
            self._inbox.put(Gone(rank, f"is gone: {error}", has_said))
        except ValueError as error:
            self._inbox.put(Gone(rank, f"cannot be believed: {error}", has_said=False))

    def _beat(self) -> None:
        with contextlib.suppress(OSError):
            while not self._is_over.wait(self._pause):
                self.send(BEAT)


class HostPipe:
    """A rank's way to rank 0 and back, with the methods that it calls of a pipe.

    rendezvous: where the groups of the ranks are made, too.
    """

    def __init__(self, launch: Launch, config: EngineConfig) -> None:
        """Wait until all are there. Raises ConfigError and RankError as `rendezvous.meet` does."""
        self.rendezvous = meet(launch, config)
        steps, answers = channels(launch, self.rendezvous)
        session = self.rendezvous.session
        self._heard, self._said = session.steps(), session.answers(launch.rank)
        self._rank = launch.rank
        self._steps = _Broadcast(steps)
        self._limit = Limit()
        self._answers = RankLink(answers, self._limit)
        self._sending = threading.Lock()
        self._pause = BEAT_SECONDS
        self._is_over = threading.Event()
        threading.Thread(target=self._beat, name="yaie-beat", daemon=True).start()

    def settle(self, seconds: float) -> None:
        """See `members.Members`, on the other side."""
        self._steps.seconds = self._limit.seconds = seconds
        self._pause = beat_seconds(seconds)

    def send_bytes(self, data: bytes) -> None:
        """Raises OSError if rank 0 is gone."""
        try:
            with self._sending:
                for packet in packets(self._said.close(data)):
                    self._answers.send(packet, 0).wait()
        except RankError as error:
            raise OSError(str(error)) from error

    def recv_bytes(self) -> bytearray:
        """The next message of rank 0. Raises EOFError, and logs why, if it is gone, or if what arrives
        is not from it."""
        try:
            while (data := self._heard.open(message(self._steps.carry))) == BEAT:
                pass
        except RankError as error:
            logger.error("rank %d ends, for rank 0 is gone: %s", self._rank, error)
        except ValueError as error:
            logger.error("rank %d ends, for rank 0 cannot be believed: %s", self._rank, error)
        else:
            return data
        self._is_over.set()
        raise EOFError

    def _beat(self) -> None:
        with contextlib.suppress(OSError):
            while not self._is_over.wait(self._pause):
                self.send_bytes(BEAT)
