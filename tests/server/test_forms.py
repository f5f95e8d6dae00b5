"""The form of an answer in the words of other servers: `structured_outputs` and its like."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.server.conftest import LiveServer
from tests.server.test_lenient import CHAT, SIZES, TEXT, ask, refusal, text_of
from yaie.server.lenient.forms import take_form
from yaie.server.lenient.notes import IGNORED, noting

SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"],
          "additionalProperties": False}  # fmt: skip
CHOICES = ["yes, surely", 'no "never"', "ä\n/"]
LARK = 'start: WORD ("-" WORD)~2\nWORD: /[ab]{2}/\n'
GBNF = 'root ::= item "-" item "-" item\nitem ::= [ab] [ab]\n'


def is_an_object(text: str) -> bool:
    return isinstance(json.loads(text), dict)


def follows_the_schema(text: str) -> bool:
    return json.loads(text) in ({"a": 1}, {"a": 2})


def is_a_choice(text: str) -> bool:
    return text in CHOICES


def matches(text: str) -> bool:
    return re.fullmatch(r"[ab]{2}(-[ab]{2}){2}", text) is not None


CALL = {"begin": "<f=g>", "schema": SCHEMA, "end": "</f>"}
OLD_TAGS = {"type": "structural_tag", "triggers": ["<f="], "structures": [CALL]}
NEW_CALL = {
    "begin": "<f=g>",
    "content": {"type": "json_schema", "json_schema": SCHEMA},
    "end": "</f>",
}
STATES = {
    "type": "sequence",
    "elements": [
        {"type": "const_string", "value": "He said: "},
        {"type": "or", "elements": [{"type": "const_string", "value": "1"},
                                    {"type": "regex", "pattern": "[ab]{2}"}]},
        {"type": "tag", "begin": "<", "end": ">", "content": {"type": "regex", "pattern": "[0-9]"}},
        {"type": "tags_with_separator", "separator": ", ", "tags": [NEW_CALL], "at_least_one": True,
         "stop_after_first": True},
    ],
}  # fmt: skip
ONE_CALL = {"type": "triggered_tags", "triggers": ["<f="], "tags": [NEW_CALL], "at_least_one": True,
            "stop_after_first": True}  # fmt: skip


def is_said(text: str) -> bool:
    pattern = r'He said: (1|[ab]{2})<[0-9]><f=g>\{\s*"a"\s*:\s*[12]\s*\}</f>'
    return re.fullmatch(pattern, text) is not None


FORMS = [
    ({"structured_outputs": {"structural_tag": {"format": STATES}}}, is_said),
    ({"structured_outputs": {"structural_tag": json.dumps({"format": STATES})}}, is_said),
    ({"response_format": {"type": "structural_tag", "format": STATES}}, is_said),
    ({"response_format": {"type": "regex", "pattern": "[ab]{2}(-[ab]{2}){2}"}}, matches),
    ({"response_format": {"type": "grammar", "grammar": LARK}}, matches),
    ({"response_format": {"type": "choice", "choices": CHOICES}}, is_a_choice),
    ({"structured_outputs": {"json": SCHEMA}}, follows_the_schema),
    ({"structured_outputs": {"json": json.dumps(SCHEMA), "regex": None}}, follows_the_schema),
    ({"structured_outputs": {"choice": CHOICES}}, is_a_choice),
    ({"structured_outputs": {"regex": "[ab]{2}(-[ab]{2}){2}"}}, matches),
    ({"structured_outputs": {"grammar": LARK}}, matches),
    ({"structured_outputs": {"grammar": GBNF, "json_object": False}}, matches),
    ({"guided_json": SCHEMA, "guided_decoding_backend": "auto"}, follows_the_schema),
    ({"guided_choice": CHOICES}, is_a_choice),
    ({"guided_regex": "[ab]{2}(-[ab]{2}){2}"}, matches),
    ({"guided_grammar": LARK}, matches),
    ({"grammar": GBNF}, matches),
    ({"json_schema": SCHEMA}, follows_the_schema),
    ({"format": SCHEMA}, follows_the_schema),
]


@SIZES
@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize(("fields", "fits"), FORMS)
def test_an_answer_has_the_form_that_is_asked_for(
    live: LiveServer, path: str, fields: dict[str, Any], fits: Callable[[str], bool], padding: int
) -> None:
    answer = ask(live, path, padding=padding, max_tokens=200, **fields)
    assert fits(text_of(answer))
    assert answer.json()["choices"][0]["finish_reason"] == "stop"
    assert IGNORED not in answer.headers
    streamed = ask(live, path, stream=True, max_tokens=200, **fields)
    chunks = [
        json.loads(line[6:]) for line in streamed.text.splitlines() if line.startswith("data: {")
    ]
    said = [chunk["choices"][0] for chunk in chunks]
    text = "".join(it.get("text") or it.get("delta", {}).get("content") or "" for it in said)
    assert text == text_of(answer)


@pytest.mark.parametrize(
    "fields", [{"structured_outputs": {"json_object": True}}, {"format": "json"}]
)
def test_any_object_will_do(live: LiveServer, fields: dict[str, Any]) -> None:
    answers = [
        ask(live, CHAT, max_tokens=200, temperature=1, seed=seed, **fields) for seed in range(8)
    ]
    whole = [text_of(it) for it in answers if it.json()["choices"][0]["finish_reason"] == "stop"]
    assert whole
    assert all(map(is_an_object, whole))


@pytest.mark.parametrize("value", ["/a/b/", "a\nb", r"\/\d", r"[/]x", 'say "hi"'])
def test_a_pattern_may_hold_any_sign(live: LiveServer, value: str) -> None:
    pattern = re.escape(value) if "[" not in value and "\\" not in value else value
    answer = ask(live, TEXT, max_tokens=100, structured_outputs={"regex": pattern})
    assert re.fullmatch(pattern, text_of(answer))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"structured_outputs": "x"}, "structured_outputs"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
        ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag"),
        ({"response_format": {"type": "structural_tag"}}, "response_format"),
        ({"response_format": {"type": "structural_tag", "format": {"type": "x"}}},
         "response_format.format.type"),
        ({"response_format": OLD_TAGS | {"triggers": ["<g="]}}, "response_format.structures.tags[0]"),
        ({"response_format": OLD_TAGS | {"triggers": []}}, "response_format.structures.triggers"),
        ({"response_format": OLD_TAGS | {"structures": [5]}}, "response_format.structures.tags[0]"),
        ({"response_format": OLD_TAGS | {"structures": [CALL] * 257}},
         "response_format.structures.tags"),
        ({"response_format": OLD_TAGS | {"structures": [CALL | {"schema": {"type": "none"}}]}},
         "response_format"),
        ({"response_format": {"type": "structural_tag", "format": {"type": "or", "elements": [
            {"type": "regex", "pattern": "(" * 65}]}}}, "response_format.format.elements[0].pattern"),
        ({"response_format": {"type": "regex", "pattern": 5}}, "response_format.pattern"),
        ({"response_format": {"type": "regex"}}, "response_format"),
        ({"structured_outputs": {"regex": 5}}, "structured_outputs.regex"),
        ({"structured_outputs": {"regex": "(" * 65 + ")" * 65}}, "structured_outputs.regex"),
        ({"structured_outputs": {"regex": "(a"}}, "structured_outputs"),
        ({"structured_outputs": {"regex": r"(?<=a)b"}}, "structured_outputs"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ({"structured_outputs": {"choice": ["a", ""]}}, "structured_outputs.choice"),
        ({"structured_outputs": {"choice": ["a"] * 1025}}, "structured_outputs.choice"),
        ({"structured_outputs": {"choice": ["\ud800"]}}, "structured_outputs"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json"),
        ({"structured_outputs": {"json": {"type": "nothing"}}}, "structured_outputs"),
        ({"structured_outputs": {"grammar": "a: b"}}, "structured_outputs.grammar"),
        ({"structured_outputs": {"grammar": "start: b"}}, "structured_outputs"),
        ({"structured_outputs": {"grammar": "root ::= ("}}, "structured_outputs"),
        ({"structured_outputs": {"grammar": "start: " + "(" * 99}}, "structured_outputs.grammar"),
        ({"grammar": 'start: "a"\n' + "".join(f'r{i}: "a"\n' for i in range(1024))}, "grammar"),
        ({"grammar": "start: r0\n" + "".join(f"r{i}: ((((( r{i + 1} )))))\n" for i in range(900))
          + 'r900: "a"'}, "grammar"),
        ({"grammar": 'start: "a"\n%llguidance {"no_forcing": false}'}, "grammar"),
        ({"guided_regex": "a", "guided_choice": ["b"]}, "guided_regex"),
        ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "guided_regex"),
        ({"guided_json_object": "yes"}, "guided_json_object"),
    ],
)  # fmt: skip
def test_a_form_that_is_none_is_refused_by_name(
    live: LiveServer, fields: dict[str, Any], param: str
) -> None:
    answer = ask(live, CHAT, **fields)
    told = answer.json()["error"]["param"]
    message = refusal(answer, told)
    assert told.startswith(param)
    assert message.startswith(f"{told}: ")


def test_a_form_belongs_to_one_request(live: LiveServer) -> None:
    before = text_of(ask(live, TEXT))
    assert text_of(ask(live, TEXT, guided_regex="x{3}")) == "xxx"
    assert text_of(ask(live, TEXT)) == before


# --- tags in free text ---


def takes(live: LiveServer, form: Any, text: str) -> bool:
    """Whether an answer may be this, by the grammar alone."""
    from llguidance import LLMatcher

    with noting() as notes:
        take_form({"structured_outputs": {"structural_tag": form}}, ())
    assert notes.form is not None
    grammar = LLMatcher.grammar_from_lark(notes.form[1].text)
    matcher = LLMatcher(live.llm.input._grammars._vocabulary, grammar)
    ids = live.engine.tokenizer.encode(text, False)
    return bool(matcher.consume_tokens(ids) and matcher.is_accepting())


@pytest.mark.parametrize(
    ("text", "is_taken"),
    [
        ("a < b, <f or so", True),
        ('so: <f=g>{"a": 1}</f>', True),
        ('<f=g>{"a": 1}</f> and <f=g>{"a": 2}</f>.', True),
        ('<f=h>{"a": 1}</f>', False),
        ('<f=g>{"a": 3}</f>', False),
        ('<f=g>{"a": 1}<f=', False),
    ],
)
def test_text_is_free_up_to_a_trigger(live: LiveServer, text: str, is_taken: bool) -> None:
    new = {"type": "triggered_tags", "triggers": ["<f="], "tags": [NEW_CALL]}
    assert takes(live, OLD_TAGS, text) is is_taken
    assert takes(live, {"format": new}, text) is is_taken


def test_a_tag_comes_where_one_must(live: LiveServer) -> None:
    form = {"type": "structural_tag", "format": ONE_CALL}
    bias = {str(token): 20 for token in live.engine.tokenizer.encode("<f=", False)}
    answer = ask(live, TEXT, max_tokens=200, response_format=form, logit_bias=bias)
    assert re.search(r'<f=g>\{\s*"a"\s*:\s*[12]\s*\}</f>$', text_of(answer))


def test_any_text_ends_where_its_tag_does(live: LiveServer) -> None:
    thought = {"type": "tag", "begin": "<t>", "content": {"type": "any_text"}, "end": "</t>"}
    answer = {"type": "const_string", "value": "done"}
    form = {"format": {"type": "sequence", "elements": [thought, answer]}}
    assert takes(live, form, "<t>a\n<b></t>done")
    assert takes(live, form, "<t></t>done")
    assert not takes(live, form, "<t>a</t>b</t>done")
    assert not takes(live, form, "<t>adone")


def test_formats_have_limits(live: LiveServer) -> None:
    deep: dict[str, Any] = {"type": "any_text"}
    for _ in range(20):
        deep = {"type": "sequence", "elements": [deep]}
    answer = ask(live, TEXT, response_format={"type": "structural_tag", "format": deep})
    assert "16 levels deep" in answer.text


@pytest.mark.parametrize(
    "fields",
    [
        {"grammar": 'start: /a+/ "a"'},
        {"grammar": 'root ::= [a]+ "a"'},
        {"response_format": {"type": "structural_tag", "format": {"type": "sequence", "elements": [
            {"type": "regex", "pattern": "a+"}, {"type": "const_string", "value": "a"}]}}},
    ],
)  # fmt: skip
def test_a_grammar_that_llguidance_would_never_return_from(
    live: LiveServer, fields: dict[str, Any]
) -> None:
    """Of one whose first lexeme leaves nothing to the second it looks for ever for what is certain."""
    answer = ask(live, TEXT, max_tokens=5, **fields)
    assert answer.status_code in (200, 400)
    assert text_of(ask(live, TEXT))
