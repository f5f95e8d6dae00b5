"""The figure `all-reduce` makes the transfers of yaie/bench/collectives.py, in the same time."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from yaie.bench.collectives import ALGORITHMS, Algorithm, Machine, bytes_sent, rounds, seconds

pytestmark = pytest.mark.nightly

FIGURES = Path(__file__).parents[2] / "book/theme/figures"
RANKS = [2, 3, 4, 7, 8, 16]


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    """A page with the figure's scripts and nothing else."""
    page = browser.new_page()
    for name in ("base", "stage", "timeline", "all-reduce"):
        page.add_script_tag(path=str(FIGURES / f"{name}.js"))
    yield page
    page.close()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_transfers_are_those_of_the_model(page: Any, algorithm: Algorithm) -> None:
    for ranks in RANKS:
        drawn = page.evaluate("([name, n]) => allReduce.rounds(name, n)", [algorithm, ranks])
        assert drawn == [
            [[one.source, one.target, one.part, one.adds] for one in transfers]
            for transfers in rounds(algorithm, ranks)
        ]


@pytest.mark.parametrize("wires", ["switch", "cables"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_times_and_bytes_are_those_of_the_model(
    page: Any, algorithm: Algorithm, wires: Any
) -> None:
    for ranks in RANKS:
        for num_bytes in (1024, 8192, 1 << 20, 1 << 30):
            machine = Machine(ranks, 2e-6, 400e9, wires)
            settings = {"ranks": ranks, "latency": 2e-6, "bandwidth": 400e9, "wires": wires}
            drawn = page.evaluate(
                "([name, bytes, machine]) => allReduce.run(name, bytes, machine).seconds",
                [algorithm, num_bytes, settings],
            )
            assert drawn == pytest.approx(seconds(algorithm, num_bytes, machine))
            sent = page.evaluate(
                "([name, bytes, n]) => allReduce.bytesSent(name, bytes, n)",
                [algorithm, num_bytes, ranks],
            )
            assert sent == pytest.approx(bytes_sent(algorithm, num_bytes, ranks))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_all_parts_are_complete_everywhere_after_the_last_round_and_not_before(
    page: Any, algorithm: Algorithm
) -> None:
    for ranks in RANKS:
        count = len(rounds(algorithm, ranks))
        done = page.evaluate(
            """([name, n, count]) => [0, count - 1, count].map(
                 (ended) => allReduce.complete(allReduce.rounds(name, n), ended, n))""",
            [algorithm, ranks, count],
        )
        assert done[0] == [0] * ranks
        assert min(done[1]) < ranks
        assert done[2] == [ranks] * ranks


def test_the_question_s_answer_is_what_the_figure_opens_with(page: Any) -> None:
    machine = Machine(16, 2e-6, 400e9)
    assert seconds("ring", 8192, machine) / seconds("one_shot", 8192, machine) > 20
    assert bytes_sent("one_shot", 8192, 16)[0] == 8 * bytes_sent("ring", 8192, 16)[0]
