"""What a chat says, told as a response: whole, or in the typed events of a stream."""

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, ClassVar

from yaie.core.output import RequestOutput
from yaie.server.dialects.custom_input import InputReader
from yaie.server.dialects.events import EventReply, Json, OpenPart
from yaie.server.dialects.responses_body import ResponsesRequest
from yaie.server.dialects.responses_input import Status
from yaie.server.extras.reply import ExtendedReply, Told
from yaie.server.tools.events import Arguments, Call, Content, End, Reasoning

ECHOED = {
    "instructions", "max_output_tokens", "user", "safety_identifier", "prompt_cache_key",
}  # fmt: skip
_dumps = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def new_id(prefix: str) -> str:
    """An identifier that no other answer has."""
    return prefix + uuid.uuid4().hex


class OpenItem(OpenPart):
    """An item of a response's output. It knows its events, all but their numbers."""

    prefix: ClassVar[str]
    ends_as: Status = "completed"

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.id = new_id(self.prefix)
        self.status: Status = "in_progress"

    def begin(self) -> Iterator[Json]:
        yield self._event("added")

    def end(self) -> Iterator[Json]:
        self.status = self.ends_as
        yield self._event("done")

    def _event(self, what: str) -> Json:
        type_ = f"response.output_item.{what}"
        return {"type": type_, "output_index": self._index, "item": self.whole()}

    def _within(self, type: str, **fields: Any) -> Json:
        where = {"item_id": self.id, "output_index": self._index}
        return {"type": f"response.{type}", **where, **fields}


class OpenMessage(OpenItem):
    """What the model says: one part of text."""

    prefix = "msg_"

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self._logprobs: list[Json] = []

    def whole(self) -> Json:
        content = [] if self.status == "in_progress" else [self._part()]
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "status": self.status,
            "content": content,
        }

    def begin(self) -> Iterator[Json]:
        yield from super().begin()
        yield self._within("content_part.added", content_index=0, part=self._part())

    def more(self, text: str, logprobs: Sequence[Json] = ()) -> Iterator[Json]:
        self._texts.append(text)
        self._logprobs += logprobs
        piece = {"content_index": 0, "delta": text, "logprobs": list(logprobs)}
        yield self._within("output_text.delta", **piece)

    def end(self) -> Iterator[Json]:
        said = {"content_index": 0, "text": self.text, "logprobs": list(self._logprobs)}
        yield self._within("output_text.done", **said)
        yield self._within("content_part.done", content_index=0, part=self._part())
        yield from super().end()

    def _part(self) -> Json:
        return {
            "type": "output_text",
            "text": self.text,
            "annotations": [],
            "logprobs": list(self._logprobs),
        }


class OpenReasoning(OpenItem):
    """What the model thinks before it answers."""

    prefix = "rs_"

    def whole(self) -> Json:
        content = [] if self.status == "in_progress" else [self._part()]
        return {
            "id": self.id,
            "type": "reasoning",
            "summary": [],
            "content": content,
            "status": self.status,
        }

    def begin(self) -> Iterator[Json]:
        yield from super().begin()
        yield self._within("content_part.added", content_index=0, part=self._part())

    def more(self, text: str) -> Iterator[Json]:
        self._texts.append(text)
        yield self._within("reasoning_text.delta", content_index=0, delta=text)

    def end(self) -> Iterator[Json]:
        yield self._within("reasoning_text.done", content_index=0, text=self.text)
        yield self._within("content_part.done", content_index=0, part=self._part())
        yield from super().end()

    def _part(self) -> Json:
        return {"type": "reasoning_text", "text": self.text}


class OpenCall(OpenItem):
    """A function that the model asks the client to call."""

    prefix = "fc_"
    kind = "function_call"

    def __init__(self, index: int, call_id: str, name: str, namespace: str | None) -> None:
        super().__init__(index)
        self._call_id = call_id
        self._name = name
        self._namespace = {"namespace": namespace} if namespace else {}

    def whole(self) -> Json:
        return {
            "id": self.id,
            "type": self.kind,
            "call_id": self._call_id,
            "name": self._name,
            **self._namespace,
            **self._asked(),
            "status": self.status,
        }

    def more(self, text: str) -> Iterator[Json]:
        if text:
            self._texts.append(text)
            yield self._within("function_call_arguments.delta", delta=text)

    def end(self) -> Iterator[Json]:
        call = {"name": self._name, **self._asked()}
        yield self._within("function_call_arguments.done", **call)
        yield from super().end()

    def _asked(self) -> Json:
        """With what it is to be called."""
        return {"arguments": self.text}


