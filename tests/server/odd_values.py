"""Values that have brought servers down, and bodies with each of them at each place.

A body is written by hand where `json` would not: an integer of 5,000 digits, `1e999`, half of a
surrogate pair. `ODD` is JSON as a client might send it, right or wrong.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from yaie.server.openapi import examples

Json = Any

NUMBERS = (
    "0", "-1", "-0.0", "0.1", "1e-320", "1e308", "1e999", "-1e999", "NaN", "-Infinity",
    str(2**31), str(2**53), str(2**63 - 1), str(2**63), str(-(2**63) - 1), str(2**64),
    "1" + "0" * 399, "1" + "0" * 4299, "1" + "0" * 4300, "-1" + "0" * 5000,
)  # fmt: skip
STRINGS = tuple(
    json.dumps(text)
    for text in (
        "", "\ud800", "\udc00", "a\ud83d b", "\udc00\ud800", "\0", "a\0b", "\x1b[31m\x07\x7f",
        "\u202eabc\u2066", "\ufeff", "\ufdd0\uffff\U0010ffff", "\u2028\u2029\x85", "e\u0301" * 40,
        "x" * 3000, " " * 3000, "1e999", "NaN", "5", "true", "{{ 7 * 7 }}{% raw %}", "%s%n{0}",
        "<tool_call>", "</think><|im_end|>", "../../etc/passwd", '{"a": 1e999}', '{"a": "\\ud800"}',
        '{"a": ' + "9" * 5000 + "}", "[" * 300, '{"a": ' * 100 + "1" + "}" * 100,
    )
)  # fmt: skip
OTHERS = (
    "true", "false", "null", "[]", "{}", "[[]]", "[null]", '[{"type": "text"}]',
    r'{"\ud800": 1}', r'{"\u0000": 1}', '{"": 1}', '{"a": 1e999}', '{"a": ' + "9" * 4300 + "}",
    '{"a": ' + "9" * 5000 + "}", r'{"a": [{"b": "\udfff"}]}', '{"$ref": "#"}', '{"type": ["object", 5]}',
    '{"a": ' * 70 + "1" + "}" * 70, "[" * 70 + "]" * 70,
)  # fmt: skip
ODD = NUMBERS + STRINGS + OTHERS

_CALL = {
    "id": "c",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Ulm"}'},
}
_TOOL = {"name": "weather", "description": "Tells it."}
_SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1, "maxLength": 8, "pattern": "^[a-z]+$"},
        "days": {"type": "integer", "minimum": 0, "maximum": 3},
        "share": {"type": "number", "multipleOf": 0.5},
        "kinds": {"type": "array", "items": {"enum": ["a", 1]}, "minItems": 0, "maxItems": 2},
    },
    "required": ["city"],
}
_TURNS = [
    {"role": "system", "content": "Be brief.", "name": "s"},
    {"role": "user", "content": [{"type": "text", "text": "How is the weather?"}], "name": "u"},
    {"role": "assistant", "content": None, "tool_calls": [_CALL], "reasoning_content": "Hm."},
    {"role": "tool", "content": "5", "tool_call_id": "c", "name": "weather"},
]
_BLOCKS = [
    {
        "role": "user",
        "content": [{"type": "text", "text": "How?", "cache_control": {"type": "ephemeral"}}],
    },
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "s"},
            {"type": "tool_use", "id": "c", "name": "weather", "input": {"city": "Ulm", "days": 1}},
        ],
    },
    {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c", "content": "5", "is_error": False}],
    },
]
_SAMPLING = {
    "temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "presence_penalty": 0.1,
    "frequency_penalty": 0.1, "repetition_penalty": 1.1, "seed": 7, "priority": 0,
}  # fmt: skip
_COMPLETION = {
    **_SAMPLING, "min_tokens": 1, "n": 1, "stop": ["zz"], "stop_token_ids": [5],
    "logit_bias": {"5": 1.5}, "truncate_prompt_tokens": 20, "user": "u", "metadata": {"run": "1"},
    "prompt_logprobs": 1,
    "logprob_token_ids": [5],
}  # fmt: skip
_FUNCTION = {**_TOOL, "parameters": _SCHEMA, "strict": True}

_PATCH = {"type": "custom", "name": "patch",
          "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}}  # fmt: skip
_CLOCK = {"name": "clock", "description": "Time."}
_ANY_CLOCK = {**_CLOCK, "input_schema": {"type": "object"}}
_LEFT = [
    {"role": "assistant", "content": [
        {"type": "text", "text": "So.", "citations": [{"url": "u"}]},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}},
        {"type": "compaction", "content": "In short."},
        {"type": "tool_use", "id": "c", "name": "weather", "input": '{"a":'}]},
    {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "c",
         "content": [{"type": "tool_reference", "tool_name": "clock"}, {"type": "new", "a": 1}]}]},
    {"role": "system", "content": [
        {"type": "text", "text": "Now."},
        {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": _ANY_CLOCK}},
        {"type": "tool_addition", "tools": [_ANY_CLOCK, {"type": "tool_reference", "name": "weather"}]},
        {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "clock"}}]},
]  # fmt: skip
"""What agents declare and send back."""

EVERYTHING: dict[str, list[Json]] = {
    "/v1/chat/completions": [
        {**_COMPLETION, "messages": _TURNS[:2], "max_tokens": 2, "logprobs": True,
         "chat_template_kwargs": {"enable_thinking": False, "a": [1, "b"]}, "safety_identifier": "s",
         "prompt_cache_key": "k", "model": None},
        {"messages": _TURNS, "max_completion_tokens": 2, "tools": [{"type": "function",
         "function": _FUNCTION}],
         "tool_choice": {"type": "function", "function": {"name": "weather"}}},
        {"messages": _TURNS[:2], "max_tokens": 2, "stream": True,
         "stream_options": {"include_usage": True},
         "response_format": {"type": "json_schema", "json_schema": {"name": "w", "schema": _SCHEMA}}},
    ],
    "/v1/completions": [
        {**_COMPLETION, "prompt": [5, 6], "max_tokens": 2, "logprobs": 1, "best_of": 1},
        {"prompt": [[5, 6], [7]], "max_tokens": 2, "stream": True, "echo": True},
    ],
    "/v1/responses": [
        {**_SAMPLING, "max_output_tokens": 2, "instructions": "Be brief.", "metadata": {"run": "1"},
         "user": "u", "safety_identifier": "s", "prompt_cache_key": "k", "top_logprobs": 1,
         "include": ["message.output_text.logprobs"], "tools": [{"type": "function", **_FUNCTION}],
         "tool_choice": "auto",
         "input": [{"role": "user", "content": "How?"},
                   {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}]},
                   {"type": "function_call", "call_id": "c", "name": "weather", "arguments": '{"a": 1}'},
                   {"type": "function_call_output", "call_id": "c", "output": "5"}]},
        {"max_output_tokens": 2, "include": ["web_search_call.results"],
         "tools": [{"type": "namespace", "name": "n", "description": "N.",
                    "tools": [{"type": "function", **_CLOCK}]}, {"type": "web_search"}],
         "tool_choice": {"type": "function", "name": "clock", "namespace": "n"},
         "input": [{"role": "user", "content": "How?"},
                   {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}],
                    "encrypted_content": "e"},
                   {"type": "function_call", "call_id": "c", "name": "clock", "namespace": "n",
                    "arguments": '{"a":'},
                   {"type": "web_search_call", "action": {"query": "q"}}]},
        {"max_output_tokens": 2, "tools": [_PATCH],
         "input": [{"type": "custom_tool_call", "call_id": "d", "name": "patch", "input": "x"},
                   {"type": "custom_tool_call_output", "call_id": "d",
                    "output": [{"type": "input_text", "text": "5"}]},
                   {"type": "additional_tools", "role": "developer",
                    "tools": [{"type": "function", **_CLOCK}]}]},
        {"input": "How?", "max_output_tokens": 2, "stream": True, "metadata": {"run": "1"},
         "text": {"format": {"type": "json_schema", "name": "w", "schema": _SCHEMA}}},
    ],
    "/v1/messages": [
        {**_SAMPLING, "messages": _BLOCKS, "max_tokens": 2,
         "system": [{"type": "text", "text": "Brief."}], "stop_sequences": ["zz"],
         "metadata": {"user_id": "u"}, "thinking": {"type": "enabled", "budget_tokens": 1024},
         "tools": [{**_TOOL, "input_schema": _SCHEMA, "strict": True}],
         "tool_choice": {"type": "tool", "name": "weather"}},
        {"messages": [*_BLOCKS[:1], *_LEFT, *_BLOCKS[:1]], "max_tokens": 2},
        {"messages": _BLOCKS[:1], "max_tokens": 2, "container": {"id": "c"},
         "mcp_servers": [{"type": "url", "url": "u"}],
         "context_management": {"edits": [{"type": "clear_tool_uses_20250919", "keep": {"value": 1}}]},
         "tools": [{**_ANY_CLOCK, "defer_loading": True, "input_examples": [{"a": 1}]},
                   {"type": "web_search_20250305", "name": "web_search"}]},
        {"messages": _BLOCKS[:1], "max_tokens": 2, "stream": True,
         "output_config": {"format": {"type": "json_schema", "schema": _SCHEMA}}},
    ],
    "/v1/messages/count_tokens": [
        {"messages": _BLOCKS, "tools": [{**_TOOL, "input_schema": _SCHEMA}], "system": "Brief."},
    ],
    "/v1/embeddings": [
        {"input": ["How?"], "dimensions": 4, "truncate_prompt_tokens": 5, "priority": 0, "user": "u"},
        {"input": [[5, 6], [7]], "encoding_format": "base64"},
    ],
    "/tokenize": [
        {"prompt": "How?", "return_token_strs": True},
        {"messages": _TURNS, "tools": [{"type": "function", "function": _FUNCTION}],
         "chat_template_kwargs": {"a": 1}, "return_token_strs": True},
    ],
    "/detokenize": [{"tokens": [5, 6]}],
    "/web/next_token": [
        {"prompt": [5, 6], "temperature": 0.5, "top_k": 5, "top_p": 0.9, "min_p": 0.1},
        {"messages": _TURNS[:2]},
    ],
}  # fmt: skip
"""For each route bodies that hold, together, all that it knows of numbers and texts."""

SAMPLES: dict[str, examples.Examples] = {
    "/v1/chat/completions": examples.CHAT,
    "/v1/completions": examples.COMPLETION,
    "/v1/responses": examples.RESPONSES,
    "/v1/messages": examples.MESSAGES,
    "/v1/messages/count_tokens": examples.COUNT_TOKENS,
    "/v1/embeddings": examples.EMBEDDINGS,
    "/tokenize": examples.TOKENIZE,
    "/detokenize": examples.DETOKENIZE,
}
_SHORT = {"max_tokens": 2, "max_completion_tokens": 2, "max_output_tokens": 2}


def bodies() -> list[tuple[str, Json]]:
    """(path, body): right ones, whose answers are short."""
    found = [(path, body) for path, those in EVERYTHING.items() for body in those]
    for path, samples in SAMPLES.items():
        for body in samples.values():
            short = {name: _SHORT[name] for name in body.keys() & _SHORT.keys() if body[name]}
            found.append((path, body | short))
    return found


def places(body: Json, way: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The way to every value in a body, to objects and lists as well, the body itself left out."""
    if way:
        yield way
    steps: Any = body.items() if isinstance(body, dict) else ()
    steps = enumerate(body) if isinstance(body, list) else steps
    for step, inner in steps:
        yield from places(inner, (*way, step))


