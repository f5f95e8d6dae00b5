"""The book's explorations are what the notebooks draw on the reference, and fit to stand in a page."""

import dataclasses
import re
import time
import xml.etree.ElementTree as ET
from functools import cache
from typing import Any

import pytest

from book.tools import notebooks
from book.tools.notebook_pages import (
    Page,
    alike,
    execute,
    faults,
    read_page,
    render,
    write_page,
)
from book.tools.notebooks import FOLDER, ORIGIN, digest, labs, main, origin, stale, title
from book.tools.plots import for_page

DRAWN = """<?xml version="1.0"?>
<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"
 width="72pt" height="36pt" viewBox="0 0 72 36" version="1.1">
 <metadata>who and when</metadata>
 <defs><style type="text/css">*{stroke-linejoin: round}</style></defs>
 <g id="figure_1"><g id="patch_1">
  <path d="M 0 0 L 1.23456 2" style="fill: none"/>
  <path d="M 0 0 L 1.23456 2" clip-path="url(#pabc)" style="fill: #ffffff; stroke: #000000"/>
  <text style="font-weight: 700; font-size: 9px; font-family: 'DejaVu Sans', sans-serif;
   fill: #222222">a  word</text>
  <text style="font-size: 8px; font-family: 'DejaVu Sans Mono', monospace; fill: #0072b2">b</text>
  <use xlink:href="#m1"/>
 </g></g>
 <defs><path id="m1" d="M 0 0"/><clipPath id="pabc"><rect x="0.12345"/></clipPath></defs>
</svg>"""


LABS = [lab if lab == "sampler" else pytest.param(lab, marks=pytest.mark.nightly) for lab in labs()]
"""To be executed, which takes minutes: CI does with one, and checks all digests."""


@cache
def executed(lab: str) -> Any:
    """The notebook of a lab with its outputs, run once. Not to be changed: others look at it, too."""
    begin = time.perf_counter()
    notebook = execute(lab)
    print(f"{lab}: {time.perf_counter() - begin:.1f} s")
    return notebook


@pytest.mark.slow
@pytest.mark.parametrize("lab", LABS)
def test_a_notebook_runs_on_the_reference_and_draws(lab):
    outputs = [output for cell in executed(lab).cells for output in cell.get("outputs", [])]
    pictures = [output for output in outputs if "image/svg+xml" in output.get("data", {})]
    assert len(pictures) >= 2
    warnings = [o.text for o in outputs if o.output_type == "stream" and o.name == "stderr"]
    assert warnings == []


@pytest.mark.slow
@pytest.mark.parametrize("lab", LABS)
def test_a_page_is_what_its_notebook_draws(lab):
    written = read_page(lab, FOLDER)
    fresh = render(lab, executed(lab), title(lab), origin(lab))
    made = ORIGIN.match(written.text)
    assert made, f"{lab}.md was not made by `make notebooks`"
    now = ORIGIN.match(origin(lab))
    same = made["version"] == now["version"]
    assert faults(fresh, written, same_matplotlib=same) == [], "run `make notebooks`"


@pytest.mark.parametrize("lab", labs())
def test_a_page_has_a_title_a_way_to_the_notebook_and_pictures_with_words(lab):
    page = read_page(lab, FOLDER)
    assert page.text.splitlines()[2] == f"# {title(lab)}"
    assert title(lab).startswith("Exploration: ")
    assert f"`make notebook LAB={lab}`" in page.text
    included = re.findall(rf"{{{{#include {lab}/(\d+)\.svg}}}}", page.text)
    assert sorted(map(int, included)) == sorted(page.pictures)
    assert len(page.pictures) >= 2
    for picture in page.pictures.values():
        assert len(ET.fromstring(picture).attrib["aria-label"]) > 10


@pytest.mark.parametrize("lab", labs())
def test_the_pictures_are_the_pages_own_in_colours_ids_and_sources(lab):
    everything = "".join(read_page(lab, FOLDER).pictures.values())
    assert not re.search(r"#000000|#ffffff|#222222|#e8e8e8|DejaVu|https?://|\n\s*\n", everything)
    ids = re.findall(r'\bid="([^"]+)"', everything)
    assert len(set(ids)) == len(ids)
    assert all(name.startswith(f"{lab}-") for name in ids)
    assert set(re.findall(r'url\(#([^)]+)|href="#([^"]+)', everything)) <= {
        *((name, "") for name in ids),
        *(("", name) for name in ids),
    }


def test_the_pages_are_in_step_with_what_they_were_made_from(capsys):
    assert main(["--check"]) == 0, capsys.readouterr().out


