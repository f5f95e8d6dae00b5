"""Log-probabilities in OpenAI's two shapes, for answers of both kinds, whole and streamed.

Every token that the model drew has one entry, the one that ended the answer and those of a stop string
included, as in vLLM: there are as many entries as `completion_tokens`. In a stream the entries of tokens
whose text is held back travel with the next piece that has text, or with the last chunk.
"""

import codecs
from collections.abc import Sequence
from typing import Any, ClassVar

from yaie.core.logprobs import TokenLogprob
from yaie.core.output import RequestOutput, Submitted
from yaie.server.extras.step import Json, Step
from yaie.server.lenient.notes import beside
from yaie.system.json_slices import Rows, Turns, free

LEAST = -9999.0
"""What OpenAI says for a probability of zero: JSON has no infinity."""


def finite(logprob: float) -> float:
    """A number that JSON can hold."""
    return logprob if logprob > LEAST else LEAST


class _Logprobs(Step):
    """Keeps the entries of each choice's tokens until they are told, and counts those that were.

    broken: what stands in front of the name of a token that is a part of a character.
    """

    broken: ClassVar[str] = ""

    def __init__(self, requests: Sequence[Submitted], tokenizer: Any) -> None:
        super().__init__(requests)
        self._tokenizer = tokenizer
        self._told = [0] * len(requests)
        self._untold: list[list[TokenLogprob]] = [[] for _ in requests]
        self._known: dict[tuple[int, bool], tuple[str, list[int] | None]] = {}
        self._skips_special = requests[0].params.skip_special_tokens
        self._as_ids = beside("return_tokens_as_token_ids") is True

    def __del__(self) -> None:
        free(self._untold)

    def keep(self, index: int, output: RequestOutput) -> None:
        self._untold[index] += output.logprobs or []

    def add_to_chunk(self, chunk: Json, index: int, is_due: bool) -> None:
        if is_due and self._has_untold(index):
            chunk["choices"][0]["logprobs"] = self._take(index)

    def add_to_answer(self, answer: Json, *, in_rows: bool) -> None:
        turns = Turns() if in_rows else None
        for choice in answer["choices"]:
            choice["logprobs"] = self._take(choice["index"], turns)

    def _has_untold(self, index: int) -> bool:
        return bool(self._untold[index])

    def _take(self, index: int, turns: Turns | None = None) -> Json:
        """The entries of a choice's tokens that were not told yet, in the endpoint's shape. turns: of
        one that is written in slices, and so has Rows."""
        begin, entries = self._told[index], self._untold[index]
        self._told[index], self._untold[index] = begin + len(entries), []
        return self._shape(index, begin, entries, turns)

    def _shape(
        self, index: int, begin: int, entries: list[TokenLogprob], turns: Turns | None
    ) -> Json:
        """begin: how many of the choice's tokens come before."""
        raise NotImplementedError

    def _named(self, token_id: int, is_first: bool) -> tuple[str, list[int] | None]:
        """A token as text, and what it adds to the answer, in bytes.

        is_first: before it there is no text to set it apart from, and the decoders of SentencePiece drop
            its space.
        """
        known = self._known.get((token_id, is_first))
        if known is not None:
            return known
        data: bytes | None = self._tokenizer.token_bytes(token_id)
        named: tuple[str, list[int] | None]
        if data is None:
            name = self._tokenizer.token_name(token_id)
            named = name, None if self._skips_special else list(name.encode())
        else:
            if is_first and data[:1] == b" " and data == b" " + self._alone(token_id):
                data = data[1:]
            named = _escaped(data, self.broken), list(data)
        if self._as_ids:
            named = f"token_id:{token_id}", named[1]
        self._known[token_id, is_first] = named
        return named

    def _alone(self, token_id: int) -> bytes:
        text: str = self._tokenizer.decode([token_id])
        return text.encode()


