"""`echo` of `/v1/completions`: the prompt in front of the text, with or without log-probabilities."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from yaie.core.contracts import Reply
from yaie.core.errors import InvalidRequestError
from yaie.core.output import RequestOutput, Submitted
from yaie.core.request import FinishReason
from yaie.server.extras.reader import Reader
from yaie.server.extras.step import Json

MOST_IN_CHUNK = 1 << 15
"""Log-probabilities of a prompt: they take some 40 ms to write."""


class EchoReader(Reader):
    """Tells the prompt as if it were the first output of each choice.

    With `max_tokens` 0 the one token that the engine had to draw is left out, and not counted.
    """

    def __init__(self, requests: Sequence[Submitted], body: Any, tokenizer: Any) -> None:
        """body: a CompletionRequest of the API part."""
        self._requests = requests
        self._body = body
        self._tokenizer = tokenizer
        self._begun = [False] * len(requests)
        self._needs_space = [False] * len(requests)

    def parts(self, index: int, output: RequestOutput) -> Iterator[RequestOutput]:
        """The prompt first, which has no tokens of its own."""
        if not self._begun[index]:
            self._begun[index] = True
            self._needs_space[index] = self._lost_a_space(output)
            prompt = replace(_without_tokens(output), text=self._prompt(index), finish_reason=None)
            yield prompt
        if self._body.is_only_echo:
            yield replace(_without_tokens(output), text="")
        elif output.text and self._needs_space[index]:
            self._needs_space[index] = False
            yield replace(output, text=" " + output.text)
        else:
            yield output

    def end(self, index: int, choice: Json) -> None:
        """What ended the token that was left out is not told."""
        if self._body.is_only_echo:
            choice["finish_reason"] = FinishReason.LENGTH.value
            choice["stop_reason"] = None

    def count(self, usage: Json) -> Json:
        """Without that token."""
        if self._body.is_only_echo:
            usage["completion_tokens"] = 0
            usage["total_tokens"] = usage["prompt_tokens"]
        return usage

    def is_plain(self, index: int) -> bool:
        """Never: the counts may not be those of the outputs."""
        return False

    def _prompt(self, index: int) -> str:
        """As the client wrote it, or as the engine took it, where it was given in tokens or cut."""
        request = self._requests[index]
        prompt = self._body.prompts()[index // request.params.n]
        if isinstance(prompt, str) and self._body.truncate_prompt_tokens is None:
            return prompt
        text: str = self._tokenizer.decode(request.prompt_token_ids)
        return text

    def _lost_a_space(self, output: RequestOutput) -> bool:
        """SentencePiece drops the space in front of a text, and the engine decodes the output alone."""
        first = next(iter(output.token_ids), None)
        data: bytes | None = None if first is None else self._tokenizer.token_bytes(first)
        return data is not None and data[:1] == b" " and self._tokenizer.decode([first])[:1] != " "


def _without_tokens(output: RequestOutput) -> RequestOutput:
    """An output whose tokens are not to be told. What it counts stays."""
    return replace(output, token_ids=[], logprobs=None)


def check_echo(reply: Reply) -> None:
    """Raise InvalidRequestError for a stream whose first chunk would hold more log-probabilities of the
    prompt than can be written without holding up other streams."""
    told = reply.requests[0].params.prompt_logprobs
    if told is None:
        return
    longest = max(request.num_prompt_tokens for request in reply.requests)
    if longest * (1 + told) > MOST_IN_CHUNK:
        raise InvalidRequestError(
            f"stream: a prompt is echoed in one chunk, and this one would hold {longest * (1 + told)} "
            f"log-probabilities ({longest} tokens by logprobs + 1), more than {MOST_IN_CHUNK}. Leave "
            "out stream, or lower logprobs.",
            param="stream",
        )
