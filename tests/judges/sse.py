"""Many requests at once, and the answers as plain JSON: no client between the test and the wire."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import httpx

Json = dict[str, Any]
AT_ONCE = 128


def ask_all(url: str, requests: Sequence[tuple[str, Json]]) -> list[list[Json]]:
    """POST each body to its path; a whole answer is a list of one, a streamed one its events.

    A stream must end with [DONE], and every answer must be a success.
    """

    async def ask(
        http: httpx.AsyncClient, gate: asyncio.Semaphore, path: str, body: Json
    ) -> list[Json]:
        async with gate:
            answer = await http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        if not body.get("stream"):
            return [answer.json()]
        *events, done, rest = answer.text.split("\n\n")
        assert (done, rest) == ("data: [DONE]", "")
        assert all(event.startswith("data: ") for event in events)
        return [json.loads(event.removeprefix("data: ")) for event in events]

    async def all_of_them() -> list[list[Json]]:
        gate = asyncio.Semaphore(AT_ONCE)
        # Never dropped here: httpcore may drop an idle connection that it has just given to a request.
        limits = httpx.Limits(max_connections=AT_ONCE, keepalive_expiry=None)
        async with httpx.AsyncClient(
            base_url=url, timeout=120, limits=limits, trust_env=False
        ) as http:
            return await asyncio.gather(*(ask(http, gate, *request) for request in requests))

    return asyncio.run(all_of_them())
