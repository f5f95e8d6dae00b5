"""The thread that starts the other ranks, hears them, and notices when one is gone or late."""

import atexit
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from yaie.core.config import EngineConfig
from yaie.core.errors import EngineDeadError, LostPartError
from yaie.core.step import Fault, StepResult
from yaie.worker.parallel.members import Gone, Heard, Members
from yaie.worker.parallel.messages import Broken, Done

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.5
CAUSE_SECONDS = 1.0
"""How long to look for the cause when a rank has lost another one: that may be known a moment later."""
LOST = "RankError"

Kind = TypeVar("Kind")


class RankMonitor:
    """Lives as long as the other ranks do, which it ends when one of them is lost.

    loss: why there is no engine any more, or "". error: the same as the exception of a rank that could
    not start. lab: of the learner's part that is the reason, or "".
    """

    def __init__(self, config: EngineConfig, members: Members) -> None:
        self.loss = ""
        self.error: Exception | None = None
        self.lab = ""
        self._config = config
        self._members = members
        # By rank: what has come for `each`, and what each step that it is through with drew there.
        self._mail: dict[int, list[Any]] = {rank: [] for rank in members.ranks}
        self._done: dict[int, dict[int, int | None]] = {rank: {} for rank in members.ranks}
        self._changed = threading.Condition()
        self._has_started = False
        self._stopping = False
        self._suspicion: tuple[float, str] | None = None
        self._sending_since: float | None = None
        self._settled: dict[int, tuple[float, int | None]] = {}
        self._answers: dict[int, StepResult] = {}
        self._limit: float | None = None
        self._tell: Callable[[EngineDeadError], None] = lambda _: None
        self._let_go: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="yaie-ranks", daemon=True)
        atexit.register(self.stop)  # or multiprocessing waits for the processes at exit
        self._thread.start()

    # --- on control's thread ---

    def each(self, kind: type[Kind]) -> list[Kind]:
        """The next message of every rank, which is of this kind. Raises what a rank could not start for,
        or EngineDeadError."""

        def all_there() -> bool:
            return bool(self.loss) or all(self._mail.values())

        with self._changed:
            self._changed.wait_for(all_there)
            if self.loss:
                raise self.error or self.dead()
            found = [mail.pop(0) for mail in self._mail.values()]
        assert all(isinstance(message, kind) for message in found), found
        return found

    def watch(self, *, whole_steps: bool) -> None:
        """From here on a rank may not keep the others waiting for longer than `rank_timeout`.

        whole_steps: also rank 0, which cannot notice by itself that a GPU waits for another one.
        """
        self._whole_steps = whole_steps
        self._limit = self._config.rank_timeout * self._config.pipeline_parallel
        self._members.settle(self._config.rank_timeout)

    def on_end(self, let_go: Callable[[], None]) -> None:
        """Call this before the processes are ended, also when a rank is lost.

        On a GPU rank 0 may wait for what another one will never send, and nothing else would wake it.
        """
        self._let_go = let_go

    def send(self, data: bytes) -> None:
        """Give every rank a message. Raises EngineDeadError if one is gone."""
        if not self._has_started:
            with self._changed:
                self._changed.wait_for(lambda: self.loss or self._has_started)
        self._sending_since = time.monotonic()
        try:
            self._members.send(data)
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
        """See `RankExecutor`."""
        self._tell = tell
        if self.loss:
            tell(self.dead())

    def stop(self) -> None:
        """End the processes, and the thread."""
        atexit.unregister(self.stop)
        self._stopping = True
        self._members.ring()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # --- on the thread ---

    def _run(self) -> None:
        try:
            self._members.start()
            with self._changed:
                self._has_started = True
                self._changed.notify_all()
            while not (self._stopping or self.loss):
                self._listen()
                self._judge()
        except Exception as error:
            logger.critical("ranks cannot be watched any more", exc_info=True)
            self._lose(f"ranks cannot be watched any more: {error}")
        self._let_go()
        self._members.end(self.loss)
        if self.loss and not self._stopping:
            logger.critical("the model is not whole any more: %s", self.loss)
            self._tell(self.dead())

    def _listen(self) -> None:
        for one in self._members.hear(0.1 if self._suspicion else POLL_SECONDS):
            match one:
                case Heard(rank, message):
                    self._take(rank, message)
                case Gone(rank, how, has_said) if not (self._suspicion and has_said):
                    self._lose(f"rank {rank} {how}")

    def _take(self, rank: int, message: Any) -> None:
        with self._changed:
            match message:
                case Done(step, drawn, result):
                    self._done[rank][step] = drawn
                    if result is not None:
                        self._answers[step] = result
                    self._compare(step)
                case Broken():
                    self._broke(rank, message)
                case _:
                    self._mail[rank].append(message)
            self._changed.notify_all()

    def _compare(self, step: int) -> None:
        """Once every rank is through with a step, they have drawn the same."""
        if step not in self._settled or any(step not in done for done in self._done.values()):
            return
        drawn = {self._settled.pop(step)[1], *(done.pop(step) for done in self._done.values())}
        if len(drawn - {None}) > 1:
            self._lose(f"ranks drew different tokens in step {step}")

    def _broke(self, rank: int, broken: Broken) -> None:
        if broken.error is not None:
            told, lab = f"rank {rank}: {broken.error.message}", ""
            is_lost = broken.error.kind == LOST
        else:
            fault = broken.fault
            assert fault is not None
            where = f" ({fault.where})" if fault.where else ""
            whose = f", your part {fault.lab}" if fault.lab else ""
            told = f"rank {rank}{whose} failed: {fault.message}{where}"
            is_lost, lab = fault.message.startswith(LOST), fault.lab
        if is_lost:  # by another one, which may be heard of yet
            self._suspicion = self._suspicion or (time.monotonic(), told)
            return
        error = None if broken.error is None else broken.error.exception()
        self._lose(told, error, lab)

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
                rank for rank, done in self._done.items() if any(step not in done for step in late)
            ]
        if late:
            who = f"rank {behind[0]} is" if behind else "rank 0 is"
            self._lose(f"{who} more than {self._limit:g} seconds behind (rank_timeout)")

    def _lose(self, why: str, error: Exception | None = None, lab: str = "") -> None:
        with self._changed:
            if not self.loss:
                self.error, self.lab, self.loss = error, lab, why
            self._changed.notify_all()
        self._members.ring()
