"""Leaves out the tools of a chat that a server would have to run: a web search and the like."""

from typing import Any

from yaie.server.lenient.notes import ignored, refuses

OURS = ("function", "custom")
"""Types that a client runs."""


def without_hosted(tools: Any) -> Any:
    """The tools that a client can be asked to use. Validation handles one without a type."""
    if not isinstance(tools, list) or refuses():
        return tools
    kept = []
    for tool in tools:
        kind = tool.get("type") if isinstance(tool, dict) else None
        if isinstance(kind, str) and kind not in OURS:
            ignored(f"tools[].{kind}")
        else:
            kept.append(tool)
    return kept
