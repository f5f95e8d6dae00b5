"""Conversations with a model that has no chat template, and so is not tuned for chat."""

from collections.abc import Iterator, Sequence
from typing import Any

Messages = Sequence[dict[str, Any]]


def joined_turns(messages: Messages, eos: int | None, is_continued: bool) -> list[str | list[int]]:
    """For GPT-2 models: turns joined by end-of-sequence tokens, as DialoGPT was trained (Zhang et al.
    2019). is_continued: the answer goes on with the last one."""
    between = [] if eos is None else [eos]
    parts: list[str | list[int]] = [
        part for _, text in _turns(messages) for part in (text, between)
    ]
    return parts[:-1] if is_continued else parts


def lines_of_turns(messages: Messages, add_generation_prompt: bool) -> str:
    """For others: a line `role: content` for each turn."""
    lines = [f"{role}: {text}" for role, text in _turns(messages)]
    if add_generation_prompt:
        lines.append("assistant:")
    return "\n".join(lines)


def _turns(messages: Messages) -> Iterator[tuple[str, str]]:
    for turn in messages:
        yield str(turn.get("role", "user")), str(turn.get("content") or "")
