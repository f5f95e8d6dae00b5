"""The figures `coalescing`, `latency` and `launches` count and simulate right."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from book.tools.evidence import load
from book.tools.figures import load_figure

pytestmark = pytest.mark.nightly

FIGURES = Path(__file__).parents[2] / "book/theme/figures"


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    """A page with the figures' scripts and nothing else."""
    page = browser.new_page()
    for name in ("base", "stage", "coalescing", "latency", "launches"):
        page.add_script_tag(path=str(FIGURES / f"{name}.js"))
    yield page
    page.close()


@pytest.mark.parametrize(
    ("stride", "size", "offset", "sectors", "useful"),
    [
        (1, 4, 0, 4, 128),  # coalesced
        (1, 4, 1, 5, 128),  # and not aligned
        (1, 2, 0, 2, 64),
        (1, 16, 0, 16, 512),
        (2, 4, 0, 8, 128),
        (8, 4, 0, 32, 128),
        (32, 4, 0, 32, 128),
        (0, 4, 0, 1, 4),  # the same number for all
        (2, 16, 0, 32, 512),
    ],
)
def test_sectors_of_one_load(
    page: Any, stride: int, size: int, offset: int, sectors: int, useful: int
) -> None:
    load = page.evaluate(
        "given => coalescing.request(given)", {"stride": stride, "size": size, "offset": offset}
    )
    assert len(load["sectors"]) == sectors
    assert (load["useful"], load["moved"]) == (useful, 32 * sectors)


def test_the_question_about_sectors_has_the_answer_that_the_figure_gives(page: Any) -> None:
    load = page.evaluate("coalescing.request({ stride: 8, size: 4, offset: 0 })")
    assert 100 * load["efficiency"] == load_figure("coalescing")["predict"]["number"]


def test_the_bandwidth_is_the_recorded_one() -> None:
    measured = load("ceilings")["machines"]["h200"]["bytes_per_second"]
    assert load_figure("coalescing")["data"]["bandwidth"] == measured / 1e9


def hidden(page: Any, **given: float) -> tuple[dict[str, Any], float]:
    """A long run of the simulation, and the share that is claimed for it."""
    run = page.evaluate("given => latencyHiding.simulate(given)", {**given, "end": 100_000})
    return run, page.evaluate("given => latencyHiding.share(given)", given)


@pytest.mark.parametrize("warps", [1, 3, 5, 6, 12])
@pytest.mark.parametrize("loads", [1, 2])
def test_the_scheduler_is_as_busy_as_is_said(page: Any, warps: int, loads: int) -> None:
    run, share = hidden(page, warps=warps, latency=400, work=80, loads=loads)
    assert run["busy"] == pytest.approx(share, abs=0.01)


def test_nobody_computes_while_somebody_else_does(page: Any) -> None:
    run, _ = hidden(page, warps=7, latency=300, work=50, loads=1)
    work = sorted(span[:2] for spans in run["spans"] for span in spans if span[2] == "work")
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(work))
    for spans in run["spans"]:
        assert all(a[1] == b[0] for a, b in itertools.pairwise(spans))


def test_eight_warps_are_enough(page: Any) -> None:
    given = {"latency": 700, "work": 100, "loads": 1}
    enough = page.evaluate("given => latencyHiding.enough(given)", given)
    assert enough == load_figure("latency")["predict"]["number"]
    assert page.evaluate("given => latencyHiding.share(given)", {**given, "warps": enough}) == 1
    assert page.evaluate("given => latencyHiding.share(given)", {**given, "warps": 7}) < 1


def launched(page: Any, host: float, device: float, graph: bool = False) -> dict[str, Any]:
    given = {"kernels": 10, "host": host, "device": device, "graph": graph}
    result: dict[str, Any] = page.evaluate("given => launches.simulate(given)", given)
    return result


def test_where_the_host_is_late_faster_kernels_change_nothing(page: Any) -> None:
    before, after = launched(page, 6, 3), launched(page, 6, 1)
    assert before["end"] - after["end"] == 2  # the last kernel's own
    assert launched(page, 6, 3, graph=True)["end"] < before["end"]


def test_where_kernels_are_long_launches_hide_behind_them(page: Any) -> None:
    assert launched(page, 6, 40)["busy"] > 0.97
    assert launched(page, 6, 40)["end"] - launched(page, 6, 40, graph=True)["end"] < 10


def test_no_kernel_begins_before_its_launch_or_before_the_last_one_has_ended(page: Any) -> None:
    run = launched(page, 5, 7)
    for (_, sent), (begin, _) in zip(run["onHost"], run["onDevice"], strict=True):
        assert begin > sent
    for (_, end), (begin, _) in zip(run["onDevice"], run["onDevice"][1:], strict=False):
        assert begin >= end
