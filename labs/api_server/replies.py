# Lab 8, your part (edition 2): tasks 8.2, 8.3. The rest is given.
"""Answers in OpenAI's shape, as plain dicts.

`LLMEngine.chat_completion`, `yaie generate` and the endpoints all build their answers here. A `Reply` is
fed the outputs of the requests of one call, in the order in which the engine gives them: `add` and
`result` make one whole answer, `chunks` and `usage_chunk` make a streamed one. It sees no request of the
engine, only what was submitted and what the outputs say.
"""

import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from yaie.core.output import RequestOutput, Submitted

Json = dict[str, Any]


# ANCHOR: given
class Reply:
    """One answer to one call. Choices are numbered as `requests` are: by prompt, then by `n`.

    Only the shape of a choice differs between a conversation and a text: `ChatReply` and `TextReply`
    fill that in.
    """

    id_prefix: ClassVar[str]
    whole_object: ClassVar[str]
    chunk_object: ClassVar[str]

    def __init__(
        self, model: str, requests: Sequence[Submitted], *, include_usage: bool = False
    ) -> None:
        """`include_usage`: a usage chunk will follow, which the other chunks announce with null."""
        self.id = self.id_prefix + uuid.uuid4().hex
        self.model = model
        self.requests = requests
        self.include_usage = include_usage
        self._created = int(time.time())
        self._index = {request.request_id: index for index, request in enumerate(requests)}
        # Of each choice: its texts so far, whether its stream has begun, and its newest output, which
        # has the counts so far. Before the first output that is an empty one.
        self._texts: list[list[str]] = [[] for _ in requests]
        self._begun = [False] * len(requests)
        self._newest = [RequestOutput(request.request_id, "", []) for request in requests]

    # ANCHOR_END: given

    # ANCHOR: whole
    def add(self, output: RequestOutput) -> None:
        """Take over an output: its text, and what it counts. Raises YaieError if its request failed
        (`raise_if_failed`)."""
        # TODO 8.2: your code here (the reference: 4 lines).
        raise NotImplementedError(
            "api_server task 8.2: not implemented yet; see chapter The HTTP API"
        )

    def result(self) -> Json:
        """The whole answer, once every request has finished.

        `_head` of `whole_object`, then "choices", one for each request in order, each with the text of
        all its outputs, and "usage".
        """
        # TODO 8.2: your code here (the reference: 5 lines).
        raise NotImplementedError(
            "api_server task 8.2: not implemented yet; see chapter The HTTP API"
        )

    def usage(self) -> Json:
        """Token counts of the call, as far as its outputs have come: "prompt_tokens",
        "completion_tokens", "total_tokens" (their sum), and "prompt_tokens_details" with
        "cached_tokens", which are part of the prompt's.

        `params.n` of each request says how many siblings share its prompt: it counts once, with what
        the first of them found cached. Its length is the `Submitted`'s and counts before any output.
        Outputs count each. What an output counts are totals of its request; a choice without an output
        counts 0, cached tokens included.
        """
        # TODO 8.2: your code here (the reference: 10 lines).
        raise NotImplementedError(
            "api_server task 8.2: not implemented yet; see chapter The HTTP API"
        )

    # ANCHOR_END: whole

    # ANCHOR: chunks
    def chunks(self, output: RequestOutput) -> Iterator[Json]:
        """The chunks that an output makes, in this order and each with one choice:

        - in front of a choice's first output, its `_opening` if it has one (chat names the role there);
        - the output's text as a `_piece`, unless it is "": text may be held back;
        - after the last output a `_piece` without text, whose "finish_reason" is the reason's value
          and which has the output's "stop_reason" too. In every other chunk the reason is None.

        A chunk is `_head` of `chunk_object` with "choices"; if usage is to follow, with "usage": None
        too. What the output counts is kept for `usage` before the first chunk is given. Raises
        YaieError if the request failed (`raise_if_failed`).
        """
        # TODO 8.3: your code here (the reference: 13 lines).
        raise NotImplementedError(
            "api_server task 8.3: not implemented yet; see chapter The HTTP API"
        )

    def usage_chunk(self) -> Json:
        """The last chunk of a stream that was asked for its usage: no choices, and "usage"."""
        # TODO 8.3: your code here (the reference: 1 line).
        raise NotImplementedError(
            "api_server task 8.3: not implemented yet; see chapter The HTTP API"
        )

    # TODO 8.3, if you like: helpers of your own (the reference: 5 lines).

    # ANCHOR_END: chunks

    def _head(self, name: str) -> Json:
        """What every answer and every chunk begins with. The id and the time are those of the call."""
        return {"id": self.id, "object": name, "created": self._created, "model": self.model}

    def _choice(self, index: int, text: str, last: RequestOutput) -> Json:
        """A finished choice of a whole answer. `last`: its last output."""
        raise NotImplementedError

    def _opening(self, index: int) -> Json | None:
        """What a streamed choice begins with, before any text; None if with its text."""
        raise NotImplementedError

    def _piece(self, index: int, text: str) -> Json:
        """A piece of a streamed choice. The last one has no text."""
        raise NotImplementedError


