"""Writes the body of a whole answer, a large one beside the event loop. Given.

An answer of a million log-probabilities has 80 MB. Made and written on the event loop, it would keep
every other client waiting for seconds.
"""

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from yaie.core.contracts import Reply
from yaie.system.json_slices import tidy_up, written

LARGE = 1 << 13
"""Tokens and log-probabilities: with so many, an answer takes some 20 ms to write."""


async def json_response(reply: Reply) -> Response:
    """The response with `reply.result()` as JSON."""
    if _size(reply) < LARGE:
        return JSONResponse(reply.result())
    # Extended replies (`ModelService.extend`) then leave long lists to be made as they are written.
    make = getattr(reply, "result_in_rows", reply.result)
    return LargeJson(await written(make))


def _size(reply: Reply) -> int:
    params = reply.requests[0].params
    prompts = sum(request.num_prompt_tokens for request in reply.requests)
    told = [count for count in (params.logprobs, params.prompt_logprobs) if count is not None]
    told += [len(params.logprob_token_ids)] * bool(params.logprob_token_ids)
    width = 1 + max(told, default=-1) + 1
    size: int = (prompts + reply.usage()["completion_tokens"]) * width
    return size


class LargeJson(Response):
    """Sends a body in parts, each when the client has taken most of what came before."""

    media_type = "application/json"

    def __init__(self, parts: list[bytes]) -> None:
        self.status_code = 200
        self.background = None
        self.body = b""
        self._parts = parts[::-1]
        self.init_headers({"Content-Length": str(sum(map(len, parts)))})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        try:
            while self._parts:
                part = self._parts.pop()
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._parts.clear()
            tidy_up()
