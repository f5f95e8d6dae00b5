"""Every chapter of more than a page has a picture, and drawings of numbers draw the right ones."""

import re

import pytest
import torch

from book.tools.blocks import read_chapter
from book.tools.contents import SHEETS
from book.tools.evidence import EvidenceError, load
from book.tools.mdbook import ROOT
from book.tools.pairs import render_pairs
from tests.book.reading import PAGES, SOURCE
from yaie.core.config import EngineConfig

WORDS = 500  # a page
LISTS = {
    "glossary",
    "limits",
    "not-here",
    "performance-notes",
    "references",
    "review",
    "served",
    "source",
    *(page for page in PAGES if page.startswith(SHEETS)),
}
"""Pages that are read entry by entry; a lab's pictures are in its article."""
PICTURE = re.compile(
    r"\{\{#(?:figure|pairs|chart) |\{\{#include [^}]+\.svg\}\}|!\[|\{\{#labmap\}\}"
)
WIDEST_TEXT = 15


def svg(name: str) -> str:
    return (ROOT / f"book/figures/{name}.svg").read_text("utf-8")


@pytest.mark.parametrize("page", [page for page in PAGES if page not in LISTS])
def test_a_chapter_of_more_than_a_page_has_a_picture(page):
    text = (SOURCE / f"{page}.md").read_text("utf-8")
    assert len(text.split()) < WORDS or PICTURE.search(text)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "book/figures").glob("*.svg")), ids=lambda p: p.stem
)
def test_a_drawing_says_what_one_sees_and_takes_the_page_s_colour(path):
    text = path.read_text("utf-8")
    assert 'role="img"' in text
    assert re.search(r"<title id=\"[\w-]+\">.{10,}</title>", text)
    drawn = re.sub(r"<style>.*?</style>", "", text, flags=re.S)
    assert re.findall(r'(?:fill|stroke)="(?!none|currentColor)([^"]*)"', drawn) == []


def test_the_waits_that_are_drawn_are_those_that_the_example_prints():
    [command] = [
        command
        for block in read_chapter("policies")
        for command in block.commands
        if "shortest_first.py" in command.text
    ]
    printed = {
        (line.partition(":")[0], who): int(step)
        for line in command.expected
        for who, step in re.findall(r"'(\w+)': (\d+)", line)
    }
    marks = re.findall(
        r'data-policy="([\w ]+)" data-request="(\w+)" data-step="(\d+)"', svg("policy-waits")
    )
    assert {(policy, who): int(step) for policy, who, step in marks} == printed


def test_the_defaults_that_are_drawn_are_those_in_force():
    drawn, config = svg("where-a-value-comes-from"), EngineConfig()
    for name in ("block_size", "max_num_seqs", "policy"):
        assert f">{name}<" in drawn
        assert f">{getattr(config, name)}<" in drawn


def test_the_stacked_rows_add_up():
    numbers = {
        int(n.replace(",", ""))
        for n in re.findall(r">[^<]*?([\d,]{4,})[^<]*<", svg("stacked-weights"))
    }
    assert {4096, 1024, 6144, 14336, 28672} <= numbers
    assert 4096 + 2 * 1024 == 6144
    assert 2 * 14336 == 28672


def test_the_bytes_of_a_batch_are_those_of_the_table():
    page = (SOURCE / "kv-cache.md").read_text("utf-8")
    number = r"([\d.]+)"
    rows = re.findall(
        rf"^\| \d+ \| {number} GB \| {number} GB \| {number} \| {number} \| {number} \|",
        page,
        flags=re.M,
    )
    bars = [float(wide) for wide in re.findall(r'<rect[^>]* width="([\d.]+)"', svg("batch-bytes"))]
    scale = bars[0] / float(rows[0][0])
    assert bars == pytest.approx([scale * float(part) for row in rows for part in row[:2]], abs=0.1)
    for _, own, _, _, ms in rows:
        assert f">{own} GB: {ms} ms<" in svg("batch-bytes")


def test_pairs_are_drawn_from_the_evidence():
    drawn, found = render_pairs("throughput"), load("throughput")
    for ratio in found["ratio"]["values"]:
        assert f"{ratio:.2f} times" in drawn
    bars = [float(h) for h in re.findall(r'height="([\d.]+)" stroke', drawn)]
    rates = found["tokens_per_second"]
    ours, peer = next(iter(rates)), found["ratio"]["to"]
    asked = [rate for pair in zip(rates[ours], rates[peer], strict=True) for rate in pair]
    assert bars[-len(asked) :] == pytest.approx(
        [130 * rate / max(asked) for rate in asked], abs=0.06
    )
    with pytest.raises(EvidenceError, match="no runs in pairs"):
        render_pairs("memory")


def test_the_levels_of_a_gpu_are_those_of_the_evidence():
    found, drawn = load("gpu")["properties"], svg("gpu-levels")
    assert f"one SM of {found['sms']}<" in drawn
    assert f">{found['registers_per_sm']:,} registers of 32 bits<" in drawn
    assert f"up to {found['shared_kib_per_sm']:.0f} KiB<" in drawn


def test_the_errors_that_are_drawn_are_those_of_the_three_grids():
    """The chapter's group of eight weights, rounded to the points of each grid."""
    weights = [-3.75, 1.6, 0.2, -0.8, 2.55, 1.25, -0.15, 3.45]
    halves = [code / 2 for code in range(-8, 8)]
    e2m1 = [sign * 0.625 * x for x in (0, 0.5, 1, 1.5, 2, 3, 4, 6) for sign in (1, -1)]
    scaled = torch.tensor(weights) * 448 / 3.75
    e4m3 = (scaled.to(torch.float8_e4m3fn).float() * 3.75 / 448).tolist()
    errors = [
        max(min(abs(point - weight) for point in grid) for weight in weights)
        for grid in (halves, e2m1, e4m3)
    ]
    drawn = re.findall(r">largest error ([\d.]+)<", svg("grids"))
    assert drawn == [f"{error:.2f}" for error in errors]


def test_the_triangle_has_a_tile_for_each_pair_of_tiles():
    drawn = svg("flash-triangle")
    kinds = {kind: drawn.count(f'class="{kind}"') for kind in ("whole", "crossed", "never")}
    assert kinds == {"whole": 15, "crossed": 6, "never": 15}
    text = " ".join((SOURCE / "flash-attention.md").read_text("utf-8").split())
    for said in ("15 are seen whole", "6 are crossed by the diagonal", "15 are never loaded"):
        assert said in text