class ChatLogprobs(_Logprobs):
    """`logprobs: {"content": [...], "refusal": null}` of `/v1/chat/completions`."""

    def _shape(
        self, index: int, begin: int, entries: list[TokenLogprob], turns: Turns | None
    ) -> Json:
        num_first = 0
        if begin == 0:  # tokens without a text do not set the first one with a text apart
            named = (self._named(entry.token_id, True)[1] for entry in entries)
            num_first = 1 + next(
                (at for at, data in enumerate(named) if data is not None), len(entries)
            )
        items = [(entry, at < num_first) for at, entry in enumerate(entries)]
        entries.clear()
        content = self._entries(items) if turns is None else Rows(items, self._entries)
        return {"content": content, "refusal": None}

    def entries(self, index: int) -> list[Json]:
        """See Step."""
        taken: list[Json] = self._take(index)["content"] if self._has_untold(index) else []
        return taken

    def _entries(self, items: list[tuple[TokenLogprob, bool]]) -> list[Json]:
        return [
            {
                **self._one(entry.token_id, entry.logprob, is_first),
                "top_logprobs": [
                    self._one(token, logprob, is_first) for token, logprob in entry.top
                ],
            }
            for entry, is_first in items
        ]

    def _one(self, token_id: int, logprob: float, is_first: bool) -> Json:
        name, data = self._named(token_id, is_first)
        return {"token": name, "logprob": finite(logprob), "bytes": data}


class TextLogprobs(_Logprobs):
    """`logprobs: {"tokens", "token_logprobs", "top_logprobs", "text_offset"}` of `/v1/completions`.

    Offsets count characters from the start of the choice's text. The most likely tokens are an object
    with a number for each text, and the token that was drawn is always among them, as in OpenAI's API.
    """

    broken = "bytes:"

    def __init__(self, requests: Sequence[Submitted], tokenizer: Any, *, with_prompt: bool) -> None:
        """with_prompt: the text begins with the prompt (`Echo`), and so do the entries."""
        super().__init__(requests, tokenizer)
        self._prompt_told = [not with_prompt] * len(requests)
        self._prompts: dict[int, list[TokenLogprob | None]] = {}
        self._offsets = [_Offset() for _ in requests]

    def keep(self, index: int, output: RequestOutput) -> None:
        super().keep(index, output)
        if output.prompt_logprobs is not None:
            self._prompts[self._prompt_of(index)] = output.prompt_logprobs

    def _prompt_of(self, index: int) -> int:
        """The number of a choice's prompt."""
        return index // self._requests[index].params.n

    def _has_untold(self, index: int) -> bool:
        return not self._prompt_told[index] or super()._has_untold(index)

    def __del__(self) -> None:
        super().__del__()
        free(list(self._prompts.values()))

    def _shape(
        self, index: int, begin: int, entries: list[TokenLogprob], turns: Turns | None
    ) -> Json:
        told: list[tuple[int, TokenLogprob | None]] = []
        if not self._prompt_told[index]:
            self._prompt_told[index] = True
            # Of `n` siblings the first has them, and the others wait for it before they begin.
            of_prompt = self._prompts[self._prompt_of(index)]
            told += zip(self._requests[index].prompt_token_ids, of_prompt, strict=True)
        told += [(entry.token_id, entry) for entry in entries]
        entries.clear()
        shape: Json = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for token_id, entry in told:
            self._add(shape, index, token_id, entry)
            if turns is not None:
                turns.rest()
        tops = shape["top_logprobs"]
        shape["top_logprobs"] = self._tops(tops) if turns is None else Rows(tops, self._tops)
        return shape

    def _add(self, shape: Json, index: int, token_id: int, entry: TokenLogprob | None) -> None:
        """entry: None for the first token of a prompt, before which nothing stands."""
        offset = self._offsets[index]
        is_first = offset.is_at_start
        name, data = self._named(token_id, is_first)
        shape["tokens"].append(name)
        shape["text_offset"].append(offset.characters)
        offset.advance(data)
        shape["token_logprobs"].append(None if entry is None else finite(entry.logprob))
        shape["top_logprobs"].append((entry, is_first))

    def _tops(self, items: list[tuple[TokenLogprob | None, bool]]) -> list[dict[str, float] | None]:
        return [None if entry is None else self._top(entry, first) for entry, first in items]

    def _top(self, entry: TokenLogprob, is_first: bool) -> dict[str, float]:
        top: dict[str, float] = {}
        for token_id, logprob in (*entry.top, (entry.token_id, entry.logprob)):
            # Two tokens may look the same: the more likely one comes first and stays.
            top.setdefault(self._named(token_id, is_first)[0], finite(logprob))
        return top


class _Offset:
    """How many characters come before the next token of a text."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.characters = 0
        self.is_at_start = True

    def advance(self, data: list[int] | None) -> None:
        """One more token. data: None for one that adds nothing."""
        if data is not None:
            self.is_at_start = False
            self.characters += len(self._decoder.decode(bytes(data)))


def _escaped(data: bytes, prefix: str) -> str:
    """A token's text; where it is no whole text, its bytes as OpenAI writes them, after `prefix`."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return prefix + "".join(f"\\x{byte:02x}" for byte in data)
