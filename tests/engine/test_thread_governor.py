"""How many threads of a CPU compute while other programs want its cores too."""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from yaie import LLMEngine
from yaie.core.batch import ScheduledRequest, StepPlan
from yaie.core.config import EngineConfig
from yaie.core.request import Request
from yaie.core.step import StepResult
from yaie.engine.step import thread_governor
from yaie.engine.step.thread_governor import LONGEST_WAIT, ThreadGovernor, governor_for
from yaie.system.core_use import CoreUse, Shares
from yaie.worker import threads

CPU = torch.device("cpu")
FREE, TAKEN = Shares(idle=1.0, others=0.0), Shares(idle=0.0, others=1.0)
BARRIERS = 0.25
"""Seconds of a step whose threads wait for another program's time slices."""


@dataclass
class Machine:
    """Two cores, and programs beside. A step takes what its threads and the programs make of it."""

    shares: Shares = FREE
    now: float = 0.0
    set_to: list[int] = field(default_factory=lambda: [2])
    governor: ThreadGovernor = field(init=False)

    def __post_init__(self) -> None:
        use = SimpleNamespace(restart=lambda: None, look=lambda: self.shares)
        self.governor = ThreadGovernor(
            2, use=cast(CoreUse, use), clock=lambda: self.now, set_threads=self.set_to.append
        )

    def seconds(self, rows: int = 1) -> float:
        if self.set_to[-1] == 1:
            return 0.006 * rows
        return BARRIERS if self.shares == TAKEN else 0.005 * rows

    def steps(self, count: int, rows: int = 1, seconds: Callable[[], float] | None = None) -> int:
        """Compute so many; the number of threads afterwards."""
        for _ in range(count):
            took = (seconds or (lambda: self.seconds(rows)))()
            self.now += took
            self.governor.stepped(StepPlan([_share() for _ in range(rows)]), StepResult(0), took)
        return self.governor.num_threads

    def for_seconds(self, seconds: float) -> float:
        """Compute so long; steps a second."""
        until, count = self.now + seconds, 0
        while self.now < until:
            self.steps(1)
            count += 1
        return count / seconds


def _share(num_tokens: int = 1, matcher: object = None) -> ScheduledRequest:
    request = cast(Request, SimpleNamespace(is_finished=False, matcher=matcher))
    return ScheduledRequest(request, 0, num_tokens, [], True)


def test_on_free_cores_all_threads_compute() -> None:
    machine = Machine()
    assert machine.steps(1000) == 2
    assert machine.set_to == [2]


def test_one_slow_step_beside_another_program_leaves_one_thread() -> None:
    machine = Machine()
    machine.steps(10)
    machine.shares = TAKEN
    assert machine.steps(1) == 1
    assert machine.governor.stats() == {"threads": 1, "threads_wanted": 2, "threads_lowered": 1}


def test_a_slow_step_on_free_cores_has_another_reason() -> None:
    machine = Machine()
    machine.steps(10)
    assert machine.steps(5, seconds=lambda: 1.0) == 2


def test_steps_of_more_requests_may_take_longer() -> None:
    machine = Machine()
    machine.steps(10)
    machine.shares = TAKEN
    assert machine.steps(5, rows=8, seconds=lambda: 0.02) == 2


@pytest.mark.parametrize("plan", [
    StepPlan([]), StepPlan([_share(64)]), StepPlan([_share(), _share(64)]),
    StepPlan([_share(matcher=object())]),
])  # fmt: skip
def test_only_steps_that_do_nothing_but_decode_are_judged(plan: StepPlan) -> None:
    machine = Machine()
    machine.steps(10)
    machine.shares = TAKEN
    machine.governor.stepped(plan, StepResult(0), 10.0)
    assert machine.governor.num_threads == 2


def test_all_threads_are_back_within_a_second_of_free_cores() -> None:
    machine = Machine()
    machine.steps(10)
    machine.shares = TAKEN
    machine.for_seconds(5)
    machine.shares = FREE
    machine.for_seconds(1)
    assert machine.governor.num_threads == 2


