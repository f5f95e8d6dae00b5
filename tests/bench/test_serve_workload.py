"""`yaie bench throughput --workload serve`: streams through the server, and how their waits are told."""

from itertools import pairwise
from typing import Any

import pytest

from tests.bench.test_throughput import SMALL
from tests.cli.conftest import Yaie
from yaie.bench.http_client import Answer
from yaie.bench.throughput import serve
from yaie.core.errors import YaieError


@pytest.mark.nightly
def test_streams_through_the_server_beside_the_engine_alone(
    measured: Any, tiny_folder: str
) -> None:
    longer = ("--output-tokens", "150-200")  # On a busy machine the last stream begins late.
    ran, figures = measured(tiny_folder, "--workload", "serve", *SMALL, *longer, "--seeds", "3")
    assert figures["tokens_per_second"].keys() == {serve.ALONE, serve.SERVED}
    (alone,), (served,) = (figures["tokens_per_second"][one] for one in (serve.ALONE, serve.SERVED))
    assert figures["ratio"] == [served / alone]
    for waits in (figures["first_ms"], figures["gap_ms"]):
        assert 0 < waits["p50"][0] <= waits["p99"][0]
    assert figures["server_cores"][0] > 0
    assert "5 streams at once" in " ".join(ran.out.split())


@pytest.mark.nightly
def test_streams_that_arrive_one_after_the_other(measured: Any, tiny_folder: str) -> None:
    _, figures = measured(
        tiny_folder, "--workload", "serve", *SMALL, "--seeds", "3", "--rate", "100"
    )
    assert figures["tokens_per_second"].keys() == {serve.SERVED}
    assert "at 100 a second" in figures["workload"]


def test_waits_are_read_off_the_pieces() -> None:
    """Gaps count from when both streams have begun: the first second of the first does not."""
    answers = [
        Answer(sent=1.0, times=[1.5, 2.0, 2.5, 3.5]),
        Answer(sent=1.0, times=[2.25, 2.5, 4.5]),
    ]
    waits = serve.waits_of(answers, cores=1.0)
    assert waits.first == pytest.approx([500, 1250])
    assert waits.gaps == pytest.approx([1000, 250, 2000])
    arriving = serve.waits_of(answers, cores=1.0, at_once=False)
    assert arriving.gaps == pytest.approx([500, 500, 1000, 250, 2000])


def test_streams_that_never_run_together_have_no_gaps_to_tell() -> None:
    answers = [Answer(sent=1.0, times=[1.5, 2.0]), Answer(sent=1.0, times=[2.5, 3.0])]
    with pytest.raises(YaieError, match="longer outputs"):
        serve.waits_of(answers, cores=1.0)


def test_arrivals_are_a_poisson_process() -> None:
    assert serve.arrivals(3, None, 0) == [0, 0, 0]
    times = serve.arrivals(4000, 50.0, 0)
    assert times == sorted(times)
    assert times != serve.arrivals(4000, 50.0, 1)
    assert times[-1] / 4000 == pytest.approx(1 / 50, rel=0.05)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert sum(gap > 1 / 50 for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.03)


def test_a_rate_must_be_a_rate(yaie: Yaie, tiny_folder: str) -> None:
    ran = yaie("bench", "throughput", tiny_folder, "--workload", "serve", "--rate", "0")
    assert ran.code == 2
    assert "--rate must be more than 0" in " ".join(ran.err.split())
