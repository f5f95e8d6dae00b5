"""Reasoning stands apart from the content, whole and streamed, and grammars hold for the content."""

from collections.abc import Iterator, Sequence
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.server.conftest import LiveServer, serving
from tests.server.fake_engine import FakeEngine, FakeTokenizer
from tests.server.tool_asking import TOOLS, ask, of_answer
from tests.server.tool_models import STYLES
from yaie.server.extras.reasoning import FORMATS, ReasoningParser, choose_reasoning

CALL = '<tool_call>\n{"name": "halt", "arguments": {}}\n</tool_call>'
THOUGHT = "<think>\nHm, 1 < 2.\n</think>\n\nYes."


def read(pieces: Sequence[str], *, is_open: bool = False) -> tuple[str, str]:
    parser = ReasoningParser("<think>", "</think>", is_open=is_open)
    parts = [*(parser.push(piece) for piece in pieces), parser.finish()]
    return "".join(part[0] for part in parts), "".join(part[1] for part in parts)


CASES = [
    (THOUGHT, False, "Hm, 1 < 2.", "Yes."),
    (THOUGHT, True, "Hm, 1 < 2.", "Yes."),
    ("Hm.\n</think>\n\nYes.", True, "Hm.", "Yes."),
    ("Hm.\n</think>\n\nYes.", False, "", "Hm.\n</think>\n\nYes."),
    ("\n\n<think>a</think>b", False, "a", "b"),
    ("  Yes <think>no</think>", False, "", "  Yes <think>no</think>"),
    ("<think></think>", False, "", ""),
    ("<think> \n ", False, "", ""),
    ("<think>a</thi", False, "a</thi", ""),
    ("a </think", True, "a </think", ""),
    ("<thin", False, "", "<thin"),
    ("<thin", True, "<thin", ""),
    ("\n", False, "", "\n"),
    ("", True, "", ""),
    ("<think>a</think>\n<think>b</think>c ", False, "a", "<think>b</think>c "),
    ("<think>a  b</t</think> c", False, "a  b</t", "c"),
]


@pytest.mark.parametrize(("text", "is_open", "reasoning", "content"), CASES)
def test_an_answer_is_cut_alike_however_its_text_comes(
    text: str, is_open: bool, reasoning: str, content: str
) -> None:
    for place in range(len(text) + 1):
        pieces = [text[:place], text[place:]]
        assert read(pieces, is_open=is_open) == (reasoning, content)
    assert read(text, is_open=is_open) == (reasoning, content)


@given(
    st.lists(st.sampled_from(["<think>", "</think>", "<", "</", "a", " ", "\n", "think>"])),
    st.booleans(),
)
def test_any_text_is_cut_alike_in_characters_and_whole(parts: list[str], is_open: bool) -> None:
    text = "".join(parts)
    assert read(text, is_open=is_open) == read([text], is_open=is_open)


def test_only_what_may_be_a_tag_or_space_before_one_is_held_back() -> None:
    parser = ReasoningParser("<think>", "</think>", is_open=False)
    assert parser.push("<thi") == ("", "")
    assert parser.push("nk>\nI ") == ("I", "")
    assert parser.push("see </th") == (" see", "")
    assert parser.push("ing") == (" </thing", "")
    assert parser.push("</think> \n") == ("", "")
    assert parser.push("Yes") == ("", "Yes")
    assert parser.push(" <think>") == ("", " <think>")


@pytest.mark.parametrize(
    ("setting", "template", "expected"),
    [
        ("auto", "{{ messages }}", None),
        ("auto", "{{ x.split('</think>')[-1] }}", "think"),
        ("auto", "[THINK]x[/THINK]", "mistral"),
        ("none", "<think></think>", None),
        ("think", "{{ messages }}", "think"),
    ],
)
def test_the_tags_are_told_from_the_template(setting: str, template: str, expected: Any) -> None:
    assert choose_reasoning(setting, template, FakeTokenizer()) == FORMATS.get(expected)


