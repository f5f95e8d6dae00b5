"""The coding agents: how each is started, and told where the server is."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

MODEL = "tutor"
TASK = "Look which files are here, then say how many there are."


@dataclass(frozen=True)
class Agent:
    """command: below `node_modules/.bin`, of the task. tools: those that its first turns are to call, by
    preference. path: which it asks. settle: writes its settings into an empty home, and gives variables
    of its environment; it is told the server's address."""

    command: Sequence[str]
    tools: Sequence[str]
    path: str
    settle: Callable[[Path, str], dict[str, str]]


def _codex(home: Path, url: str) -> dict[str, str]:
    folder = home / ".codex"
    folder.mkdir()
    (folder / "config.toml").write_text(
        f"""model = "{MODEL}"
model_provider = "yaie"
model_context_window = 60000

[model_providers.yaie]
name = "YAIE"
base_url = "{url}/v1"
wire_api = "responses"
""",
        "utf-8",
    )
    return {}


def _claude(home: Path, url: str) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_AUTH_TOKEN": "none",
        "ANTHROPIC_MODEL": MODEL,
        "ANTHROPIC_SMALL_FAST_MODEL": MODEL,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": MODEL,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


def _opencode(home: Path, url: str) -> dict[str, str]:
    folder = home / ".config" / "opencode"
    folder.mkdir(parents=True)
    model = {"name": MODEL, "limit": {"context": 60000, "output": 32000}, "tool_call": True}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "YAIE",
        "options": {"baseURL": f"{url}/v1", "apiKey": "none"},
        "models": {MODEL: model},
    }
    settings = {
        "$schema": "https://opencode.ai/config.json",
        "model": f"yaie/{MODEL}",
        "small_model": f"yaie/{MODEL}",
        "provider": {"yaie": provider},
        "autoupdate": False,
        "share": "disabled",
    }
    (folder / "opencode.json").write_text(json.dumps(settings), "utf-8")
    return {}


AGENTS = {
    "codex": Agent(
        ("codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
         TASK),
        ("update_plan", "shell_command", "exec_command", "shell"),
        "/v1/responses",
        _codex,
    ),
    "claude": Agent(
        ("claude", "-p", TASK, "--allowedTools", "Glob,Read,Bash", "--max-turns", "6"),
        ("Glob", "Read", "Bash"),
        "/v1/messages",
        _claude,
    ),
    "opencode": Agent(
        ("opencode", "run", TASK), ("glob", "read", "bash"), "/v1/chat/completions", _opencode
    ),
}  # fmt: skip
