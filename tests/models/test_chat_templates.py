"""Templates that take texts, and templates that go through parts: each gets what it takes."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.models.tiny import CHAT_TEMPLATE, tiny_tokenizer
from yaie.core.conversation import PromptOptions
from yaie.core.errors import InvalidRequestError
from yaie.models import Tokenizer
from yaie.models.chat_templates import ChatTemplates
from yaie.models.template_parts import in_parts

LOOP = (
    "{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] }}"
    "{% endif %}{% endfor %}"
)


def turn(said: str) -> str:
    """A template that writes this of each message."""
    return "{% for message in messages %}<|{{ message.role }}|>" + said + "<|end|>{% endfor %}"


END = "{% if add_generation_prompt %}<|assistant|>{% endif %}"
BY_MACRO = "{% macro said(all) %}{% for one in all %}{{ one.text }}{% endfor %}{% endmacro %}"
BY_VARIABLE = "{% set said = message.content %}{% for one in said %}{{ one.text }}{% endfor %}"
LOOKS = "{% if message['content'][0]['type'] == 'image' %}:{% else %}: {% endif %}"
REFUSES = "{% if messages[0].role != 'user' %}{{ raise_exception('no') }}{% endif %}"
PARTS_ONLY = {
    "a loop": turn(LOOP) + END,
    "by a variable": turn(BY_VARIABLE) + END,
    "by a macro": BY_MACRO + turn("{{ said(message.content) }}") + END,
    "by a filter": turn("{{ message.content | map(attribute='text') | join('') }}") + END,
    "the first alone": turn("{{ message.content[0]['text'] | trim }}") + END,
    "looks at the first": turn(LOOKS + LOOP) + END,
    "but for the system": "{{ messages[0].content }}" + turn(LOOP) + END,
    "after a user alone": REFUSES + turn(LOOP),
}
BOTH = "{% if message.content is string %}{{ message.content }}{% else %}" + LOOP + "{% endif %}"
TEXTS = {
    "plain": CHAT_TEMPLATE,
    "both": turn(BOTH) + END,
    "letters": turn("{% for letter in message.content %}{{ letter }}{% endfor %}"),
    "as json": turn("{{ message.content | tojson }}"),
    "the last alone": "{{ messages[-1].content }}",
    "never": "{{ raise_exception('no') }}",
}
TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is a block?"},
    {"role": "assistant", "content": "Sixteen slots."},
    {
        "role": "user",
        "content": [{"type": "text", "text": "And"}, {"type": "text", "text": " why?"}],
    },
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_tokenizer(tmp_path_factory.mktemp("tokenizer"), chat_template=False)


@pytest.fixture
def having(folder: Path, tmp_path: Path) -> Callable[..., Tokenizer]:
    """A tokenizer with these templates by name: in its configuration, or in files."""

    def make(named: dict[str, str], *, in_files: bool = False) -> Tokenizer:
        copy = shutil.copytree(folder, tmp_path / "copy", dirs_exist_ok=True)
        if in_files:
            (copy / "additional_chat_templates").mkdir()
            for name, text in named.items():
                place = copy / "additional_chat_templates" / f"{name}.jinja"
                (copy / "chat_template.jinja" if name == "default" else place).write_text(text)
            return Tokenizer.load(copy)
        path = copy / "tokenizer_config.json"
        listed = [{"name": name, "template": text} for name, text in named.items()]
        path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": listed}))
        return Tokenizer.load(copy)

    return make


def theirs(tokenizer: Tokenizer, talk: list[dict[str, Any]], **options: Any) -> str:
    text: str = tokenizer.of_transformers.apply_chat_template(
        talk, tokenize=False, add_generation_prompt=True, **options
    )
    return text


@pytest.mark.parametrize("kind", PARTS_ONLY)
def test_a_template_that_goes_through_parts_gets_them(
    kind: str, having: Callable[..., Tokenizer]
) -> None:
    tokenizer = having({"default": PARTS_ONLY[kind]})
    talk = TALK[1:] if "user alone" in kind else TALK
    wanted = theirs(tokenizer, in_parts(talk))
    assert "What is a block?" in wanted
    if kind != "the first alone":
        assert "And why?" in wanted
    assert tokenizer.decode_all(tokenizer.apply_chat_template(talk)) == wanted


@pytest.mark.parametrize("kind", TEXTS)
def test_a_template_that_takes_a_text_gets_one(kind: str, having: Callable[..., Tokenizer]) -> None:
    tokenizer = having({"default": TEXTS[kind]})
    templates = ChatTemplates(tokenizer.of_transformers)
    assert not templates.wants_parts(templates.chosen(None))
    if kind == "never":
        return
    joined = [*TALK[:-1], {"role": "user", "content": "And why?"}]
    assert tokenizer.decode_all(tokenizer.apply_chat_template(TALK)) == theirs(tokenizer, joined)


def test_an_answer_that_only_calls_tools_has_no_parts(having: Callable[..., Tokenizer]) -> None:
    tokenizer = having(
        {"default": turn("{% if message.content %}said " + LOOP + "{% else %}silent{% endif %}")}
    )
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    talk = [TALK[1], {"role": "assistant", "content": None, "tool_calls": [call]}]
    assert "<|assistant|>silent" in tokenizer.decode_all(tokenizer.apply_chat_template(talk))


def test_an_answer_in_parts_is_continued(having: Callable[..., Tokenizer]) -> None:
    tokenizer = having({"default": PARTS_ONLY["a loop"]})
    told = tokenizer.chat_text(TALK[:3], options=PromptOptions(False, continue_final_message=True))
    assert told.parts[0].endswith("<|assistant|>Sixteen slots.")  # type: ignore[union-attr]


@pytest.mark.parametrize("in_files", [False, True])
def test_tools_have_a_template_of_their_own(
    having: Callable[..., Tokenizer], in_files: bool
) -> None:
    named = {"default": CHAT_TEMPLATE, "tool_use": "{{ tools[0].function.name }}" + turn(LOOP)}
    tokenizer = having(named, in_files=in_files)
    tools = [{"type": "function", "function": {"name": "find", "parameters": {}}}]
    assert tokenizer.decode_all(tokenizer.apply_chat_template(TALK[:1])) == theirs(
        tokenizer, TALK[:1]
    )
    with_tools = tokenizer.decode_all(tokenizer.apply_chat_template(TALK[:1], tools=tools))
    assert with_tools == theirs(tokenizer, in_parts(TALK[:1]), tools=tools)
    assert with_tools == "find<|system|>Be brief.<|end|>"


@pytest.mark.parametrize("in_files", [False, True])
def test_a_single_template_may_have_any_name(
    having: Callable[..., Tokenizer], in_files: bool
) -> None:
    tokenizer = having({"rag": CHAT_TEMPLATE}, in_files=in_files)
    assert tokenizer.template_note is None
    assert "Be brief." in tokenizer.decode_all(tokenizer.apply_chat_template(TALK[:1]))


def test_several_templates_without_a_default_are_named(having: Callable[..., Tokenizer]) -> None:
    tokenizer = having({"rag": CHAT_TEMPLATE, "tool_use": CHAT_TEMPLATE}, in_files=True)
    with pytest.raises(
        InvalidRequestError, match="named 'rag', 'tool_use' and none named 'default'"
    ):
        tokenizer.apply_chat_template(TALK)
    assert tokenizer.template_note is not None
    assert tokenizer.apply_chat_template(
        TALK, tools=[{"type": "function", "function": {"name": "f"}}]
    )


def test_an_empty_template_is_none(having: Callable[..., Tokenizer]) -> None:
    tokenizer = having({"default": ""})
    assert not tokenizer.has_chat_template
    assert (
        tokenizer.decode(tokenizer.apply_chat_template(TALK[:1])) == "system: Be brief.\nassistant:"
    )
