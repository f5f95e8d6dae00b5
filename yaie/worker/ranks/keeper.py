"""The thread that starts the processes of ranks, hears them, and notices when one is gone or late."""

import atexit
import contextlib
import logging
import multiprocessing
import os
import pickle
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, TypeVar

from yaie.core.child import how_it_ended, signals_held
from yaie.core.config import EngineConfig
from yaie.core.errors import EngineDeadError, LostPartError
from yaie.core.step import Fault, StepResult
from yaie.worker.ranks.messages import Broken, Done
from yaie.worker.ranks.place import Place

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.5
CAUSE_SECONDS = 1.0
"""How long to look for the cause when a rank has lost another one: that may be known a moment later."""
LOST = "RankError"

Kind = TypeVar("Kind")


@dataclass(slots=True)
class _Member:
    """A rank in another process. done: what each step that it is through with drew there."""

    place: Place
    process: Any
    pipe: "Connection[bytes, bytes]"
    mail: list[Any] = field(default_factory=list)
    done: dict[int, int | None] = field(default_factory=dict)


class Keeper:
    """Ranks end with this thread: as long as it lives, the kernel takes it for their parent.

    loss: why there is no engine any more, or "". error: the same as the exception of a rank that could
    not start. lab: of the learner's part that is the reason, or "".
    """

    def __init__(self, config: EngineConfig, places: Sequence[Place], file: Path) -> None:
        self.loss = ""
        self.error: Exception | None = None
        self.lab = ""
        self._config = config
        self._places = places
        self._file = file
        self._members: list[_Member] = []
        self._changed = threading.Condition()
        self._stopping = False
        self._bell, self._button = os.pipe()
        self._suspicion: tuple[float, str] | None = None
        self._sending_since: float | None = None
        self._settled: dict[int, tuple[float, int | None]] = {}
        self._answers: dict[int, StepResult] = {}
        self._limit: float | None = None
        self._tell: Callable[[EngineDeadError], None] = lambda _: None
        self._thread = threading.Thread(target=self._run, name="yaie-ranks", daemon=True)
        atexit.register(self.stop)  # or multiprocessing waits for the processes at exit
        self._thread.start()

    # --- on control's thread ---

    def each(self, kind: type[Kind]) -> list[Kind]:
        """The next message of every rank, which is of this kind. Raises what a rank could not start for,
        or EngineDeadError."""

        def all_there() -> bool:
            return bool(self.loss) or (
                len(self._members) == len(self._places) and all(one.mail for one in self._members)
            )

        with self._changed:
            self._changed.wait_for(all_there)
            if self.loss:
                raise self.error or self.dead()
            found = [one.mail.pop(0) for one in self._members]
        assert all(isinstance(message, kind) for message in found), found
        return found

    def watch(self, *, whole_steps: bool) -> None:
        """From here on a rank may not keep the others waiting for longer than `rank_timeout`.

        whole_steps: also rank 0, which cannot notice by itself that a GPU waits for another one.
        """
        self._whole_steps = whole_steps
        self._limit = self._config.rank_timeout * self._config.pipeline_parallel

    def send(self, data: bytes) -> None:
        """Give every rank a message. Raises EngineDeadError if one is gone."""
        if len(self._members) < len(self._places):
            with self._changed:
                self._changed.wait_for(lambda: self.loss or len(self._members) == len(self._places))
        self._sending_since = time.monotonic()
        try:
            for member in self._members:
                member.pipe.send_bytes(data)
        except OSError:
            self._cause("a rank takes no more steps")
            raise self.dead() from None
        finally:
            self._sending_since = None

    def began(self, step: int) -> None:
        """Rank 0 begins a step."""
        if self._whole_steps:
            with self._changed:
                self._settled.setdefault(step, (time.monotonic(), None))

    def settled(self, step: int, drawn: int | None) -> None:
        """Rank 0 is through with a step, in which it drew these tokens; None if it draws none."""
        with self._changed:
            self._settled[step] = (time.monotonic(), drawn)
            self._compare(step)

    def answer(self, step: int) -> StepResult:
        """The result of another rank. Raises EngineDeadError if none comes."""
        with self._changed:
            self._changed.wait_for(lambda: self.loss or step in self._answers)
            if step in self._answers:
                return self._answers.pop(step)
        raise self.dead()

    def dead(self) -> EngineDeadError:
        """What to raise now that a rank is lost."""
        return (LostPartError if self.lab else EngineDeadError)(self.loss)

    def broke(self, fault: Fault) -> None:
        """A step broke on rank 0 in this way: find out why, and `dead` tells it."""
        where = f" ({fault.where})" if fault.where else ""
        whose = f"your part {fault.lab}" if fault.lab else "a step"
        told = f"{whose} failed: {fault.message}{where}"
        if fault.message.startswith(LOST):
            self._cause(told)
        self._lose(told, lab=fault.lab)

    def _cause(self, otherwise: str) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.loss, 2 * CAUSE_SECONDS)
        self._lose(otherwise)

    def on_loss(self, tell: Callable[[EngineDeadError], None]) -> None:
        """See `Crew`."""
        self._tell = tell
        if self.loss:
            tell(self.dead())

    def stop(self) -> None:
        """End the processes, and the thread."""
        atexit.unregister(self.stop)
        self._stopping = True
        self._ring()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _ring(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._button, b"!")

    # --- on the thread ---

    def _run(self) -> None:
        try:
            self._start()
            while not (self._stopping or self.loss):
                self._listen()
                self._judge()
        except Exception as error:
            logger.critical("ranks cannot be watched any more", exc_info=True)
            self._lose(f"ranks cannot be watched any more: {error}")
        self._end_all()
        if self.loss and not self._stopping:
            logger.critical("the model is not whole any more: %s", self.loss)
            self._tell(self.dead())

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        # Imported by the process, whose model it would otherwise be this one's business to load.
        from yaie.worker.ranks.rank_process import run_rank

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
            with self._changed:
                self._members.append(_Member(place, process, pipe))
                self._changed.notify_all()

    def _listen(self) -> None:
        pipes = {one.pipe: one for one in self._members}
        ends = {one.process.sentinel: one for one in self._members}
        ready = wait([*pipes, *ends, self._bell], 0.1 if self._suspicion else POLL_SECONDS)
        for one in ready:
            if one in pipes:
                self._hear(pipes[one])
        for one in ready:
            if one in ends:
                member = ends[one]
                self._hear(member)
                member.process.join()
                ended = how_it_ended(member.process.exitcode)
                if self._suspicion is None or member.process.exitcode != 1:
                    self._lose(f"rank {member.place.rank} {ended}")

    def _hear(self, member: _Member) -> None:
        with contextlib.suppress(EOFError, OSError):  # its end is noticed by itself
            while member.pipe.poll():
                self._take(member, pickle.loads(member.pipe.recv_bytes()))

    def _take(self, member: _Member, message: Any) -> None:
        with self._changed:
            match message:
                case Done(step, drawn, result):
                    member.done[step] = drawn
                    if result is not None:
                        self._answers[step] = result
                    self._compare(step)
                case Broken():
                    self._broke(member, message)
                case _:
                    member.mail.append(message)
            self._changed.notify_all()

    def _compare(self, step: int) -> None:
        """Once every rank is through with a step, they have drawn the same."""
        if step not in self._settled or any(step not in one.done for one in self._members):
            return
        drawn = {self._settled.pop(step)[1], *(one.done.pop(step) for one in self._members)}
        if len(drawn - {None}) > 1:
            self._lose(f"ranks drew different tokens in step {step}")

    def _broke(self, member: _Member, broken: Broken) -> None:
        if broken.error is not None:
            told, lab = f"rank {member.place.rank}: {broken.error}", ""
            is_lost = type(broken.error).__name__ == LOST
        else:
            fault = broken.fault
            assert fault is not None
            where = f" ({fault.where})" if fault.where else ""
            whose = f", your part {fault.lab}" if fault.lab else ""
            told = f"rank {member.place.rank}{whose} failed: {fault.message}{where}"
            is_lost, lab = fault.message.startswith(LOST), fault.lab
        if is_lost:  # by another one, which may be heard of yet
            self._suspicion = self._suspicion or (time.monotonic(), told)
            return
        self._lose(told, broken.error, lab)

    def _judge(self) -> None:
        now = time.monotonic()
        if self._suspicion is not None and now - self._suspicion[0] > CAUSE_SECONDS:
            self._lose(self._suspicion[1])
        if self._limit is None:
            return
        since = self._sending_since
        if since is not None and now - since > self._limit:
            self._lose(f"a rank has taken no message for {self._limit:g} seconds (rank_timeout)")
        with self._changed:
            late = [step for step, (at, _) in self._settled.items() if now - at > self._limit]
            behind = [
                one.place.rank
                for one in self._members
                if any(step not in one.done for step in late)
            ]
        if late:
            who = f"rank {behind[0]} is" if behind else "rank 0 is"
            self._lose(f"{who} more than {self._limit:g} seconds behind (rank_timeout)")

    def _lose(self, why: str, error: Exception | None = None, lab: str = "") -> None:
        with self._changed:
            if not self.loss:
                self.error, self.lab, self.loss = error, lab, why
            self._changed.notify_all()
        self._ring()

    def _end_all(self) -> None:
        for member in self._members:
            member.process.kill()  # also one that has been stopped
        for member in self._members:
            member.process.join()
            member.process.close()
            member.pipe.close()
        os.close(self._button)
        os.close(self._bell)
