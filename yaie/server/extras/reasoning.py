"""What a model thinks before it answers: `reasoning_content`, apart from the content.

Models that reason write it between two tags at the beginning of an answer. Many chat templates write the
first tag themselves, as the end of the prompt: the answer then begins inside.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from yaie.core.constraint import Constraint, ThoughtLimit
from yaie.core.output import RequestOutput
from yaie.engine.input.grammars.compiler import WHITESPACE
from yaie.engine.input.grammars.gbnf import lark_of

TAIL = 16
"""Tokens at the end of a prompt among which a tag may stand."""


class _State(Enum):
    START = auto()  # a tag may come
    INSIDE = auto()  # of the reasoning
    GAP = auto()  # between the last tag and the content
    CONTENT = auto()


class ReasoningParser:
    """Cuts an answer in two, while it comes: pieces of any size make the same two texts.

    What may become a tag is held back until it is decided. Space around the reasoning belongs to neither
    text. Tags further on in the answer are content.
    """

    def __init__(self, begin: str, end: str, *, is_open: bool) -> None:
        """is_open: the answer begins inside the reasoning. Its first tag may come nevertheless."""
        self._begin, self._end = begin, end
        self._is_open = is_open
        self._state = _State.START
        self._held = ""
        self._has_told = False
        self.has_reasoned = False

    @property
    def is_over(self) -> bool:
        """Whether what comes is content."""
        return self._state in (_State.GAP, _State.CONTENT)

    @property
    def is_content(self) -> bool:
        """Whether all that comes is passed on as content as it is."""
        return self._state is _State.CONTENT

    def push(self, text: str) -> tuple[str, str]:
        """The reasoning and the content that this piece of text decides."""
        if self._state is _State.CONTENT:
            return "", text
        self._held += text
        if self._state is _State.START:
            self._look_for_begin()
        reasoning = self._take_reasoning() if self._state is _State.INSIDE else ""
        if self._state is _State.GAP:
            self._held = self._held.lstrip()
            self._state = _State.CONTENT if self._held else _State.GAP
        content = ""
        if self._state is _State.CONTENT:
            content, self._held = self._held, ""
        return reasoning, content

    def finish(self) -> tuple[str, str]:
        """The rest, when no more text comes."""
        rest, self._held = self._held, ""
        if self._state is _State.START and not self._is_open:
            return "", rest
        return rest.rstrip() if self._has_told else rest.strip(), ""

    def _look_for_begin(self) -> None:
        solid = self._held.lstrip()
        if solid.startswith(self._begin):
            self._held, self._state = solid[len(self._begin) :], _State.INSIDE
        elif not self._begin.startswith(solid):
            self._state = _State.INSIDE if self._is_open else _State.CONTENT
        self.has_reasoned = self._state is _State.INSIDE

    def _take_reasoning(self) -> str:
        text = self._held if self._has_told else self._held.lstrip()
        place = text.find(self._end)
        if place >= 0:
            self._held, self._state = text[place + len(self._end) :], _State.GAP
            return text[:place].rstrip()
        told = text[: len(text) - _overlap(text, self._end)].rstrip()
        self._held = text[len(told) :]
        self._has_told = self._has_told or bool(told)
        return told


def _overlap(text: str, tag: str) -> int:
    """How many characters at the end of a text may be the beginning of a tag."""
    longest = min(len(text), len(tag) - 1)
    return next((size for size in range(longest, 0, -1) if tag.startswith(text[-size:])), 0)


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """The tags around a model's reasoning."""

    begin: str
    end: str

    def is_open(self, tokenizer: Any, prompt: Sequence[int]) -> bool:
        """Whether a prompt ends with the first tag."""
        return self._tail(tokenizer, prompt).endswith(self.begin)

    def before(self, constraint: Constraint, tokenizer: Any, prompt: Sequence[int]) -> Constraint:
        """A constraint of the answer as one that lets the model reason first.

        Without it an answer that begins inside the reasoning would have its form there.
        """
        tail = self._tail(tokenizer, prompt)
        if tail.endswith(self.end):  # the template has told the model not to reason
            return constraint
        is_open = tail.endswith(self.begin)
        first = "thought GAP?" if is_open else "(thought GAP?)?"
        rules = [f"start: {first} answer_behind", self._thought(tokenizer, is_open)]
        rules += ["GAP: /[ \\n]{1,4}/", _answer(constraint).replace("start:", "answer_behind:", 1)]
        return Constraint("lark", "\n".join(rules))

    def limit(
        self, num_tokens: int, tokenizer: Any, prompt: str | Sequence[int]
    ) -> ThoughtLimit | None:
        """What ends a thought of so many tokens; None if the prompt says that there is none."""
        tail = self._tail(tokenizer, prompt)
        if tail.endswith(self.end):
            return None
        return ThoughtLimit(num_tokens, self.begin, self.end, is_open=tail.endswith(self.begin))

    def _tail(self, tokenizer: Any, prompt: str | Sequence[int]) -> str:
        if isinstance(prompt, str):
            return prompt.rstrip()
        text: str = tokenizer.decode_all(prompt[-TAIL:])
        return text.rstrip()

    def _thought(self, tokenizer: Any, is_open: bool) -> str:
        ids = [tokenizer.special_token_id(tag) for tag in (self.begin, self.end)]
        if None not in ids:
            begin = "" if is_open else f"<[{ids[0]}]> "
            return f"thought: {begin}THOUGHT <[{ids[1]}]>\nTHOUGHT: /(.|\\n)*/"
        begin = "" if is_open else f"/\\n*/ {json.dumps(self.begin)} "
        return f"thought[lazy]: {begin}/(.|\\n)*/ {json.dumps(self.end)}"


