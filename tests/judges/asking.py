"""The two kinds of completion, asked alike: a test that holds for both runs on both."""

from collections.abc import Callable
from typing import Any

from openai import OpenAI

MODEL = "judged"
LONG = {"ignore_eos": True}
Ask = Callable[..., Any]


def body(options: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Options for the client: `extra` joins what the client does not know as parameters."""
    extra = {**LONG, **options.pop("extra", {})}
    return {"model": MODEL, **defaults, "extra_body": extra, **options}


def chat(client: OpenAI, prompt: str = "hello", **options: Any) -> Any:
    """Greedy and 24 tokens long unless `options` say otherwise; `extra` holds extensions."""
    messages = [{"role": "user", "content": prompt}]
    defaults = {"messages": messages, "temperature": 0, "max_tokens": 24}
    return client.chat.completions.create(**body(options, defaults))


def complete(client: OpenAI, prompt: Any = "hello", **options: Any) -> Any:
    """The same for `/v1/completions`."""
    defaults = {"prompt": prompt, "temperature": 0, "max_tokens": 24}
    return client.completions.create(**body(options, defaults))


ENDPOINTS = [chat, complete]


def text(choice: Any) -> str:
    """What a choice says, of either kind, whole or streamed."""
    if hasattr(choice, "text"):
        said: str = choice.text
    elif hasattr(choice, "message"):
        said = choice.message.content
    else:
        said = choice.delta.content or ""
    return said


def texts(answer: Any) -> list[str]:
    """The texts of all choices, which are numbered in order."""
    assert [choice.index for choice in answer.choices] == list(range(len(answer.choices)))
    return [text(choice) for choice in answer.choices]


def one(answer: Any) -> str:
    """The text of the only choice."""
    (said,) = texts(answer)
    return said
