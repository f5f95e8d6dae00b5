"""The coding agents: how each is started, with the settings that the book shows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODEL = "coder"
CONTEXT = 32_768
TASK = "Look which files are here, then say how many there are."
EXAMPLES = Path(__file__).parents[3] / "book" / "examples"
THERE = "http://127.0.0.1:8000"
"""The server's address in the examples."""


@dataclass(frozen=True)
class Agent:
    """command: below `node_modules/.bin`, of the task. calls: what its first turns are to call, by
    preference, and with which arguments. path: which it asks. settle: writes its settings into an empty
    home, and gives variables of its environment; it is told the server's address."""

    command: Sequence[str]
    calls: Mapping[str, Mapping[str, Any]]
    path: str
    settle: Callable[[Path, str], dict[str, str]]


def _example(name: str, url: str) -> str:
    return (EXAMPLES / name).read_text("utf-8").replace(THERE, url)


def _codex(home: Path, url: str) -> dict[str, str]:
    folder = home / ".codex"
    folder.mkdir()
    (folder / "config.toml").write_text(_example("codex.toml", url), "utf-8")
    return {}


def _claude(home: Path, url: str) -> dict[str, str]:
    lines = _example("claude.sh", url).splitlines()
    pairs = (line.removeprefix("export ").partition("=") for line in lines)
    return {name: value for name, _, value in pairs}


def _opencode(home: Path, url: str) -> dict[str, str]:
    folder = home / ".config" / "opencode"
    folder.mkdir(parents=True)
    (folder / "opencode.json").write_text(_example("opencode.json", url), "utf-8")
    return {}


AGENTS = {
    "codex": Agent(
        ("codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
         TASK),
        {"exec_command": {"cmd": "ls"}, "shell": {"command": ["ls"]}},
        "/v1/responses",
        _codex,
    ),
    "claude": Agent(
        ("claude", "-p", TASK, "--allowedTools", "Glob,Read", "--max-turns", "6"),
        {"Glob": {"pattern": "*"}},
        "/v1/messages",
        _claude,
    ),
    "opencode": Agent(
        ("opencode", "run", TASK), {"glob": {"pattern": "*"}}, "/v1/chat/completions", _opencode
    ),
}  # fmt: skip