def test_matplotlibs_svg_becomes_the_pages():
    picture = for_page(DRAWN, "x-1", "two words")
    root = ET.fromstring(picture)
    assert (root.attrib["role"], root.attrib["aria-label"]) == ("img", "two words")
    assert "metadata" not in picture
    assert "<style" not in picture
    [path] = [path for path in root.iter("path") if "id" not in path.attrib]
    assert path.attrib["d"] == "M 0 0 L 1.23 2"
    assert path.attrib["style"] == "fill: var(--bg); stroke: currentColor"
    bold, mono = root.iter("text")
    assert bold.attrib["style"] == "font-weight: 700; font-size: 9px; fill: currentColor"
    assert mono.attrib["style"] == "font-size: 8px; font-family: var(--mono-font); fill: #0072b2"
    assert bold.text == "a  word"
    [clip] = root.iter("clipPath")
    assert path.attrib["clip-path"] == f"url(#{clip.attrib['id']})"
    [use] = root.iter("use")
    assert use.attrib == {"href": "#x-1-2"}


def test_rounding_is_alike_and_a_move_is_not():
    one = '<path d="M 10.21 3.4" style="fill: #0072b2"/>'
    assert alike(one, one.replace("10.21", "10.24"))
    assert not alike(one, one.replace("10.21", "10.41"))
    assert not alike(one, one.replace("#0072b2", "#0072b3"))
    assert not alike(one, one.replace("path", "rect"))


PAGE = Page(
    "<!-- x -->\n\n```text\ntook 3.1 ms\n```\n\n```text\n4 blocks\n```\n",
    {1: "<text>3.1 ms</text>", 2: "<text>4 blocks</text>"},
    {1},
    {"took 3.1 ms"},
)


def changed(old: str, new: str) -> list[str]:
    """The faults of PAGE with something replaced, in its text and in its pictures."""
    pictures = {number: text.replace(old, new) for number, text in PAGE.pictures.items()}
    return faults(
        PAGE, dataclasses.replace(PAGE, text=PAGE.text.replace(old, new), pictures=pictures)
    )


def test_what_was_measured_may_differ_and_nothing_else():
    assert changed("3.1 ms", "12 ms") == []
    assert changed("<!-- x -->", "<!-- y -->") == []
    assert changed("4 blocks", "5 blocks") == ["the text differs", "picture 2 differs"]
    assert changed("took", "needed") == ["the text differs"]
    assert changed("3.1 ms", "3.1 s") == ["the text differs", "picture 1 differs"]
    without = dataclasses.replace(PAGE, pictures={1: PAGE.pictures[1]})
    assert faults(PAGE, without) == ["2 pictures, not 1"]


def test_another_matplotlib_may_place_things_elsewhere_but_says_the_same():
    moved = dataclasses.replace(PAGE, pictures=PAGE.pictures | {2: '<text x="9">4 blocks</text>'})
    assert faults(PAGE, moved) == ["picture 2 differs"]
    assert faults(PAGE, moved, same_matplotlib=False) == []


def test_a_page_is_written_whole_and_old_pictures_go(tmp_path):
    write_page("x", Page("text", {1: "a", 2: "b"}), tmp_path)
    write_page("x", Page("text", {1: "c"}), tmp_path)
    assert read_page("x", tmp_path) == Page("text", {1: "c"})


def test_a_digest_covers_source_shared_code_and_part_but_no_comments_of_the_part(tmp_path):
    for folder in ("yaie/explore", "solutions/sampler"):
        (tmp_path / folder).mkdir(parents=True)
    files = ("yaie/explore/draw.py", "solutions/sampler/explore.py", "solutions/sampler/part.py")
    seen = set()
    for name in files:
        (tmp_path / name).write_text("x = 1\n")
    for name in files:
        seen.add(digest("sampler", tmp_path))
        (tmp_path / name).write_text("x = 2\n")
    seen.add(digest("sampler", tmp_path))
    assert len(seen) == 4
    (tmp_path / files[2]).write_text("# ANCHOR: x\n\nx = 2\n    # ANCHOR_END: x\n")
    assert digest("sampler", tmp_path) in seen
    (tmp_path / files[1]).write_text("# text of a cell\nx = 2\n")
    assert digest("sampler", tmp_path) not in seen


def test_a_page_that_is_old_or_no_notebook_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(notebooks, "FOLDER", tmp_path)
    (tmp_path / "sampler.md").write_text(origin("sampler") + "\n\n# A page\n")
    assert stale(["sampler"]) == []
    text = (tmp_path / "sampler.md").read_text().replace("sha256:", "sha256:0", 1)
    (tmp_path / "sampler.md").write_text(text)
    (tmp_path / "engine.md").write_text("# Exploration\n")
    old, other, missing = stale(["sampler", "engine", "scheduler"])
    assert old.startswith("explore/sampler.md is older than")
    assert other.startswith("explore/engine.md is not a rendered notebook")
    assert missing.startswith("explore/scheduler.md is not")


def test_a_lab_without_a_notebook_is_refused(capsys):
    assert main(["nonsense"]) == 2
    assert "nonsense" in capsys.readouterr().err
