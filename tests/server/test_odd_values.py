"""Whatever a client sends, in whatever place: never a 500, never a broken answer, and the engine lives.

In one process and without sockets. CI sends a part of the product; every night all of it is sent.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.odd_values import HEADER_VALUES, HEADERS, PATHS, Case, bodies, cases, chosen
from tests.server.tool_models import tool_model
from yaie.core.request import Request
from yaie.engine.background.async_engine import AsyncEngine
from yaie.engine.background.engine_life import EngineState
from yaie.engine.input.processor import InputProcessor
from yaie.parts import load_parts
from yaie.server.app import create_app
from yaie.server.dialects.messages_errors import PATH as MESSAGES
from yaie.server.held_bodies import LARGE

pytestmark = pytest.mark.slow

JSON = {"Content-Type": "application/json"}
FORMS = ({"message", "type", "param", "code"}, {"type", "message"})
SHORT = 3
"""Tokens of an answer, whatever is asked for."""
EVERY = 127
"""Of CI: one of so many cases. A prime: each value comes to many places."""
NIGHTS = 8
"""Parts of what is sent every night."""


@asynccontextmanager
async def asked(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[httpx.AsyncClient, Any]]:
    """A client of the application around a tiny engine, and that engine."""
    from yaie.engine.llm_engine import LLMEngine

    made = InputProcessor._made

    def few_tokens(
        self: InputProcessor, tokens: list[int], params: Any, most: int, *named: Any
    ) -> list[Request]:
        return made(self, tokens, params, min(most, SHORT), *named)

    monkeypatch.setattr(InputProcessor, "_made", few_tokens)
    # Grammars are checked at this process's priority. At the lowest, tests beside this one would keep a
    # thousand of them waiting.
    monkeypatch.setattr("yaie.engine.background.thread_life.step_back", lambda: None)
    model = tool_model("hermes", folder / "tiny-llama")
    engine = AsyncEngine(
        lambda: LLMEngine(model=str(model), num_blocks=256, threads=1, mine="none")
    )
    app = create_app(engine, load_parts("none")["api_server"])
    await engine.start()
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        yield http, engine
    await engine.shutdown()


def strict(text: str) -> Any:
    """JSON by the letter, which can be written as UTF-8 again."""

    def no(constant: str) -> Any:
        raise ValueError(f"{constant} is no JSON")

    value = json.loads(text, parse_constant=no)
    json.dumps(value, ensure_ascii=False).encode()
    return value


def fault_in(path: str, answer: httpx.Response) -> str | None:
    """What is wrong with an answer, if anything is."""
    try:
        text = answer.content.decode()
        if answer.status_code >= 500:
            return f"{answer.status_code}: {text[:200]}"
        if answer.headers["content-type"].startswith("text/event-stream"):
            told = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
            events = [strict(one) for one in told if one != "[DONE]"]
            failed = [one["error"] for one in events if isinstance(one.get("error"), dict)]
            wrong = [one for one in failed if "server" in one["type"] or one["type"] == "api_error"]
            return f"in a stream: {wrong[0]}" if wrong or not events else None
        value = strict(text)
    except (ValueError, KeyError) as error:
        return f"{type(error).__name__}: {error}, in {answer.content[:200]!r}"
    if answer.status_code == 200:
        return None
    error = value.get("error", {})
    if error.keys() != FORMS[path.startswith(MESSAGES)] or not 0 < len(error["message"]) <= 500:
        return f"not the error object: {text[:300]}"
    return (
        None
        if answer.status_code in (400, 404, 405, 413)
        else f"{answer.status_code}: {text[:200]}"
    )


async def send_all(
    folder: Path, monkeypatch: pytest.MonkeyPatch, sent: Iterable[Case]
) -> tuple[Counter[int], dict[str, str]]:
    """How many answers of each status, and the faults, by path and kind with a body that shows each."""
    statuses: Counter[int] = Counter()
    faults: dict[str, str] = {}
    async with asked(folder, monkeypatch) as (http, engine):
        for case in sent:
            path, body = case.path, case.written()
            answer = await http.post(path, content=body, headers=JSON)
            statuses[answer.status_code] += 1
            if fault := fault_in(path, answer):
                faults.setdefault(f"{path}: {fault[:90]}", f"{body[:1500]!r}")
        await lives(http, engine)
    return statuses, faults


async def lives(http: httpx.AsyncClient, engine: AsyncEngine) -> None:
    """The engine serves, and nothing is left behind in it."""
    assert engine.state is EngineState.READY
    for path, body in bodies():
        answer = await http.post(path, json=body)
        assert answer.status_code == 200, (path, body, answer.text)
    driver: Any = engine._driver
    driver.engine.check()


def test_odd_values_anywhere_are_answered_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statuses, faults = asyncio.run(send_all(tmp_path, monkeypatch, chosen(EVERY)))
    assert faults == {}
    assert statuses[200] > 100
    assert statuses[400] > 500


@pytest.mark.nightly
def test_odd_heads_and_large_bodies_are_answered_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> dict[str, str]:
        faults: dict[str, str] = {}

        def look(what: str, path: str, answer: httpx.Response) -> None:
            if answer.status_code in (200, 405) and not answer.content.startswith(b"{"):
                return  # a page, or figures
            if fault := fault_in(path, answer):
                faults[what] = fault

        async with asked(tmp_path, monkeypatch) as (http, engine):
            chat, text = bodies()[0][1], b'{"prompt": [5, 6], "max_tokens": 1}'
            for name in HEADERS:
                for value in HEADER_VALUES:
                    heads = httpx.Headers([(b"content-type", b"application/json")])
                    heads = httpx.Headers([*heads.raw, (name.lower().encode(), value)])
                    answer = await http.post("/v1/completions", content=text, headers=heads)
                    look(f"{name}: {value[:40]!r}", "/v1/completions", answer)
            for path in PATHS:
                look(path, path, await http.get(path))
            padding = b" " * LARGE
            for case in cases():
                if case.body is chat and case.way in (
                    ("metadata",),
                    ("max_tokens",),
                    ("messages",),
                ):
                    body = case.written() + padding
                    look(f"{case.odd[:40]} large", "/v1/chat/completions",
                         await http.post(case.path, content=body, headers=JSON))  # fmt: skip
            await lives(http, engine)
        return faults

    assert asyncio.run(go()) == {}


@pytest.mark.nightly
@pytest.mark.timeout(900)  # ten thousand requests: a minute, and several on a busy machine
@pytest.mark.parametrize("start", range(NIGHTS))
def test_all_odd_values_everywhere_are_answered_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int
) -> None:
    _, faults = asyncio.run(send_all(tmp_path, monkeypatch, islice(cases(), start, None, NIGHTS)))
    assert faults == {}
