"""The HTTP API that runs is the part in use: the learner's own file, in the server and in LLMEngine."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.models.tiny import tiny_model
from tests.server.conftest import LiveServer, serving
from tests.server.fake_engine import FakeEngine
from yaie import LLMEngine
from yaie.parts import load_parts

ROOT = Path(__file__).resolve().parents[2]
USER = [{"role": "user", "content": "abc"}]


def forget_labs() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "labs"]:
        del sys.modules[name]


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A finished part of a learner, who signs the model's card and every message."""
    folder = tmp_path / "labs" / "api_server"
    shutil.copytree(ROOT / "solutions/api_server", folder)
    (tmp_path / "labs/__init__.py").touch()
    for file, old, new in [
        ("routes.py", '"owned_by": "yaie"', '"owned_by": "me"'),
        ("replies.py", '"refusal": None', '"refusal": "mine"'),
    ]:
        text = (folder / file).read_text("utf-8")
        assert old in text
        (folder / file).write_text(text.replace(old, new), "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    forget_labs()
    yield
    forget_labs()


@pytest.fixture
def my_server(mine: None) -> Iterator[LiveServer]:
    with serving(FakeEngine, api=load_parts("api_server")["api_server"]) as server:
        yield server


def test_the_server_answers_with_the_learners_part(my_server: LiveServer) -> None:
    assert my_server.http.get("/v1/models").json()["data"][0]["owned_by"] == "me"
    answer = my_server.http.post("/v1/chat/completions", json={"messages": USER})
    assert answer.json()["choices"][0]["message"]["refusal"] == "mine"


def test_the_engine_answers_with_the_learners_part(mine: None, tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path / "tiny-llama")
    engine = LLMEngine(model=str(folder), num_blocks=64, threads=1, mine="api_server")
    answer = engine.chat_completion(USER, max_tokens=2)
    assert answer["choices"][0]["message"]["refusal"] == "mine"
