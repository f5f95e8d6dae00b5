"""`return_token_ids`: the ids of prompt and output beside the text, where vLLM has them."""

from collections.abc import Iterator

from yaie.core.contracts import Reply
from yaie.core.output import RequestOutput
from yaie.server.extras.wrapper import Json, Wrapper, has_content


class TokenIds(Wrapper):
    """Adds `token_ids` to every choice, and `prompt_token_ids`: to the answer to a conversation, to each
    choice of a text.

    In a stream the ids of tokens whose text is held back travel with the next piece that has text, or
    with the last chunk; those of the prompt come with the first chunk.
    """

    def __init__(self, reply: Reply, *, is_chat: bool) -> None:
        super().__init__(reply)
        self._is_chat = is_chat
        self._begun = [False] * len(self.requests)
        self._untold: list[list[int]] = [[] for _ in self.requests]

    def add(self, output: RequestOutput) -> None:
        """Take over an output. Raises YaieError if its request failed."""
        super().add(output)
        self._untold[self.index_of(output)] += output.token_ids

    def result(self) -> Json:
        """The whole answer."""
        answer = self._reply.result()
        for choice in answer["choices"]:
            index = choice["index"]
            choice["token_ids"] = self._untold[index]
            (answer if self._is_chat else choice)["prompt_token_ids"] = self._prompt(index)
        return answer

    def chunks(self, output: RequestOutput) -> Iterator[Json]:
        """The chunks, with the ids that are due."""
        index = self.index_of(output)
        self._untold[index] += output.token_ids
        for chunk in self._reply.chunks(output):
            choice = chunk["choices"][0]
            choice["token_ids"] = []
            if has_content(choice) or choice["finish_reason"] is not None:
                choice["token_ids"], self._untold[index] = self._untold[index], []
            if self._is_chat and not any(self._begun):
                chunk["prompt_token_ids"] = self._prompt(index)
            elif not self._is_chat and not self._begun[index]:
                choice["prompt_token_ids"] = self._prompt(index)
            self._begun[index] = True
            yield chunk

    def _prompt(self, index: int) -> list[int]:
        """As the engine took it, after truncation."""
        return self.requests[index].prompt_token_ids
