"""`echo` of `/v1/completions`: the prompt in front of the text, with or without log-probabilities."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from yaie.core.contracts import Reply
from yaie.core.output import RequestOutput
from yaie.core.request import FinishReason
from yaie.server.extras.wrapper import Json, Wrapper, without_tokens


class Echo(Wrapper):
    """Gives the reply the prompt as if it were the first output of each choice.

    With `max_tokens` 0 the one token that the engine had to draw is left out, and not counted.
    """

    def __init__(self, reply: Reply, body: Any, tokenizer: Any) -> None:
        """body: a CompletionRequest of the API part."""
        super().__init__(reply)
        self._body = body
        self._tokenizer = tokenizer
        self._begun = [False] * len(self.requests)
        self._needs_space = [False] * len(self.requests)

    def add(self, output: RequestOutput) -> None:
        """Take over an output. Raises YaieError if its request failed."""
        for one in self._with_prompt(output):
            self._reply.add(one)

    def result(self) -> Json:
        """The whole answer."""
        answer = self._reply.result()
        if self._body.is_only_echo:
            answer["usage"] = self.usage()
            for choice in answer["choices"]:
                choice["finish_reason"] = FinishReason.LENGTH.value
                choice["stop_reason"] = None
        return answer

    def chunks(self, output: RequestOutput) -> Iterator[Json]:
        """The chunks, the prompt first."""
        for one in self._with_prompt(output):
            for chunk in self._reply.chunks(one):
                choice = chunk["choices"][0]
                if self._body.is_only_echo and choice["finish_reason"] is not None:
                    choice["finish_reason"] = FinishReason.LENGTH.value
                    choice["stop_reason"] = None
                yield chunk

    def usage(self) -> Json:
        """OpenAI's token counts of the call, as far as its outputs have come."""
        usage = self._reply.usage()
        if self._body.is_only_echo:
            usage["completion_tokens"] = 0
            usage["total_tokens"] = usage["prompt_tokens"]
        return usage

    def usage_chunk(self) -> Json:
        """The last chunk of a stream that was asked for its usage."""
        return {**self._reply.usage_chunk(), "usage": self.usage()}

    def _with_prompt(self, output: RequestOutput) -> Iterator[RequestOutput]:
        index = self.index_of(output)
        if output.finish_reason is FinishReason.ERROR:
            yield output
            return
        if not self._begun[index]:
            self._begun[index] = True
            self._needs_space[index] = self._lost_a_space(output)
            prompt = replace(without_tokens(output), text=self._prompt(index), finish_reason=None)
            yield prompt
        if self._body.is_only_echo:
            yield replace(without_tokens(output), text="")
        elif output.text and self._needs_space[index]:
            self._needs_space[index] = False
            yield replace(output, text=" " + output.text)
        else:
            yield output

    def _prompt(self, index: int) -> str:
        """As the client wrote it, or as the engine took it, where it was given in tokens or cut."""
        request = self.requests[index]
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
