"""Prompts that begin alike have starts that begin alike, whatever else stands in the body."""

import json
from typing import Any

import pytest

from yaie.cluster.prompt_start import MOST_BYTES, prompt_start

LONG = "You are a patient tutor who explains how inference engines work. "


def start(**body: Any) -> bytes:
    return prompt_start(json.dumps(body).encode())


def shared(one: bytes, other: bytes) -> int:
    """Bytes that both begin with."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def chat(*contents: Any, **more: Any) -> bytes:
    roles = ["system", "user", "assistant", "user"]
    messages = [{"role": r, "content": c} for r, c in zip(roles, contents, strict=False)]
    return start(messages=messages, **more)


def test_a_conversation_that_goes_on_begins_as_it_did() -> None:
    first = chat(LONG, "What is a block?")
    assert chat(LONG, "What is a block?", "A block is ...", "And a slot?").startswith(first)


def test_other_fields_and_their_order_do_not_matter() -> None:
    assert chat(LONG, "hi", model="m", stream=True, temperature=0.5) == chat(LONG, "hi")
    forth = prompt_start(b'{"n": 1, "messages": [{"content": "hi", "role": "user"}]}')
    assert forth == prompt_start(b'{"messages": [{"role": "user", "content": "hi"}], "n": 2}')


def test_shared_beginnings_are_as_long_as_what_is_shared() -> None:
    assert shared(chat(LONG + "A"), chat(LONG + "B")) >= len(LONG)
    assert shared(chat("A" + LONG), chat("B" + LONG)) < len(LONG)


def test_a_role_makes_a_difference() -> None:
    assert start(messages=[{"role": "user", "content": LONG}]) != start(
        messages=[{"role": "system", "content": LONG}]
    )


def test_tools_come_before_messages() -> None:
    """Most templates write them there. The same messages with other tools are another prompt."""
    one, other = (chat(LONG, tools=[{"function": {"name": name}}]) for name in ("add", "sub"))
    assert shared(one, other) < one.index(LONG.encode())


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": LONG},
        {"prompt": [LONG, "another prompt"]},
        {"input": LONG},
        {"input": [{"role": "user", "content": LONG}]},
        {"instructions": LONG, "input": "hi"},
        {
            "system": [{"type": "text", "text": LONG}],
            "messages": [{"role": "user", "content": "a"}],
        },
        {"messages": [{"role": "user", "content": [{"type": "text", "text": LONG}]}]},
    ],
)
def test_every_form_of_a_prompt_is_found(body: dict[str, Any]) -> None:
    assert LONG.encode() in start(**body)


def test_tokens_are_a_prompt() -> None:
    assert start(prompt=[1, 22, 3]) == start(prompt=[[1, 22, 3], [4]]) == b"1,22,3,"
    assert start(prompt=[1, 22, 3, 4]).startswith(start(prompt=[1, 22, 3]))


@pytest.mark.parametrize(
    "body",
    [b"", b"no JSON", b"[1]", b"{}", b'{"messages": []}', b'{"prompt": ""}', b'{"prompt": null}',
     b"[" * 100_000, b'{"input": 1e999}', b"\xff\xfe{"],
)  # fmt: skip
def test_whatever_a_client_sends_has_a_start(body: bytes) -> None:
    """What is wrong with it, the replica says."""
    assert len(prompt_start(body)) < 16


@pytest.mark.parametrize(
    "body",
    [{"messages": "text"}, {"messages": [1, 2]}, {"messages": [{"role": 3}, 4]}, {"prompt": [[]]},
     {"prompt": [None]}, {"prompt": {"a": [1]}}, {"messages": [{"content": "\ud800"}]}],
)  # fmt: skip
def test_wrong_types_have_a_start_too(body: dict[str, Any]) -> None:
    assert isinstance(start(**body), bytes)


def test_only_the_start_of_a_long_prompt_is_kept() -> None:
    assert len(chat("é" * MOST_BYTES)) == MOST_BYTES
