"""The figures of a warp draw requests that the runtime kept, and count as its counters do."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from book.tools.figures import load_figure
from book.tools.mdbook import ROOT
from book.tools.traces import reference, trace_file, warp_store, warp_tiles
from book.tools.traces._warp import launch_of
from solutions.cuda_flash_attention import FlashAttention

pytestmark = pytest.mark.nightly

THEME = ROOT / "book/theme/figures"
STORE: dict[str, Any] = json.loads(trace_file("warp-store").read_text("utf-8"))
TILES: dict[str, Any] = json.loads(trace_file("warp-tiles").read_text("utf-8"))


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    page = browser.new_page()
    for name in ("base", "question", "tween", "stage", "warp"):
        page.add_script_tag(path=str(THEME / f"{name}.js"))
    yield page
    page.close()


def test_the_traces_are_what_the_kernels_do():
    assert warp_store.record(reference) == STORE
    assert warp_tiles.record(reference) == TILES


def test_a_row_for_each_thread_touches_a_sector_for_each_lane_and_the_tuned_one_fills_them():
    naive, tuned = (STORE["tracks"][key]["steps"] for key in ("naive", "tuned"))
    assert {(len(step["lanes"]), step["sectors"]) for step in naive} == {(32, 32)}
    for step in tuned:
        assert len(step["lanes"]) * step["size"] == 32 * step["sectors"]
        assert step["gaps"] == []
    assert load_figure("warp-store")["predict"]["number"] == naive[0]["size"]


def test_every_lane_s_bytes_lie_in_its_sector():
    for track in STORE["tracks"].values():
        for step in track["steps"]:
            assert {sector for _, sector, _ in step["lanes"]} == set(range(step["sectors"]))
            assert all(at + step["size"] <= 32 for _, _, at in step["lanes"])


def test_passes_are_those_of_the_runtime_s_counters(page):
    tensors = [torch.zeros(1, warp_tiles.TOKENS, 1, warp_tiles.DIM) for _ in range(3)]
    launch = launch_of(lambda: FlashAttention().forward(*tensors, scale=1.0, causal=False))
    counted = {
        (line.line, line.kind): line.traffic for line in launch.lines if "shared" in line.kind
    }
    for step in TILES["steps"]:
        traffic = counted[step["line"], f"shared {step['kind']}"]
        served = page.evaluate(
            "([lanes, size]) => warp.serve(lanes, size)", [step["lanes"], step["size"]]
        )
        assert served["extra"] * traffic.requests == traffic.extra_passes, step["say"]


@pytest.mark.parametrize(
    ("stride", "size", "passes"),
    [
        (1, 4, 1),
        (2, 4, 2),
        (32, 4, 32),
        (33, 4, 1),
        (0, 4, 1),
        (4, 16, 4),
        (128, 16, 32),
        (132, 16, 4),
    ],
)
def test_passes_by_the_distance_of_two_lanes(page, stride, size, passes):
    lanes = [[lane, lane * stride] for lane in range(32)]
    served = page.evaluate("([lanes, size]) => warp.serve(lanes, size)", [lanes, size])
    assert served["passes"] == passes
    if (stride, size) == (4, 16):
        assert load_figure("warp-tiles")["predict"]["number"] == passes