@dataclass(frozen=True)
class Case:
    """A body with `odd` at a place. as_name: as the name of a field there, which is a string."""

    path: str
    body: Json
    way: tuple[str | int, ...]
    odd: str
    as_name: bool = False

    def written(self) -> bytes:
        """The body as JSON."""
        mark = "@here@"
        changed = json.loads(json.dumps(self.body))
        inner = changed
        for step in self.way[:-1]:
            inner = inner[step]
        if self.as_name:
            inner[mark] = inner.pop(self.way[-1])
        else:
            inner[self.way[-1]] = mark
        return json.dumps(changed).replace(json.dumps(mark), self.odd).encode()


def cases() -> Iterator[Case]:
    """Every odd value at every place of every body, and every odd string as every field's name."""
    for path, body in bodies():
        for way in places(body):
            yield from (Case(path, body, way, odd) for odd in ODD)
            if isinstance(way[-1], str):
                yield from (Case(path, body, way, odd, as_name=True) for odd in STRINGS)


_WORST = {'{"a": ' + "9" * 4300 + "}", "1" + "0" * 4299, "1e999", json.dumps("\ud800")}
_WHERE = {"parameters", "schema", "input_schema", "properties", "maximum", "arguments", "input",
          "max_tokens", "max_completion_tokens", "max_output_tokens", "metadata",
          "user", "stop", "name", "min_tokens",
          "chat_template_kwargs", "a"}  # fmt: skip


