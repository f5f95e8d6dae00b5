"""One server on a tiny random model for all tests with the official client, and clients of every kind.

A strict client checks each answer against OpenAI's schema and raises where it departs from it.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import AsyncOpenAI, OpenAI

from tests.models.tiny import tiny_model
from tests.server.conftest import LiveServer, serving

# Of the kind that Qwen2.5's and Hermes' models have, which `--tool-parser auto` knows by its tags.
TEMPLATE = (
    "{% if tools %}<|system|>\nCall functions within <tool_call></tool_call>:"
    "{% for tool in tools %}\n{{ tool | tojson }}{% endfor %}<|end|>\n{% endif %}"
    "{% for message in messages %}<|{{ message['role'] if message['role'] != 'tool' else 'user' }}|>\n"
    "{{ message['content'] or '' }}"
    "{% for call in message['tool_calls'] or [] %}"
    "<tool_call>\n{{ call['function'] | tojson }}\n</tool_call>{% endfor %}<|end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


def tiny_model_with_tools(folder: Path) -> Path:
    """A tiny random Llama whose template knows tools."""
    tiny_model("llama", folder)
    settings = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    settings["chat_template"] = TEMPLATE
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    return folder


@pytest.fixture(scope="session")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """The real engine on such a model."""
    from yaie.engine.llm_engine import LLMEngine

    folder = tiny_model_with_tools(tmp_path_factory.mktemp("judges") / "judged")
    with serving(
        lambda: LLMEngine(model=str(folder), num_blocks=1024, threads=1, mine="none")
    ) as server:
        yield server


@pytest.fixture
def client(live: LiveServer) -> OpenAI:
    """Strict."""
    return live.openai()


@pytest.fixture
def lenient(live: LiveServer) -> OpenAI:
    """For two answers of `/v1/completions` that the client's types do not foresee, though OpenAI's own
    server gives them: chunks without a `finish_reason`, and no log-probability (null) for the first
    token of an echoed prompt."""
    return OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0, timeout=30)


@pytest.fixture
def async_client(live: LiveServer) -> AsyncOpenAI:
    """Strict, too. Made for one event loop."""
    return AsyncOpenAI(
        base_url=f"{live.url}/v1",
        api_key="none",
        max_retries=0,
        timeout=30,
        _strict_response_validation=True,
    )
