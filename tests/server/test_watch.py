"""`/watch` and the page at `/`: who may have them, what comes, and what it costs the others."""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.models.tiny import tiny_model
from tests.server.conftest import LiveServer, serving, within
from tests.server.fake_engine import FakeEngine
from yaie.engine.background import watchers
from yaie.engine.background.engine_process import EngineProcess
from yaie.engine.background.engine_thread import EngineThread
from yaie.engine.background.messages import Recorded
from yaie.engine.llm_engine import LLMEngine
from yaie.engine.watching import recorder
from yaie.server import web_page

HELLO = {"prompt": "hello there", "max_tokens": 5, "ignore_eos": True, "temperature": 0}
PAGE = ("/", "/web/viewer.html", "/web/xray/mount.js", "/web/samples/four.jsonl")


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> partial[LLMEngine]:
    folder: Path = tiny_model("llama", tmp_path_factory.mktemp("watch") / "tiny-llama")
    return partial(LLMEngine, model=str(folder), num_blocks=64, threads=1, mine="none")


@contextmanager
def watching(url: str, query: str = "", **headers: str) -> Iterator[Iterator[dict[str, Any]]]:
    """The records as they come."""
    address = f"{url}/watch/events{query}"
    with httpx.stream("GET", address, headers=headers, timeout=30) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = (line[6:] for line in answer.iter_lines() if line.startswith("data: "))
        yield map(json.loads, lines)


@pytest.mark.parametrize("driver", [EngineThread, EngineProcess])
def test_who_watches_gets_header_snapshot_and_steps(load: partial[LLMEngine], driver: Any) -> None:
    with serving(load, make_driver=driver) as server, watching(server.url) as records:
        header, snapshot = next(records), next(records)
        assert (header["kind"], header["num_blocks"]) == ("header", 64)
        assert (snapshot["kind"], snapshot["n"]) == ("snapshot", 0)
        assert server.http.post("/v1/completions", json=HELLO).status_code == 200
        rows, steps = [], []
        while not any(step["finished"] for step in steps):
            steps.append(next(records))
            rows += steps[-1]["rows"]
        assert sum(step["merged"] for step in steps) == 5
        assert sum(len(row["out"]) for row in rows) == 5
        (told,) = steps[0]["new"]
        assert told["words"].endswith("hello there")
        with watching(server.url) as others:
            assert next(others) == header
            assert next(others)["n"] == 5


