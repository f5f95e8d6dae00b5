"""The first page: promise, scene, counterexample, map; and the book as a site below any path."""

import functools
import http.server
import re
import shutil
import threading
from pathlib import Path

import pytest

from book.tools.labmap import columns, direct, render_map
from book.tools.minutes import minutes_of_articles
from book.tools.repository import render_source
from tests.book.conftest import QuietHandler
from tests.book.reading import LAPTOP, PHONE, SOURCE, reading
from yaie.curriculum.manifest import load_curriculum

LABS = load_curriculum()
MOST_BYTES = 150_000


def test_every_lab_is_in_the_map_with_its_minutes_and_what_it_builds_on():
    made = render_map()
    for lab in LABS.labs:
        assert made.count(f'data-lab="{lab.key}"') == 1
        assert lab.minutes % 30 == 0  # a map of hours and halves
        behind = {LABS[key].number for key in lab.after}
        [label] = re.findall(rf'aria-label="(Lab {lab.number}, [^"]+)"', made)
        assert {int(n) for n in re.findall(r"\d+", label.partition("builds on")[2])} == behind


def test_the_first_page_says_how_many_labs_there_are_and_how_long_they_take():
    front = (SOURCE / "index.md").read_text("utf-8")
    assert f"a workbook of {len(LABS.labs)} labs, 1½ to 5 hours each" in front
    assert {min(lab.minutes for lab in LABS.labs), max(lab.minutes for lab in LABS.labs)} == {
        90,
        300,
    }


def test_its_hours_are_the_sum_of_what_the_pages_say(built):
    contents = (SOURCE / "SUMMARY.md").read_text("utf-8").partition("\n# Using the engine\n")[0]
    pages = re.findall(r"\]\(([\w-]+)\.md\)", contents)
    said = [
        int(minutes)
        for page in pages
        for minutes in re.findall(
            r'class="minutes">(\d+) minute', (built / f"{page}.html").read_text("utf-8")
        )
    ]
    assert len(said) >= len(pages) - 1  # the first page says none
    assert sum(said) == minutes_of_articles()


def test_an_arrow_that_others_imply_is_left_out():
    kept = direct(LABS)
    assert set(LABS["speculative"].after) == {"sampler", "paged_cache", "engine"}
    assert kept["speculative"] == ("engine",)
    made = render_map()
    drawn = set(re.findall(r'data-from="(\w+)" data-to="(\w+)"', made))
    assert drawn == {(before, key) for key, befores in kept.items() for before in befores}


def test_a_lab_stands_behind_all_that_it_builds_on():
    at = columns(LABS)
    assert all(at[before] < at[lab.key] for lab in LABS.labs for before in lab.after)


def test_the_first_page_is_small_and_can_be_read_without_scripts(browser, built):
    page = (built / "index.html").read_bytes()
    assert len(page) < MOST_BYTES
    context = browser.new_context(java_script_enabled=False, viewport=PHONE)
    opened = context.new_page()
    opened.goto((built / "index.html").as_uri())
    text = opened.locator("main").inner_text()
    assert "A block that a running request reads must not be handed to another." in text
    assert opened.locator(".labmap .list a:visible").count() == len(LABS.labs)
    context.close()


def test_the_first_page_on_a_laptop(browser, built):
    """One visit: what stands above the fold, the buttons, and the map under the pointer."""
    with reading(browser, built, "index", size=LAPTOP) as (opened, wrong):
        promise = opened.locator(".promise")
        assert promise.inner_text().count(".") == 1
        # "Source" is left out of a copy without a public address.
        source = ("Source",) if render_source() else ()
        for name in ("Start", "Read", *source):
            button = opened.locator(".buttons-row").get_by_role("link", name=name, exact=True)
            box = button.bounding_box()
            assert box
            assert box["y"] + box["height"] < LAPTOP["height"]
        graph = opened.locator(".labmap .graph")
        assert graph.locator("a:visible").count() == len(LABS.labs)
        graph.locator('[data-lab="engine"]').hover()
        near = {box.get_attribute("data-lab") for box in graph.locator("a.near").all()}
        assert {"scheduler", "paged_cache", "sampler", "engine", "api_server"} <= near
        assert "triton_ops" not in near
        assert wrong == []


@pytest.fixture(scope="module")
def below_a_path(built, tmp_path_factory):
    """The address of the book as a project's page: below /somewhere/book."""
    root = tmp_path_factory.mktemp("site")
    shutil.copytree(built, root / "somewhere/book")
    handler = functools.partial(QuietHandler, directory=str(root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/somewhere/book"
        server.shutdown()


def test_the_book_works_below_any_path(browser, below_a_path):
    """Style, script, search, fonts and links stay below the path: `reading` notes any other request."""
    with reading(browser, below_a_path, "index") as (opened, wrong):
        failed = []
        opened.on(
            "response", lambda reply: failed.append(reply.url) if reply.status >= 400 else None
        )
        opened.reload()
        opened.get_by_role("link", name="Read", exact=True).click()
        opened.locator("#mdbook-sidebar a[href$='radix-tree.html']").click()
        opened.locator(".to-sheet a.button").click()
        opened.locator(".lab-card a.button").click()
        opened.locator(".exploration a").wait_for()
        assert opened.url == f"{below_a_path}/explore/radix_tree.html"
        assert failed == []
        assert wrong == []


def test_the_site_is_complete(built: Path):
    assert (built / "images/preview.png").is_file()
    page = (built / "index.html").read_text("utf-8")
    [icon] = re.findall(r'rel="icon" href="([^"]+)"', page)
    assert (built / icon).read_text("utf-8") == Path("book/theme/favicon.svg").read_text("utf-8")
    assert not list(built.rglob("_*")), "GitHub Pages would leave it out"
