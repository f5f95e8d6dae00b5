"""Frameworks that people build on `openai`'s API, unmodified, against a server in every state.

Each has an environment of its own (`clients/install.py`) and a program there (`clients/ask_*.py`),
whose cases are the tests here. CI runs those of one; the others are for the night.
"""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.judges.client_servers import every_state
from tests.judges.clients.install import HEAVY, MINIMUM, clients, pinned, python_of
from tests.judges.programs import DIRECT, OFFLINE, ONE_THREAD, ROOT

pytestmark = pytest.mark.timeout(600)

HERE = Path(__file__).parent / "clients"
ALWAYS = ("ask_langchain.py",)
LIGHT = [client for client in clients() if client not in HEAVY]
# What the page's table names: the clients themselves, not what they bring along.
NAMED = ("aiperf", "guidellm", "instructor", "langchain-anthropic", "langchain-openai", "litellm",
         "llama-index-llms-openai-like", "openai-agents", "pydantic-ai-slim")  # fmt: skip
# What each documents for staying at home, and a proxy that is not there: asking another host fails.
AT_HOME = {
    **OFFLINE, **ONE_THREAD, **DIRECT,
    "OPENAI_AGENTS_DISABLE_TRACING": "1", "LANGSMITH_TRACING": "false", "DO_NOT_TRACK": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "HTTP_PROXY": "http://127.0.0.1:9", "HTTPS_PROXY": "http://127.0.0.1:9",
}  # fmt: skip
KEYS = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "LANGSMITH_API_KEY")


def programs(client: str) -> list[Path]:
    """A client's programs: some have two, one for each API."""
    return sorted(HERE.glob(f"ask_{client.replace('-', '_')}*.py"))


def cases() -> Iterator[tuple[str, str, str]]:
    """(client, program, case), read from the source: here the clients cannot be imported."""
    for client in LIGHT:
        for program in programs(client):
            for node in ast.parse(program.read_text("utf-8")).body:
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(
                    isinstance(mark, ast.Name) and mark.id == "case" for mark in node.decorator_list
                ):
                    yield client, program.name, node.name


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with every_state(tmp_path_factory.mktemp("clients")) as addresses:
        yield addresses


Verdicts = Callable[[str, str], dict[str, str | None]]


@pytest.fixture(scope="module")
def verdicts(servers: str) -> Verdicts:
    """Runs a program once; the failure of each of its cases, or None."""
    environment = {key: value for key, value in os.environ.items() if key not in KEYS}
    environment |= {**AT_HOME, "YAIE_JUDGED": servers}

    @cache
    def judged(client: str, program: str) -> dict[str, str | None]:
        command = [str(python_of(client)), str(HERE / program)]
        ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=500)
        said = [line[7:] for line in ran.stdout.splitlines() if line.startswith("JUDGED ")]
        lines = [json.loads(line) for line in said]
        assert ran.returncode == 0, ran.stdout + ran.stderr
        found = {name.lower(): version for name, version in lines[0]["versions"].items()}
        assert found.items() <= pinned(client).items(), "run tests.judges.clients.install again"
        return {line["case"]: line["failure"] for line in lines[1:]}

    return judged


def marked(client: str, program: str, name: str) -> Any:
    """A case, which is skipped before any server starts if its client is not there."""
    told = f"not installed: python -m tests.judges.clients.install {client}"
    if sys.version_info < MINIMUM:
        told = "needs Python {}.{}, for which the pins are".format(*MINIMUM)
    marks = [pytest.mark.skipif(not python_of(client).exists(), reason=told)]
    if program not in ALWAYS:
        marks.append(pytest.mark.nightly)
    named = f"{program.removeprefix('ask_').removesuffix('.py')}-{name}"
    return pytest.param(client, program, name, id=named, marks=marks)


@pytest.mark.parametrize(("client", "program", "name"), [marked(*each) for each in cases()])
def test_client(verdicts: Verdicts, client: str, program: str, name: str) -> None:
    failure = verdicts(client, program)[name]
    if failure:
        pytest.fail(failure, pytrace=False)


@pytest.mark.parametrize("client", sorted({*clients()} - {"judges"}))
def test_page_tells_which_version_was_run(client: str) -> None:
    page = (ROOT / "book/src/http-reference.md").read_text("utf-8")
    rows = page.split("## Clients", 1)[1].split("\n## ", 1)[0]
    for package, version in pinned(client).items():
        if package in NAMED:
            assert f"{package} {version} " in rows
