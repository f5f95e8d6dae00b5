"""A proxy between an agent and the server: it has the first turns call a tool, and keeps what passes.

A small model would call none by itself. `tool_choice` makes it, so that the agent gets a real call, runs
it, and sends the result back as history; the turns behind are as the agent asked for them.
"""

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

Json = dict[str, Any]

LONGEST = 600
"""Tokens of an answer on responses, where Codex sets no limit: a model that says nonsense may go on."""
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
    """url: of the server. tools: names, of which the first that a request has is demanded; turns: in so
    many requests. passed: all that came."""

    url: str
    tools: Sequence[str]
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
            if one.path == "/v1/responses":
                one.body["max_output_tokens"] = LONGEST
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
        names = [_name(tool) for tool in one.body.get("tools") or ()]
        wanted = next((name for name in self.tools if name in names), None)
        if wanted is None or self.turns == 0:
            return
        self.turns -= 1
        one.body["tool_choice"] = {
            "/v1/messages": {"type": "tool", "name": wanted},
            "/v1/responses": {"type": "function", "name": wanted},
        }.get(one.path, {"type": "function", "function": {"name": wanted}})


def _name(tool: Json) -> str | None:
    return tool.get("name") or tool.get("function", {}).get("name")
