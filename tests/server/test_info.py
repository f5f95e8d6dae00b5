"""What routers ask of a server before they send it anything, and what it must not tell them."""

import getpass
import threading
from pathlib import Path

import pytest

from tests.models.tiny import tiny_model
from tests.server.conftest import LiveServer, serving
from tests.server.fake_engine import FakeEngine
from yaie import __version__
from yaie.backends.cpu.build import missing
from yaie.core.config import TOKEN_BUDGETS
from yaie.engine.llm_engine import LLMEngine

PATHS = (
    "/version",
    "/server_info",
    "/get_server_info",
    "/model_info",
    "/get_model_info",
    "/get_load",
)


def test_version(live: LiveServer) -> None:
    assert live.http.get("/version").json() == {"version": __version__}


def test_server_and_model_are_told_under_both_spellings(live: LiveServer) -> None:
    for name in ("server_info", "model_info"):
        one, other = live.http.get(f"/{name}"), live.http.get(f"/get_{name}")
        assert one.status_code == other.status_code == 200
        assert one.json() == other.json()


def test_a_router_finds_the_name_and_the_sizes(live: LiveServer) -> None:
    server = live.http.get("/server_info").json()
    model = live.http.get("/model_info").json()
    for told in (server, model):
        assert told["model_path"] == told["served_model_name"] == "tiny-llama"
        assert told["max_model_len"] == live.llm.max_model_len
    assert (server["tp_size"], server["pp_size"], server["dp_size"]) == (1, 1, 1)
    assert server["max_running_requests"] == live.llm.config.max_num_seqs
    assert server["max_total_num_tokens"] == live.llm.pool_tokens
    assert (server["device"], server["dtype"]) == ("cpu", "float32")
    assert server["backend"] == ("torch" if missing() else "cpu")
    assert server["max_prefill_tokens"] == TOKEN_BUDGETS["cpu"]
    assert server["block_size"] == live.llm.config.block_size
    assert server["policy"] == live.llm.config.policy
    assert server["prefix_caching"] is live.llm.config.prefix_caching
    assert model["architectures"] == ["LlamaForCausalLM"]
    assert model["is_generation"] is True


def test_the_served_name_is_told_and_no_path_key_or_user(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path / "secret-folder")
    load = lambda: LLMEngine(model=str(folder), num_blocks=64, threads=1)  # noqa: E731
    with serving(load, served_model_name="public", api_key=("secret-key",)) as server:
        server.http.headers["Authorization"] = "Bearer secret-key"
        told = [server.http.get(path) for path in (*PATHS, "/tokenizer_info", "/openapi.json")]
    assert all(answer.status_code == 200 for answer in told)
    words = ("secret", str(tmp_path), str(Path.home()), f"/{getpass.getuser()}")
    assert [word for answer in told for word in words if word in answer.text] == []
    assert told[1].json()["model_path"] == "public"


def test_while_the_model_loads_only_the_version_is_known() -> None:
    loaded = threading.Event()

    def load() -> FakeEngine:
        loaded.wait(30)
        return FakeEngine()

    with serving(load, wait=False) as server:
        statuses = [server.http.get(path).status_code for path in PATHS]
        loaded.set()
    assert statuses == [200, 503, 503, 503, 503, 503]


def test_a_router_reads_how_many_requests_run_and_wait(tmp_path: Path) -> None:
    folder = tiny_model("llama", tmp_path / "tiny-llama")
    settings = {"num_blocks": 1024, "threads": 1, "max_num_seqs": 2}
    with serving(lambda: LLMEngine(model=str(folder), **settings)) as server:  # type: ignore[arg-type]
        assert server.http.get("/get_load").json() == [
            {"dp_rank": 0, "num_reqs": 0, "num_waiting_reqs": 0, "num_tokens": 0}
        ]
        body = {"prompt": "abc", "n": 6, "max_tokens": 1000, "ignore_eos": True, "stream": True}
        with server.http.stream("POST", "/v1/completions", json=body) as answer:
            lines = answer.iter_lines()  # kept: the answer is closed with it
            next(lines)
            for _ in range(200):  # the second of six runs once the first has computed the prompt
                [load] = server.http.get("/get_load").json()
                if load["num_waiting_reqs"] == 4:
                    break
    assert load["num_reqs"] == 6
    assert load["num_waiting_reqs"] == 4
    assert load["num_tokens"] > 0


@pytest.mark.parametrize("path", ["/reset_prefix_cache", "/flush_cache"])
def test_the_prefix_cache_is_forgotten(live: LiveServer, path: str) -> None:
    body = {"prompt": f"{path} is a prompt of more than one block " * 4, "max_tokens": 1}

    def cached() -> int:
        usage = live.http.post("/v1/completions", json=body).json()["usage"]
        count: int = usage["prompt_tokens_details"]["cached_tokens"]
        return count

    cached()
    assert cached() > 0
    assert live.http.post(path).json()["freed_blocks"] > 0
    assert cached() == 0
    assert live.http.get(path).status_code == 405
