"""Pieces by choice from the first one on, counts that are added up when asked, chunks as a list."""

import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from yaie.core.output import RequestOutput, Submitted

Json = dict[str, Any]


class Reply:
    id_prefix: ClassVar[str]
    whole_object: ClassVar[str]
    chunk_object: ClassVar[str]

    def __init__(
        self, model: str, requests: Sequence[Submitted], *, include_usage: bool = False
    ) -> None:
        self.id = self.id_prefix + uuid.uuid4().hex
        self.model = model
        self.requests = requests
        self.include_usage = include_usage
        self._created = int(time.time())
        self._places = {request.request_id: place for place, request in enumerate(requests)}
        self._pieces: dict[int, list[str]] = {}
        self._opened: set[str] = set()
        self._last: dict[int, RequestOutput] = {}

    def _taken(self, output: RequestOutput) -> int:
        raise_if_failed(output)
        place = self._places[output.request_id]
        self._last[place] = output
        return place

    def add(self, output: RequestOutput) -> None:
        place = self._taken(output)
        self._pieces.setdefault(place, []).append(output.text)

    def result(self) -> Json:
        answer = self._head(self.whole_object)
        answer["choices"] = [
            self._choice(place, "".join(self._pieces[place]), self._last[place])
            for place in range(len(self.requests))
        ]
        answer["usage"] = self.usage()
        return answer

    def usage(self) -> Json:
        prompts = cached = made = 0
        for place, request in enumerate(self.requests):
            last = self._last.get(place)
            made += last.num_output_tokens if last else 0
            if place % request.params.n == 0:
                prompts += request.num_prompt_tokens
                cached += last.num_cached_tokens if last else 0
        return {
            "prompt_tokens": prompts,
            "completion_tokens": made,
            "total_tokens": prompts + made,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    def chunks(self, output: RequestOutput) -> Iterator[Json]:
        place = self._taken(output)
        found: list[Json | None] = []
        if output.request_id not in self._opened:
            self._opened.add(output.request_id)
            found.append(self._opening(place))
        if output.text != "":
            found.append(self._piece(place, output.text))
        if output.finish_reason:
            reason = output.finish_reason.value
            end = self._piece(place, "") | {"finish_reason": reason}
            found.append(end | {"stop_reason": output.stop_reason})
        return iter([self._chunk([choice]) for choice in found if choice is not None])

    def usage_chunk(self) -> Json:
        return self._chunk([]) | {"usage": self.usage()}

    def _chunk(self, choices: list[Json]) -> Json:
        chunk = self._head(self.chunk_object) | {"choices": choices}
        return chunk | {"usage": None} if self.include_usage else chunk

    def _head(self, name: str) -> Json:
        return {"id": self.id, "object": name, "created": self._created, "model": self.model}

    def _choice(self, index: int, text: str, last: RequestOutput) -> Json:
        raise NotImplementedError

    def _opening(self, index: int) -> Json | None:
        raise NotImplementedError

    def _piece(self, index: int, text: str) -> Json:
        raise NotImplementedError


class ChatReply(Reply):
    id_prefix = "chatcmpl-"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def _choice(self, index: int, text: str, last: RequestOutput) -> Json:
        choice: Json = {"index": index}
        choice["message"] = {"role": "assistant", "content": text, "refusal": None}
        choice.update(ending(last))
        return choice

    def _opening(self, index: int) -> Json | None:
        return self._piece(index, "") | {"delta": {"role": "assistant", "content": ""}}

    def _piece(self, index: int, text: str) -> Json:
        piece = _piece_of(index)
        piece["delta"] = {"content": text} if text else {}
        return piece


class TextReply(Reply):
    id_prefix = "cmpl-"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def _choice(self, index: int, text: str, last: RequestOutput) -> Json:
        return {"index": index, "text": text} | ending(last)

    def _opening(self, index: int) -> Json | None:
        return None

    def _piece(self, index: int, text: str) -> Json:
        return _piece_of(index) | {"text": text}


def _piece_of(index: int) -> Json:
    return {"index": index, "logprobs": None, "finish_reason": None}


def ending(last: RequestOutput) -> Json:
    reason = last.finish_reason
    why = reason.value if reason else None
    return {"logprobs": None, "finish_reason": why, "stop_reason": last.stop_reason}


def raise_if_failed(output: RequestOutput) -> None:
    error = output.exception
    if error:
        raise error
