"""A proxy between an agent and the server: it has the first turns call a tool, and keeps what passes.

A small model would call none by itself. `tool_choice` makes it, with arguments that the tool's schema
leaves no choice of, so that the agent gets a real call, runs it, and sends the result back as history.
The turns behind are as the agent asked for them. Codex sets no limit, and takes an answer that is cut
for an error, so a schema keeps its last answer short.
"""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

Json = dict[str, Any]

SHORT = {"type": "json_schema", "name": "answer", "schema": {"type": "string", "maxLength": 60}}
HOP_BY_HOP = {"host", "content-length", "transfer-encoding", "connection", "accept-encoding"}


@dataclass
class Passed:
    """One request and its answer. ignored: the header of that name."""

    path: str
    body: Json
    status: int = 0
    ignored: str = ""
    answer: str = ""


@dataclass
class Between:
    """url: of the server. calls: tools, of which the first that a request has is demanded, with these
    arguments; turns: in so many requests. passed: all that came."""

    url: str
    calls: Mapping[str, Mapping[str, Any]]
    turns: int
    passed: list[Passed] = field(default_factory=list)

    def app(self) -> Starlette:
        route = Route("/{path:path}", self._pass_on, methods=["GET", "POST", "HEAD"])
        return Starlette(routes=[route])

    def told(self) -> list[Json]:
        return [asdict(one) for one in self.passed]

    async def _pass_on(self, request: Request) -> StreamingResponse:
        content = await request.body()
        one = Passed(request.url.path, {})
        if request.method == "POST":
            one.body = json.loads(content)
            self._demand(one)
            content = json.dumps(one.body).encode()
            self.passed.append(one)
        headers = {name: value for name, value in request.headers.items() if name not in HOP_BY_HOP}
        client = httpx.AsyncClient(timeout=600)
        url = f"{self.url}{request.url.path}"
        asked = client.build_request(
            request.method, url, params=request.query_params, headers=headers, content=content
        )
        answer = await client.send(asked, stream=True)
        one.status, one.ignored = answer.status_code, answer.headers.get("x-yaie-ignored", "")

        async def pieces() -> AsyncIterator[bytes]:
            async for piece in answer.aiter_raw():
                one.answer += piece.decode("utf-8", "replace")
                yield piece
            await client.aclose()

        kept = {name: value for name, value in answer.headers.items() if name not in HOP_BY_HOP}
        return StreamingResponse(pieces(), answer.status_code, kept)

    def _demand(self, one: Passed) -> None:
        """Of a request with tools, if turns are left."""
        tools = {
            _function(tool).get("name"): _function(tool) for tool in one.body.get("tools") or ()
        }
        wanted = next((name for name in self.calls if name in tools), None)
        if wanted is None:
            return
        if self.turns == 0:
            if one.path == "/v1/responses":
                one.body |= {"text": {"format": SHORT}, "tool_choice": "none"}
            return
        self.turns -= 1
        arguments = {name: {"const": value} for name, value in self.calls[wanted].items()}
        schema = "input_schema" if one.path == "/v1/messages" else "parameters"
        tools[wanted][schema] = {
            "type": "object", "properties": arguments, "required": list(arguments),
            "additionalProperties": False,
        }  # fmt: skip
        one.body["tool_choice"] = {
            "/v1/messages": {"type": "tool", "name": wanted},
            "/v1/responses": {"type": "function", "name": wanted},
        }.get(one.path, {"type": "function", "function": {"name": wanted}})


def _function(tool: Json) -> Json:
    """What says name and arguments of a tool."""
    function: Json = tool.get("function", tool)
    return function
