"""Inputs of custom tools belong to their grammars, in every form in which models write calls."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.marks import nightly_but
from tests.server.conftest import LiveServer, serving
from tests.server.test_responses import events_of
from tests.server.test_text_grammars import CODEX, PATCH
from tests.server.test_tool_grammars import ARGUMENTS, Speaker, written
from tests.server.tool_models import STYLES, tool_model
from yaie.core.constraint import Constraint
from yaie.core.errors import InvalidRequestError
from yaie.engine.input.grammars.compiler import TOO_LARGE
from yaie.engine.llm_engine import LLMEngine
from yaie.server.answer_form import AnswerForm
from yaie.server.extras.reasoning import FORMATS
from yaie.server.tools import ToolFormat
from yaie.server.tools.deepseek import BEGIN, CALL
from yaie.server.tools.text_grammars import TextGrammar

Json = dict[str, Any]
PATH = "/v1/responses"
USUAL = ("hermes", "llama3", "mistral", "qwen-coder", "deepseek-v31")

# Few texts, so that any model comes to an end, with all that JSON escapes.
LINES = r"""
start: line{1,3} END?
line: NAME "=" VALUE "\n"
NAME: /[a-c]{1,2}/
VALUE: /["\\\t<\/é]{0,2}/
END: "\"\\\n"
"""
LINES_RE = re.compile(r'([a-c]{1,2}=["\\\t<\/é]{0,2}\n){1,3}("\\\n)?')
RIGHT, WRONG = 'a="\\\nbc=\t<\n', 'a="\\\nbc=\t<'


def custom(definition: str, syntax: str = "lark", **changes: Any) -> Json:
    form = {"type": "grammar", "syntax": syntax, "definition": definition}
    return {"type": "custom", "name": "lines", "format": form, **changes}


@dataclass
class Caller:
    """A server with a model that writes calls in the form of a style."""

    style: str
    server: LiveServer

    def respond(self, **fields: Any) -> Any:
        body = {"input": "hi", "tools": [custom(LINES)], "max_output_tokens": 300, "seed": 0}
        return self.server.http.post(PATH, json={**body, **fields})

    def answer(self, **fields: Any) -> Json:
        """It is the same when it is streamed."""
        answer = self.respond(**fields)
        assert answer.status_code == 200, answer.text
        whole: Json = answer.json()
        events = events_of(self.respond(**fields, stream=True))
        assert _told(events[-1]["response"]) == _told(whole)
        deltas = [it["delta"] for it in events if it["type"].endswith("call_input.delta")]
        assert "".join(deltas) == "".join(item.get("input", "") for item in whole["output"])
        return whole


def _told(response: Json) -> list[Json]:
    return [
        {name: value for name, value in item.items() if name not in ("id", "call_id")}
        for item in response["output"]
    ]


def calling(style: str, folder: Path) -> Iterator[Caller]:
    folder = tool_model(style, folder / style)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["max_position_embeddings"] = 2048
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    with serving(lambda: LLMEngine(model=str(folder), num_blocks=512, threads=1)) as server:
        yield Caller(style, server)


@pytest.fixture(scope="module", params=nightly_but(USUAL, STYLES))
def caller(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Caller]:
    yield from calling(request.param, tmp_path_factory.mktemp("callers"))


@pytest.fixture(scope="module")
def hermes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    yield from calling("hermes", tmp_path_factory.mktemp("callers"))


# --- calls that are demanded ---


@pytest.mark.parametrize("choice", ["required", {"type": "custom", "name": "lines"}])
def test_the_input_of_a_demanded_call_belongs_to_the_grammar(caller: Caller, choice: Any) -> None:
    inputs = set()
    for seed in range(3):
        answer = caller.answer(
            tool_choice=choice, parallel_tool_calls=False, seed=seed, temperature=1.5
        )
        assert answer["status"] == "completed"
        [call] = answer["output"]
        assert (call["type"], call["name"]) == ("custom_tool_call", "lines")
        assert LINES_RE.fullmatch(call["input"]), call["input"]
        inputs.add(call["input"])
    assert len(inputs) > 1


def test_an_input_may_follow_a_regular_expression(caller: Caller) -> None:
    tools = [custom(r'^(?P<name>[a-c"]{1,3})\s?[\\\n]{1,2}$', "regex")]
    answer = caller.answer(tools=tools, tool_choice="required", parallel_tool_calls=False)
    [call] = answer["output"]
    assert re.fullmatch(r'[a-c"]{1,3}\s?[\\\n]{1,2}', call["input"])


def test_a_large_body_is_read_elsewhere_and_its_grammar_holds_too(hermes: Caller) -> None:
    labels = {str(number): "x" * 1000 for number in range(8)}
    answer = hermes.answer(metadata=labels, tool_choice="required", parallel_tool_calls=False)
    [call] = answer["output"]
    assert LINES_RE.fullmatch(call["input"])


# --- calls that are not ---


class Recorder:
    """Keeps the constraint that reaches the engine, and tells what it lets through."""

    def __init__(self, caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
        import llguidance.hf

        submit_all = caller.server.engine.submit_all

        async def record(prompts: Any, params: Any, **options: Any) -> Any:
            self.constraint = params.constraint
            return await submit_all(prompts, params, **options)

        monkeypatch.setattr(caller.server.engine, "submit_all", record)
        self._tokenizer = caller.server.llm.tokenizer
        self._vocabulary = llguidance.hf.from_tokenizer(self._tokenizer.of_transformers)

    def may_say(self, *texts: str, spelled: str = "") -> bool:
        """spelled: comes first, character by character, though it may be a special token."""
        import llguidance

        grammar = llguidance.grammar_from("lark", self.constraint.text)
        matcher = llguidance.LLMatcher(self._vocabulary, grammar)
        assert not matcher.is_error(), matcher.get_error()
        ids = [
            token
            for text in [*spelled, *texts]
            for token in self._tokenizer.encode(text, add_special_tokens=False)
        ]
        return bool(matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting())


@pytest.fixture
def recorder(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder(caller, monkeypatch)
    assert caller.respond(max_output_tokens=1).status_code == 200
    return recorder


def said(style: str, text: str) -> str:
    """A call as a model writes it."""
    ARGUMENTS["lines"] = json.dumps({"input": text}, ensure_ascii=False)
    return written(style, "lines")


def test_a_call_that_comes_by_itself_belongs_to_the_grammar_too(
    caller: Caller, recorder: Recorder
) -> None:
    right, wrong = said(caller.style, RIGHT), said(caller.style, WRONG)
    assert recorder.may_say("I say nothing.")
    assert recorder.may_say(right)
    assert not recorder.may_say(wrong)
    if caller.style != "llama3":  # there a call stands at the beginning, or behind a tag
        assert recorder.may_say(f"I write.\n{right}")
        assert not recorder.may_say(f"I write.\n{wrong}")


def test_a_call_in_a_way_that_only_parsers_know_belongs_to_it_as_well(
    caller: Caller, recorder: Recorder
) -> None:
    """Without the outer mark, or with a special token that is spelled."""
    mark = {
        "hermes-special": "<tool_call>", "llama3": "<|python_tag|>", "mistral": "[TOOL_CALLS]",
        "mistral-named": "[TOOL_CALLS]", "qwen-coder": "<function=", "deepseek-v3": CALL,
        "deepseek-v31": CALL, "deepseek-v31-special": BEGIN, "hermes": "<tool_call>",
    }[caller.style]  # fmt: skip
    for text, belongs in ((RIGHT, True), (WRONG, False)):
        behind = said(caller.style, text).partition(mark)[2]
        behind = behind or said(caller.style, text)  # of Llama 3
        assert recorder.may_say(behind, spelled=f"I write. {mark}") == belongs


def test_spaces_before_a_call_of_llama_do_not_free_it(
    caller: Caller, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    if caller.style == "llama3":
        for space in ("\n ", "\x1c", "\x85", "\u2003"):
            assert not recorder.may_say(space + said("llama3", WRONG))
            assert recorder.may_say(f"{space}x" + said("llama3", WRONG))  # a text


def test_other_functions_are_as_free_as_before(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(caller, monkeypatch)
    put = {"type": "function", "name": "put", "parameters": {"type": "object"}, "strict": False}
    assert caller.respond(tools=[put, custom(LINES)], max_output_tokens=1).status_code == 200
    monkeypatch.setitem(ARGUMENTS, "put", '{"any": "thing"}')
    assert recorder.may_say(written(caller.style, "put"))
    assert recorder.may_say(said(caller.style, RIGHT))
    assert not recorder.may_say(said(caller.style, WRONG))


@pytest.mark.parametrize("choice", ["none", "auto"])
def test_a_grammar_that_no_call_may_follow_constrains_nothing(
    hermes: Caller, choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(hermes, monkeypatch)
    clock = {"type": "function", "name": "clock"}
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [clock]}
    tool_choice = choice if choice == "none" else allowed
    answer = hermes.respond(
        tools=[clock, custom("start: %json {}")], tool_choice=tool_choice, max_output_tokens=1
    )
    assert answer.status_code == 200
    assert recorder.constraint is None or "lines" not in recorder.constraint.text


# --- the patches of Codex ---


@pytest.mark.parametrize("style", STYLES)
def test_a_patch_of_codex_may_be_called_with_in_every_form(style: str, tmp_path: Path) -> None:
    speaker = Speaker(style, tmp_path / style)
    texts = {"lines": TextGrammar("input", "lark", CODEX, "tools[0].format.definition")}
    functions = {"functions": {"lines": {"type": "object"}}, "texts": texts}
    for is_required in (True, False):
        options = {**functions, "is_required": is_required}
        assert speaker.may_say(said(style, PATCH), **options)
        assert not speaker.may_say(said(style, PATCH.replace("+z", "z")), **options)
        assert not speaker.may_say(said(style, ""), **options)


def test_a_thought_may_come_before_such_a_call(tmp_path: Path) -> None:
    import llguidance

    speaker = Speaker("hermes", tmp_path / "hermes")
    assert isinstance(speaker.form, ToolFormat)
    texts = {"lines": TextGrammar("input", "lark", LINES, "tools[0].format.definition")}
    demand = {"functions": {"lines": {}}, "texts": texts, "is_required": True,
              "may_be_several": False, "answer": None}  # fmt: skip
    constraint = Constraint("lark", speaker.form.grammar(demand))
    thinking = FORMATS["think"].before(constraint, speaker.tokenizer, [5])
    matcher = llguidance.LLMatcher(
        speaker._llguidance, llguidance.grammar_from("lark", thinking.text)
    )
    for text, belongs in ((RIGHT, True), (WRONG, False)):
        matcher.reset()
        answer = f"<think>Which lines?</think>\n\n{said('hermes', text)}"
        ids = speaker.tokenizer.encode(answer, add_special_tokens=False)
        is_whole = matcher.try_consume_tokens(ids) == len(ids)
        assert (is_whole and matcher.is_accepting()) == belongs


# --- what is refused ---


def refusal(caller: Caller, **fields: Any) -> tuple[str, str]:
    """The field that is named, and why."""
    answer = caller.respond(**fields)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    message: str = error["message"]
    assert message.startswith(f"{error['param']}: ")
    return error["param"], message.removeprefix(f"{error['param']}: ")


BAD = custom('start: "a"\n%ignore " "')


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [BAD]}, "tools[0].format.definition"),
        ({"tools": [{"type": "web_search"}, BAD]}, "tools[1].format.definition"),
        (
            {"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "mcp"}, BAD]}]},
            "tools[0].tools[1].format.definition",
        ),
        (
            {"tools": [], "input": [{"type": "compaction"}, {"role": "user", "content": "hi"},
                                    {"type": "additional_tools", "tools": [BAD]}]},
            "input[2].tools[0].format.definition",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("choice", ["auto", "required"])
def test_a_grammar_that_cannot_be_enforced_is_refused_by_the_name_of_its_field(
    hermes: Caller, choice: str, fields: Json, param: str
) -> None:
    told = refusal(hermes, **fields, tool_choice=choice)
    assert told == (param, "Line 2: %ignore is not supported here.")


def test_a_grammar_that_cannot_be_followed_is_named_if_it_is_the_only_one() -> None:
    text = TextGrammar("input", "lark", LINES, "tools[3].format.definition")
    too_large = InvalidRequestError(f"the grammar {TOO_LARGE}", param="response_format")
    other = InvalidRequestError("the grammar cannot be compiled", param="response_format")

    def blamed(error: InvalidRequestError, texts: dict[str, TextGrammar]) -> str | None:
        return AnswerForm(Constraint("tools"), texts=texts).blamed(error).param

    assert blamed(too_large, {"lines": text}) == "tools[3].format.definition"
    for error, texts in (
        (too_large, {"a": text, "b": text}),
        (too_large, {}),
        (other, {"a": text}),
    ):
        assert blamed(error, texts) == "tools"


def test_a_lexeme_that_leaves_nothing_to_the_next_one_ends_with_the_limit(hermes: Caller) -> None:
    """llguidance would look for tokens that are certain, without end."""
    tools = [custom('start: /a+/ "a"')]
    answer = hermes.respond(tools=tools, tool_choice="required", max_output_tokens=40)
    assert answer.json()["status"] == "incomplete"


def test_grammars_may_have_so_many_characters_together(hermes: Caller) -> None:
    long = f"// {'x' * 70_000}\n{LINES}"
    tools = [custom(long), custom(long, name="others")]
    param, why = refusal(hermes, tools=tools)
    assert param == "tools[1].format.definition"
    assert "131072 characters" in why


def test_an_answer_in_json_hides_calls_of_llama(tmp_path: Path) -> None:
    speaker = Speaker("llama3", tmp_path / "llama3")
    assert isinstance(speaker.form, ToolFormat)
    texts = {"lines": TextGrammar("input", "lark", LINES, "tools[0].format.definition")}
    demand = {"functions": {"lines": {}}, "texts": texts, "is_required": False,
              "may_be_several": False, "answer": {"type": "object"}}  # fmt: skip
    with pytest.raises(InvalidRequestError, match="without a mark") as refused:
        speaker.form.grammar(demand)
    assert refused.value.param == "tools[0].format.definition"
    assert speaker.form.grammar({**demand, "is_required": True})
    assert speaker.form.grammar({**demand, "texts": {}})
