"""Anthropic's own client, strict, and how the tests ask with it."""

from typing import Any

from anthropic import Anthropic

from tests.judges.asking import MODEL
from tests.server.conftest import LiveServer

HELLO: Any = [{"role": "user", "content": "hello"}]
LIMIT = 24
LONG = {"ignore_eos": True, "temperature": 0}
WEATHER: Any = {
    "name": "get_weather",
    "description": "Tells the weather.",
    "strict": True,
    "input_schema": {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "東京"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
ANY: Any = {"type": "any", "disable_parallel_tool_use": True}


def connect(live: LiveServer, **options: Any) -> Anthropic:
    """A client that checks every answer against Anthropic's schema."""
    defaults = {"api_key": "none", "max_retries": 0, "timeout": 30}
    return Anthropic(base_url=live.url, _strict_response_validation=True, **{**defaults, **options})


def ask(client: Anthropic, **options: Any) -> Any:
    """Greedy and LIMIT tokens long unless `options` say otherwise; `extra` holds extensions."""
    extra = options.pop("extra", LONG)
    defaults = {"model": MODEL, "messages": HELLO, "max_tokens": LIMIT, "extra_body": extra}
    return client.messages.create(**{**defaults, **options})


def call(client: Anthropic, **options: Any) -> Any:
    """A tool is demanded."""
    defaults = {"tools": [WEATHER], "tool_choice": ANY, "max_tokens": 400}
    return ask(client, **{**defaults, "extra": {"temperature": 0}, **options})
