"""What is told of requests' times, by a clock that the test sets."""

import threading
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from yaie.core.output import RequestOutput
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request
from yaie.engine.background import latencies
from yaie.engine.background.latencies import Latencies
from yaie.engine.background.telemetry import Histogram, Telemetry


class Clock:
    """Stands in for `time`."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(latencies, "time", clock)
    return clock


@pytest.fixture
def told() -> Latencies:
    engine: Any = SimpleNamespace(info=SimpleNamespace(max_model_len=100), stats=dict, num_tokens=0)
    return Latencies(engine, threading.Event())


def asked(id: str, at: float, scheduled: float | None = None) -> Request:
    request = Request(id, [5, 6, 7], SamplingParams(), max_tokens=9, arrival_time=at)
    request.scheduled_time = scheduled
    return request


def gains(
    told: Latencies, request: Request, reason: FinishReason | None = None, tokens: int = 1
) -> None:
    """A step that gives the request some tokens, and ends it if there is a reason."""
    new = [8] * tokens
    request.token_ids += new
    told.stepped([(request, RequestOutput.of(request, "", new, reason))])


def seen(histogram: Histogram) -> tuple[int, float]:
    """How many were observed, and their sum."""
    return sum(histogram.counts), histogram.total


def test_each_time_runs_from_its_own_event_to_its_own(clock: Clock, told: Latencies) -> None:
    request = asked("a", at=10.0, scheduled=11.0)
    for clock.now, reason in ((14.0, None), (15.0, None), (18.0, FinishReason.LENGTH)):
        gains(told, request, reason)
    telemetry = told.telemetry
    assert seen(telemetry.queue_time) == (1, 1.0)
    assert seen(telemetry.prefill_time) == (1, 3.0)
    assert seen(telemetry.time_to_first_token) == (1, 4.0)
    assert seen(telemetry.decode_time) == (1, 4.0)
    assert seen(telemetry.inter_token_latency) == (2, 4.0)
    assert seen(telemetry.inference_time) == (1, 7.0)
    assert seen(telemetry.e2e_latency) == (1, 8.0)


def test_time_per_output_token_leaves_the_first_out(clock: Clock, told: Latencies) -> None:
    """Three tokens are two gaps; one token is none."""
    request = asked("a", at=0.0)
    for clock.now, reason in ((3.0, None), (4.0, None), (6.0, FinishReason.STOP)):
        gains(told, request, reason)
    assert seen(told.telemetry.time_per_output_token) == (1, 1.5)
    two = asked("two", at=0.0)
    for clock.now, reason in ((7.0, None), (9.0, FinishReason.STOP)):
        gains(told, two, reason)
    assert seen(told.telemetry.time_per_output_token) == (2, 1.5 + 2.0)
    gains(told, asked("b", at=6.0), FinishReason.STOP)
    assert seen(told.telemetry.time_per_output_token) == (2, 1.5 + 2.0)


def test_sequences_that_gained_a_token_together_are_one_gap_with_a_weight(
    clock: Clock, told: Latencies
) -> None:
    both = [asked("a", at=0.0), asked("b", at=0.0)]
    for clock.now in (1.0, 1.5):
        for request in both:
            request.token_ids.append(8)
        told.stepped([(request, RequestOutput.of(request, "", [8])) for request in both])
    assert seen(told.telemetry.inter_token_latency) == (2, 1.0)


@pytest.mark.parametrize("end", ["abort", "error", "stop"])
def test_nothing_is_left_of_a_request_that_ended(clock: Clock, told: Latencies, end: str) -> None:
    """What was left would be taken for the first token of the next request of that name, and stay in
    memory if there is none."""
    clock.now = 1.0
    request = asked("a", at=0.0)
    gains(told, request)
    if end == "abort":
        told.aborted(request)
    else:
        gains(told, request, FinishReason(end), tokens=0)
    assert told.telemetry.finished[FinishReason(end)] == 1
    assert not told._first
    assert not told._latest
    clock.now = 100.0
    gains(told, asked("a", at=98.0))
    assert seen(told.telemetry.time_to_first_token) == (2, 1.0 + 2.0)
    assert seen(told.telemetry.inter_token_latency) == (0, 0.0)


def test_a_request_that_failed_has_no_times(clock: Clock, told: Latencies) -> None:
    clock.now = 5.0
    gains(told, asked("a", at=0.0), FinishReason.ERROR, tokens=0)
    assert told.telemetry.finished[FinishReason.ERROR] == 1
    assert seen(told.telemetry.e2e_latency) == seen(told.telemetry.prompt_tokens) == (0, 0.0)


def test_figures_that_cannot_be_read_leave_the_last_ones(told: Latencies) -> None:
    def fails() -> dict[str, float]:
        raise RuntimeError("a learner's part")

    told.telemetry.stats = {"num_running": 3.0}
    told._engine.stats = fails  # type: ignore[method-assign]
    told._changed.clear()
    told.refresh()
    assert told.telemetry.stats == {"num_running": 3.0}
    assert told._changed.is_set()


def test_figures_are_read_now_and_then_while_steps_follow_and_once_behind_the_last(
    clock: Clock, told: Latencies
) -> None:
    engine: Any = told._engine
    engine.stats = lambda: {"num_running": clock.now}
    for clock.now, read in ((0.1, 0.0), (0.3, 0.3), (0.5, 0.3), (0.6, 0.6), (0.7, 0.6)):
        told._changed.clear()
        told.stepped([])
        assert told.telemetry.stats.get("num_running", 0.0) == read
        assert told._changed.is_set()  # times are told of every step
    told.rest()
    assert told.telemetry.stats == {"num_running": 0.7}
    clock.now = 0.8
    told.rest()
    assert told.telemetry.stats == {"num_running": 0.7}


def test_figures_are_read_at_once_behind_a_step_in_which_a_request_begins_or_ends(
    clock: Clock, told: Latencies
) -> None:
    engine: Any = told._engine
    engine.stats = lambda: {"num_running": clock.now}
    clock.now = 0.1
    told.stepped([], has_started=True)
    assert told.telemetry.stats == {"num_running": 0.1}
    clock.now = 0.2
    gains(told, asked("a", at=0.0))
    assert told.telemetry.stats == {"num_running": 0.1}
    gains(told, asked("a", at=0.0), FinishReason.STOP)
    assert told.telemetry.stats == {"num_running": 0.2}


def test_sizes_are_told_of_each_choice_and_their_number_once_for_the_prompt(
    clock: Clock, told: Latencies
) -> None:
    for index in range(3):
        request = asked(f"r.{index}", at=0.0)
        request.params, request.index, request.num_preemptions = SamplingParams(n=3), index, 3
        gains(told, request, FinishReason.LENGTH, tokens=4)
    telemetry = told.telemetry
    assert seen(telemetry.prompt_tokens) == (3, 3 * 3.0)
    assert seen(telemetry.generation_tokens) == (3, 3 * 4.0)
    assert seen(telemetry.max_tokens) == (3, 3 * 9.0)
    assert seen(telemetry.preemptions) == (3, 3 * 3.0)
    assert seen(telemetry.choices) == (1, 3.0)


def test_tokens_of_a_step_are_those_computed_of_prompts_and_those_generated(
    told: Latencies,
) -> None:
    engine: Any = told._engine
    # A step that brought nothing forward is not told.
    for engine.num_tokens, expected in ((5, (1, 5.0)), (5, (1, 5.0)), (12, (2, 5.0 + 7.0))):
        told.stepped([])
        assert seen(told.telemetry.step_tokens) == expected


def test_an_engine_is_read_from_the_start_and_its_deferred_requests_are_summed() -> None:
    engine: Any = SimpleNamespace(
        info=SimpleNamespace(max_model_len=100), stats=lambda: {"num_running": 2.0}, num_tokens=0
    )
    telemetry = Latencies(engine, threading.Event()).telemetry
    assert telemetry.stats == {"num_running": 2.0}
    assert telemetry.num_deferred == 0
    telemetry.deferred |= {1: 2, 7: 3}
    assert telemetry.num_deferred == 5


def test_bounds_of_buckets_ascend_and_those_of_lengths_end_at_the_longest() -> None:
    histograms = [value for value in vars(Telemetry(99)).values() if isinstance(value, Histogram)]
    assert len(histograms) == 14
    for histogram in histograms:
        assert all(low < high for low, high in pairwise(histogram.bounds))
        assert len(histogram.counts) == len(histogram.bounds) + 1
    assert Telemetry(100).prompt_tokens.bounds == (1, 2, 5, 10, 20, 50, 100)
    assert Telemetry(99).prompt_tokens.bounds == (1, 2, 5, 10, 20, 50)
    assert Telemetry().prompt_tokens.bounds == (1,)
