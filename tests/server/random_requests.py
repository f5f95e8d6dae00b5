"""Random requests of the four dialects that generate text, and what an answer to one says.

Most are right, some have a field that is wrong or unknown. `said` makes of an answer, whole or streamed,
one value that must be the same for both: ids and times are left out.
"""

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import httpx

Json = dict[str, Any]

CHAT, TEXT, RESPONSES, MESSAGES = (
    "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages",
)  # fmt: skip
SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, "x"]}}, "required": ["a"],
          "additionalProperties": False}  # fmt: skip
STRUCTURED: list[Json] = [
    {"regex": "[a-c]{2,5}"}, {"choice": ["yes", "no, never"]}, {"json": SCHEMA},
    {"grammar": 'start: "a" /[b-d]+/'},
    {"structural_tag": {"triggers": ["<f"], "structures": [
        {"begin": "<f>", "schema": SCHEMA, "end": "</f>"}]}},
]  # fmt: skip
WRONG: list[Json] = [
    {"temperature": -1}, {"top_p": "much"}, {"max_tokens": 0}, {"seed": 1e400}, {"stop": [""]},
    {"bad_words": [5]}, {"cache_salt": ""}, {"tools": [{"type": "function"}]}, {"n": 10**30},
    {"structured_outputs": {"regex": "("}}, {"temprature": 1}, {"mirostat": 2}, {"logprobs": "all"},
]  # fmt: skip
ODD: list[Json] = [
    {"unheard_of": {"a": [1]}}, {"user": None}, {"keep_alive": "5m"}, {"mirostat": 0},
    {"client_metadata": {"x": "y"}}, {"options": {"top_k": 20}}, {"top_k": -1}, {"metadata": {"a": "b"}},
]  # fmt: skip
WORDS = ["hello", "Paging?", " once", "\n", "é中", "<think>", "{}", "a b c"]


def request(rng: random.Random) -> tuple[str, Json]:
    """A path and a body without `stream`."""
    path = rng.choice([CHAT, CHAT, TEXT, RESPONSES, MESSAGES])
    body = {**_sampling(rng, path), **_MAKERS[path](rng)}
    for pool, chance in ((ODD, 0.3), (WRONG, 0.1)):
        if rng.random() < chance:
            body |= rng.choice(pool)
    return path, body


def _text(rng: random.Random) -> str:
    return "".join(rng.choices(WORDS, k=rng.randint(1, 4)))


def _sampling(rng: random.Random, path: str) -> Json:
    limit = "max_output_tokens" if path == RESPONSES else "max_tokens"
    given: Json = {limit: rng.randint(1, 40), "seed": rng.randrange(100)}
    some: list[Json] = [
        {"temperature": rng.choice([0, 0.7, 1.5])},
        {"top_k": rng.randint(1, 40)},
        {"min_p": 0.05},
        {"repetition_penalty": 1.2},
        {"ignore_eos": True},
        {"bad_words": rng.sample(["a", "the", "ing", "e"], 2)},
        {"skip_special_tokens": False},
        {"include_stop_str_in_output": True},
        {"thinking_token_budget": rng.randint(-1, 12)},
        {"cache_salt": rng.choice("ab")},
    ]
    if path != RESPONSES:
        name = "stop_sequences" if path == MESSAGES else "stop"
        some.append({name: rng.choices(["e", "a", "th", "\n", "}"], k=2)})
    if path in (CHAT, TEXT):
        some += [
            {"n": rng.randint(1, 3)},
            {"min_tokens": rng.randint(1, given[limit])},
            {"logit_bias": {str(rng.randrange(3, 200)): rng.choice([-100, 5, 20])}},
            {"stop_token_ids": rng.sample(range(200), 3)},
            {"return_token_ids": True},
            {"return_tokens_as_token_ids": True},
            {"structured_outputs": rng.choice(STRUCTURED)},
        ]
    for one in rng.sample(some, rng.randint(0, 6)):
        given |= one
    return given


def _turns(rng: random.Random) -> list[Json]:
    turns = [{"role": "user", "content": _text(rng)}]
    for _ in range(rng.randint(0, 2)):
        turns += [
            {"role": "assistant", "content": _text(rng)},
            {"role": "user", "content": _text(rng)},
        ]
    return turns


def _function(rng: random.Random, name: str, schema: str) -> Json:
    return {"name": name, schema: SCHEMA, "strict": rng.random() < 0.5}


def _chat(rng: random.Random) -> Json:
    body: Json = {"messages": _turns(rng)}
    if rng.random() < 0.4:
        body["tools"] = [
            {"type": "function", "function": _function(rng, name, "parameters")} for name in "fg"
        ]
        named = {"type": "function", "function": {"name": "f"}}
        body["tool_choice"] = rng.choice(["auto", "none", "required", named])
    if rng.random() < 0.3:
        body |= {"logprobs": True, "top_logprobs": rng.randint(0, 3)}
    if rng.random() < 0.2:
        body["messages"].append({"role": "assistant", "content": rng.choice(["<think>", "So"])})
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    return body


def _completion(rng: random.Random) -> Json:
    body: Json = {"prompt": _text(rng)}
    if rng.random() < 0.3:
        body["logprobs"] = rng.randint(0, 3)
    if rng.random() < 0.3:
        body["echo"] = True
    return body


def _response(rng: random.Random) -> Json:
    body: Json = {"input": _turns(rng)}
    if rng.random() < 0.4:
        body["tools"] = [
            {"type": "function", **_function(rng, name, "parameters")} for name in "fg"
        ]
        body["tools"].append({"type": "custom", "name": "free"})
        named = {"type": "function", "name": "g"}
        body["tool_choice"] = rng.choice(["auto", "none", "required", named])
    elif rng.random() < 0.3:
        body["text"] = {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}}
    return body


