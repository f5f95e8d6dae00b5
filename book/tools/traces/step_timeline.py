"""Host and device over four tokens: lab 7's loop and lab 17's, steps launched and replayed."""

from dataclasses import dataclass, field
from typing import Any

from book.tools.traces import Part, Trace
from yaie.core.batch import StepOutcome, StepPlan
from yaie.core.params import SamplingParams
from yaie.core.request import Request

LAB = "cuda_graphs"

PLAN, TEXT = 2, 2
"""Units of time that the host takes to plan a step, and to take one over and make text."""
KERNELS, LAUNCH, RUN = 6, 2, 1
"""A step's kernels; units of time that one takes the host to launch, and the device to run."""
REPLAY = 1
TOKENS = 4
TRACKS = {
    "launched": ("in order, launched one by one", False, False),
    "replayed": ("in order, replayed", False, True),
    "ahead": ("one step ahead, replayed", True, True),
}


@dataclass
class Clock:
    """Time as it passes for the host, and what each side has done: (name, step, begin, end)."""

    now: int = 0
    free: int = 0  # when the device has done what it was sent
    host: list[tuple[str, int, int, int]] = field(default_factory=list)
    device: list[tuple[str, int, int, int]] = field(default_factory=list)

    def spend(self, name: str, step: int, units: int) -> None:
        if units:
            self.host.append((name, step, self.now, self.now + units))
            self.now += units

    def wait(self, step: int, until: int) -> None:
        self.spend("wait", step, max(0, until - self.now))

    def send(self, step: int, *, replayed: bool) -> int:
        """Send a step; returns when the device will have done it."""
        if replayed:
            self.spend("send", step, REPLAY)
            begin = max(self.now, self.free)
            self.device.append(("run", step, begin, begin + KERNELS * RUN))
            self.free = begin + KERNELS * RUN
            return self.free
        for _ in range(KERNELS):
            self.host.append(("send", step, self.now, self.now + LAUNCH))
            self.now += LAUNCH
            begin = max(self.now, self.free)
            self.device.append(("run", step, begin, begin + RUN))
            self.free = begin + RUN
        return self.free


class Sent:
    """A step on its way. Its outcome is a token for each request that samples."""

    def __init__(self, clock: Clock, plan: StepPlan, step: int, done: int) -> None:
        self._clock, self._plan, self._step, self._done = clock, plan, step, done

    def send_masks(self) -> None:
        """Nothing waits for masks."""

    def result(self) -> StepOutcome:
        """The host waits until the device has done the step, then makes text of it."""
        self._clock.wait(self._step, self._done)
        self._clock.spend("text", self._step, TEXT)
        return StepOutcome([[0] for item in self._plan.scheduled if item.samples])


class Desk:
    """A scheduler and an executor for the part's loop, on a clock. One request is served."""

    def __init__(self, scheduler: Any, clock: Clock, *, replayed: bool) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._replayed = replayed
        self._step = 0

    def schedule(self) -> StepPlan:
        """A plan of nothing costs nothing here."""
        plan: StepPlan = self._scheduler.schedule()
        if not plan.is_empty:
            self._step += 1
            self._clock.spend("plan", self._step, PLAN)
        return plan

    def execute(self, plan: StepPlan) -> Sent:
        """Send a plan."""
        if plan.is_empty:
            return Sent(self._clock, plan, self._step, 0)
        done = self._clock.send(self._step, replayed=self._replayed)
        return Sent(self._clock, plan, self._step, done)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scheduler, name)


def record(part: Part) -> Trace:
    """A track for each way to run; a step of the figure is a call of the loop's `step`."""
    runs = {key: _run(part, ahead, replayed) for key, (_, ahead, replayed) in TRACKS.items()}
    end = max(steps[-1]["now"] for steps in runs.values())
    return {
        "tracks_label": "How steps run",
        "tracks": {
            key: {"label": TRACKS[key][0], "end": end, "steps": steps}
            for key, steps in runs.items()
        },
    }


def _run(part: Part, ahead: bool, replayed: bool) -> list[dict[str, Any]]:
    memory, engine = part("paged_cache"), part("engine")
    cache = memory.KVCacheManager(memory.BlockManager(8, 4), None)
    kind = part("scheduler")
    policy = kind.POLICIES["fcfs"](cache)
    clock = Clock()
    desk = Desk(
        kind.Scheduler(cache, policy, max_num_seqs=1, token_budget=16), clock, replayed=replayed
    )
    make = (lambda: engine.Detokenizer(str)), engine.StopChecker
    loop = engine.EngineCore(desk, desk, *make, frozenset())
    if ahead:
        loop = part("cuda_graphs").OverlappedLoop(loop, desk, desk)
    loop.add_request(Request("A", [1], SamplingParams(), max_tokens=TOKENS))
    steps: list[dict[str, Any]] = []
    while loop.has_work:
        outputs = loop.step()
        tokens = sum(len(output.token_ids) for output in outputs)
        steps.append(_seen(clock, tokens, steps[-1] if steps else None))
    return steps


def _seen(clock: Clock, tokens: int, before: dict[str, Any] | None) -> dict[str, Any]:
    """Everything up to now, and what this call has brought."""
    total = tokens + (before["tokens"] if before else 0)
    last = clock.now
    begin = before["now"] if before else 0
    waited = sum(end - at for name, _, at, end in clock.host if name == "wait" and at >= begin)
    busy = sum(min(end, last) - at for _, _, at, end in clock.device if at < last)
    got = f"the client has token {total}" if tokens else "the client has nothing yet"
    units = f"{waited} unit" if waited == 1 else f"{waited} units"
    wait = f"the host waited for {units}" if waited else "the host did not wait"
    return {
        "say": (
            f"After this call {got}, at {last}; {wait}. "
            f"The device worked for {busy} of {last} units."
        ),
        "host": [list(span) for span in clock.host],
        "device": [list(span) for span in clock.device],
        "now": last,
        "tokens": total,
    }
