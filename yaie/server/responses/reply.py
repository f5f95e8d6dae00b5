"""A chat completion told as a response: whole, or in the typed events of a stream.

It wraps the reply of a chat completion, the reference's or a learner's, and reads what that makes of
the engine's outputs. So tool calls, log-probabilities and constraints are told the same on both ways.
A whole answer is what the last event of its stream would hold.
"""

import json
import time
from collections.abc import Iterator, Sequence
from functools import cached_property

from yaie.core.contracts import Reply
from yaie.core.output import RequestOutput, Submitted
from yaie.server.responses.items import (
    Json,
    OpenCall,
    OpenItem,
    OpenMessage,
    OpenReasoning,
    new_id,
)
from yaie.server.responses.schemas import ResponsesRequest

ECHOED = {
    "instructions", "max_output_tokens", "user", "safety_identifier", "prompt_cache_key",
}  # fmt: skip
_dumps = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


class ResponseReply:
    """One answer to one call of `/v1/responses`. See `yaie.core.contracts.Reply`."""

    include_usage = False
    """The last event holds the usage anyway."""

    def __init__(self, chat: Reply, body: ResponsesRequest, model: str) -> None:
        """chat: the reply of the chat completion with the same prompt."""
        self.id = new_id("resp_")
        self.requests: Sequence[Submitted] = chat.requests
        self._chat = chat
        self._body = body
        self._model = model
        self._created = int(time.time())
        self._num_events = 0
        self._done: list[Json] = []
        self._open: OpenItem | None = None
        self._num_calls = 0
        self._unplaced: list[Json] = []

    def add(self, output: RequestOutput) -> None:
        """Take over an output. Raises YaieError if its request failed."""
        self._chat.add(output)

    def result(self) -> Json:
        """The whole response, once its request has finished."""
        choice = self._chat.result()["choices"][0]
        *_, last = self._piece({**choice, "delta": choice["message"]})
        response: Json = last["response"]
        return response

    def chunks(self, output: RequestOutput) -> Iterator[Json]:
        """The events that an output makes, numbered. Raises YaieError if the request failed."""
        for chunk in self._chat.chunks(output):
            if self._num_events == 0:
                response = self._response("in_progress")
                yield self._numbered({"type": "response.created", "response": response})
                yield self._numbered({"type": "response.in_progress", "response": response})
            for event in self._piece(chunk["choices"][0]):
                yield self._numbered(event)

    def usage(self) -> Json:
        """Token counts as a chat completion has them."""
        return self._chat.usage()

    def usage_chunk(self) -> Json:
        """Not sent: see `include_usage`."""
        return self._chat.usage_chunk()

    def failure(self, error: Json) -> Iterator[Json]:
        """The last events of a stream that failed. error: the error object as elsewhere."""
        yield self._numbered({**error, "type": "error"})
        response = self._response("failed")
        # The codes of this object are OpenAI's own few; clients try again after the first.
        code = "invalid_prompt" if error["type"] == "invalid_request_error" else "server_error"
        response["error"] = {"code": code, "message": error["message"]}
        yield self._numbered({"type": "response.failed", "response": response})

    def _numbered(self, event: Json) -> Json:
        event["sequence_number"] = self._num_events
        self._num_events += 1
        return event

    def _piece(self, choice: Json) -> Iterator[Json]:
        """The events of a piece of a streamed choice, or of all of it."""
        delta, logprobs = choice["delta"], self._unplaced + _logprobs(choice)
        if thought := delta.get("reasoning_content"):
            if not isinstance(self._open, OpenReasoning):
                yield from self._next(OpenReasoning(len(self._done) + (self._open is not None)))
            yield from self._grow(thought, [])
        # An item of reasoning has no place for log-probabilities: the message after it has them.
        self._unplaced = logprobs
        if delta.get("content") or (logprobs and not isinstance(self._open, OpenReasoning)):
            self._unplaced = []
            if not isinstance(self._open, OpenMessage):
                yield from self._next(OpenMessage(len(self._done) + (self._open is not None)))
            yield from self._grow(delta.get("content") or "", logprobs)
        for position, call in enumerate(delta.get("tool_calls") or ()):
            yield from self._call(call, call.get("index", position))
        if choice["finish_reason"] is not None:
            yield from self._end(choice["finish_reason"])

    def _call(self, call: Json, index: int) -> Iterator[Json]:
        if index == self._num_calls:
            self._num_calls += 1
            place = len(self._done) + (self._open is not None)
            yield from self._next(OpenCall(place, call["id"], call["function"]["name"]))
        yield from self._grow(call["function"].get("arguments") or "", [])

    def _grow(self, text: str, logprobs: list[Json]) -> Iterator[Json]:
        assert self._open is not None
        yield from self._open.more(text, logprobs)

    def _next(self, item: OpenItem) -> Iterator[Json]:
        yield from self._close("completed")
        self._open = item
        yield from item.begin()

    def _close(self, status: str) -> Iterator[Json]:
        if self._open is not None:
            yield from self._open.end(status)
            self._done.append(self._open.item(status))
            self._open = None

    def _end(self, finish_reason: str) -> Iterator[Json]:
        status = "incomplete" if finish_reason == "length" else "completed"
        if self._open is None and not self._done:
            yield from self._next(OpenMessage(0))
        yield from self._close(status)
        response = self._response(status)
        response["usage"] = _usage(self.usage())
        yield {"type": f"response.{status}", "response": response}

    def encoded(self, event: Json) -> str:
        """An event as JSON. What its response repeats of the request is written once for all events."""
        if "response" not in event:
            return _dumps(event)
        own = {name: value for name, value in event["response"].items() if name not in self._echo}
        rest = {name: value for name, value in event.items() if name != "response"}
        return f'{_dumps(rest)[:-1]},"response":{_dumps(own)[:-1]},{self._echo_json}}}}}'

    @cached_property
    def _echo(self) -> Json:
        """What the response repeats of its request, of any size."""
        body = self._body
        choice, wanted = body.tool_choice, body.text.format if body.text else None
        return {
            **body.model_dump(include=ECHOED),
            "metadata": body.metadata or {},
            "text": {"format": {"type": "text"} if wanted is None else wanted.model_dump()},
            "tools": [tool.model_dump() for tool in body.tools or ()],
            "tool_choice": choice or "auto"
            if choice is None or isinstance(choice, str)
            else choice.model_dump(),
        }

    @cached_property
    def _echo_json(self) -> str:
        """Its fields as they stand in an object."""
        return _dumps(self._echo)[1:-1]

    def _response(self, status: str) -> Json:
        body, params = self._body, self.requests[0].params
        return {
            "id": self.id,
            "object": "response",
            "created_at": self._created,
            "completed_at": int(time.time()) if status == "completed" else None,
            "status": status,
            "model": self._model,
            "output": list(self._done),
            "usage": None,
            "error": None,
            "incomplete_details": (
                {"reason": "max_output_tokens"} if status == "incomplete" else None
            ),
            "temperature": params.temperature,
            "top_p": params.top_p,
            "top_logprobs": body.top_logprobs or 0,
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            **self._echo,
            "background": False,
            "previous_response_id": None,
            "reasoning": {"effort": body.reasoning and body.reasoning.effort, "summary": None},
            "service_tier": "default",
            "store": False,
            "truncation": "disabled",
        }


def _logprobs(choice: Json) -> list[Json]:
    """Log-probabilities of a choice, or of a piece of one; empty if they were not asked for."""
    return [
        {**_logprob(entry), "top_logprobs": [_logprob(top) for top in entry["top_logprobs"]]}
        for entry in (choice["logprobs"] or {}).get("content") or ()
    ]


def _logprob(entry: Json) -> Json:
    return {"token": entry["token"], "logprob": entry["logprob"], "bytes": entry["bytes"] or []}


def _usage(chat: Json) -> Json:
    """Every prefix is cached without being asked for, so nothing counts as written on request."""
    cached = chat["prompt_tokens_details"]["cached_tokens"]
    details = chat.get("completion_tokens_details") or {}
    return {
        "input_tokens": chat["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": chat["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": details.get("reasoning_tokens", 0)},
        "total_tokens": chat["total_tokens"],
    }