def test_a_page_has_every_step_and_others_at_less_cost(
    load: partial[LLMEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`yaie top` has records that steps share, unless a page is open."""
    monkeypatch.setattr(recorder, "SHARE", 1e-9)
    with serving(load) as server, watching(server.url) as others:
        next(others), next(others)

        def steps(records: Iterator[dict[str, Any]]) -> list[int]:
            assert server.http.post("/v1/completions", json=HELLO).status_code == 200
            merged = [next(records)]
            while not merged[-1]["finished"]:
                merged.append(next(records))
            return [record["merged"] for record in merged]

        assert max(steps(others)) > 1
        with watching(server.url, "?every=true") as page:
            next(page), next(page)
            assert steps(page) == [1] * 5
        driver: Any = server.engine._driver
        within(10, lambda: len(driver._publisher._numbers) == 1)
        assert not driver._publisher._recorder.every


def test_nothing_is_recorded_when_the_last_one_has_left(load: partial[LLMEngine]) -> None:
    with serving(load) as server:
        driver: Any = server.engine._driver
        with watching(server.url) as records:
            next(records)
            assert driver._publisher.is_on
        within(10, lambda: not driver._publisher.is_on)
        assert server.llm._counters._tell_plan is None


def test_the_page_is_open_and_what_it_asks_for_is_not(load: partial[LLMEngine]) -> None:
    with serving(load, api_key=("secret",), xray=True) as server:
        for path in PAGE:
            answer = server.http.get(path)
            assert answer.status_code == 200, path
            assert "script-src 'self'" in answer.headers["content-security-policy"]
        for path in ("/watch/events", "/v1/models"):
            assert server.http.get(path).status_code == 401
        with watching(server.url, Authorization="Bearer secret") as records:
            assert next(records)["kind"] == "header"


def test_modules_are_served_as_what_browsers_run(load: partial[LLMEngine]) -> None:
    with serving(load) as server:
        for path, kind in (("/", "text/html"), ("/web/xray/mount.js", "text/javascript"),
                           ("/web/xray/xray.css", "text/css")):  # fmt: skip
            assert server.http.get(path).headers["content-type"].startswith(kind)
        first = server.http.get("/web/xray/mount.js")
        again = {"If-None-Match": first.headers["etag"]}
        assert server.http.get("/web/xray/mount.js", headers=again).status_code == 304
        assert server.http.get("/web/../web_page.py").status_code == 404
        assert server.http.get("/web/nothing.js").status_code == 404


def test_no_file_of_the_page_asks_another_site() -> None:
    """The policy forbids it; this finds it before a browser does. Links to read are no requests."""
    files = [path for path in web_page.FOLDER.rglob("*") if path.suffix in (".js", ".css", ".html")]
    assert len(files) > 20
    for path in files:
        text = path.read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"(?:src|href|url|import|fetch)\W{1,3}(?:https?:)?//", text), path


def test_without_the_page_there_is_neither(load: partial[LLMEngine]) -> None:
    with serving(load, web=False) as server:
        for path in (*PAGE, "/watch/events"):
            assert server.http.get(path).status_code == 404, path


@pytest.mark.parametrize("what", ["step", "pause", "resume"])
def test_strangers_do_not_pace_an_engine(load: partial[LLMEngine], what: str) -> None:
    with serving(load, api_key=("secret",), xray=True) as server:
        key = {"Authorization": "Bearer secret"}
        answer = server.http.post(f"/watch/{what}", headers=key)
        assert answer.status_code == 400
        assert "yaie serve --step" in answer.json()["error"]["message"]
        with server.http.stream("GET", "/watch/events", headers=key) as events:
            assert "x-step-mode" not in events.headers


def test_an_engine_of_this_machine_is_held_while_somebody_watches(
    load: partial[LLMEngine],
) -> None:
    """All requests wait for its steps, everyone who watches is told, and who leaves last lets it go."""

    async def go(server: LiveServer, records: Iterator[dict[str, Any]]) -> None:
        async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
            before = server.llm.num_steps
            await http.post("/watch/pause")
            assert next(records) == {"kind": "pace", "held": True}
            answer = asyncio.create_task(http.post("/v1/completions", json=HELLO))
            await asyncio.to_thread(within, 10, lambda: server.llm.has_work)
            await http.post("/watch/step")
            await asyncio.to_thread(within, 10, lambda: server.llm.num_steps == before + 1)
            with watching(server.url) as others:
                kinds = [next(others)["kind"] for _ in range(3)]
                assert kinds == ["header", "snapshot", "pace"]
            await asyncio.sleep(0.2)
            assert server.llm.num_steps == before + 1
            assert not answer.done()
            leave()
            assert (await answer).json()["usage"]["completion_tokens"] == 5

    with serving(load) as server, ExitStack() as stack:
        leave = stack.close
        records = stack.enter_context(watching(server.url))
        next(records), next(records)
        asyncio.run(go(server, records))


def test_an_engine_that_nobody_watches_is_not_held(load: partial[LLMEngine]) -> None:
    with serving(load) as server:
        assert server.http.post("/watch/pause").status_code == 200
        assert server.http.post("/v1/completions", json=HELLO).status_code == 200


async def asked(server: LiveServer) -> None:
    """Everything of step mode, while a client waits for its answer."""
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
        answer = asyncio.create_task(http.post("/v1/completions", json=HELLO))
        engine = server.llm
        await asyncio.to_thread(within, 10, lambda: engine.has_work)
        for number in (1, 2):
            assert (await http.post("/watch/step")).json() == {"steps": 1}
            await asyncio.to_thread(within, 10, lambda number=number: engine.num_steps == number)
        await asyncio.sleep(0.2)
        assert engine.num_steps == 2
        assert not answer.done()
        await http.post("/watch/resume")
        assert (await answer).json()["usage"]["completion_tokens"] == 5
        await http.post("/watch/pause")
        answer = asyncio.create_task(http.post("/v1/completions", json=HELLO))
        await asyncio.sleep(0.3)
        assert engine.num_steps == 5
        await http.post("/watch/resume")
        assert (await answer).status_code == 200


def test_in_step_mode_the_engine_waits(load: partial[LLMEngine]) -> None:
    driver = partial(EngineThread, step_mode=True)
    limits = {"step_timeout": 0.1, "queue_timeout": 0.1, "request_timeout": 0.1}
    with serving(load, make_driver=driver, step=True, **limits) as server:
        with watching(server.url) as records:
            assert next(records)["step_mode"]
            assert next(records)["kind"] == "snapshot"
        asyncio.run(asked(server))


def test_a_paused_engine_drains(load: partial[LLMEngine]) -> None:
    driver = partial(EngineThread, step_mode=True)
    with serving(load, make_driver=driver, step=True) as server:

        async def go() -> int:
            async with httpx.AsyncClient(base_url=server.url, timeout=30) as http:
                answer = asyncio.create_task(http.post("/v1/completions", json=HELLO))
                await asyncio.to_thread(within, 10, lambda: server.llm.has_work)
                loop = server.engine._loop
                asyncio.run_coroutine_threadsafe(server.engine.shutdown(10), loop)
                return (await answer).status_code

        assert asyncio.run(go()) == 200


def test_too_many_are_refused_and_too_slow_ones_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchers, "MOST_WATCHERS", 2)
    monkeypatch.setattr(watchers, "MOST_RECORDS", 3)
    sent: list[Any] = []

    async def go() -> None:
        numbers = iter(range(9))
        these = watchers.Watchers(sent.append, lambda: next(numbers))
        streams = [these.watch(), these.watch()]
        firsts = [asyncio.ensure_future(anext(stream)) for stream in streams]
        await asyncio.sleep(0)
        with pytest.raises(watchers.EngineOverloadedError):
            await anext(these.watch())
        these.put(Recorded([b"early"]))  # nobody has begun
        for number in (0, 1):
            these.put(Recorded([b"first"], number))
        assert [await first for first in firsts] == [[b"first"]] * 2
        for k in range(5):
            these.put(Recorded([b"%d" % k]))
            if k:
                assert await anext(streams[0]) == [b"%d" % (k - 1)]
        # The slow one has not read, and its place is free: somebody else may have it.
        assert [type(one).__name__ for one in sent] == ["Watch", "Watch", "Unwatch"]
        third = these.watch()
        another = asyncio.ensure_future(anext(third))
        await asyncio.sleep(0)
        these.put(Recorded([b"first"], 2))
        assert await asyncio.wait_for(another, 10) == [b"first"]
        with pytest.raises(watchers.EngineOverloadedError):
            await anext(these.watch())
        assert [lines async for lines in streams[1]] == []  # nothing was kept for it
        these.end()
        assert [lines async for lines in streams[0]] == [[b"4"]]

    asyncio.run(go())
    left = [one.number for one in sent if type(one).__name__ == "Unwatch"]
    assert sorted(left) == [0, 1, 2]  # each once


def test_one_that_leaves_before_its_snapshot_comes_leaves_nothing_behind() -> None:
    async def go() -> None:
        these = watchers.Watchers(lambda command: None, lambda: 7)
        waiting = asyncio.ensure_future(anext(these.watch()))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        these.put(Recorded([b"snapshot"], 7))
        assert these._queues == {}
        assert these._begun == set()

    asyncio.run(go())


def test_streams_end_with_the_server(load: partial[LLMEngine]) -> None:
    with serving(load) as server, watching(server.url) as records:
        next(records), next(records)
        asyncio.run_coroutine_threadsafe(server.engine.shutdown(), server.engine._loop)
        assert list(records) == []


def test_while_the_engine_loads_there_is_nothing_to_watch(fake: FakeEngine) -> None:
    def slow() -> FakeEngine:
        fake.gate.wait(5)
        return fake

    fake.gate.clear()
    with serving(slow, wait=False) as server:
        assert httpx.get(f"{server.url}/watch/events").status_code == 503
        fake.gate.set()
