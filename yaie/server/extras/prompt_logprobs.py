"""`prompt_logprobs`: how likely each token of the prompt was, in vLLM's shape."""

from typing import Any

from yaie.core.contracts import Reply
from yaie.core.output import RequestOutput
from yaie.core.request import TokenLogprob
from yaie.server.extras.logprobs import finite
from yaie.server.extras.wrapper import Json, Wrapper
from yaie.system.json_slices import Rows, free


class PromptLogprobs(Wrapper):
    """Adds `prompt_logprobs`: to the answer to a conversation, to each choice of a text.

    One entry for each token, None for the first. An entry maps token ids to `logprob`, `rank` (1 is the
    most likely token) and `decoded_token`: the token of the prompt first, then the most likely ones.
    """

    def __init__(self, reply: Reply, tokenizer: Any, *, is_chat: bool) -> None:
        super().__init__(reply)
        self._tokenizer = tokenizer
        self._is_chat = is_chat
        self._entries: dict[int, list[TokenLogprob | None]] = {}

    def __del__(self) -> None:
        free(list(self._entries.values()))

    def add(self, output: RequestOutput) -> None:
        """Take over an output. Raises YaieError if its request failed."""
        super().add(output)
        if output.prompt_logprobs is not None:
            # Of `n` siblings the first has them.
            number = self.index_of(output) // self.requests[0].params.n
            self._entries[number] = list(output.prompt_logprobs)

    def result(self) -> Json:
        """The whole answer."""
        answer = self._reply.result()
        if self._is_chat:
            answer["prompt_logprobs"] = self._told(0)
        else:
            for choice in answer["choices"]:
                number = choice["index"] // self.requests[0].params.n
                choice["prompt_logprobs"] = self._told(number)
        return answer

    def _told(self, number: int) -> list[Json | None] | Rows:
        """The entries of a prompt, made as they are written where there are many."""
        entries = list(self._entries[number])
        return Rows(entries, self._shapes) if self.in_rows else self._shapes(entries)

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