def chosen(every: int) -> Iterator[Case]:
    """One of so many cases, and all with what brought servers down where it did."""
    for number, case in enumerate(cases()):
        if number % every == 0 or (case.odd in _WORST and case.way[-1] in _WHERE):
            yield case


HEADERS = ("X-Request-Id", "Authorization", "X-Api-Key", "Content-Type", "Accept", "User-Agent",
           "Content-Encoding", "Traceparent", "Anthropic-Version")  # fmt: skip
HEADER_VALUES = (b"", b"\xff\xfe", b"\xed\xa0\x80", b"\x01\x1b[31m", b"a" * 8000, b"1e999",
                 b"-1", b"9" * 5000, b"\xe2\x80\xae", b"Bearer \xff", b"application/json; charset=\xff",
                 b"application/json; charset=utf-16")  # fmt: skip
PATHS = ("/v1/models/%ff", "/v1/models/%00", "/v1/models/%ed%a0%80", "/v1/models/..%2f..%2fetc",
         "/%ff/%fe", "/v1/models/" + "x" * 3000, "/watch/%ff", "/web/%ff", "/web/%00",
         "/web/..%2f..%2fapp.py",
         "/web/" + "x" * 5000, "/v1/models?x=%ff", "/tokenizer_info?%00=1", "/get_load?dp_rank=1e999",
         "/metrics?name[]=%ff", "/metrics?name[]=%ed%a0%80", "//", "/%2e%2e/")  # fmt: skip