def test_beside_a_program_that_stays_little_is_lost_to_trials() -> None:
    machine = Machine()
    machine.steps(10)
    machine.shares = TAKEN
    assert machine.for_seconds(300) > 0.97 / 0.006


def test_trials_that_fail_become_rare() -> None:
    machine = Machine()
    machine.steps(10)
    machine.shares = TAKEN
    machine.for_seconds(300)
    assert machine.set_to.count(2) < 300 / LONGEST_WAIT + 8


def test_where_many_programs_share_the_cores_the_faster_number_of_threads_wins() -> None:
    """More threads get a larger share of the cores, which may be worth more than their barriers cost."""
    machine = Machine()
    machine.steps(10)
    machine.shares = TAKEN
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Machine, "seconds", lambda self, rows=1: 0.02 if self.set_to[-1] == 2 else 0.03
        )
        assert machine.for_seconds(100) > 0.9 / 0.02


def test_the_log_tells_it_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine()
    machine.steps(10)
    for _ in range(5):
        machine.shares = TAKEN
        machine.for_seconds(2)
        machine.shares = FREE
        machine.for_seconds(2)
    assert machine.governor.lowered == 5
    told = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    expected = (
        "other programs keep the cores busy: a step took 250 ms instead of 5.0. "
        "Steps use 1 of 2 threads until cores are free"
    )
    assert told == [expected]


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ({1: 0.006, 2: 0.005}, 2),
        ({1: 0.0050, 2: 0.0049}, 1),
        ({1: 4.0, 2: 2.0, 4: 1.0, 8: 1.01}, 4),
    ],
)
def test_threads_that_a_step_gains_from(taken: dict[int, float], expected: int) -> None:
    assert threads.worth_having(taken) == expected


@pytest.mark.parametrize("shares", [FREE, TAKEN])
def test_what_is_measured_on_busy_cores_excludes_no_thread(
    shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_governor, "step_seconds", lambda worker, most: {1: 0.005, 2: 0.006})
    machine = Machine(shares)
    machine.governor.measure(cast(Any, None))
    assert machine.governor.num_threads == (1 if shares == FREE else 2)
    machine.shares = TAKEN
    assert machine.steps(1) == 1


@pytest.fixture
def _two_threads(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in threads.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_two_threads")
def test_a_number_that_is_asked_for_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def governed(threaded: bool = False, device: torch.device = CPU, **settings: Any) -> bool:
        return governor_for(EngineConfig(**settings), device, threaded=threaded) is not None

    assert governed()
    assert not governed(threads=2)
    assert not governed(deterministic=True)
    assert not governed(tensor_parallel=2)
    assert not governed(threaded=True)
    assert not governed(device=torch.device("cuda"))
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert not governed()


@pytest.mark.nightly
@pytest.mark.usefixtures("_two_threads")
def test_an_engine_measures_its_model_and_tells_how_many_compute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "usable_cores", lambda: 2)
    measured: list[dict[int, float]] = []
    monkeypatch.setattr(threads, "LONG_STEP", 1e9)
    real = threads.step_seconds

    def spy(worker: Any, most: int) -> dict[int, float]:
        measured.append(real(worker, most))
        return {1: 0.006, 2: 0.005}

    monkeypatch.setattr(thread_governor, "step_seconds", spy)
    engine = LLMEngine(num_blocks=64, mine="none")
    [taken] = measured
    assert taken.keys() == {1, 2}
    assert engine.stats()["threads"] == torch.get_num_threads() == 2
    assert engine.generate("What is a block?", temperature=0, max_tokens=4) == LLMEngine(
        num_blocks=64, mine="none", threads=2
    ).generate("What is a block?", temperature=0, max_tokens=4)


def test_use_of_cores_is_told_for_a_stretch_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    use = CoreUse()
    assert use.look() is None  # too short to say anything
    monkeypatch.setattr("yaie.system.core_use.SHORTEST", 0.0)
    shares = use.look()
    assert shares is not None
    assert shares.idle >= 0
    assert shares.others >= 0
