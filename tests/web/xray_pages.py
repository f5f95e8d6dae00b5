"""A server of the page's files alone, as `viewer.html` may stand on any, and a page opened there."""

import contextlib
import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WEB = Path(__file__).parents[2] / "yaie/server/web"
POLICY = "default-src 'none'; " + "; ".join(
    f"{kind}-src 'self'" for kind in ("script", "style", "img", "connect")
)
"""As strict as any server may be: nothing of other hosts, no script and no style within a page."""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """`/files/...` from a folder of the test's, everything else below `/some/path/` from the page's."""

    def __init__(self, *args: Any, files: Path, **rest: Any) -> None:
        self.files = files
        super().__init__(*args, **rest)

    def translate_path(self, path: str) -> str:
        path = path.split("?")[0].removeprefix("/some/path/").lstrip("/")
        if path.startswith("files/"):
            return str(self.files / path.removeprefix("files/"))
        return str(WEB / path)

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", POLICY)
        super().end_headers()

    def log_message(self, *_args: object) -> None:
        pass


@contextlib.contextmanager
def serving(files: Path) -> Iterator[str]:
    """The address below which the page's files stand."""
    handler = functools.partial(Quiet, files=files)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/some/path"
        server.shutdown()


@contextlib.contextmanager
def opened(browser: Any, address: str, **context: Any) -> Iterator[tuple[Any, list[str]]]:
    """A page in a fresh profile, and the list of what went wrong: errors, requests to other hosts.

    Playwright's own waiting evaluates text, which the policy forbids: it holds where a test wants it.
    """
    fresh = browser.new_context(**{"reduced_motion": "reduce", "bypass_csp": True, **context})
    page = fresh.new_page()
    wrong: list[str] = []
    host = address.split("/some/path")[0]
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "request",
        lambda asked: (
            None if asked.url.startswith((host, "data:", "blob:")) else wrong.append(asked.url)
        ),
    )
    try:
        page.goto(address)
        yield page, wrong
    finally:
        fresh.close()
