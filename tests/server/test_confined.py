"""Nothing in a request makes the server open a file, ask another host, or run what a client wrote."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.conftest import LiveServer
from yaie.server.lenient.notes import IGNORED

HOST = "somewhere.invalid"
MARK = "the bait's own words"


class Watch:
    """What the process does meanwhile, of the kinds that matter. An audit hook cannot be taken off."""

    def __init__(self) -> None:
        self.is_on = False
        self.seen: list[tuple[str, str]] = []
        sys.addaudithook(self._note)

    def _note(self, event: str, args: tuple[Any, ...]) -> None:
        if self.is_on and event in WATCHED:
            self.seen.append((event, repr(args[:2])))


WATCHED = {
    "open", "os.listdir", "os.scandir", "os.system", "os.exec", "subprocess.Popen", "exec", "compile",
    "socket.getaddrinfo", "socket.gethostbyname", "urllib.Request",
}  # fmt: skip


@pytest.fixture(scope="module")
def watch(live: LiveServer) -> Iterator[Watch]:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    answer = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    json_schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": answer}}
    for wanted in (
        {"type": "json_object"},
        json_schema,
    ):  # loads what is loaded late, lab 21's part too
        asked = {**body, "response_format": wanted}
        assert live.http.post("/v1/chat/completions", json=asked).is_success
    watch = Watch()
    yield watch
    watch.is_on = False


@pytest.fixture
def bait(tmp_path: Path) -> Path:
    path = tmp_path / "bait.json"
    path.write_text(json.dumps({"type": "string", "const": MARK}), encoding="utf-8")
    return path


def schema(reference: str) -> dict[str, Any]:
    json_schema = {
        "name": "x",
        "schema": {"type": "object", "properties": {"a": {"$ref": reference}}},
    }
    return {"response_format": {"type": "json_schema", "json_schema": json_schema}}


def part(kind: str, url: str) -> dict[str, Any]:
    value: Any = {"url": url} if kind == "image_url" else url
    return {"messages": [{"role": "user", "content": [{"type": kind, kind: value}]}]}


CHAT: dict[str, dict[str, Any]] = {
    "schema of a file": schema("file://BAIT"),
    "schema of a path": schema("BAIT"),
    "schema of a host": schema(f"http://{HOST}/x.json"),
    "picture of a file": part("image_url", "file://BAIT"),
    "picture of a host": part("image_url", f"https://{HOST}/x.png"),
    "sound": part("input_audio", "BAIT"),
    "file": part("file", "BAIT"),
    "template": {"chat_template": "{{ ''.__class__.__mro__ }}"},
    "documents": {"documents": [{"title": "x", "path": "BAIT"}]},
    "adapter": {"lora_path": "BAIT"},
    "another model": {"model": "BAIT"},
    "tools": {"tools": [{"type": "function", "function": {
        "name": "f", "parameters": {"$ref": "file://BAIT"}}}], "tool_choice": "required"},
}  # fmt: skip
HARMLESS: dict[str, dict[str, Any]] = {
    "variables of the template": {"chat_template_kwargs": {"x": "{% include 'BAIT' %}"}},
    "a template's text": {
        "messages": [{"role": "user", "content": "{{ ''.__class__ }}{% raise %}"}]
    },
    "a name that is code": {"messages": [{"role": "user", "content": "x", "name": "{{ 7 * 7 }}"}]},
    "labels": {"user": "file://BAIT", "metadata": {"x": f"http://{HOST}"}},
}


def ask(live: LiveServer, watch: Watch, path: str, body: dict[str, Any], bait: Path) -> Any:
    """Send it with BAIT for the path of the file. Nothing may have been touched or told."""
    text = json.dumps(body).replace("BAIT", str(bait))
    headers = {"Content-Type": "application/json"}
    watch.seen.clear()
    watch.is_on = True
    try:
        answer = live.http.post(path, content=text, headers=headers)
    finally:
        watch.is_on = False
    touched = [what for what in watch.seen if "bait" in what[1] or HOST in what[1]]
    assert touched == []
    assert not [what for what in watch.seen if what[0] not in ("open", "compile", "exec")]
    assert MARK not in answer.text
    return answer


@pytest.mark.parametrize("name", CHAT)
def test_what_names_a_file_a_host_or_code_is_refused(
    live: LiveServer, watch: Watch, bait: Path, name: str
) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, **CHAT[name]}
    answer = ask(live, watch, "/v1/chat/completions", body, bait)
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["param"]


@pytest.mark.parametrize("name", HARMLESS)
def test_what_only_looks_like_it_is_text(
    live: LiveServer, watch: Watch, bait: Path, name: str
) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, **HARMLESS[name]}
    assert ask(live, watch, "/v1/chat/completions", body, bait).status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "x", "prompt_embeds": "BAIT"}),
        ("/v1/responses", {"input": "x", "previous_response_id": "BAIT"}),
        ("/v1/responses", {"input": "x", "prompt": {"id": "BAIT"}}),
        ("/v1/responses", {"input": [{"role": "user", "content": [
            {"type": "input_image", "image_url": f"http://{HOST}/x.png"}]}]}),
        ("/tokenize", part("image_url", "file://BAIT")),
        ("/tokenize", {"prompt": "x", "model": "BAIT"}),
    ],
)  # fmt: skip
def test_other_endpoints_refuse_it_too(
    live: LiveServer, watch: Watch, bait: Path, path: str, body: dict[str, Any]
) -> None:
    assert ask(live, watch, path, body, bait).status_code in (400, 404)


def test_a_tool_that_a_server_elsewhere_has_is_left_out(
    live: LiveServer, watch: Watch, bait: Path
) -> None:
    tool = {"type": "mcp", "server_label": "x", "server_url": f"http://{HOST}"}
    body = {"input": "x", "tools": [tool], "max_output_tokens": 1}
    answer = ask(live, watch, "/v1/responses", body, bait)
    assert (answer.status_code, answer.headers[IGNORED]) == (200, "tools[].mcp")


def test_a_path_in_an_address_is_no_file(live: LiveServer) -> None:
    for path in (
        "/v1/models/../../../etc/passwd",
        "/v1/models/%2Fetc%2Fpasswd",
        "/..%2f..%2fetc/passwd",
    ):
        answer = live.http.get(path)
        assert answer.status_code == 404
        assert "root:" not in answer.text


def test_the_watch_sees_what_it_is_there_for(watch: Watch, bait: Path) -> None:
    watch.seen.clear()
    watch.is_on = True
    bait.read_text(encoding="utf-8")
    watch.is_on = False
    assert any("bait" in what for _, what in watch.seen)
