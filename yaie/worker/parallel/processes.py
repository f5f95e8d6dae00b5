"""The other ranks as processes of this one, on the same host, each at the end of a pipe."""

import contextlib
import multiprocessing
import os
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from yaie.core.config import EngineConfig
from yaie.system.child import how_it_ended, signals_held
from yaie.worker.parallel.members import Gone, Heard
from yaie.worker.parallel.messages import MESSAGES
from yaie.worker.parallel.place import Place

START = "spawn"
"""How multiprocessing starts them."""
SAID = 1
"""The exit code of a rank that has told why."""


@dataclass(slots=True)
class _Member:
    rank: int
    process: Any
    pipe: "Connection[bytes, bytes]"


class Processes:
    """See `members.Members`. They end with the thread that starts them: as long as it lives, the kernel
    takes it for their parent."""

    def __init__(self, config: EngineConfig, places: Sequence[Place], file: Path) -> None:
        """file: through which ranks find each other."""
        self.ranks = [place.rank for place in places]
        self._config = config
        self._places = places
        self._file = file
        self._members: list[_Member] = []
        self._bell, self._button = os.pipe()

    def start(self) -> None:
        context: Any = multiprocessing.get_context(START)
        # Imported by the process, whose model it would otherwise be this one's business to load.
        from yaie.worker.parallel.rank_process import run_rank

        for place in self._places:
            pipe, far_end = multiprocessing.Pipe()
            process = context.Process(
                target=run_rank,
                args=(far_end, self._config, place, self._file),
                name=f"yaie-rank-{place.rank}",
                daemon=True,
            )
            with signals_held():
                process.start()
            far_end.close()
            self._members.append(_Member(place.rank, process, pipe))

    def send(self, data: bytes) -> None:
        for member in self._members:
            member.pipe.send_bytes(data)

    def hear(self, seconds: float) -> list[Heard | Gone]:
        pipes = {one.pipe: one for one in self._members}
        ends = {one.process.sentinel: one for one in self._members}
        ready = wait([*pipes, *ends, self._bell], seconds)
        heard: list[Heard | Gone] = []
        for one in ready:
            if one in pipes:
                heard += _heard(pipes[one])
        for one in ready:
            if one in ends:
                member = ends[one]
                heard += _heard(member)
                member.process.join()
                code = member.process.exitcode
                heard.append(Gone(member.rank, how_it_ended(code), has_said=code == SAID))
        return heard

    def ring(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._button, b"!")

    def settle(self, seconds: float) -> None:
        """The kernel tells when a process has ended, so silence says nothing."""

    def end(self, why: str) -> None:
        for member in self._members:
            member.process.kill()  # also one that has been stopped
        for member in self._members:
            member.process.join()
            member.process.close()
            member.pipe.close()
        button, self._button = self._button, -1  # which another file may be given
        os.close(button)
        os.close(self._bell)


def _heard(member: _Member) -> list[Heard | Gone]:
    heard: list[Heard | Gone] = []
    with contextlib.suppress(EOFError, OSError):  # its end is noticed by itself
        while member.pipe.poll():
            heard.append(Heard(member.rank, MESSAGES.decode(member.pipe.recv_bytes())))
    return heard
