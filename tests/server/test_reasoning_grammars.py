"""Grammars hold for what comes behind the reasoning, and leave that free."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.models.tiny import tiny_model
from tests.server.conftest import LiveServer, serving
from tests.server.test_reasoning import CALL, streamed
from tests.server.tool_asking import TOOLS, ask
from tests.server.tool_models import STYLES, restyle
from yaie.engine.llm_engine import LLMEngine

TAGS = {"<|user|>": "<think>", "<|system|>": "</think>"}
ENDINGS = {
    "opened": "{% if add_generation_prompt %}<think>\n{% endif %}",
    "free": "",
    "closed": "{% if add_generation_prompt %}<think>\n\n</think>\n\n{% endif %}",
}
SCHEMA = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"],
          "additionalProperties": False}  # fmt: skip


@pytest.fixture(scope="module", params=[*ENDINGS, "opened-text"])
def reasoner(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveServer]:
    """The real engine on a tiny model that reasons; its tags are special tokens, or text."""
    folder: Path = tmp_path_factory.mktemp("reasoning") / "reasoner"
    tiny_model("llama", folder)
    template = STYLES["hermes"][0].split("{% if add_generation")[0]
    ending = ENDINGS[request.param.removesuffix("-text")]
    restyle(folder, template + ending, {} if request.param.endswith("-text") else TAGS)
    with serving(
        lambda: LLMEngine(model=str(folder), num_blocks=512, threads=1), reasoning_parser="think"
    ) as server:
        yield server


def may_say(server: LiveServer, text: str, **options: Any) -> bool:
    """Whether the grammar of such a request lets a text through."""
    import llguidance.hf

    from solutions.api_server import ChatRequest
    from yaie.core.constraint import Constraint
    from yaie.server.extras.reasoning import FORMATS
    from yaie.server.tools import choose_format

    body = ChatRequest.model_validate({"messages": [{"role": "user", "content": "hi"}], **options})
    wanted = body.sampling_params({}).constraint
    assert wanted is not None
    tokenizer = server.llm.tokenizer
    if wanted.kind == "tools":
        form = choose_format("auto", tokenizer.chat_template, tokenizer.special_token_id)
        assert form is not None
        wanted = Constraint("lark", form.grammar(json.loads(wanted.text)))
    prompt = server.llm.encode_chat([{"role": "user", "content": "hi"}])
    found = FORMATS["think"].before(wanted, tokenizer, prompt)
    grammar = (
        llguidance.grammar_from("json_schema", found.text)
        if found.kind == "json_schema"
        else llguidance.grammar_from("lark", found.text)
    )
    tokens = llguidance.hf.from_tokenizer(tokenizer.of_transformers)
    matcher = llguidance.LLMatcher(tokens, grammar)
    assert not matcher.is_error(), matcher.get_error()
    ids = tokenizer.encode(text, add_special_tokens=False)
    return bool(matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting())


@pytest.fixture
def ending(reasoner: LiveServer, request: pytest.FixtureRequest) -> str:
    name: str = request.node.callspec.params["reasoner"]
    return name.removesuffix("-text")


FORM = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}


def test_an_answer_has_its_form_behind_the_reasoning(reasoner: LiveServer, ending: str) -> None:
    options = {"response_format": FORM}
    answer = '{"ok": true}'
    thought = {"opened": "Hm {.\n</think>\n\n", "free": "<think>Hm {.</think>\n\n", "closed": ""}
    assert may_say(reasoner, thought[ending] + answer, **options)
    assert may_say(reasoner, answer, **options) == (ending != "opened")
    assert not may_say(reasoner, thought[ending] + "ok", **options)
    assert not may_say(reasoner, "<think>Hm.</think>\n\nok", **options)


def test_calls_are_held_to_behind_the_reasoning(reasoner: LiveServer, ending: str) -> None:
    options: Any = {"tools": TOOLS, "tool_choice": "required"}
    thought = {"opened": "Hm.</think>\n\n", "free": "<think>Hm.</think>\n\n", "closed": ""}
    assert may_say(reasoner, thought[ending] + CALL, **options)
    assert may_say(reasoner, CALL, **options) == (ending != "opened")
    assert not may_say(reasoner, thought[ending] + "No.", **options)
    options["tool_choice"], options["parallel_tool_calls"] = "auto", False
    assert may_say(reasoner, f"{thought[ending]}No.", **options)
    assert may_say(reasoner, f"{thought[ending]}So: {CALL}", **options)
    assert not may_say(reasoner, f"{thought[ending]}So: {CALL}{CALL}", **options)
    if ending != "closed":  # what only looks like a call there is no call
        begun = thought[ending].replace("Hm.", f"{CALL}{CALL}")
        assert may_say(reasoner, f"{begun}{CALL}", **options)


def test_the_content_follows_its_schema_on_a_real_engine(reasoner: LiveServer, ending: str) -> None:
    end = reasoner.llm.tokenizer.special_token_id("</think>")
    bias = {} if end is None else {str(end): 12}  # a random model seldom finds it
    for seed in range(3):
        options = {"response_format": FORM, "logit_bias": bias, "seed": seed}
        answer = ask(reasoner, tools=openai.omit, max_tokens=300, **options)
        (choice,) = answer.choices
        if choice.finish_reason == "stop":
            assert json.loads(choice.message.content).keys() == {"ok"}
        else:
            assert choice.message.content == "" or choice.message.content.startswith("{")
        chunks = ask(
            reasoner, tools=openai.omit, max_tokens=300, stream=True,
            stream_options={"include_usage": True}, **options,
        )  # fmt: skip
        reasoning, content, usage = streamed(chunks)
        assert "".join(reasoning) == (choice.message.reasoning_content or "")
        assert "".join(content) == choice.message.content
        assert usage.completion_tokens_details == answer.usage.completion_tokens_details


def test_the_entries_of_all_tokens_travel_with_reasoning_and_content(
    reasoner: LiveServer,
) -> None:
    options: Any = {"logprobs": True, "max_tokens": 30, "tools": openai.omit}
    whole = ask(reasoner, **options)
    entries: list[Any] = []
    for chunk in ask(reasoner, stream=True, **options):
        entries += chunk.choices[0].logprobs.content if chunk.choices[0].logprobs else []
    assert entries == whole.choices[0].logprobs.content
    assert len(entries) == whole.usage.completion_tokens
