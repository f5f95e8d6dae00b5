"""Takes the book's pictures of the X-ray: `python -m book.tools.xray_picture`.

It opens `viewer.html` with a recording in Chromium, goes to a step, and photographs the page as a reader
would see it on a laptop.
"""

import functools
import http.server
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
WEB = ROOT / "yaie/server/web"
IMAGES = ROOT / "book/src/images"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update"]


@dataclass(frozen=True, slots=True)
class Picture:
    """A step of a recording, and the part of the page that is wanted of it."""

    name: str
    recording: str
    step: int
    part: str


PICTURES = (
    Picture("xray", "samples/preemption.jsonl", 24, "body"),
    Picture("xray-timeline", "samples/preemption.jsonl", 24, ".x-panel-timeline"),
    Picture("xray-pool", "samples/four.jsonl", 10, ".x-column >> nth=1"),
)


@contextmanager
def served() -> Iterator[str]:
    """The address of the page's files."""
    handler = functools.partial(_Quiet, directory=str(WEB))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def find_browser() -> str:
    """Path of Chromium; ends the program with what to do if there is none."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        sys.exit("no Chromium on PATH (on Debian or Ubuntu: apt install chromium)")
    return found


def take(folder: Path = IMAGES) -> None:
    """Take all pictures."""
    from playwright.sync_api import sync_playwright

    found = find_browser()
    folder.mkdir(exist_ok=True)
    with served() as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        page = browser.new_page(
            viewport={"width": 1200, "height": 800},
            color_scheme="light",
            reduced_motion="reduce",  # else the viewer plays
        )
        for picture in PICTURES:
            page.goto(f"{address}/viewer.html?recording={picture.recording}")
            page.wait_for_function("window.xray?.store.records.length > 0")
            page.evaluate(f"xray.store.seek({picture.step - 1})")
            page.wait_for_selector(f".xray[data-step='{picture.step}']")
            page.locator(picture.part).screenshot(path=folder / f"{picture.name}.png")
        browser.close()


if __name__ == "__main__":
    take()