# ANCHOR: chat_reply
class ChatReply(Reply):
    """An answer of `/v1/chat/completions`."""

    id_prefix = "chatcmpl-"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def _choice(self, index: int, text: str, last: RequestOutput) -> Json:
        """Has "index" and "message" ("role", which is "assistant", "content", and "refusal", which is
        None), then `ending`."""
        # TODO 8.2: your code here (the reference: 2 lines).
        raise NotImplementedError(
            "api_server task 8.2: not implemented yet; see chapter The HTTP API"
        )

    def _opening(self, index: int) -> Json | None:
        """A `_piece` whose delta has the role "assistant" and "" as its content."""
        # TODO 8.3: your code here (the reference: 3 lines).
        raise NotImplementedError(
            "api_server task 8.3: not implemented yet; see chapter The HTTP API"
        )

    def _piece(self, index: int, text: str) -> Json:
        """Has "index", "delta" ("content", or nothing if there is no text), "logprobs" and
        "finish_reason", both None."""
        # TODO 8.3: your code here (the reference: 2 lines).
        raise NotImplementedError(
            "api_server task 8.3: not implemented yet; see chapter The HTTP API"
        )


# ANCHOR_END: chat_reply


# ANCHOR: text_reply
class TextReply(Reply):
    """An answer of `/v1/completions`."""

    id_prefix = "cmpl-"
    whole_object = "text_completion"
    chunk_object = "text_completion"

    def _choice(self, index: int, text: str, last: RequestOutput) -> Json:
        """Has "index" and "text", then `ending`."""
        # TODO 8.2: your code here (the reference: 1 line).
        raise NotImplementedError(
            "api_server task 8.2: not implemented yet; see chapter The HTTP API"
        )

    def _opening(self, index: int) -> Json | None:
        """None: a text has no role to name."""
        return None

    def _piece(self, index: int, text: str) -> Json:
        """Has "index", "text", "logprobs" and "finish_reason", both None."""
        # TODO 8.3: your code here (the reference: 1 line).
        raise NotImplementedError(
            "api_server task 8.3: not implemented yet; see chapter The HTTP API"
        )


# ANCHOR_END: text_reply


def ending(last: RequestOutput) -> Json:
    """What every choice of a whole answer ends with: "logprobs": None, "finish_reason" (the value of its
    last output's reason, None without a reason), and "stop_reason", an extension: which stop string or
    token it was.
    """
    # TODO 8.2: your code here (the reference: 6 lines).
    raise NotImplementedError(
        "api_server task 8.2: not implemented yet; see chapter The HTTP API"
    )


def raise_if_failed(output: RequestOutput) -> None:
    """Raises YaieError if this is the last output of a request that failed in the engine."""
    if (error := output.exception) is not None:
        raise error
