"""Pairs of figures: who begins, what counts, and how ratios are made."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from yaie.bench.evidence import beside_vllm
from yaie.bench.evidence.beside_vllm import Plan, compare, rate_of_steps, runs_of_steps
from yaie.bench.throughput.contestants import Run, Runner
from yaie.bench.workload import Job
from yaie.core.config import EngineConfig

TURNS: list[tuple[str, int]] = []


def fake(side: str, factor: float) -> Any:
    """A contestant whose run of number n takes `factor` times n + 1 seconds."""

    class Fake:
        about = {"version": "1.2"}  # noqa: RUF012

        def __init__(self, *_: Any, **__: Any) -> None: ...

        @contextmanager
        def opened(self) -> Iterator[Runner]:
            def run(number: int, warm: bool = False) -> Run:
                TURNS.append((side, number))
                return Run(factor * (number + 1), 100)

            yield run

    return Fake


def test_the_first_pair_does_not_count_and_turns_alternate(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ours(fake("ours", 1.0)):  # type: ignore[misc]
        def __init__(self, *_: Any, look: Any) -> None:
            look(type("Engine", (), {"backend": type("Backend", (), {"name": "triton"})}))

    monkeypatch.setattr(beside_vllm, "Ours", Ours)
    monkeypatch.setattr(beside_vllm, "Peer", fake("vllm", 2.0))
    TURNS.clear()

    def figures_of(run: Runner, first: int) -> Iterator[tuple[str, float]]:
        yield "rate", run(first).rate
        yield "cold", 1 / run(first + 1).seconds

    plan = Plan(2, lambda _: [[Job([1], 2)], [Job([1], 2)]], figures_of, as_seconds=("cold",))
    found = compare(plan, EngineConfig(), {}, None, "small")
    assert [side for side, _ in TURNS[::2]] == ["vllm", "ours", "ours", "vllm", "vllm", "ours"]
    assert (found["backend"], found["vllm"]) == ("triton", "1.2")
    rate, cold = found["figures"]["rate"], found["figures"]["cold"]
    assert rate == {
        "ours": pytest.approx([100 / 3, 100 / 5]), "vllm": pytest.approx([100 / 6, 100 / 10]),
        "ratio": pytest.approx([2.0, 2.0]),
    }  # fmt: skip
    # Told as seconds; the ratio stays one of rates: more than 1 is faster.
    assert cold == {
        "ours": pytest.approx([4.0, 6.0]), "vllm": pytest.approx([8.0, 12.0]),
        "ratio": pytest.approx([2.0, 2.0]),
    }  # fmt: skip


def test_steps_are_what_a_longer_run_takes_more() -> None:
    seconds = {0: iter([3.0, 2.0]), 1: iter([6.0])}
    run = lambda number, warm=False: Run(next(seconds[number]), 1)  # noqa: E731
    assert rate_of_steps(run, 0, 1, 8, 10) == 8 * 10 / (6.0 - 2.0)


def test_each_batch_has_two_runs() -> None:
    runs = runs_of_steps(lambda count, more: [Job([1], 1 + more)] * count, (1, 3), 5)
    assert [(len(jobs), jobs[0].num_output) for jobs in runs] == [(1, 1), (1, 6), (3, 1), (3, 6)]