class Beginning(FakeTokenizer):
    """It has the tag as one token, and begins every text with a token of its own if it is let."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        ids = [7] if text == "</think>" else super().encode(text)
        return [1, *ids] if add_special_tokens else ids


def test_a_tag_that_is_one_token_tells_the_format() -> None:
    assert choose_reasoning("auto", "{{ messages }}", Beginning()) == FORMATS["think"]


class Thinker(FakeTokenizer):
    """What the last message says, the model says; the prompt ends as `tail`."""

    chat_template = STYLES["hermes"][0] + "{# <think></think> #}"
    tail = ""

    def apply_chat_template(self, messages: list[dict[str, Any]], **options: Any) -> list[int]:
        return super().apply_chat_template(messages, **options)[::-1]

    def decode_all(self, ids: list[int]) -> str:
        return self.tail

    def token_bytes(self, token_id: int) -> bytes:
        return chr(token_id).encode()


class ThinkingEngine(FakeEngine):
    def __init__(self) -> None:
        super().__init__()
        self.tokenizer = Thinker()


@pytest.fixture(scope="module")
def thinker() -> Iterator[LiveServer]:
    with serving(ThinkingEngine) as server:
        yield server


def say(server: LiveServer, text: str, tail: str = "", **options: Any) -> Any:
    server.llm.tokenizer.tail = tail
    options = {"max_tokens": openai.omit, "tools": openai.omit, **options}
    return ask(server, [{"role": "user", "content": text}], **options)


def told(answer: Any) -> tuple[str | None, str, str]:
    (choice,) = answer.choices
    assert choice.message.reasoning == choice.message.reasoning_content
    return choice.message.reasoning_content, choice.message.content, choice.finish_reason


def streamed(chunks: Any) -> tuple[list[str], list[str], Any]:
    """Pieces of reasoning and of content, and the usage."""
    reasoning, content, usage = [], [], None
    for chunk in chunks:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            if piece := getattr(choice.delta, "reasoning_content", None):
                assert not content
                assert choice.delta.reasoning == piece
                reasoning.append(piece)
            if choice.delta.content:
                content.append(choice.delta.content)
    return reasoning, content, usage


@pytest.mark.parametrize(
    ("text", "tail", "expected", "num_tokens"),
    [
        (THOUGHT, "", ("Hm, 1 < 2.", "Yes.", "stop"), len("<think>\nHm, 1 < 2.\n</think>")),
        ("Hm.</think>Yes.", "...<think>\n", ("Hm.", "Yes.", "stop"), len("Hm.</think>")),
        ("Hm.", "<think>", ("Hm.", "", "stop"), len("Hm.")),
        ("Yes.", "<think>\n\n</think>\n\n", (None, "Yes.", "stop"), 0),
    ],
)
def test_reasoning_is_apart_and_its_tokens_are_counted(
    thinker: LiveServer, text: str, tail: str, expected: Any, num_tokens: int
) -> None:
    answer = say(thinker, text, tail)
    assert told(answer) == expected
    assert answer.usage.completion_tokens_details.reasoning_tokens == num_tokens
    chunks = say(thinker, text, tail, stream=True, stream_options={"include_usage": True})
    reasoning, content, usage = streamed(chunks)
    assert ("".join(reasoning) or None, "".join(content)) == expected[:2]
    assert usage == answer.usage


def test_a_limit_may_cut_the_reasoning(thinker: LiveServer) -> None:
    answer = say(thinker, THOUGHT, max_tokens=12)
    assert told(answer) == ("Hm,", "", "length")
    assert answer.usage.completion_tokens_details.reasoning_tokens == 12


def test_calls_after_reasoning_are_calls_and_those_in_it_are_not(thinker: LiveServer) -> None:
    said = f"<think>Or {CALL}?</think>\n{CALL}"
    answer = say(thinker, said, tools=TOOLS)
    assert answer.choices[0].message.reasoning_content == f"Or {CALL}?"
    assert of_answer(answer) == ("", [("halt", "{}")], "tool_calls")
    chunks = list(say(thinker, said, tools=TOOLS, stream=True))
    assert "".join(streamed(chunks)[0]) == f"Or {CALL}?"
    deltas = [delta for chunk in chunks for delta in chunk.choices[0].delta.tool_calls or []]
    assert [delta.function.name for delta in deltas[:1]] == ["halt"]
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_reasoning_can_be_left_in_the_content_left_out_or_sent_in_one_piece(
    thinker: LiveServer,
) -> None:
    answer = say(thinker, THOUGHT, extra_body={"separate_reasoning": False})
    assert answer.choices[0].message.content == THOUGHT
    assert not hasattr(answer.choices[0].message, "reasoning_content")
    without = {"extra_body": {"include_reasoning": False}}
    answer = say(thinker, THOUGHT, **without)
    assert answer.choices[0].message.content == "Yes."
    assert not hasattr(answer.choices[0].message, "reasoning_content")
    assert not hasattr(answer.choices[0].message, "reasoning")
    assert answer.usage.completion_tokens_details.reasoning_tokens > 0
    reasoning, content, _ = streamed(say(thinker, THOUGHT, stream=True, **without))
    assert (reasoning, "".join(content)) == ([], "Yes.")
    at_once = {"extra_body": {"stream_reasoning": False}}
    reasoning, content, _ = streamed(say(thinker, THOUGHT, stream=True, **at_once))
    assert (reasoning, "".join(content)) == (["Hm, 1 < 2."], "Yes.")


def test_what_a_message_thought_reaches_the_template(thinker: LiveServer) -> None:
    thought = {"role": "assistant", "content": "b", "reasoning_content": "a"}
    seen: list[Any] = []
    plain = thinker.llm.tokenizer.apply_chat_template
    thinker.llm.tokenizer.apply_chat_template = lambda messages, **options: (
        seen.extend(messages) or plain(messages, **options)
    )
    messages: Any = [thought, {"role": "user", "content": "c"}]
    ask(thinker, messages, max_tokens=openai.omit, tools=openai.omit)
    del thinker.llm.tokenizer.apply_chat_template
    assert seen[0]["reasoning_content"] == "a"
    assert "reasoning_content" not in seen[1]


def test_the_parser_is_a_setting() -> None:
    with serving(ThinkingEngine, reasoning_parser="none") as server:
        answer = say(server, THOUGHT)
        assert answer.choices[0].message.content == THOUGHT
        assert answer.usage.completion_tokens_details is None


def test_a_response_has_an_item_of_reasoning(thinker: LiveServer) -> None:
    client = thinker.openai()
    thinker.llm.tokenizer.tail = ""
    answer = client.responses.create(model="fake", input=THOUGHT)
    thought, message = answer.output
    assert (thought.type, message.type) == ("reasoning", "message")
    assert thought.content[0].text == "Hm, 1 < 2."
    assert answer.output_text == "Yes."
    assert answer.usage.output_tokens_details.reasoning_tokens > 10
    events = list(client.responses.create(model="fake", input=THOUGHT, stream=True))
    kinds = [event.type.removeprefix("response.") for event in events]
    begun = ["output_item.added", "content_part.added", "reasoning_text.delta"]
    assert kinds[2:5] == begun
    pieces = [event.delta for event in events if event.type == "response.reasoning_text.delta"]
    assert "".join(pieces) == "Hm, 1 < 2."
    last: Any = events[-1]
    assert [item.type for item in last.response.output] == ["reasoning", "message"]
    assert last.response.usage == answer.usage
    again = [*answer.output, {"role": "user", "content": "Why?"}]
    assert client.responses.create(model="fake", input=again).output_text == "Why?"