FORMATS = {
    "think": ReasoningFormat("<think>", "</think>"),
    "mistral": ReasoningFormat("[THINK]", "[/THINK]"),
}


def choose_reasoning(parser: str, template: str, tokenizer: Any) -> ReasoningFormat | None:
    """How a model writes its reasoning; None if it does not reason.

    parser: a setting of `ServerSettings`. "auto" goes by the tags in the chat template, and by those
        that the tokenizer has as one token.
    """
    if parser != "auto":
        return FORMATS.get(parser)
    for form in FORMATS.values():
        if form.end in template or len(tokenizer.encode(form.end, add_special_tokens=False)) == 1:
            return form
    return None


class ReasoningReader:
    """Reads one answer: cuts its reasoning out, and counts the tokens of it, tags included."""

    def __init__(
        self, form: ReasoningFormat, tokenizer: Any, prompt: Sequence[int], body: Any
    ) -> None:
        """body: a ChatRequest, which says whether the reasoning is told, and in how many pieces."""
        is_open = form.is_open(tokenizer, prompt)
        # The same for its text and for its tokens, each at once: text lags behind.
        self._parser, self._counter = (
            ReasoningParser(form.begin, form.end, is_open=is_open) for _ in range(2)
        )
        self._tokenizer = tokenizer
        self._is_told = body.include_reasoning is not False
        self._is_in_pieces = body.stream_reasoning is not False
        self._num_seen = 0
        self._untold: list[str] = []

    @property
    def num_tokens(self) -> int:
        """Of the reasoning."""
        return self._num_seen if self._counter.has_reasoned else 0

    @property
    def is_over(self) -> bool:
        """Whether all that comes is content as it is, with all tokens of the reasoning counted."""
        return self._parser.is_content and self._counter.is_over

    def read(self, output: RequestOutput) -> tuple[str, str]:
        """The reasoning that is to be told now, and the content of an output."""
        self._count(output.token_ids)
        reasoning, content = self._parser.push(output.text)
        if output.finish_reason is not None:
            rest = self._parser.finish()
            reasoning, content = reasoning + rest[0], content + rest[1]
        if not self._is_told:
            return "", content
        if self._is_in_pieces:
            return reasoning, content
        self._untold.append(reasoning)
        if not self._parser.is_over and output.finish_reason is None:
            return "", content
        reasoning = "".join(self._untold)
        self._untold.clear()
        return reasoning, content

    def _count(self, token_ids: Sequence[int]) -> None:
        for token_id in token_ids:
            if self._counter.is_over:
                return
            # Tags are in ASCII, so it makes no difference what the other bytes are taken for.
            data = self._tokenizer.token_bytes(token_id) or b""
            self._counter.push(data.decode("latin-1"))
            self._num_seen += 1


def _answer(constraint: Constraint) -> str:
    """A constraint as a grammar."""
    if constraint.kind in ("lark", "gbnf"):
        return lark_of(constraint.text) if constraint.kind == "gbnf" else constraint.text
    schema = json.loads(constraint.text) if constraint.kind == "json_schema" else {"type": "object"}
    spaces = {"whitespace_pattern": WHITESPACE}
    return f"start: %json {json.dumps({'x-guidance': spaces, **schema})}"