class OpenCustomCall(OpenCall):
    """A custom tool that the model asks the client to call. Its input comes as the one argument."""

    prefix = "ctc_"
    kind = "custom_tool_call"

    def __init__(self, index: int, call_id: str, name: str, namespace: str | None) -> None:
        super().__init__(index, call_id, name, namespace)
        self._reader = InputReader()

    def more(self, text: str) -> Iterator[Json]:
        yield from self._more_input(self._reader.push(text))

    def end(self) -> Iterator[Json]:
        yield from self._more_input(self._reader.end())
        yield self._within("custom_tool_call_input.done", **self._asked())
        yield from OpenItem.end(self)

    def _more_input(self, text: str) -> Iterator[Json]:
        if text:
            self._texts.append(text)
            yield self._within("custom_tool_call_input.delta", delta=text)

    def _asked(self) -> Json:
        return {"input": self.text}


class ResponseReply(EventReply):
    """One answer to one call of `/v1/responses`."""

    def __init__(self, chat: ExtendedReply, body: ResponsesRequest, model: str) -> None:
        super().__init__(new_id("resp_"), chat)
        self._body = body
        self._model = model
        self._created = int(time.time())
        self._callees = body.callees
        self._num_events = 0
        self._unplaced: list[Json] = []
        self._last: Json = {}

    def chunks(self, output: RequestOutput) -> Iterator[Json]:
        """The events that an output makes, numbered. Raises YaieError if the request failed."""
        yield from map(self._numbered, super().chunks(output))

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

    def _begin(self) -> Iterator[Json]:
        response = self._response("in_progress")
        yield {"type": "response.created", "response": response}
        yield {"type": "response.in_progress", "response": response}

    def _piece(self, told: Told) -> Iterator[Json]:
        piece = told.piece
        self._unplaced += [_logprobs(entry) for entry in told.logprobs]
        match piece:
            case Reasoning(text):
                if not isinstance(self._open, OpenReasoning):
                    yield from self._next(OpenReasoning(self._place))
                yield from self._grow(text)
            case Content(text):
                yield from self._say(text)
            case Call(_, name, call_id):
                yield from self._next(self._called(name, call_id))
            case Arguments(_, text):
                yield from self._grow(text)
            case End(finish_reason):
                yield from self._say("")
                yield from self._end("incomplete" if finish_reason == "length" else "completed")

    def _called(self, name: str, call_id: str) -> OpenCall:
        callee = self._callees[name]
        kind = OpenCustomCall if callee.is_custom else OpenCall
        return kind(self._place, call_id, callee.name, callee.namespace)

    def _say(self, text: str) -> Iterator[Json]:
        """More of the message's text. It has the log-probabilities of what came before it, too: items of
        reasoning and calls have no place for them."""
        is_thinking = isinstance(self._open, OpenReasoning)
        if not text and (is_thinking or not self._unplaced):
            return
        if not isinstance(self._open, OpenMessage):
            yield from self._next(OpenMessage(self._place))
        assert isinstance(self._open, OpenMessage)
        logprobs, self._unplaced = self._unplaced, []
        yield from self._open.more(text, logprobs)

    def _end(self, status: Status) -> Iterator[Json]:
        if self._open is None and not self._done:
            yield from self._next(OpenMessage(0))
        if isinstance(self._open, OpenItem):
            self._open.ends_as = status
        yield from self._close()
        self._last = self._response(status)
        self._last["usage"] = _usage(self.usage())
        yield {"type": f"response.{status}", "response": self._last}

    def _answer(self) -> Json:
        return self._last

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
        choice: Any = body.tool_choice
        tools: list[Any] = body.tools or []
        wanted = body.text.format if body.text else None
        return {
            **body.model_dump(include=ECHOED),
            "metadata": body.metadata or {},
            "text": {"format": {"type": "text"} if wanted is None else wanted.model_dump()},
            "tools": [tool.model_dump() for tool in tools],
            "tool_choice": choice or "auto"
            if choice is None or isinstance(choice, str)
            else choice.model_dump(exclude_none=True),
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


def _logprobs(entry: Json) -> Json:
    """The entry of a token in a chat completion as one of a response."""
    return {**_logprob(entry), "top_logprobs": [_logprob(top) for top in entry["top_logprobs"]]}


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
