"""The built book, and a browser to read it with."""

import functools
import http.server
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock

from book.tools.mdbook import ROOT, environment, find_mdbook
from book.tools.search import add_terms
from book.tools.stills import add_stills

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = [
    # Nothing but the pages under test may use the network.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> Path:
    """The folder of the built pages. Of several workers, the first that asks builds it for all."""
    base = tmp_path_factory.getbasetemp()
    out = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "built-book"
    with FileLock(out.with_suffix(".lock")):
        if not (out / "index.html").exists():
            unfinished = out.with_suffix(".unfinished")
            made = subprocess.run(
                [find_mdbook(), "build"],
                cwd=ROOT,
                env={**environment(), "MDBOOK_BUILD__BUILD_DIR": str(unfinished)},
                capture_output=True,
                text=True,
            )
            assert made.returncode == 0, made.stderr
            assert add_terms(unfinished) + add_stills(unfinished) == []
            unfinished.rename(out)
    return out


@pytest.fixture(scope="module")
def served(built) -> Iterator[str]:
    """The address of the built pages, as `make docs-serve` has them.

    For what pages keep: Chromium tells a page of a folder late, or never, what another kept.
    """
    handler = functools.partial(QuietHandler, directory=str(built))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """A headless Chromium. For a module, not a session: its event loop would stand in others' way."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        message = "no Chromium on PATH (on Debian or Ubuntu: apt install chromium)"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    from playwright.sync_api import sync_playwright

    # Chromium's sandbox does not work for root.
    flags = [*FLAGS, "--no-sandbox"] if os.geteuid() == 0 else FLAGS
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=flags)
        yield chromium
        chromium.close()
