"""Computes with fewer threads while other programs keep a CPU's cores busy.

The threads of a step meet after every operation. Where another program has the core of one of them, the
others wait for that program's time slice to end, at each meeting: a step of 5 ms then takes 50 to 250.
Fewer threads than free cores never wait like that, and give up only what the further threads gained.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

import torch

from yaie.core.batch import StepPlan
from yaie.core.config import EngineConfig
from yaie.core.step import StepResult
from yaie.system.core_use import CoreUse
from yaie.worker.threads import step_seconds, told_by_environment, worth_having
from yaie.worker.worker import Worker

logger = logging.getLogger(__name__)

SLOW = 3.0
"""A step that takes so many times what such steps take is slow."""
BUSY = 0.5
"""Cores that other programs must have had meanwhile: slow steps have other reasons too. As many must be
idle for a trial of more threads ahead of time."""
REMEMBERED = 32
"""Steps of each size. The shortest of them says what such a step takes."""
TRIAL = 8
"""Steps with more threads, which must take less time than as many before them."""
LEAST = 4
"""Steps that tell how long they take now, before a trial."""
LOOK = 0.5
"""Seconds from one look for idle cores to the next, and to the first one."""
FIRST_WAIT, LONGEST_WAIT = 1.0, 32.0
"""Seconds until a trial while no core is idle. One that fails costs a slow step, and doubles them."""
TRUST = 8.0
"""Seconds in which slow steps are borne after a trial that went well, if they do not take longer than
those with fewer threads: beside many programs more threads get a larger share of the cores."""
QUIET = 60.0
"""Seconds in which the log tells once that other programs keep the cores busy."""
PAUSE = 0.1
"""Seconds without a step that only decodes, after which the use of the cores is watched anew."""


class ThreadGovernor:
    """A StepObserver. Sets the number of threads of the thread that calls it, by how long steps take.

    num_threads: that compute now. lowered: how often other programs were given room.
    """

    def __init__(
        self,
        most: int,
        *,
        use: CoreUse | None = None,
        clock: Callable[[], float] = time.monotonic,
        set_threads: Callable[[int], object] = torch.set_num_threads,
    ) -> None:
        """most: threads that there may be. The others are for tests."""
        self.num_threads = self._most = most
        self.lowered = 0
        self._use = use or CoreUse()
        self._clock = clock
        self._set_threads = set_threads
        self._taken: dict[tuple[int, int], deque[float]] = {}
        self._recent: deque[float] = deque(maxlen=TRIAL)
        self._size = 0  # of the recent steps
        self._last = self._looked = self._told = -math.inf
        self._trial: _Trial | None = None
        self._wait, self._due = FIRST_WAIT, 0.0  # until the next trial, and when that is
        self._trusted, self._fewer = -math.inf, 0.0  # until when, and how long a step may then take

    def measure(self, worker: Worker) -> None:
        """Find out how many threads the model gains from, with steps that are made up. Beside programs
        that keep the cores busy all threads stay in play."""
        self._use.restart()
        taken = step_seconds(worker, self._most)
        shares = self._use.look()
        if not taken:
            return
        for threads, seconds in taken.items():
            self._taken[threads, 1] = deque([seconds], REMEMBERED)
        if shares is None or shares.others < BUSY:
            self.num_threads = self._most = worth_having(taken)
            self._set_threads(self._most)

    def stepped(self, plan: StepPlan, result: StepResult, seconds: float) -> None:
        """See StepObserver. Only steps that decode are looked at: they are alike."""
        if not (num_rows := plain_decodes(plan)):
            return
        now, size = self._clock(), num_rows.bit_length()
        if now - self._last > PAUSE + seconds:
            self._use.restart()
            self._looked = now
        self._last = now
        if size != self._size:
            self._end_trial(now)
            self._size = size
            self._recent.clear()
        usual = self._usual(size)
        self._taken.setdefault((self.num_threads, size), deque(maxlen=REMEMBERED)).append(seconds)
        if self._trial is not None:
            self._judge(self._trial, now, seconds)
            return
        self._recent.append(seconds)
        if self.num_threads > 1 and usual is not None and seconds > SLOW * usual:
            if now >= self._trusted or fmean(self._recent) > self._fewer:
                self._make_room(now, usual, seconds)
        elif self.num_threads < self._most and len(self._recent) >= LEAST:
            self._seek_room(now)

    def stats(self) -> dict[str, float]:
        """For `LLMEngine.stats`. threads_wanted: those that compute while the cores are free."""
        return {
            "threads": self.num_threads,
            "threads_wanted": self._most,
            "threads_lowered": self.lowered,
        }

    def _usual(self, size: int) -> float | None:
        """Seconds that a step of this size takes, by the shortest that are known with as many threads or
        fewer. Steps of more requests take at most as many times as long as they are more."""
        known = [
            2 ** (size - its) * min(taken)
            for (threads, its), taken in self._taken.items()
            if threads <= self.num_threads and its <= size
        ]
        return min(known, default=None)

    def _make_room(self, now: float, usual: float, seconds: float) -> None:
        shares = self._use.look()
        if shares is None or shares.others < BUSY:
            return
        room = self._most - math.ceil(shares.others - BUSY)
        self._change(now, max(1, min(self.num_threads - 1, room)))
        self._due = now + self._wait
        self.lowered += 1
        if now - self._told > QUIET:
            self._told = now
            logger.warning(
                "other programs keep the cores busy: a step took %.0f ms instead of %.1f. Steps use "
                "%d of %d threads until cores are free",
                1e3 * seconds, 1e3 * usual, self.num_threads, self._most,
            )  # fmt: skip

    def _seek_room(self, now: float) -> None:
        """Try more threads if cores are idle, or if it is time."""
        idle = 0.0
        if now - self._looked >= LOOK and (shares := self._use.look()) is not None:
            self._looked, idle = now, shares.idle
        if idle >= BUSY or now >= self._due:
            self._trial = _Trial(self.num_threads, fmean(self._recent))
            self._change(now, min(self._most, self.num_threads + max(1, int(idle))))

    def _judge(self, trial: "_Trial", now: float, seconds: float) -> None:
        trial.steps += 1
        trial.seconds += seconds
        if trial.seconds > TRIAL * trial.before:
            self._end_trial(now)
        elif trial.steps == TRIAL:
            self._trial, self._wait = None, FIRST_WAIT
            self._due = now + self._wait
            self._trusted, self._fewer = now + TRUST, trial.before
            logger.info("steps use %d of %d threads again", self.num_threads, self._most)

    def _end_trial(self, now: float) -> None:
        """Compute as before it."""
        if self._trial is not None:
            self._change(now, self._trial.num_threads)
            self._trial = None
            self._wait = min(LONGEST_WAIT, 2 * self._wait)
            self._due = now + self._wait

    def _change(self, now: float, num_threads: int) -> None:
        self.num_threads = num_threads
        self._looked = now
        self._recent.clear()
        self._use.restart()
        self._set_threads(num_threads)


@dataclass(slots=True)
class _Trial:
    """Of more threads. num_threads: those before. before: seconds that a step took with them."""

    num_threads: int
    before: float
    steps: int = 0
    seconds: float = 0.0


def plain_decodes(plan: StepPlan) -> int:
    """How many requests a step takes one token further; 0 if it does anything else, which takes longer
    for reasons of its own."""
    for item in plan.scheduled:
        if item.num_tokens != 1 or item.drafts or item.request.matcher is not None:
            return 0
    return len(plan.scheduled)


def governor_for(
    config: EngineConfig, device: torch.device, *, threaded: bool
) -> ThreadGovernor | None:
    """Who sets the number of threads; None where it is fixed: by a setting or a variable, by bits that
    depend on it, by ranks that share the cores, for a worker on a thread of its own, or on a GPU.

    threaded: whether the worker computes on another thread than the one that asks here.
    """
    fixed = config.threads is not None or told_by_environment() or config.deterministic
    most = torch.get_num_threads()
    if fixed or threaded or device.type != "cpu" or config.num_ranks > 1 or most == 1:
        return None
    return ThreadGovernor(most)