def _message(rng: random.Random) -> Json:
    body: Json = {"messages": _turns(rng)}
    if rng.random() < 0.4:
        body["tools"] = [_function(rng, name, "input_schema") for name in "fg"]
        choices: list[Json] = [{"type": "auto"}, {"type": "any"}, {"type": "tool", "name": "f"}]
        body["tool_choice"] = rng.choice(choices)
    return body


_MAKERS: dict[str, Callable[[random.Random], Json]] = {
    CHAT: _chat, TEXT: _completion, RESPONSES: _response, MESSAGES: _message,
}  # fmt: skip

# --- what an answer says ---


def said(path: str, answer: httpx.Response, *, is_streamed: bool) -> Any:
    """The same of a whole answer and of a streamed one."""
    if path == RESPONSES:
        return _said_by_response(answer, is_streamed)
    if path == MESSAGES:
        return _said_by_message(answer, is_streamed)
    choices, usage = _joined(answer) if is_streamed else _whole(answer)
    return sorted(choices.items()), usage


def _events(answer: httpx.Response) -> Iterator[Json]:
    for line in answer.text.splitlines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def _whole(answer: httpx.Response) -> tuple[dict[int, Json], Json]:
    found: Json = answer.json()
    choices: dict[int, Json] = {}
    for choice in found["choices"]:
        message = choice.get("message", {"content": choice.get("text")})
        choices[choice["index"]] = {
            "content": message["content"] or "",
            "reasoning": message.get("reasoning") or "",
            "calls": [
                [call["function"]["name"], call["function"]["arguments"]]
                for call in message.get("tool_calls") or []
            ],
            "end": [choice["finish_reason"], choice.get("stop_reason")],
            "logprobs": _logprobs(choice.get("logprobs")),
            "ids": choice.get("token_ids") or [],
        }
    return choices, found["usage"]


def _joined(answer: httpx.Response) -> tuple[dict[int, Json], Json]:
    choices: dict[int, Json] = {}
    usage: Json = {}
    for chunk in _events(answer):
        assert "error" not in chunk, chunk
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            empty: Json = {"content": "", "reasoning": "", "calls": [], "end": [None, None],
                           "logprobs": [], "ids": []}  # fmt: skip
            own = choices.setdefault(choice["index"], empty)
            delta = choice.get("delta", {"content": choice.get("text")})
            own["content"] += delta.get("content") or ""
            own["reasoning"] += delta.get("reasoning") or ""
            for call in delta.get("tool_calls") or []:
                if "name" in call["function"]:
                    own["calls"].append([call["function"]["name"], ""])
                own["calls"][call["index"]][1] += call["function"].get("arguments") or ""
            if choice["finish_reason"]:
                own["end"] = [choice["finish_reason"], choice.get("stop_reason")]
            own["logprobs"] += _logprobs(choice.get("logprobs"))
            own["ids"] += choice.get("token_ids") or []
    return choices, usage


def _logprobs(told: Json | None) -> list[Any]:
    """Names alone: where a prefix was cached the numbers are rounded in another way."""
    if told is None:
        return []
    if "content" in told:
        return [[one["token"], one["bytes"]] for one in told["content"] or []]
    return [
        list(row) for row in zip(*(told[name] for name in ("tokens", "text_offset")), strict=True)
    ]


def _said_by_response(answer: httpx.Response, is_streamed: bool) -> Any:
    deltas = ""
    if is_streamed:
        events = list(_events(answer))
        whole: Json = events[-1]["response"]
        deltas = "".join(
            one["delta"] for one in events if one["type"] == "response.output_text.delta"
        )
        inputs = [one for one in events if one["type"].endswith(("arguments.delta", "input.delta"))]
        calls = "".join(one["delta"] for one in inputs)
    else:
        whole = answer.json()
        calls = "".join(it.get("arguments", it.get("input", "")) for it in whole["output"])
    output = [_without_ids(item) for item in whole["output"]]
    texts = [part.get("text", "") for item in output for part in item.get("content") or []
             if part["type"] == "output_text"]  # fmt: skip
    assert not is_streamed or deltas == "".join(texts)
    return output, calls, whole["status"], whole["incomplete_details"], whole["usage"]


def _without_ids(item: Json) -> Json:
    return {name: value for name, value in item.items() if name not in ("id", "call_id")}


def _said_by_message(answer: httpx.Response, is_streamed: bool) -> Any:
    if not is_streamed:
        found: Json = answer.json()
        blocks = [_without_ids(block) for block in found["content"]]
        return blocks, found["stop_reason"], found["stop_sequence"], found["usage"]["output_tokens"]
    blocks, end = list[Json](), Json()
    for event in _events(answer):
        if event["type"] == "content_block_start":
            blocks.append({**event["content_block"], "input": ""})
        elif event["type"] == "content_block_delta":
            for name, value in event["delta"].items():
                if name != "type":
                    own = "input" if name == "partial_json" else name
                    blocks[-1][own] = blocks[-1].get(own, "") + value
        elif event["type"] == "message_delta":
            end = event
    for block in blocks:
        given = block.pop("input")
        if block["type"] == "tool_use":
            block["input"] = _input(given)
    delta, usage = end["delta"], end["usage"]
    told = [_without_ids(block) for block in blocks]
    return told, delta["stop_reason"], delta["stop_sequence"], usage["output_tokens"]


def _input(given: str) -> Json:
    """Of a call; a whole answer has none of one that was cut."""
    try:
        made: Json = json.loads(given or "{}")
    except ValueError:
        return {}
    return made
