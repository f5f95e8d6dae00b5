"""`return_token_ids`: the ids of prompt and output beside the text, where vLLM has them."""

from collections.abc import Sequence

from yaie.core.output import RequestOutput, Submitted
from yaie.server.extras.step import Json, Step


class TokenIds(Step):
    """Adds `token_ids` to every choice, and `prompt_token_ids`: to the answer to a conversation, to each
    choice of a text.

    In a stream the ids of tokens whose text is held back travel with the next piece that has text, or
    with the last chunk; those of the prompt come with the first chunk.
    """

    def __init__(self, requests: Sequence[Submitted], *, is_chat: bool) -> None:
        super().__init__(requests)
        self._is_chat = is_chat
        self._begun = [False] * len(requests)
        self._untold: list[list[int]] = [[] for _ in requests]

    def keep(self, index: int, output: RequestOutput) -> None:
        self._untold[index] += output.token_ids

    def add_to_chunk(self, chunk: Json, index: int, is_due: bool) -> None:
        choice = chunk["choices"][0]
        choice["token_ids"] = []
        if is_due:
            choice["token_ids"], self._untold[index] = self._untold[index], []
        if self._is_chat and not any(self._begun):
            chunk["prompt_token_ids"] = self._prompt(index)
        elif not self._is_chat and not self._begun[index]:
            choice["prompt_token_ids"] = self._prompt(index)
        self._begun[index] = True

    def add_to_answer(self, answer: Json, *, in_rows: bool) -> None:
        for choice in answer["choices"]:
            index = choice["index"]
            choice["token_ids"] = self._untold[index]
            (answer if self._is_chat else choice)["prompt_token_ids"] = self._prompt(index)

    def _prompt(self, index: int) -> list[int]:
        """As the engine took it, after truncation."""
        return self._requests[index].prompt_token_ids
