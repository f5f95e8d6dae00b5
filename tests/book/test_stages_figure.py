"""The figure `stages` is a pipeline: each stage begins a piece once the piece and the stage are free."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from book.tools.figures import load_figure

BOOK = Path(__file__).parents[2] / "book"
STAGES = 4
PARTS = range(1, 17)


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    """A page with the figure's scripts and nothing else."""
    page = browser.new_page()
    for name in ("base", "stage", "timeline", "stages"):
        page.add_script_tag(path=str(BOOK / f"theme/figures/{name}.js"))
    yield page
    page.close()


def plans(page: Any, kind: str) -> dict[int, dict[str, Any]]:
    found = page.evaluate(
        "([kind, all]) => all.map((parts) => stages.plan(kind, parts))", [kind, list(PARTS)]
    )
    return dict(zip(PARTS, found, strict=True))


def simulated(parts: int, long: float) -> dict[tuple[int, int], float]:
    """When each stage begins each part, if it begins as soon as the part is there and it is free."""
    begins: dict[tuple[int, int], float] = {}
    for stage in range(STAGES):
        for part in range(parts):
            there = begins[stage - 1, part] + long if stage else 0.0
            free = begins[stage, part - 1] + long if part else 0.0
            begins[stage, part] = max(there, free)
    return begins


@pytest.mark.parametrize("kind", ["prompt", "step"])
def test_a_stage_begins_as_soon_as_it_can(page: Any, kind: str) -> None:
    for parts, plan in plans(page, kind).items():
        long = 1 / parts if kind == "prompt" else 1.0
        drawn = {(cell["stage"], cell["part"]): cell["start"] for cell in plan["cells"]}
        assert drawn == pytest.approx(simulated(parts, long))
        assert {cell["long"] for cell in plan["cells"]} == {long}
        assert plan["total"] == pytest.approx(max(drawn.values()) + long)
        assert 1 - plan["busy"] == pytest.approx((STAGES - 1) / (parts + STAGES - 1))


def test_the_bubbles_are_those_of_the_page(page: Any) -> None:
    [told] = re.findall(
        r"it is (\d+)% of the time for 1 microbatch, (\d+)% for 4,(?: and)? (\d+)% for 16",
        (BOOK / "src/tensor-parallel.md").read_text("utf-8"),
    )
    busy = plans(page, "prompt")
    assert [round(100 * (1 - busy[parts]["busy"])) for parts in (1, 4, 16)] == list(map(int, told))


def test_batches_in_flight_pass_the_stages_in_order_and_none_meets_another(page: Any) -> None:
    for batches, plan in plans(page, "flight").items():
        at = {(cell["stage"], cell["start"]): cell["part"] for cell in plan["cells"]}
        assert len(at) == len(plan["cells"])
        last = plan["total"] - 1
        for (stage, start), batch in at.items():
            if stage + 1 < STAGES and start < last:
                assert at[stage + 1, start + 1] == batch
            # A batch comes back to stage 0 when its token is there, and no stage is free before.
            if stage == 0 and start + plan["round"] <= last:
                assert at[0, start + plan["round"]] == batch
        assert plan["round"] == max(STAGES, batches)
        assert plan["busy"] == min(1, batches / STAGES)


def test_the_question_has_its_answer(page: Any) -> None:
    predict = load_figure("stages")["predict"]
    [right] = [choice["text"] for choice in predict["choice"] if choice.get("right")]
    assert right == f"{plans(page, 'step')[4]['total']} units"
    assert plans(page, "prompt")[4]["total"] == 1.75
