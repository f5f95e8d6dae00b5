"""`prompt_logprobs`: how likely each token of the prompt was, in vLLM's shape."""

from collections.abc import Sequence
from typing import Any

from yaie.core.logprobs import TokenLogprob
from yaie.core.output import RequestOutput, Submitted
from yaie.server.extras.logprobs import finite
from yaie.server.extras.step import Json, Step
from yaie.system.json_slices import Rows, free


class PromptLogprobs(Step):
    """Adds `prompt_logprobs`: to the answer to a conversation, to each choice of a text.

    One entry for each token, None for the first. An entry maps token ids to `logprob`, `rank` (1 is the
    most likely token) and `decoded_token`: the token of the prompt first, then the most likely ones.
    """

    def __init__(self, requests: Sequence[Submitted], tokenizer: Any, *, is_chat: bool) -> None:
        super().__init__(requests)
        self._tokenizer = tokenizer
        self._is_chat = is_chat
        self._entries: dict[int, list[TokenLogprob | None]] = {}

    def __del__(self) -> None:
        free(list(self._entries.values()))

    def keep(self, index: int, output: RequestOutput) -> None:
        if output.prompt_logprobs is not None:
            # Of `n` siblings the first has them.
            self._entries[self._prompt_of(index)] = list(output.prompt_logprobs)

    def add_to_answer(self, answer: Json, *, in_rows: bool) -> None:
        if self._is_chat:
            answer["prompt_logprobs"] = self._told(0, in_rows)
        else:
            for choice in answer["choices"]:
                number = self._prompt_of(choice["index"])
                choice["prompt_logprobs"] = self._told(number, in_rows)

    def _prompt_of(self, index: int) -> int:
        """The number of a choice's prompt."""
        return index // self._requests[0].params.n

    def _told(self, number: int, in_rows: bool) -> list[Json | None] | Rows:
        """The entries of a prompt, made as they are written where there are many."""
        entries = list(self._entries[number])
        return Rows(entries, self._shapes) if in_rows else self._shapes(entries)

    def _shapes(self, entries: list[TokenLogprob | None]) -> list[Json | None]:
        return [None if entry is None else self._shape(entry) for entry in entries]

    def _shape(self, entry: TokenLogprob) -> Json:
        shape = {str(entry.token_id): self._one(entry.token_id, entry.logprob, entry.rank)}
        for rank, (token_id, logprob) in enumerate(entry.top, 1):
            shape.setdefault(str(token_id), self._one(token_id, logprob, rank))
        return shape

    def _one(self, token_id: int, logprob: float, rank: int | None) -> Json:
        data: bytes | None = self._tokenizer.token_bytes(token_id)
        name = (
            self._tokenizer.token_name(token_id)
            if data is None
            else data.decode("utf-8", "replace")
        )
        return {"logprob": finite(logprob), "rank": rank, "decoded_token": name}
