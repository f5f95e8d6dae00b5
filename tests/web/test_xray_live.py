"""The X-ray of an engine that runs: the event stream, step mode, the cost of a frame."""

import json
import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.book.conftest import browser  # noqa: F401
from tests.web.recorded import Recording, four
from tests.web.test_xray_page import shown, story
from tests.web.xray_pages import opened, serving


@pytest.fixture(scope="module")
def files(tmp_path_factory: Any) -> Path:
    folder: Path = tmp_path_factory.mktemp("files")
    return folder


@pytest.fixture(scope="module")
def preempting() -> Recording:
    """Four requests in a pool that is too small for them."""
    return four(every=0, num_blocks=12)


class Engine(ThreadingHTTPServer):
    """A server that streams a recording's steps, one whenever it is asked for one."""

    def __init__(self, recording: Recording, key: str) -> None:
        self.lines: queue.Queue[Any] = queue.Queue()
        self.left = list(recording.lines)
        self.key = key
        self.send(1)
        super().__init__(("127.0.0.1", 0), Watch)

    def send(self, count: int) -> None:
        for _ in range(count):
            self.lines.put(self.left.pop(0))


class Watch(BaseHTTPRequestHandler):
    server: Engine

    def _head(self, status: int, kind: str = "text/event-stream") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Access-Control-Allow-Origin", "*")
        self.send_header("Access-Control-Allow-Headers", "*")
        self.end_headers()

    def do_OPTIONS(self) -> None:
        self._head(204)

    def do_POST(self) -> None:
        assert self.path == "/watch/step"
        self.server.send(1)
        self._head(200, "application/json")

    def do_GET(self) -> None:
        if self.headers.get("Authorization") != f"Bearer {self.server.key}":
            self._head(401)
            return
        self._head(200)
        while (line := self.server.lines.get()) is not None:
            self.wfile.write(f"data: {json.dumps(line)}\n\n".encode())
            self.wfile.flush()

    def log_message(self, *_args: object) -> None:
        pass


def test_step_mode_advances_the_engine_by_one_step(browser, files, preempting):  # noqa: F811
    recording = Recording([preempting.lines[0] | {"step_mode": True}, *preempting.lines[1:]])
    with (
        serving(files) as base,
        Engine(recording, "secret") as engine,
        opened(browser, f"{base}/viewer.html?recording=") as (page, _),
    ):
        threading.Thread(target=engine.serve_forever, daemon=True).start()
        page.evaluate(
            """async (base) => {
              const { mount } = await import('./xray/mount.js');
              const { liveSource } = await import('./xray/source.js');
              const send = (path, init = {}) => fetch(path, { ...init,
                headers: { ...init.headers, Authorization: 'Bearer secret' } });
              window.xray = mount(document.getElementById('xray'), liveSource(send, base));
            }""",
            f"http://127.0.0.1:{engine.server_port}",
        )
        page.wait_for_selector(".xray[data-connection=connected]")
        assert "waits for a request" in story(page)
        forward = page.get_by_role("button", name="One step forward")
        for number in (1, 2, 3):
            forward.click()
            shown(page, number)
        page.get_by_role("button", name="One step back").click()
        shown(page, 2)
        forward.click()  # not at the end: this is a look at a step that was
        shown(page, 3)
        page.wait_for_timeout(100)
        assert len(engine.left) == len(recording.lines) - 4
        engine.lines.put(None)
        engine.shutdown()


@pytest.mark.nightly
def test_a_frame_of_64_streams_is_drawn_in_time(browser, files):  # noqa: F811
    """Counted without a screen: what drawing costs in the page's own thread, per frame."""
    ids = [f"r{number}" for number in range(64)]
    lines: list[dict[str, Any]] = [{"kind": "header", "v": 1, "num_blocks": 4096, "block_size": 16}]
    for n in range(1, 400):
        rows = [{"id": i, "start": 100 + n, "num_tokens": 1, "out": [7], "text": " a"} for i in ids]
        tables = (
            [[i, n // 16, 64 * (n // 16) + k] for k, i in enumerate(ids)] if n % 16 == 1 else []
        )
        new = [{"id": i, "prompt_tokens": 100, "max_tokens": 999} for i in ids] if n == 1 else []
        lines.append(
            {"kind": "step", "n": n, "t": n / 50, "rows": rows, "running": ids, "tables": tables,
             "new": new, "refs": [[block, 1] for _, _, block in tables], "tree": []}
        )  # fmt: skip
    with serving(files) as base, opened(browser, f"{base}/viewer.html?recording=") as (page, wrong):
        milliseconds = page.evaluate(
            """async (lines) => {
              lines.slice(0, 330).forEach((line) => xray.store.push(line));
              const frame = () => new Promise(requestAnimationFrame);
              const spent = [];
              for (const line of lines.slice(330)) {
                await frame();
                const began = performance.now();
                xray.store.push(line);
                xray.draw();
                spent.push(performance.now() - began);
              }
              return spent.sort((one, other) => one - other)[Math.floor(spent.length / 2)];
            }""",
            lines,
        )
        assert page.inner_text(".x-panel-queues h3 >> nth=0") == "Running 64"
        assert milliseconds < 33  # 30 frames a second
        assert not Axe().run(page).response["violations"]  # with lists that scroll
        assert not wrong
